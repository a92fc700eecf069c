//! A simulation as a picture, as a page and for machines.

use keelet_explain::{
    simulation::{Finding, Moment, Outlook},
    timeline::{self, Caption, Row, Section, Timeline},
};
use serde::Serialize;

use super::Simulation;

/// The shape of the JSON. While it stays the same, fields may be added and none is renamed or dropped.
const FORMAT: &str = "keelet.dev/simulate/v1";

/// What machines get.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'s> {
    format: &'static str,
    namespace: &'s str,
    name: &'s str,
    seed: u64,
    simulated_ms: u64,
    asked: Vec<String>,
    result: Result<'s>,
    verdict: &'s [Finding],
    outlook: &'s [Outlook],
    moments: &'s [Moment],
    timeline: &'s Timeline,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Result<'s> {
    phase: String,
    first_ready_ms: Option<u64>,
    ready_at_end: bool,
    unready_ms: u64,
    containers: Vec<ContainerResult<'s>>,
    agent_returns: Vec<AgentReturn<'s>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerResult<'s> {
    name: &'s str,
    restarts: u32,
    killed_by: Vec<&'static str>,
    backoffs_ms: Vec<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentReturn<'s> {
    left_ms: u64,
    away_ms: u64,
    changes: Option<&'s [String]>,
}

/// For machines.
pub(super) fn json(simulation: &Simulation) -> serde_json::Result<String> {
    let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let summary = &simulation.summary;
    let document = Document {
        format: FORMAT,
        namespace: &simulation.record.pod.namespace,
        name: &simulation.record.pod.name,
        seed: simulation.seed,
        simulated_ms: millis(simulation.scenario.span),
        asked: simulation.asked(),
        result: Result {
            phase: format!("{:?}", summary.phase),
            first_ready_ms: summary.first_ready.map(millis),
            ready_at_end: summary.ready_at_end,
            unready_ms: millis(summary.unready),
            containers: summary
                .containers
                .iter()
                .map(|container| ContainerResult {
                    name: &container.name,
                    restarts: container.restarts,
                    killed_by: container.killed_by.iter().map(|probe| probe.as_str()).collect(),
                    backoffs_ms: container.backoffs.iter().copied().map(millis).collect(),
                })
                .collect(),
            agent_returns: summary
                .returns
                .iter()
                .map(|back| AgentReturn {
                    left_ms: millis(back.absence.from),
                    away_ms: millis(back.absence.lasts),
                    changes: back.changes.as_deref(),
                })
                .collect(),
        },
        verdict: &simulation.findings,
        outlook: &simulation.outlooks,
        moments: &simulation.moments,
        timeline: &simulation.timeline,
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}

/// A picture.
pub(super) fn svg(simulation: &Simulation) -> String {
    timeline::svg(&simulation.timeline, &simulation.times())
}

/// A page: the timeline's, with what was asked for and the summary before the changes.
pub(super) fn html(simulation: &Simulation) -> String {
    let caption = Caption {
        command: "keelet simulate",
        origin: "a simulation",
        times: simulation.times(),
        sections: vec![summary(simulation)],
    };
    timeline::html(&simulation.timeline, &caption)
}

fn summary(simulation: &Simulation) -> Section {
    let row = |finding: &Finding| Row {
        tone: finding.tone,
        topic: finding.topic.to_owned(),
        container: finding.container.clone(),
        text: finding.text.clone(),
    };
    Section { heading: "Summary", sentences: simulation.asked(), rows: simulation.findings.iter().map(row).collect() }
}
