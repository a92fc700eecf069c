//! `keelet get`: what is on the node, in kubectl's columns.

mod kind;
mod rows;
mod selector;
mod watch;
mod which;

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use keelet_serve::{
    Client,
    api::{Container, Image, List},
    escaped,
};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::kind::Kind;
use self::{
    kind::{Asked, AskedParser},
    rows::Columns,
    selector::Selector,
    which::{Called, Thing, meant},
};
use crate::{
    ask::{self, Connection, Listed},
    exit::ExitStatus,
    output,
    style::Style,
    view::{table::Table, yaml},
};

/// List pods, containers, images, the node or events
///
/// The columns are those of kubectl. Pods, events and the node are objects of the Kubernetes API in JSON and YAML.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 success, 1 not found or no agent, 2 wrong usage.\n\n\
                        Examples:\n  keelet get pods\n  keelet get pods -A -o wide\n  keelet get pods -w\n  \
                        keelet get pods -l app=web\n  keelet get pod web -o yaml\n  keelet get events -n shop")]
pub struct Args {
    /// Kind of object, or KIND/NAME for one object, such as pod/web
    #[arg(value_name = "KIND", value_parser = AskedParser)]
    kind: Asked,
    /// Only objects with these names; images by any of their names or a prefix of their ID
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Label selector for pods: app=web, app!=web, app, !app, 'app in (web, db)', 'app notin (web)'
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = Selector::parse)]
    selector: Option<Selector>,
    #[command(flatten)]
    how: How,
}

/// How a list is asked for and printed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct How {
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    /// After listing, watch for changes
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

/// Which things of a kind are shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Those of these names; all if there are none.
    pub(crate) names: BTreeSet<String>,
    /// Those with such labels.
    pub(crate) selector: Option<Selector>,
    /// Events of this pod.
    pub(crate) pod: Option<String>,
}

/// What is said if there is nothing at all.
const NOTHING: &str = "No resources found";

/// Answers and prints.
pub fn run(args: &Args) -> Result<ExitStatus> {
    let Asked { kind, name } = args.kind.clone();
    let mut names: BTreeSet<String> = name.iter().cloned().collect();
    for text in &args.names {
        names.insert(without_kind(kind, text, name.is_some())?);
    }
    let wanted = Wanted { names, selector: args.selector.clone(), pod: None };
    ask::run(show_wanted(kind, &wanted, &args.how))
}

/// A name, which may have the kind before it: `pod/web`.
fn without_kind(kind: Kind, text: &str, first_has_kind: bool) -> Result<String> {
    let Some((word, rest)) = text.split_once('/') else { return Ok(text.to_owned()) };
    // The names of images have slashes of their own; a kind is before the others only if it is before the first.
    let may_be_kind = kind != Kind::Images || first_has_kind;
    match Kind::called(word) {
        Some(called) if called == kind && may_be_kind => Ok(rest.to_owned()),
        _ if kind == Kind::Images => Ok(text.to_owned()),
        None if kind.is_namespaced() => {
            bail!("invalid {0} {text:?}: use {0}/NAME or NAME, and -n for the namespace", kind.one())
        }
        _ => bail!("invalid {0} {text:?}: use {0}/NAME or NAME", kind.one()),
    }
}

/// Shows things of a kind, all of them or those of these names.
pub(crate) async fn show(kind: Kind, names: BTreeSet<String>, how: &How) -> Result<ExitStatus> {
    show_wanted(kind, &Wanted { names, ..Wanted::default() }, how).await
}

/// Shows images that the caller has found.
pub(crate) fn show_images(images: &[Image], how: &How) -> Result<ExitStatus> {
    if let Err(why) = possible(Kind::Images, &Wanted::default(), how) {
        output::error(&why.to_string());
        return Ok(ExitStatus::Usage);
    }
    if images.is_empty() && how.is_for_people() {
        output::note(NOTHING);
        return Ok(ExitStatus::Success);
    }
    let items = images.iter().map(to_value).collect::<Result<Vec<_>>>()?;
    output::out(&print(Kind::Images, &items, false, how)?).context("cannot write the answer")?;
    Ok(ExitStatus::Success)
}

/// Shows those things of a kind that are wanted.
pub(crate) async fn show_wanted(kind: Kind, wanted: &Wanted, how: &How) -> Result<ExitStatus> {
    if let Err(why) = possible(kind, wanted, how) {
        output::error(&why.to_string());
        return Ok(ExitStatus::Usage);
    }
    let client = how.listed.connection.client();
    if how.watch && wanted.names.is_empty() {
        return watch::follow(kind, wanted, how, &client).await;
    }
    let things = things(kind, wanted, how, &client).await?;
    let (mut shown, mut missing) = (BTreeSet::new(), Vec::new());
    for name in &wanted.names {
        match meant(&things, name) {
            Ok(found) if found.is_empty() => missing.push(not_found(kind, name, how)),
            Ok(found) => shown.extend(found),
            Err(error) => missing.push(error.to_string()),
        }
    }
    let status = if missing.is_empty() { ExitStatus::Success } else { ExitStatus::Failure };
    if how.watch {
        // What is not there now may never come, and a misspelt name would go unnoticed.
        missing.iter().for_each(|why| output::error(why));
        if !shown.is_empty() {
            watch::follow(kind, wanted, how, &client).await?;
        }
        return Ok(status);
    }
    let things = things.into_iter().enumerate();
    let items: Vec<Value> = things
        .filter(|(index, _)| wanted.names.is_empty() || shown.contains(index))
        .map(|(_, thing)| thing.object)
        .collect();
    let names = wanted.names.len();
    if items.is_empty() && names == 0 && how.is_for_people() {
        output::note(&nothing(kind, wanted, how, &client).await);
        return Ok(ExitStatus::Success);
    }
    if !items.is_empty() || names == 0 {
        output::out(&print(kind, &items, names == 1, how)?).context("cannot write the answer")?;
    }
    missing.iter().for_each(|why| output::error(why));
    Ok(status)
}

/// An option that things of that kind do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum UnusableOption {
    #[error("-w: {0} cannot be watched; pods and events can")]
    Watch(&'static str),
    #[error("-l: {0} have no labels to choose by; pods do")]
    NoLabels(&'static str),
    #[error("-l: either names or labels say what is wanted, not both")]
    NamesAndLabels,
}

/// Whether things of that kind can be shown so; else why not.
fn possible(kind: Kind, wanted: &Wanted, how: &How) -> Result<(), UnusableOption> {
    if how.watch && !kind.tells_changes() {
        return Err(UnusableOption::Watch(kind.all()));
    }
    if wanted.selector.is_some() && kind != Kind::Pods {
        return Err(UnusableOption::NoLabels(kind.all()));
    }
    if wanted.selector.is_some() && !wanted.names.is_empty() {
        return Err(UnusableOption::NamesAndLabels);
    }
    Ok(())
}

fn not_found(kind: Kind, name: &str, how: &How) -> String {
    let within = how.listed.namespace().map(|namespace| format!(" in namespace {namespace:?}"));
    let within = within.filter(|_| kind.is_namespaced()).unwrap_or_default();
    format!("{} {name:?} not found{within}", kind.one())
}

/// Where a list is asked for.
fn path(kind: Kind, wanted: &Wanted, how: &How, watch: bool) -> String {
    // The agent lists the containers of all namespaces; images and nodes have no namespace.
    let namespace = how.listed.namespace().filter(|_| matches!(kind, Kind::Pods | Kind::Events));
    let parameters = [("namespace", namespace), ("pod", wanted.pod.as_deref()), ("watch", watch.then_some("true"))];
    let given = parameters.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped(value?))));
    let query = given.collect::<Vec<_>>().join("&");
    if query.is_empty() { kind.path().to_owned() } else { format!("{}?{query}", kind.path()) }
}

/// The things, each with what it is called.
async fn things(kind: Kind, wanted: &Wanted, how: &How, client: &Client) -> Result<Vec<Thing>> {
    let path = path(kind, wanted, how, false);
    let of_api = |object: Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Thing { called: Called::Name(name), object }
    };
    Ok(match kind {
        Kind::Pods | Kind::Events => {
            let list: List<Value> = client.get(&path).await?;
            list.items.into_iter().filter(|object| wanted.has(object)).map(of_api).collect()
        }
        Kind::Node => vec![of_api(client.get(&path).await?)],
        Kind::Containers => {
            let list: List<Container> = client.get(&path).await?;
            let here =
                |container: &Container| how.listed.namespace().is_none_or(|wanted| wanted == container.namespace);
            let thing = |container: Container| {
                Ok(Thing { object: to_value(&container)?, called: Called::Name(container.name) })
            };
            list.items.into_iter().filter(here).map(thing).collect::<Result<_>>()?
        }
        Kind::Images => {
            let list: List<Image> = client.get(&path).await?;
            let thing = |image: Image| Ok(Thing { called: Called::image(&image), object: to_value(&image)? });
            list.items.into_iter().map(thing).collect::<Result<_>>()?
        }
    })
}

fn to_value(thing: &impl Serialize) -> Result<Value> {
    Ok(serde_json::to_value(thing)?)
}

/// What to say if there is nothing: also where there is something.
async fn nothing(kind: Kind, wanted: &Wanted, how: &How, client: &Client) -> String {
    let Some(namespace) = how.listed.namespace().filter(|_| kind.is_namespaced()) else {
        return NOTHING.to_owned();
    };
    let elsewhere = How { listed: how.listed.everywhere(), ..how.clone() };
    let others = things(kind, wanted, &elsewhere, client).await.map_or(0, |things| things.len());
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
        Some(Format::Yaml) => yaml::document(&whole())?,
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
    pub(crate) fn connection(&self) -> &Connection {
        &self.listed.connection
    }

    fn is_for_people(&self) -> bool {
        !matches!(self.output, Some(Format::Json | Format::Yaml))
    }

    fn columns(&self) -> Columns {
        Columns { namespace: self.listed.all_namespaces, wide: self.output == Some(Format::Wide) }
    }
}

// === impl Wanted ===

impl Wanted {
    /// Whether an object has the labels that are wanted.
    fn has(&self, object: &Value) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.matches(object))
    }
}
