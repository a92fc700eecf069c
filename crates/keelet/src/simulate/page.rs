//! A simulation as a picture, as a page and for machines.

use std::fmt::Write;

use keelet_explain::timeline::{self, Timeline};
use serde::Serialize;

use super::{
    Simulation,
    moments::Moment,
    outlook::Outlook,
    verdict::{Line, Tone},
};

/// The axis names midnight by its date; here it is the beginning.
pub(super) const AXIS_MIDNIGHT: &str = "2000-01-01";
pub(super) const MIDNIGHT: &str = "00:00:00";

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
    verdict: &'s [Line],
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
    let course = &simulation.course;
    let document = Document {
        format: FORMAT,
        namespace: &simulation.record.pod.namespace,
        name: &simulation.record.pod.name,
        seed: simulation.seed,
        simulated_ms: millis(simulation.scenario.span),
        asked: simulation.asked(),
        result: Result {
            phase: format!("{:?}", course.phase),
            first_ready_ms: course.first_ready.map(millis),
            ready_at_end: course.ready_at_end,
            unready_ms: millis(course.unready),
            containers: course
                .containers
                .iter()
                .map(|fared| ContainerResult {
                    name: &fared.name,
                    restarts: fared.restarts,
                    killed_by: fared.killed_by.iter().map(|probe| probe.as_str()).collect(),
                    backoffs_ms: fared.backoffs.iter().copied().map(millis).collect(),
                })
                .collect(),
            agent_returns: course
                .returns
                .iter()
                .map(|back| AgentReturn {
                    left_ms: millis(back.absence.from),
                    away_ms: millis(back.absence.lasts),
                    changes: back.changes.as_deref(),
                })
                .collect(),
        },
        verdict: &simulation.lines,
        outlook: &simulation.outlooks,
        moments: &simulation.moments,
        timeline: &simulation.timeline,
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}

/// A picture.
pub(super) fn svg(simulation: &Simulation) -> String {
    in_simulated_time(&timeline::svg(&simulation.timeline), simulation)
}

/// A page: the timeline's, with what was asked for and the verdict before the journal.
pub(super) fn html(simulation: &Simulation) -> String {
    let page = in_simulated_time(&timeline::html(&simulation.timeline), simulation);
    let page = page.replacen("<section>", &format!("{}<section>", verdict(simulation)), 1);
    page.replacen("· keelet timeline</title>", "· keelet simulate</title>", 1).replacen(
        "from the pod's ledger. Times are UTC;",
        "from a simulation. Times count from its beginning;",
        1,
    )
}

/// Dates mean nothing here.
fn in_simulated_time(drawn: &str, simulation: &Simulation) -> String {
    let end = super::text::clock(u64::try_from(simulation.scenario.span.as_millis()).unwrap_or(u64::MAX));
    let mut drawn = drawn.to_owned();
    for dash in ["–", "→", "to"] {
        let window = format!("{AXIS_MIDNIGHT} {MIDNIGHT} {dash} {end} UTC");
        drawn = drawn.replace(&window, &format!("simulated with seed {}", simulation.seed));
    }
    drawn.replace(AXIS_MIDNIGHT, MIDNIGHT)
}

fn verdict(simulation: &Simulation) -> String {
    let mut section = String::from("<section>\n<h2>Verdict</h2>\n");
    let asked = simulation.asked();
    if !asked.is_empty() {
        let asked: Vec<String> = asked.iter().map(|sentence| escape(sentence)).collect();
        let _ = writeln!(section, "<p>{}</p>", asked.join("<br>\n"));
    }
    section.push_str("<table>\n<tbody>\n");
    for line in &simulation.lines {
        let tone = match line.tone {
            Tone::Good => "good",
            Tone::Plain => "plain",
            Tone::Bad => "bad",
        };
        let whose = line.container.as_ref().map_or_else(|| "<i>pod</i>".to_owned(), |name| escape(name));
        let _ = writeln!(
            section,
            "<tr class=\"{tone}\"><td>{}</td><td>{whose}</td><td>{}</td></tr>",
            escape(line.topic),
            escape(&line.text)
        );
    }
    section.push_str("</tbody>\n</table>\n</section>\n");
    section
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
