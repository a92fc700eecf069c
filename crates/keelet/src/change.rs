//! `keelet delete` and `keelet restart`: what is asked of the agent about a pod.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    ask::{self, Connection, InNamespace},
    describe::names,
    output,
    validate::Verdict,
};

/// Delete pods
///
/// A pod that comes from a manifest in the agent's directory is deleted by removing the manifest; the answer says which
/// file that is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 done, 1 not done, 2 wrong usage.\n\nExample:\n  keelet delete pod web")]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    which: Which,
}

/// Restart all containers of a pod in place
///
/// The pod, its address and its volumes stay. Init containers run again, and each container's restart count goes up.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 asked for, 1 refused, 2 wrong usage.\n\nExample:\n  keelet restart web")]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// pod and its name, pod/NAME, or the name alone
    #[arg(value_name = "POD", required = true)]
    what: Vec<String>,
    #[command(flatten)]
    place: InNamespace,
    #[command(flatten)]
    connection: Connection,
}

/// Asks for pods to go away.
pub(crate) fn delete(args: &DeleteArgs) -> Result<Verdict> {
    each(&args.which, Action::Delete)
}

/// Asks for all containers of pods to be restarted.
pub(crate) fn restart(args: &RestartArgs) -> Result<Verdict> {
    each(&args.which, Action::Restart)
}

#[derive(Clone, Copy)]
enum Action {
    Delete,
    Restart,
}

/// Does it for each of them; what is wrong with one does not hold up the others.
fn each(which: &Which, action: Action) -> Result<Verdict> {
    let names = names(&which.what)?;
    ask::run(async {
        let client = which.connection.client();
        let mut verdict = Verdict::Valid;
        for name in names {
            let done = async {
                let pod = ask::pod(&client, which.place.namespace.as_deref(), name).await?;
                let path = ask::path_of(&pod);
                let word = match action {
                    Action::Delete => {
                        client.delete(&path).await?;
                        "deleted"
                    }
                    Action::Restart => {
                        client.post::<Value>(&format!("{path}/restart"), &Value::Null).await?;
                        "restarting"
                    }
                };
                output::out(&format!("pod/{} {word}\n", pod.name)).context("cannot write the answer")
            };
            if let Err(error) = done.await {
                output::error(&ask::explained(&error));
                verdict = Verdict::Invalid;
            }
        }
        Ok(verdict)
    })
}
