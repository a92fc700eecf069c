//! `keelet top`: what pods and the node use.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use clap::ValueEnum;
use keelet_serve::api::{ContainerUsage, NodeUsage, Stats};

use crate::{
    ask::{self, Listed},
    exit::ExitStatus,
    output,
    style::Style,
    view::{
        amount::{mebibytes, millicores, percent},
        table::Table,
    },
};

/// Show CPU and memory usage of pods or the node
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 success, 1 no agent or no measurement yet, 2 wrong usage.\n\n\
                        Examples:\n  keelet top\n  keelet top pods --containers -A\n  keelet top node")]
pub struct Args {
    /// Kind of object
    #[arg(value_enum, default_value_t = Subject::Pods, value_name = "pods|node", hide_possible_values = true)]
    subject: Subject,
    /// Show each container of a pod
    #[arg(long)]
    containers: bool,
    #[command(flatten)]
    listed: Listed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    #[value(alias = "pod", alias = "po")]
    Pods,
    #[value(alias = "nodes", alias = "no")]
    Node,
}

/// Between two samples, where one does not say how fast a counter rises.
const BETWEEN: Duration = Duration::from_secs(1);

/// Answers and prints.
pub fn run(args: &Args) -> Result<ExitStatus> {
    ask::run(async {
        let client = args.listed.connection.client();
        let first: Stats = client.get("/v1/stats").await?;
        let told = first.containers.iter().all(|container| container.cpu_nano_cores.is_some());
        let second = if told && args.subject == Subject::Pods {
            first.clone()
        } else {
            tokio::time::sleep(BETWEEN).await;
            client.get("/v1/stats").await?
        };
        let mut table = match args.subject {
            Subject::Node => node(&first.node, &second.node),
            Subject::Pods => pods(args, &first, &second),
        };
        let Some(table) = &mut table else {
            output::note("No resources found");
            return Ok(ExitStatus::Success);
        };
        output::out(&table.text(!args.listed.no_headers, Style::of_stdout())).context("cannot write the answer")?;
        Ok(ExitStatus::Success)
    })
}

fn node(first: &NodeUsage, second: &NodeUsage) -> Option<Table> {
    let mut table = Table::new(["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]);
    let unknown = || "<unknown>".to_owned();
    let millis = node_millis(first, second);
    let memory = second.memory_used_bytes;
    let capacity = u64::try_from(second.cpu_capacity_millis).unwrap_or(0);
    table.row(vec![
        second.name.clone().into(),
        millis.map_or_else(unknown, |millis| format!("{millis}m")).into(),
        millis.map_or_else(unknown, |millis| percent(millis, capacity)).into(),
        memory.map_or_else(unknown, mebibytes).into(),
        memory.map_or_else(unknown, |memory| percent(memory, second.memory_capacity_bytes)).into(),
    ]);
    Some(table)
}

/// Thousandths of a processor that were busy between two samples.
fn node_millis(first: &NodeUsage, second: &NodeUsage) -> Option<u64> {
    let passed = u64::try_from(second.taken_at_ms - first.taken_at_ms).ok()?;
    let busy = second.cpu_busy_ms?.saturating_sub(first.cpu_busy_ms?);
    (busy * 1000).checked_div(passed)
}

fn pods(args: &Args, first: &Stats, second: &Stats) -> Option<Table> {
    let before: BTreeMap<&str, &ContainerUsage> =
        first.containers.iter().map(|usage| (usage.id.as_str(), usage)).collect();
    let wanted = args.listed.namespace();
    // By namespace, pod and, if asked for, container.
    let mut sums: BTreeMap<(&str, &str, &str), Sum> = BTreeMap::new();
    let here = |usage: &&ContainerUsage| wanted.is_none_or(|wanted| usage.namespace == wanted);
    for usage in second.containers.iter().filter(here) {
        let container = if args.containers { usage.container.as_str() } else { "" };
        let sum = sums.entry((&usage.namespace, &usage.pod, container)).or_default();
        let cpu = nano_cores(before.get(usage.id.as_str()).copied(), usage);
        sum.0 = add(sum.0, cpu);
        sum.1 = add(sum.1, usage.memory_working_set_bytes);
    }
    if sums.is_empty() {
        return None;
    }
    let mut headers = Vec::new();
    headers.extend(args.listed.all_namespaces.then_some("NAMESPACE"));
    headers.extend(if args.containers { &["POD", "NAME"][..] } else { &["NAME"] });
    headers.extend(["CPU(cores)", "MEMORY(bytes)"]);
    let mut table = Table::new(headers);
    for ((namespace, pod, container), (cpu, memory)) in sums {
        let mut cells = Vec::new();
        cells.extend(args.listed.all_namespaces.then(|| namespace.into()));
        cells.push(pod.into());
        cells.extend(args.containers.then(|| container.into()));
        cells.push(cpu.map_or_else(|| "<unknown>".to_owned(), millicores).into());
        cells.push(memory.map_or_else(|| "<unknown>".to_owned(), mebibytes).into());
        table.row(cells);
    }
    Some(table)
}

/// Processors and memory, where they are known.
type Sum = (Option<u64>, Option<u64>);

fn add(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    match (sum, more) {
        (Some(sum), Some(more)) => Some(sum + more),
        (sum, more) => sum.or(more),
    }
}

/// What the runtime reports, else how far the counter rose between the two samples.
fn nano_cores(before: Option<&ContainerUsage>, now: &ContainerUsage) -> Option<u64> {
    now.cpu_nano_cores.or_else(|| {
        let before = before?;
        let passed = u64::try_from(now.cpu_taken_at_ns - before.cpu_taken_at_ns).ok()?;
        let used = now.cpu_total_ns?.saturating_sub(before.cpu_total_ns?);
        let cores = u128::from(used) * 1_000_000_000;
        cores.checked_div(u128::from(passed)).and_then(|cores| u64::try_from(cores).ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_reported_or_comes_from_two_samples() {
        let sample =
            |at, total| ContainerUsage { cpu_taken_at_ns: at, cpu_total_ns: Some(total), ..Default::default() };
        let (first, second) = (sample(0, 0), sample(2_000_000_000, 500_000_000));
        assert_eq!(nano_cores(Some(&first), &second), Some(250_000_000));
        assert_eq!(nano_cores(None, &second), None);
        assert_eq!(nano_cores(Some(&first), &first), None, "no time has passed");
        let told = ContainerUsage { cpu_nano_cores: Some(7), ..second };
        assert_eq!(nano_cores(Some(&first), &told), Some(7));
    }

    #[test]
    fn the_node_is_busy_by_its_counter() {
        let sample = |at, busy| NodeUsage { taken_at_ms: at, cpu_busy_ms: Some(busy), ..Default::default() };
        assert_eq!(node_millis(&sample(1000, 100), &sample(2000, 600)), Some(500));
        assert_eq!(node_millis(&sample(1000, 100), &sample(1000, 600)), None);
    }
}
