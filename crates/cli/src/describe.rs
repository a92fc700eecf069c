//! `keelet describe`: everything about a pod on one page, as kubectl lays it out.

mod container;
mod page;

use anyhow::{Context, Result, bail};
use keelet_serve::{
    Client, ClientError,
    api::{GonePod, List},
    escaped,
};
use serde_json::Value;

use crate::{
    ask::{self, Connection, InNamespace},
    exit::ExitStatus,
    output,
    view::pod::PodView,
};

/// Show details of a pod: containers, conditions, volumes, events
///
/// The layout is that of kubectl describe. `keelet why` shows the evidence behind each part of the status. For a
/// deleted pod the last known state is shown; the newest twenty are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 success, 1 pod not found or no agent, 2 wrong usage.\n\n\
                        Examples:\n  keelet describe pod web\n  keelet describe pod/web -n shop")]
pub struct Args {
    /// pod NAME, or pod/NAME
    #[arg(value_name = "pod NAME", required = true)]
    what: Vec<String>,
    #[command(flatten)]
    place: InNamespace,
    #[command(flatten)]
    connection: Connection,
}

/// What else `keelet get` shows.
const OTHER_KINDS: [&str; 9] = ["node", "nodes", "no", "container", "containers", "image", "images", "event", "events"];

/// Answers and prints.
pub fn run(args: &Args) -> Result<ExitStatus> {
    let names = names(&args.what)?;
    ask::run(async {
        let client = args.connection.client();
        let mut pages = Vec::new();
        for name in names {
            let (pod, gone) = find(&client, args.place.namespace.as_deref(), name).await?;
            let query = format!("namespace={}&pod={}", escaped(&pod.namespace), escaped(&pod.name));
            let events: List<Value> = client.get(&format!("/v1/events?{query}")).await?;
            let own = |event: &Value| event["involvedObject"]["uid"] == pod.uid.as_str();
            let events: Vec<Value> = events.items.into_iter().filter(own).collect();
            pages.push(page::page(&pod, gone.as_deref(), &events, ask::now()?));
        }
        output::out(&pages.join("\n\n")).context("cannot write the answer")?;
        Ok(ExitStatus::Success)
    })
}

/// The one pod of that name, or the newest one that had it, and since when that is gone.
async fn find(client: &Client, namespace: Option<&str>, name: &str) -> Result<(PodView, Option<String>)> {
    let missing = match ask::pod(client, namespace, name).await {
        Ok(pod) => return Ok((pod, None)),
        Err(missing) if missing.downcast_ref::<ClientError>().is_some() => return Err(missing),
        Err(missing) => missing,
    };
    let gone: List<GonePod> = client.get("/v1/gone").await?;
    for GonePod { gone_at, pod } in gone.items.into_iter().rev() {
        let pod = PodView::read(pod)?;
        if (pod.name == name || pod.uid == name) && namespace.is_none_or(|wanted| wanted == pod.namespace) {
            return Ok((pod, Some(gone_at)));
        }
    }
    Err(missing)
}

/// The pods that are meant: `pod a b`, `pod/a`, `a`.
pub(crate) fn names(words: &[String]) -> Result<Vec<&str>> {
    let words = match words.split_first() {
        Some((kind, names)) if matches!(kind.as_str(), "pod" | "pods" | "po") => {
            if names.is_empty() {
                bail!("the name of a pod is missing: for example {kind} web");
            }
            names
        }
        // A kind before a name is hardly a pod beside another one.
        Some((kind, [_, ..])) if OTHER_KINDS.contains(&kind.as_str()) => {
            bail!("{kind:?} is not a kind that this command takes: only pods can be named, such as pod web")
        }
        _ => words,
    };
    words
        .iter()
        .map(|word| match word.split_once('/') {
            None => Ok(word.as_str()),
            Some(("pod" | "pods" | "po", name)) => Ok(name),
            Some((kind, _)) => {
                bail!("{kind:?} is not a kind that this command takes: only pods can be named, such as pod/web")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn pods_are_named_with_and_without_their_kind() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names(&words("pod web db")).unwrap(), ["web", "db"]);
        assert_eq!(names(&words("pod/web")).unwrap(), ["web"]);
        assert_eq!(names(&words("web")).unwrap(), ["web"]);
        assert_eq!(names(&words("pod")).unwrap_err().to_string(), "the name of a pod is missing: for example pod web");
        assert!(names(&words("node n1")).unwrap_err().to_string().contains("only pods"));
        assert_eq!(names(&words("node")).unwrap(), ["node"], "a pod may be called so");
        assert!(names(&words("deployment/web")).unwrap_err().to_string().contains("only pods"));
    }
}
