//! `keelet run`: pods in the foreground, with an agent of their own.
//!
//! ```text
//! files -> pods --> node (an agent in this process) --> keelet_cli::run::follow (until all have ended, or Ctrl-C)
//! ```

mod leftovers;
mod node;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use keelet_cli::{
    gates::Gates,
    output,
    paths::{Paths, absolute},
    run::{self as view, Ending, Notes, Signals},
};
use keelet_host::LocalObjects;
use keelet_pod::Resolution;

use self::node::{Node, Place};
use crate::{
    claim::{Claim, Extra, Holder},
    embedded,
    log::{self, LogOptions},
};

/// Run pods here, in the foreground, until they end
///
/// The pods have an agent of their own in this process, with directories of their own: nothing mixes with the agent of
/// the node but its images. On a terminal it shows containers, probes, conditions and events as they change; else it writes one line for
/// each change.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 all pods succeeded, 1 some pod failed or was deleted, 2 wrong usage, a file that is wrong, or no \
                        runtime, 129 its terminal was closed, 130 interrupted by Ctrl-C, or nobody reads what it \
                        writes, 143 by SIGTERM.\n\n\
                        A run that was killed (kill -9) leaves its pods. The next one, on any directory, names them, and \
                        removes what is left of those that have ended; --clean ends the others.\n\n\
                        Ctrl-C stops the pods with their grace periods; a second one kills them at once. Closing the \
                        terminal stops them too, unless it was started with nohup.\n\n\
                        Examples:\n  keelet run pod.yaml\n  keelet run --clean\n  keelet run --logs examples/full.yaml\n  keelet run - < pod.yaml"
)]
pub(crate) struct Args {
    /// Manifests: files, directories (their *.yaml, *.yml and *.json), or - for standard input
    #[arg(required_unless_present = "clean", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// End and remove the pods that runs which were killed have left, on whatever directory; without files, do nothing else
    #[arg(long)]
    clean: bool,
    /// Socket of a container runtime (containerd, CRI-O) instead of the embedded one; not one that the agent of a node uses
    #[arg(long, value_name = "unix:///PATH")]
    container_runtime_endpoint: Option<String>,
    #[command(flatten)]
    embedded: embedded::Options,
    /// Directory of images, which stay for the next run [default: the node's, /var/lib/keelet/runtime/images; with --root-dir
    /// one in there]
    #[arg(long, value_name = "DIR", conflicts_with = "container_runtime_endpoint")]
    image_store: Option<PathBuf>,
    /// What the containers write, beside the rest
    #[arg(long)]
    logs: bool,
    /// Directory for everything, left in place at the end [default: a temporary one]. That of an agent is refused; what an
    /// earlier run has left there and this one does not have is stopped
    #[arg(long, value_name = "DIR")]
    root_dir: Option<PathBuf>,
    /// Directory with config maps and secrets, as for `keelet agent`
    #[arg(long, value_name = "DIR", default_value = LocalObjects::DIRECTORY)]
    local_objects_dir: PathBuf,
    /// Lines, even on a terminal
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    gates: Gates,
    #[command(flatten)]
    log: LogOptions,
}

/// Runs the pods.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let notes = Notes::default();
    match args.log.verbose {
        0 => notes.listen(),
        _ => log::to_stderr(args.log),
    }
    let Resolution { features, warnings } = args.gates.resolve()?;
    for warning in &warnings {
        output::warning(&warning.to_string());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.clean || args.container_runtime_endpoint.is_none() {
        let all_gone = runtime.block_on(leftovers::clear(args.clean))?;
        if args.files.is_empty() {
            return Ok(if all_gone { Ending::Succeeded } else { Ending::Failed }.into());
        }
    }
    let loaded = view::pods(&args.files, &features);
    let pods = match loaded {
        Ok((pods, warnings)) => {
            output::text_to_stderr(&warnings);
            pods
        }
        Err(wrong) => {
            output::text_to_stderr(&wrong);
            return Ok(Ending::WrongUsage.into());
        }
    };
    let ending = runtime.block_on(async {
        let signals = Signals::listen()?;
        let place = Place::of(args.root_dir.as_deref())?;
        let named = embedded::named(args.container_runtime_endpoint.as_deref(), &args.embedded)?;
        let store = image_store(args)?;
        let extra = Extra { images: store.clone(), temporary: args.root_dir.is_none() };
        let mut claim = Claim::take(&place.paths, Holder::Run, extra).await?;
        let choice = embedded::choose(named, &place.paths, &claim, &args.embedded, store.as_deref()).await?;
        // One that does not answer now would leave everybody waiting for nothing.
        choice.runtime.version().await.context("no container runtime to run pods with")?;
        let node = Node::start(choice, pods, features, place, &args.local_objects_dir).await?;
        let session = view::follow(&node, signals, args.logs, args.plain || args.log.verbose > 0, notes);
        let ending = tokio::select! {
            ending = session => ending,
            error = claim.lost() => return Err(error),
        };
        node.stop().await;
        Ok::<_, anyhow::Error>(ending)
    })?;
    // A reader of a pipe or terminal may sit in a thread that never ends.
    runtime.shutdown_background();
    Ok(ending.into())
}

/// Where images are: the node's, unless this run has a place of its own. A store may be used by many at once.
fn image_store(args: &Args) -> Result<Option<PathBuf>> {
    match (&args.image_store, &args.root_dir) {
        (Some(store), _) if store.exists() && !store.is_dir() => {
            bail!("--image-store: {} is not a directory", store.display())
        }
        (Some(store), _) => absolute("--image-store", store).map(Some),
        (None, Some(_)) => Ok(None),
        (None, None) => Ok(Some(Path::new(Paths::ROOT).join(Paths::IMAGES))),
    }
}
