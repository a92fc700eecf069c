//! `keelet delete` and `keelet restart`: what is asked of the agent about a pod.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use keelet_serve::{
    Client, ClientError,
    api::{Change, ChangeKind, List},
};
use serde_json::Value;

use crate::{
    absence::Absence,
    ask::{self, Connection, InNamespace},
    describe::names,
    exit::ExitStatus,
    output,
};

/// Delete pods
///
/// A pod from the agent's manifest directory is deleted by removing its manifest; the error message names the file. By
/// default the command waits until the pod is gone, which takes its grace period at most; Ctrl-C ends the waiting, not
/// the deletion.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 deleted, 1 not deleted, 2 wrong usage.\n\n\
                        Examples:\n  keelet delete pod web\n  keelet delete pod web --wait=false")]
pub struct DeleteArgs {
    #[command(flatten)]
    which: Which,
    /// Wait until the pods are gone
    #[arg(
        long,
        value_name = "true|false",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        hide_possible_values = true,
        action = clap::ArgAction::Set
    )]
    wait: bool,
}

/// Restart all containers of a pod in place
///
/// The pod keeps its IP address and its volumes. Init containers run again, and the restart count of each container is
/// increased.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 restart requested, 1 refused, 2 wrong usage.\n\nExample:\n  keelet restart web")]
pub struct RestartArgs {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// pod NAME, pod/NAME, or NAME
    #[arg(value_name = "POD", required = true)]
    what: Vec<String>,
    #[command(flatten)]
    place: InNamespace,
    #[command(flatten)]
    connection: Connection,
}

/// How long a run that was killed may take to come back: it has to be started by hand, and a script that deletes a pod
/// must not wait for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks for pods to go away.
pub fn delete(args: &DeleteArgs) -> Result<ExitStatus> {
    each(&args.which, Action::Delete(if args.wait { Until::Gone } else { Until::Asked }))
}

/// Asks for all containers of pods to be restarted.
pub fn restart(args: &RestartArgs) -> Result<ExitStatus> {
    each(&args.which, Action::Restart)
}

#[derive(Clone, Copy)]
enum Action {
    Delete(Until),
    Restart,
}

/// How far something is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Asked,
    Gone,
}

/// Does it for each of them; what is wrong with one does not hold up the others.
fn each(which: &Which, action: Action) -> Result<ExitStatus> {
    let names = names(&which.what)?;
    ask::run(async {
        let client = which.connection.client();
        let mut status = ExitStatus::Success;
        let mut leaving = BTreeSet::new();
        for name in names {
            let done = async {
                let pod = ask::pod(&client, which.place.namespace.as_deref(), name).await?;
                let path = ask::path_of(&pod);
                let said = match action {
                    Action::Delete(until) => {
                        client.delete(&path).await?;
                        if until == Until::Gone {
                            leaving.insert(pod.uid);
                        }
                        format!("pod {:?} deleted\n", pod.name)
                    }
                    Action::Restart => {
                        client.post::<Value>(&format!("{path}/restart"), &Value::Null).await?;
                        format!("pod/{} restarting\n", pod.name)
                    }
                };
                output::out(&said).context("cannot write the answer")
            };
            if let Err(error) = done.await {
                output::error(&ask::explained(&error));
                status = ExitStatus::Failure;
            }
        }
        until_gone(&client, leaving, PATIENCE).await?;
        Ok(status)
    })
}

/// Waits until there are no pods of these UIDs, whichever agent ends them.
async fn until_gone(client: &Client, mut left: BTreeSet<String>, patience: Duration) -> Result<()> {
    let absence = Absence::new(client, "waiting for the next one");
    while !left.is_empty() {
        match wait_for_ends(client, &mut left, &absence).await {
            Err(error) if !error.downcast_ref().is_some_and(ClientError::is_away) => return Err(error),
            // The agent of `keelet run` ends with its last pod, and may be gone before it could say so.
            _ if left.is_empty() || absence.is_for_good().await => return Ok(()),
            _ => match tokio::time::timeout(patience, absence.wait()).await {
                Ok(Ok(())) => {}
                // Its directory went later than in a moment.
                Ok(Err(_)) => return Ok(()),
                Err(_) => bail!(
                    "the agent on {} stopped before the pod was deleted, and no other agent has started",
                    client.socket().display()
                ),
            },
        }
    }
    Ok(())
}

/// Takes out of the set what one agent says is gone, until all are or it goes away.
async fn wait_for_ends(client: &Client, left: &mut BTreeSet<String>, absence: &Absence) -> Result<()> {
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    // The watch begins before the list, so that it reports every pod that goes away after the list.
    let mut changes = Box::pin(output::lines(client.stream("/v1/pods?watch=true").await?));
    let pods: List<Value> = client.get("/v1/pods").await?;
    absence.is_over();
    let here: BTreeSet<String> = pods.items.iter().map(uid).collect();
    left.retain(|uid| here.contains(uid));
    while !left.is_empty() {
        let Some(Ok(line)) = changes.next().await else { break };
        let change: Change = serde_json::from_slice(&line).context("cannot parse the agent's response")?;
        if change.kind == ChangeKind::Deleted {
            left.remove(&uid(&change.object));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A pod that goes between the two questions would be waited for without end if the list came first.
    #[tokio::test]
    async fn changes_are_listened_to_before_the_list_is_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("keelet.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let serve = async {
            let (mut asked, mut open) = (Vec::new(), Vec::new());
            while asked.len() < 2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let line = String::from_utf8_lossy(&request[..length]).lines().next().unwrap_or_default().to_owned();
                let answer = if line.contains("watch=true") {
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned()
                } else {
                    let body = r#"{"kind":"List","apiVersion":"v1","items":[]}"#;
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
                asked.push(line);
                open.push(stream);
            }
            (asked, open)
        };
        let client = Client::new(&socket);
        let (mut left, absence) = (BTreeSet::from(["a".to_owned()]), Absence::new(&client, ""));
        let ((asked, _open), ended) = tokio::join!(serve, wait_for_ends(&client, &mut left, &absence));
        ended.unwrap();
        assert!(left.is_empty());
        let watches: Vec<_> = asked.iter().map(|line| line.contains("watch=true")).collect();
        assert_eq!(watches, [true, false], "{asked:?}");
    }

    #[tokio::test]
    async fn a_run_that_ended_has_ended_its_pods_and_one_that_was_killed_may_not_have() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("keelet.sock");
        let until_gone =
            || async { until_gone(&Client::new(&socket), BTreeSet::from(["a".to_owned()]), Duration::ZERO).await };
        until_gone().await.expect("it took its socket away, and its directory was to stay");
        drop(UnixListener::bind(&socket).unwrap());
        let error = until_gone().await.expect_err("it is unknown what became of its pods").to_string();
        assert!(error.contains("stopped before the pod was deleted"), "{error}");
    }
}
