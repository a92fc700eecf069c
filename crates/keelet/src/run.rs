//! `keelet run`: pods in the foreground, with an agent of their own.
//!
//! ```text
//! files -> pods --> keelet_assembly::Run (an agent in this process) --> keelet_cli::run::follow (until all have ended, or Ctrl-C)
//! ```

mod clean;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use keelet_assembly::{Claim, Extra, Holder, Paths, Place, Run};
use keelet_cli::{
    feature_gates::FeatureGateArgs,
    output,
    paths::absolute,
    run::{self as view, Ending, Notes, Signals},
};
use keelet_host::LocalObjects;
use keelet_pod::Resolution;

use crate::{
    embedded,
    log::{self, LogOptions},
};

/// Run pods in the foreground, until they end
///
/// The pods have an agent of their own in this process, with directories of their own; only images are shared with the
/// agent of the node. On a terminal keelet shows containers, probes, conditions and events as they change; otherwise it
/// prints one line for each change.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 all pods succeeded, 1 a pod failed or was deleted, 2 wrong usage, an invalid file, or no \
                        runtime, 129 the terminal was closed, 130 interrupted by Ctrl-C or the output was closed, \
                        143 stopped by SIGTERM.\n\n\
                        The pods of a run that was killed (kill -9) keep running. The next run, on any directory, lists them, and \
                        removes those that have ended; --clean stops and removes the others.\n\n\
                        Ctrl-C stops the pods with their grace periods; a second Ctrl-C kills them at once. Closing the \
                        terminal stops them too, unless keelet was started with nohup.\n\n\
                        Examples:\n  keelet run pod.yaml\n  keelet run --clean\n  keelet run --logs examples/full.yaml\n  keelet run - < pod.yaml"
)]
pub(crate) struct Args {
    /// Manifests: files, directories (their *.yaml, *.yml and *.json), or - for standard input
    #[arg(required_unless_present = "clean", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Stop and remove the pods of earlier runs that were killed, whatever their directory; without FILE, do nothing
    /// else
    #[arg(long)]
    clean: bool,
    /// CRI socket of a container runtime (containerd, CRI-O), instead of the embedded one; it must not be the runtime
    /// of a node agent
    #[arg(long, value_name = "unix:///PATH")]
    container_runtime_endpoint: Option<String>,
    #[command(flatten)]
    embedded: embedded::Options,
    /// Image store, kept for the next run [default: that of the node, /var/lib/keelet/runtime/images; with --root-dir
    /// one in there]
    #[arg(long, value_name = "DIR", conflicts_with = "container_runtime_endpoint")]
    image_store: Option<PathBuf>,
    /// Show the logs of the containers too
    #[arg(long)]
    logs: bool,
    /// Directory for all files of the run, kept at the end [default: a temporary directory]. The directory of an agent
    /// is refused. Pods of an earlier run in it that are not in FILE are stopped
    #[arg(long, value_name = "DIR")]
    root_dir: Option<PathBuf>,
    /// Directory with config maps and secrets, as for `keelet agent`
    #[arg(long, value_name = "DIR", default_value = LocalObjects::DIRECTORY)]
    local_objects_dir: PathBuf,
    /// Print lines, even on a terminal
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    feature_gates: FeatureGateArgs,
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
    let Resolution { features, warnings } = args.feature_gates.resolve()?;
    for warning in &warnings {
        output::warning(&warning.to_string());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.clean || args.container_runtime_endpoint.is_none() {
        let all_gone = runtime.block_on(clean::clear(args.clean))?;
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
            output::text_to_stderr(&wrong.to_string());
            return Ok(Ending::WrongUsage.into());
        }
    };
    let ending = runtime.block_on(async {
        let signals = Signals::listen()?;
        let root = args.root_dir.as_deref().map(|root| absolute("--root-dir", root)).transpose()?;
        let place = Place::of(root)?;
        let named = embedded::named(args.container_runtime_endpoint.as_deref(), &args.embedded)?;
        let store = image_store(args)?;
        let extra = Extra { images: store.clone(), temporary: args.root_dir.is_none() };
        let mut claim = Claim::take(&place.paths, Holder::Run, extra).await?;
        let runtime = embedded::choose(named, &place.paths, &claim, &args.embedded, store.as_deref()).await?;
        // One that does not answer now would leave every pod waiting for nothing.
        runtime.runtime.version().await.context("no container runtime to run pods with")?;
        let node = Run::start(runtime, pods, features, place, &args.local_objects_dir).await?;
        let session = view::follow(&node, signals, args.logs, args.plain || args.log.verbose > 0, notes);
        let ending = tokio::select! {
            ending = session => ending,
            error = claim.lost() => return Err(error.into()),
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
