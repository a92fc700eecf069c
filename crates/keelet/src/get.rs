//! `keelet get`: what is on the node, in kubectl's columns.

mod rows;
mod watch;

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use keelet_local::{
    Client,
    api::{Container, Image, List},
    escaped,
};
use serde::Serialize;
use serde_json::{Value, json};

use self::rows::Columns;
use crate::{
    ask::{self, Listed},
    output,
    style::Style,
    validate::Verdict,
    view::{table::Table, yaml},
};

/// Show pods, containers, images, the node or events
///
/// Columns and words are kubectl's. Pods, events and the node have the shape of the Kubernetes API in JSON and YAML.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 answered, 1 nothing of that name or no agent, 2 wrong usage.\n\n\
                        Examples:\n  keelet get pods\n  keelet get pods -A -o wide\n  keelet get pods -w\n  \
                        keelet get pod web -o yaml\n  keelet get events -n shop")]
pub(crate) struct Args {
    /// pods, containers, images, node or events; or one of them with a name, as pod/web
    #[arg(value_name = "KIND")]
    kind: String,
    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// How a list is asked for and printed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct How {
    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    /// Go on with what changes
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    listed: Listed,
}

/// How it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// More columns
    Wide,
    /// For machines
    Json,
    /// For machines and people
    Yaml,
    /// Names only
    Name,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pods,
    Containers,
    Images,
    Node,
    Events,
}

/// Answers and prints.
pub(crate) fn run(args: &Args) -> Result<Verdict> {
    let (kind, mut names) = match args.kind.split_once('/') {
        Some((kind, name)) => (kind, vec![name.to_owned()]),
        None => (args.kind.as_str(), Vec::new()),
    };
    let kind = Kind::parse(kind)?;
    if args.how.watch && !matches!(kind, Kind::Pods | Kind::Events) {
        bail!("-w: a list of {} does not tell its changes; pods and events do", args.kind);
    }
    names.extend(args.names.iter().map(|name| name.split_once('/').map_or(name.as_str(), |(_, name)| name).to_owned()));
    ask::run(show(kind, names.into_iter().collect(), &args.how))
}

/// Shows things of a kind, all of them or those of these names.
pub(crate) async fn show(kind: Kind, names: BTreeSet<String>, how: &How) -> Result<Verdict> {
    let client = how.listed.connection.client();
    if how.watch {
        return watch::follow(kind, &names, how, &client).await;
    }
    let mut items = items(kind, how, &client).await?;
    let missing: Vec<&String> = names.iter().filter(|name| !items.iter().any(|item| item["name"] == **name)).collect();
    if !names.is_empty() {
        items.retain(|item| item["name"].as_str().is_some_and(|name| names.contains(name)));
    }
    let items: Vec<Value> = items.into_iter().map(|mut item| item["object"].take()).collect();
    if items.is_empty() && names.is_empty() && !matches!(how.output, Some(Format::Json | Format::Yaml)) {
        output::note(&nothing(kind, how, &client).await);
        return Ok(Verdict::Valid);
    }
    if !items.is_empty() || names.is_empty() {
        output::out(&print(kind, &items, names.len() == 1, how)?).context("cannot write the answer")?;
    }
    for name in &missing {
        let within = how
            .listed
            .namespace()
            .map(|namespace| format!(" in namespace {namespace:?}"))
            .filter(|_| kind.is_namespaced());
        output::error(&format!("there is no {} {name:?}{}", kind.one(), within.unwrap_or_default()));
    }
    Ok(if missing.is_empty() { Verdict::Valid } else { Verdict::Invalid })
}

/// The things, each with the name it is asked for by.
async fn items(kind: Kind, how: &How, client: &Client) -> Result<Vec<Value>> {
    let namespace =
        how.listed.namespace().map(|namespace| format!("?namespace={}", escaped(namespace))).unwrap_or_default();
    let named = |object: Value, name: &str| json!({ "name": name, "object": object });
    Ok(match kind {
        Kind::Pods | Kind::Events => {
            let list: List<Value> = client.get(&format!("{}{namespace}", kind.path())).await?;
            let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            list.items.into_iter().map(|object| named(object.clone(), &name(&object))).collect()
        }
        Kind::Node => {
            let node: Value = client.get(kind.path()).await?;
            let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            vec![named(node, &name)]
        }
        Kind::Containers => {
            let list: List<Container> = client.get(kind.path()).await?;
            let here =
                |container: &Container| how.listed.namespace().is_none_or(|wanted| wanted == container.namespace);
            let value = |container: Container| Ok(named(to_value(&container)?, &container.name));
            list.items.into_iter().filter(here).map(value).collect::<Result<_>>()?
        }
        Kind::Images => {
            let list: List<Image> = client.get(kind.path()).await?;
            let name = |image: &Image| image.tags.first().unwrap_or(&image.id).clone();
            list.items.into_iter().map(|image| Ok(named(to_value(&image)?, &name(&image)))).collect::<Result<_>>()?
        }
    })
}

fn to_value(thing: &impl Serialize) -> Result<Value> {
    Ok(serde_json::to_value(thing)?)
}

/// What to say if there is nothing: also where there is something.
async fn nothing(kind: Kind, how: &How, client: &Client) -> String {
    let Some(namespace) = how.listed.namespace().filter(|_| kind.is_namespaced()) else {
        return "No resources found".to_owned();
    };
    let elsewhere = How { listed: how.listed.everywhere(), ..how.clone() };
    let others = items(kind, &elsewhere, client).await.map_or(0, |items| items.len());
    match others {
        0 => format!("No resources found in {namespace} namespace."),
        1 => format!("No resources found in {namespace} namespace; another one has 1: -A shows it."),
        _ => format!("No resources found in {namespace} namespace; others have {others}: -A shows them."),
    }
}

fn print(kind: Kind, items: &[Value], single: bool, how: &How) -> Result<String> {
    let whole = || match items {
        [only] if single => only.clone(),
        items => json!({ "apiVersion": "v1", "kind": "List", "items": items }),
    };
    Ok(match how.output {
        Some(Format::Json) => format!("{}\n", serde_json::to_string_pretty(&whole())?),
        Some(Format::Yaml) => yaml::document(&whole()),
        Some(Format::Name) => items.iter().map(|item| format!("{}\n", rows::reference(kind, item))).collect(),
        None | Some(Format::Wide) => {
            let columns = how.columns();
            let mut table = Table::new(rows::headers(kind, columns));
            let now = ask::now()?;
            for item in items {
                table.row(rows::row(kind, item, columns, now)?);
            }
            table.text(!how.listed.no_headers, Style::of_stdout())
        }
    })
}

// === impl How ===

impl How {
    fn columns(&self) -> Columns {
        Columns { namespace: self.listed.all_namespaces, wide: self.output == Some(Format::Wide) }
    }
}

// === impl Kind ===

impl Kind {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "pods" | "pod" | "po" => Self::Pods,
            "containers" | "container" => Self::Containers,
            "images" | "image" => Self::Images,
            "node" | "nodes" | "no" => Self::Node,
            "events" | "event" | "ev" => Self::Events,
            _ => bail!("{text:?} is nothing that can be shown: expected pods, containers, images, node or events"),
        })
    }

    fn path(self) -> &'static str {
        match self {
            Self::Pods => "/v1/pods",
            Self::Containers => "/v1/containers",
            Self::Images => "/v1/images",
            Self::Node => "/v1/node",
            Self::Events => "/v1/events",
        }
    }

    /// One of them, in words.
    fn one(self) -> &'static str {
        match self {
            Self::Pods => "pod",
            Self::Containers => "container",
            Self::Images => "image",
            Self::Node => "node",
            Self::Events => "event",
        }
    }

    fn is_namespaced(self) -> bool {
        matches!(self, Self::Pods | Self::Containers | Self::Events)
    }
}
