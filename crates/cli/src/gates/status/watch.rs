//! `-w`: the gates, and then every change of one. Heartbeats are no changes.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use keelet_gates::node::{Version, WatchEvent};
use keelet_serve::escaped;
use tokio::time::sleep;

use super::{super::writers::Writers, Args, Found, Printer, find, gates, nothing, query};
use crate::{
    exit::ExitStatus,
    gates::{
        cluster::may,
        survey::{Seen, Survey, without_kind},
        view::{GateView, Status},
    },
    output::{self, Reader},
};

/// How long a watch lasts before it is asked for again.
const WATCH_SECONDS: u64 = 300;

/// A pause after a watch that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The gates that were printed last, by node, without what heartbeats change.
pub(super) type Known = BTreeMap<String, Vec<GateView>>;

/// Prints until the reader of standard output is gone.
pub(super) async fn follow(
    args: &Args,
    survey: &mut Survey<'_>,
    mut printer: Printer,
    now: impl Fn() -> Timestamp,
) -> Result<ExitStatus> {
    for name in &args.nodes {
        // What is not there now may never come, and a misspelt name would go unnoticed.
        survey.node(name).await?;
    }
    let names: Vec<&str> = args.nodes.iter().map(|name| without_kind(name)).collect::<Result<_>>()?;
    let mut known = Known::new();
    let mut first = true;
    loop {
        let listed = find(args, survey).await;
        let Found { nodes, listed, .. } = match listed {
            Err(error) if !first => {
                output::note(&format!("{error:#}; trying again"));
                sleep(PAUSE).await;
                continue;
            }
            other => other?,
        };
        let mut news = Vec::new();
        let mut gone: Vec<String> = known.keys().cloned().collect();
        for seen in nodes.iter().filter(|seen| names.is_empty() || names.contains(&&*seen.node.name)) {
            gone.retain(|name| **name != *seen.node.name);
            news.extend(change(&mut known, survey, seen, now()));
        }
        news.extend(gone.iter().flat_map(|name| removed(&mut known, name)));
        if first {
            // Later a gate that has opened is a change too, whatever was asked for.
            news.retain(|gate| printer.shows(gate));
            if news.is_empty() {
                output::note(&nothing(args, nodes.len()));
            }
        }
        first = false;
        if print(&mut printer, news, now())? == Reader::Gone {
            return Ok(ExitStatus::Success);
        }
        let mut version = listed.map(|listed| listed.version).unwrap_or_default();
        while let Some(next) = watch(args, survey, &names, (&mut known, &mut printer), version, &now).await? {
            version = next;
        }
        if output::reader_is_gone() {
            return Ok(ExitStatus::Success);
        }
    }
}

/// One watch. The version to continue from; none if everything has to be listed again.
async fn watch(
    args: &Args,
    survey: &mut Survey<'_>,
    names: &[&str],
    (known, printer): (&mut Known, &mut Printer),
    mut version: Version,
    now: &impl Fn() -> Timestamp,
) -> Result<Option<Version>> {
    let query = query(args);
    let path = format!(
        "/api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}{}{query}",
        escaped(version.as_str()),
        if query.is_empty() { "" } else { "&" },
    );
    let mut lines = match survey.cluster.api.watch(&path).await {
        Ok(lines) => lines,
        Err(error) if error.is_forbidden() => return Err(survey.cluster.explained(may("watch", "nodes"), &error)),
        Err(error) => {
            if !error.is_expired() {
                output::note(&format!("cannot watch nodes: {error}; trying again"));
                sleep(PAUSE).await;
            }
            return Ok(None);
        }
    };
    loop {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(Some(version)),
            Err(error) => {
                output::note(&format!("the watch of nodes broke: {error}; trying again"));
                sleep(PAUSE).await;
                return Ok(Some(version));
            }
        };
        let event = survey.reader().event(&line).map_err(|error| anyhow!("{}: {error}", survey.cluster.url))?;
        let news = match event {
            WatchEvent::Bookmark(at) | WatchEvent::Complete(at) => {
                version = at;
                continue;
            }
            WatchEvent::Failed(_) => return Ok(None),
            WatchEvent::Changed(node) | WatchEvent::Deleted(node)
                if !names.is_empty() && !names.contains(&&*node.name) =>
            {
                version = node.version;
                continue;
            }
            WatchEvent::Changed(node) => {
                version = node.version.clone();
                change(known, survey, &Seen { node, writers: Writers::of_event(&line) }, now())
            }
            WatchEvent::Deleted(node) => {
                version = node.version.clone();
                removed(known, &node.name)
            }
        };
        if print(printer, news, now())? == Reader::Gone {
            return Ok(None);
        }
    }
}

/// The gates of a node that are not as they were printed last.
pub(super) fn change(known: &mut Known, survey: &Survey<'_>, seen: &Seen, now: Timestamp) -> Vec<GateView> {
    let gates = gates(survey, seen, now);
    let quiet: Vec<_> = gates.iter().cloned().map(GateView::without_heartbeats).collect();
    let before = known.insert(seen.node.name.to_string(), quiet.clone()).unwrap_or_default();
    let is_new = |(_, quiet): &(GateView, GateView)| !before.contains(quiet);
    let gone = before.iter().filter(|old| !quiet.iter().any(|gate| gate.taint.key == old.taint.key));
    let gone: Vec<_> = gone.cloned().map(no_gate).collect();
    gates.into_iter().zip(quiet).filter(is_new).map(|(gate, _)| gate).chain(gone).collect()
}

/// The gates of a node that is gone.
pub(super) fn removed(known: &mut Known, name: &str) -> Vec<GateView> {
    let gates = known.remove(name).unwrap_or_default();
    gates.into_iter().map(|gate| GateView { reason: "node-deleted", ..no_gate(gate) }).collect()
}

/// A gate that the node does not have any more.
fn no_gate(gate: GateView) -> GateView {
    GateView { status: Status::Open, reason: "gate-removed", conditions: Vec::new(), ..gate }
}

fn print(printer: &mut Printer, gates: Vec<GateView>, now: Timestamp) -> Result<Reader> {
    if gates.is_empty() {
        return Ok(Reader::There);
    }
    output::live(printer.changed(&gates, now)?.as_bytes()).context("cannot write the answer")
}
