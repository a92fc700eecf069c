//! `-w`: what is there, and then what changes.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use keelet_local::{Client, api::Change, escaped};

use super::{Format, How, Kind, rows};
use crate::{
    ask,
    output::{self, Reader},
    style::Style,
    validate::Verdict,
    view::{table::Table, yaml},
};

/// What comes at once is shown in one go, so that columns fit all of it.
const TOGETHER: Duration = Duration::from_millis(30);

/// Prints until the agent ends or nobody reads any more.
pub(super) async fn follow(kind: Kind, names: &BTreeSet<String>, how: &How, client: &Client) -> Result<Verdict> {
    let namespace = how.namespace().map(|namespace| format!("&namespace={}", escaped(namespace))).unwrap_or_default();
    let pieces = client.stream(&format!("{}?watch=true{namespace}", kind.path())).await?;
    let mut lines = Box::pin(output::lines(pieces));
    let columns = how.columns();
    let mut table = Table::new(rows::headers(kind, columns));
    // What comes later should find room.
    table.reserve("STATUS", "ContainerCreating".len());
    table.reserve("RESTARTS", "1 (2m10s ago)".len());
    let mut header = !how.no_headers;
    let mut waiting = Vec::new();
    loop {
        let next = match waiting.is_empty() {
            true => lines.next().await,
            false => match tokio::time::timeout(TOGETHER, lines.next()).await {
                Ok(next) => next,
                Err(_) => {
                    if show(&mut table, &mut header, kind, how, std::mem::take(&mut waiting))? == Reader::Gone {
                        return Ok(Verdict::Valid);
                    }
                    continue;
                }
            },
        };
        let Some(line) = next else { break };
        let change: Change = serde_json::from_slice(&line?).context("the agent's answer cannot be understood")?;
        let name = change.object["metadata"]["name"].as_str().unwrap_or_default();
        if names.is_empty() || names.contains(name) {
            waiting.push(change);
        }
    }
    show(&mut table, &mut header, kind, how, waiting)?;
    bail!("the agent has stopped");
}

fn show(table: &mut Table, header: &mut bool, kind: Kind, how: &How, mut changes: Vec<Change>) -> Result<Reader> {
    let now = ask::now()?;
    if kind == Kind::Events {
        changes.sort_by_key(|change| rows::wall(&change.object["lastTimestamp"]));
    }
    let mut text = String::new();
    for change in &changes {
        match how.output {
            Some(Format::Json) => text.push_str(&format!("{}\n", serde_json::to_string_pretty(&change.object)?)),
            Some(Format::Yaml) => text.push_str(&format!("---\n{}", yaml::document(&change.object))),
            Some(Format::Name) => text.push_str(&format!("{}\n", rows::reference(kind, &change.object))),
            None | Some(Format::Wide) => table.row(rows::row(kind, &change.object, how.columns(), now)?),
        }
    }
    if matches!(how.output, None | Some(Format::Wide)) {
        text = table.text(std::mem::take(header), Style::of_stdout());
    }
    output::live(text.as_bytes()).context("cannot write the answer")
}
