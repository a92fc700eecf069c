//! Asking the agent that runs on this node: which socket, which pod, and what to say if there is none.

use std::{collections::BTreeSet, future::Future, io, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use keelet_agent::{clock::OsClock, doors::Clock};
use keelet_lifecycle::Wall;
use keelet_serve::{Client, ClientError, api::List, escaped};
use serde_json::Value;
use tokio::net::UnixStream;

use crate::{exit::ExitStatus, output, view::pod::PodView};

/// Where the agent is.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// Socket of the agent [default: $KEELET_SOCKET, else /run/keelet/keelet.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// One pod, by name.
#[derive(Clone, Debug, Args)]
pub(crate) struct InNamespace {
    /// Namespace of the pod, required if pods in several namespaces have this name
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

/// A list of things in namespaces.
#[derive(Clone, Debug, Args)]
pub(crate) struct Listed {
    /// Namespace [default: default]
    #[arg(short, long, value_name = "NAMESPACE", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Do not print column headers
    #[arg(long)]
    pub(crate) no_headers: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

const SOCKET: &str = "/run/keelet/keelet.sock";

/// No more than this many pods are listed in a message.
const LISTED: usize = 20;

// === impl Connection ===

impl Connection {
    pub(crate) fn client(&self) -> Client {
        Client::new(self.named().unwrap_or_else(|| SOCKET.into()))
    }

    /// The socket that the option or the environment names.
    pub(crate) fn named(&self) -> Option<PathBuf> {
        let told = || std::env::var_os("KEELET_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from);
        self.socket.clone().or_else(told)
    }

    /// The socket of the node's agent, if neither the option nor the environment names one and no agent answers on it.
    /// An agent that answers, or may not be asked, is there.
    pub(crate) async fn usual_without_agent(&self) -> Option<&'static str> {
        if self.named().is_some() {
            return None;
        }
        let refused = UnixStream::connect(SOCKET).await.err()?;
        matches!(refused.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused).then_some(SOCKET)
    }
}

// === impl Listed ===

impl Listed {
    /// The namespace that is meant; none is all of them.
    pub(crate) fn namespace(&self) -> Option<&str> {
        if self.all_namespaces { None } else { Some(self.namespace.as_deref().unwrap_or("default")) }
    }

    /// The same over all namespaces.
    pub(crate) fn everywhere(&self) -> Self {
        Self { all_namespaces: true, namespace: None, ..self.clone() }
    }
}

/// Runs a command that asks the agent. The command prints its own output; an error goes to standard error and into the
/// exit status.
pub(crate) fn run(command: impl Future<Output = Result<ExitStatus>>) -> Result<ExitStatus> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answered = runtime.block_on(async {
        tokio::select! {
            biased;
            answered = command => answered,
            () = output::reader_gone() => Ok(ExitStatus::Success),
        }
    });
    // Standard input may be waited for in a thread that never ends.
    runtime.shutdown_background();
    answered.or_else(|error| {
        output::error(&explained(&error));
        Ok(ExitStatus::Failure)
    })
}

/// An error in words, with what to do about it where that is known.
pub(crate) fn explained(error: &anyhow::Error) -> String {
    let Some(ClientError::NoAgent { socket, source }) = error.downcast_ref() else { return format!("{error:#}") };
    let socket = socket.display();
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("permission denied on the socket {socket} of the agent: it is for root, try again with sudo")
        }
        kind => {
            let why = match kind {
                io::ErrorKind::NotFound => "no such socket".to_owned(),
                io::ErrorKind::ConnectionRefused => {
                    "connection refused: the agent that made the socket has stopped".to_owned()
                }
                _ => source.to_string(),
            };
            format!(
                "no agent answers on {socket}: {why}\n\
                 To start one: keelet agent --pod-manifest-path /etc/keelet/manifests\n\
                 If it runs elsewhere: --socket PATH, which is keelet.sock in its --state-dir"
            )
        }
    }
}

/// The time, for ages.
pub(crate) fn now() -> Result<Wall> {
    Ok(OsClock::new().context("cannot read the clock")?.now().wall)
}

/// All pods, by namespace and name.
pub(crate) async fn pods(client: &Client, namespace: Option<&str>) -> Result<Vec<PodView>> {
    let path = match namespace {
        Some(namespace) => format!("/v1/pods?namespace={}", escaped(namespace)),
        None => "/v1/pods".to_owned(),
    };
    let pods: List<Value> = client.get(&path).await?;
    pods.items.into_iter().map(PodView::read).collect()
}

/// The one pod of that name, with or without `pod/` before it.
pub(crate) async fn pod(client: &Client, namespace: Option<&str>, name: &str) -> Result<PodView> {
    let name = without_kind(name);
    let mut pods = pods(client, None).await?;
    let chosen = pick(&pods, namespace, name)?;
    Ok(pods.swap_remove(chosen))
}

/// The name alone, of `pod/web` as kubectl writes it.
pub(crate) fn without_kind(text: &str) -> &str {
    ["pod/", "pods/", "po/"].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text)
}

/// The path of a pod.
pub(crate) fn path_of(pod: &PodView) -> String {
    format!("/v1/pods/{}/{}", escaped(&pod.namespace), escaped(&pod.name))
}

/// No pod, or more than one, has the name that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PodNotFound {
    #[error("pod {name:?} exists in {} namespaces: use {}", namespaces.len(), in_each(namespaces))]
    Ambiguous { name: String, namespaces: Vec<String> },
    #[error("pod {name:?} not found{}; {}", within(namespace.as_deref()), hints.join("; "))]
    None {
        name: String,
        namespace: Option<String>,
        /// What the user may have meant, and what there is.
        hints: Vec<String>,
    },
}

fn in_each(namespaces: &[String]) -> String {
    namespaces.iter().map(|namespace| format!("-n {namespace}")).collect::<Vec<_>>().join(" or ")
}

fn within(namespace: Option<&str>) -> String {
    namespace.map(|namespace| format!(" in namespace {namespace:?}")).unwrap_or_default()
}

// === impl PodNotFound ===

impl PodNotFound {
    pub(crate) fn ambiguous<'a>(name: &str, namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Ambiguous { name: name.to_owned(), namespaces: namespaces.into_iter().map(str::to_owned).collect() }
    }

    pub(crate) fn none(name: &str, namespace: Option<&str>, hints: Vec<String>) -> Self {
        Self::None { name: name.to_owned(), namespace: namespace.map(str::to_owned), hints }
    }
}

/// Which of the pods is meant, or what there is instead.
fn pick(pods: &[PodView], namespace: Option<&str>, name: &str) -> Result<usize, PodNotFound> {
    let is_called =
        |pod: &PodView| (pod.name == name || pod.uid == name) && namespace.is_none_or(|wanted| wanted == pod.namespace);
    let matching: Vec<usize> = (0..pods.len()).filter(|index| is_called(&pods[*index])).collect();
    let namespaces: BTreeSet<&str> = matching.iter().map(|index| pods[*index].namespace.as_str()).collect();
    if namespaces.len() > 1 {
        return Err(PodNotFound::ambiguous(name, namespaces));
    }
    // The one that is on its way out may still be there beside the one that replaces it.
    let stays = matching.iter().find(|index| !pods[**index].leaving).or(matching.first());
    stays.copied().ok_or_else(|| not_found(pods, namespace, name))
}

fn not_found(pods: &[PodView], namespace: Option<&str>, name: &str) -> PodNotFound {
    if pods.is_empty() {
        return PodNotFound::none(name, namespace, vec!["no pods on this node".to_owned()]);
    }
    let mut hints = Vec::new();
    let distance = |pod: &PodView| strsim::levenshtein(&pod.name, name);
    let near = pods.iter().filter(|pod| distance(pod) <= name.len().div_ceil(3));
    if let Some(pod) = near.min_by_key(|pod| distance(pod)) {
        hints.push(format!("did you mean {}?", called(pod)));
    }
    hints.push(format!("pods on this node: {}", listed(pods.iter().map(called).collect())));
    PodNotFound::none(name, namespace, hints)
}

/// The first names, and how many more there are.
pub(crate) fn listed(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

fn called(pod: &PodView) -> String {
    match pod.namespace.as_str() {
        "default" => pod.name.clone(),
        namespace => format!("{} -n {namespace}", pod.name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods(names: &[(&str, &str)]) -> Vec<PodView> {
        let pod = |(namespace, name): &(&str, &str)| {
            PodView::read(json!({ "metadata": { "namespace": namespace, "name": name, "uid": format!("u-{name}") } }))
                .unwrap()
        };
        names.iter().map(pod).collect()
    }

    #[test]
    fn a_pod_is_found_by_name_and_namespace_only_if_it_has_to_be() {
        let pods = pods(&[("default", "web"), ("shop", "web"), ("shop", "db")]);
        assert_eq!(pick(&pods, None, "db"), Ok(2));
        assert_eq!(pick(&pods, None, "u-db"), Ok(2));
        assert_eq!(pick(&pods, Some("shop"), "web"), Ok(1));
        assert_eq!(
            pick(&pods, None, "web").unwrap_err().to_string(),
            "pod \"web\" exists in 2 namespaces: use -n default or -n shop"
        );
        let error = pick(&pods, None, "wep").unwrap_err().to_string();
        let expected = "pod \"wep\" not found; did you mean web?; pods on this node: web, web -n shop, db -n shop";
        assert_eq!(error, expected);
        assert_eq!(pick(&[], None, "web").unwrap_err().to_string(), "pod \"web\" not found; no pods on this node");
    }
}
