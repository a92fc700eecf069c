//! `-w`: what is there, and then what changes, whichever agent reports it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::StreamExt;
use keelet_serve::{
    Client, ClientError,
    api::{Change, ChangeKind, List},
};
use serde_json::Value;

use super::{Format, How, Kind, Wanted, path, rows};
use crate::{
    absence::Absence,
    ask,
    exit::ExitStatus,
    output::{self, Reader},
    style::Style,
    view::{table::Table, yaml},
};

/// What comes at once is shown in one go, so that columns fit all of it.
const TOGETHER: Duration = Duration::from_millis(30);

/// What was printed so far, so that of the next agent's stream only what is new is printed.
#[derive(Debug, Default)]
struct Known {
    things: BTreeMap<String, Value>,
}

/// What is printed, and how.
struct Printer<'a> {
    kind: Kind,
    wanted: &'a Wanted,
    how: &'a How,
    table: Table,
    /// Whether the columns still have to be named.
    header: bool,
}

/// Prints until the reader of standard output is gone.
pub(super) async fn follow(kind: Kind, wanted: &Wanted, how: &How, client: &Client) -> Result<ExitStatus> {
    let mut printer = Printer::new(kind, wanted, how);
    let mut known = Known::default();
    let absence = Absence::new(client, "waiting for the next one");
    let mut begun = false;
    loop {
        match from_one_agent(&mut begun, &mut known, &mut printer, client, &absence).await {
            Ok(Reader::Gone) => return Ok(ExitStatus::Success),
            Ok(Reader::There) => {}
            Err(error) if begun && error.downcast_ref().is_some_and(ClientError::is_away) => {}
            Err(error) => return Err(error),
        }
        absence.wait().await?;
    }
}

/// Prints what one agent streams, until the agent or the reader of standard output is gone.
async fn from_one_agent(
    begun: &mut bool,
    known: &mut Known,
    printer: &mut Printer<'_>,
    client: &Client,
    absence: &Absence,
) -> Result<Reader> {
    let path = |watch| path(printer.kind, printer.wanted, printer.how, watch);
    let (changes, all) = (path(true), path(false));
    let pieces = client.stream(&changes).await?;
    let mut waiting = Vec::new();
    if *begun {
        // Listed after the stream was opened: the stream reports what goes away from now on.
        let list: List<Value> = client.get(&all).await?;
        waiting = known.only(&list.items);
        absence.is_over();
    }
    *begun = true;
    let mut lines = Box::pin(output::lines(pieces));
    loop {
        let next = match waiting.is_empty() {
            true => lines.next().await,
            false => match tokio::time::timeout(TOGETHER, lines.next()).await {
                Ok(next) => next,
                Err(_) => {
                    if printer.show(std::mem::take(&mut waiting))? == Reader::Gone {
                        return Ok(Reader::Gone);
                    }
                    continue;
                }
            },
        };
        match next {
            Some(Ok(line)) => {
                let change: Change = serde_json::from_slice(&line).context("cannot parse the agent's response")?;
                waiting.extend(known.news(change));
            }
            Some(Err(_)) | None => return printer.show(waiting),
        }
    }
}

/// What identifies a thing, over a restart of the agent too.
fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    let part = |name: &str| metadata[name].as_str().unwrap_or_default();
    format!("{}/{}/{}", part("namespace"), part("name"), part("uid"))
}

// === impl Known ===

impl Known {
    /// A change, unless it is none: a new agent reports everything as new.
    fn news(&mut self, change: Change) -> Option<Change> {
        let key = key(&change.object);
        match change.kind {
            ChangeKind::Deleted => self.things.remove(&key).map(|_| change),
            ChangeKind::Added | ChangeKind::Modified => {
                let before = self.things.insert(key, change.object.clone());
                (before.as_ref() != Some(&change.object)).then_some(change)
            }
        }
    }

    /// Forgets what is not among these; that is what went away meanwhile.
    fn only(&mut self, here: &[Value]) -> Vec<Change> {
        let here: BTreeSet<String> = here.iter().map(key).collect();
        let (stays, gone) = std::mem::take(&mut self.things).into_iter().partition(|(key, _)| here.contains(key));
        self.things = stays;
        let gone: BTreeMap<String, Value> = gone;
        gone.into_values().map(|object| Change { kind: ChangeKind::Deleted, object }).collect()
    }
}

// === impl Printer ===

impl<'a> Printer<'a> {
    fn new(kind: Kind, wanted: &'a Wanted, how: &'a How) -> Self {
        let mut table = Table::new(rows::headers(kind, how.columns()));
        // What comes later should find room.
        table.reserve("STATUS", "ContainerCreating".len());
        table.reserve("RESTARTS", "1 (2m10s ago)".len());
        Self { kind, wanted, how, table, header: !how.listed.no_headers }
    }

    fn show(&mut self, mut changes: Vec<Change>) -> Result<Reader> {
        let (kind, wanted) = (self.kind, self.wanted);
        let now = ask::now()?;
        let is_wanted = |change: &Change| {
            let name = change.object["metadata"]["name"].as_str().unwrap_or_default();
            // An event that is no longer kept happened all the same.
            let forgotten = kind == Kind::Events && change.kind == ChangeKind::Deleted;
            !forgotten && wanted.has(&change.object) && (wanted.names.is_empty() || wanted.names.contains(name))
        };
        changes.retain(is_wanted);
        if changes.is_empty() {
            return Ok(Reader::There);
        }
        if kind == Kind::Events {
            changes.sort_by_key(|change| rows::wall(&change.object["lastTimestamp"]));
        }
        let mut text = String::new();
        for change in &changes {
            match self.how.output {
                Some(Format::Json) => text.push_str(&format!("{}\n", serde_json::to_string_pretty(&change.object)?)),
                Some(Format::Yaml) => text.push_str(&format!("---\n{}", yaml::document(&change.object)?)),
                Some(Format::Name) => text.push_str(&format!("{}\n", rows::reference(kind, &change.object))),
                None | Some(Format::Wide) => {
                    self.table.row(rows::row(kind, &change.object, self.how.columns(), now)?);
                }
            }
        }
        if matches!(self.how.output, None | Some(Format::Wide)) {
            text = self.table.text(std::mem::take(&mut self.header), Style::of_stdout());
        }
        output::live(text.as_bytes()).context("cannot write the answer")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn thing(name: &str, state: u32) -> Value {
        json!({ "metadata": { "namespace": "shop", "name": name, "uid": format!("u-{name}") }, "state": state })
    }

    fn change(kind: ChangeKind, name: &str, state: u32) -> Change {
        Change { kind, object: thing(name, state) }
    }

    #[test]
    fn the_next_agent_reports_only_what_is_new() {
        let mut known = Known::default();
        let added = |name, state| change(ChangeKind::Added, name, state);
        assert!(known.news(added("web", 1)).is_some());
        assert!(known.news(added("db", 1)).is_some());
        assert!(known.news(added("old", 1)).is_some());
        assert!(known.news(change(ChangeKind::Modified, "web", 2)).is_some());
        // The agent is killed. The next one has two of them, one changed, and another one.
        let gone = known.only(&[thing("web", 2), thing("db", 3), thing("new", 1)]);
        assert_eq!(gone, [change(ChangeKind::Deleted, "old", 1)]);
        assert_eq!(known.news(added("web", 2)), None, "as it was told last");
        assert_eq!(known.news(added("db", 3)), Some(added("db", 3)));
        assert_eq!(known.news(added("new", 1)), Some(added("new", 1)));
        assert_eq!(known.news(change(ChangeKind::Deleted, "old", 1)), None, "told already");
        assert!(known.news(change(ChangeKind::Deleted, "web", 2)).is_some());
        assert!(known.news(added("web", 2)).is_some(), "it came back");
    }
}
