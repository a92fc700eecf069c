//! The embedded runtime, where it is used and where it is offered to others.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, Subcommand};
use futures::stream;
use keelet_agent::config::{MOST_PIDS, NO_PIDS_LIMIT, NodeConfig};
use keelet_assembly::{ChosenRuntime, Claim, Extra, Holder, Paths, prepare_to_pull, settings_in};
use keelet_cli::{paths::Directories, registries::Registries};
use keelet_cri::Runtime;
use keelet_runtime::{Engine, OciRuntime, PidsLimit, RootfsImages, Settings};
use keelet_serve::Listener;
use tokio::signal::unix::{SignalKind, signal};

use crate::log::{self, LogOptions};

const NOT_USABLE: &str = "cannot start the embedded runtime";

/// The embedded container runtime
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Serve),
}

/// Serve the embedded runtime on a CRI socket
///
/// For crictl, critest and the kubelet. `keelet agent` and `keelet run` need no socket: the runtime is in their
/// process.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Example:\n  keelet runtime serve &\n  crictl --runtime-endpoint unix:///run/keelet/cri.sock pods"
)]
struct Serve {
    /// Socket to listen on; only root can connect
    #[arg(long, value_name = "PATH", default_value = "/run/keelet/cri.sock")]
    listen: PathBuf,
    /// Accept rootfs:/PATH, a directory of the node, as an image: every client of the socket can then read all files of
    /// the node
    #[arg(long)]
    allow_rootfs_images: bool,
    #[command(flatten)]
    directories: Directories,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    log: LogOptions,
}

/// Options of the embedded runtime, wherever it runs.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Options {
    /// OCI runtime of the embedded runtime: libcontainer (built in), runc, or the path of a program with the command
    /// line of runc [default: libcontainer]
    #[arg(long, value_name = "NAME|PATH")]
    oci_runtime: Option<OciRuntime>,
    /// Maximum number of processes and threads of a pod in the embedded runtime; -1 for no limit [default: an eighth of
    /// the node's limit, at most 4096]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = pids_limit)]
    pod_max_pids: Option<i32>,
    #[command(flatten)]
    registries: Registries,
}

/// The runtime on that socket, if one is named. Nothing is made or locked before it is known that it can be meant.
pub(crate) fn named(endpoint: Option<&str>, options: &Options) -> Result<Option<Runtime>> {
    let Some(endpoint) = endpoint else { return Ok(None) };
    for (option, is_given) in
        [("--oci-runtime", options.oci_runtime.is_some()), ("--pod-max-pids", options.pod_max_pids.is_some())]
    {
        if is_given {
            bail!("{option} is for the embedded runtime, and has no effect on {endpoint}");
        }
    }
    options.registries.refuse_beside(endpoint)?;
    Ok(Some(Runtime::connect(endpoint)?))
}

/// The runtime that was named, or else the embedded one.
pub(crate) async fn choose(
    named: Option<Runtime>,
    paths: &Paths,
    claim: &Claim,
    options: &Options,
    store: Option<&Path>,
) -> Result<ChosenRuntime> {
    if let Some(runtime) = named {
        return Ok(ChosenRuntime::remote(runtime));
    }
    let mut settings = settings(paths, claim.bridge(), options)?;
    settings.images = store.map_or(settings.images, Path::to_owned);
    // Pods say where they come from, and those that may not name a directory of the node do not get as far as this.
    settings.rootfs_images = RootfsImages::Allowed;
    ChosenRuntime::embedded(settings).await.context(NOT_USABLE)
}

fn settings(paths: &Paths, bridge: Option<&str>, options: &Options) -> Result<Settings> {
    let mut settings = settings_in(paths, bridge);
    settings.oci_runtime = options.oci_runtime.clone().unwrap_or_default();
    settings.pids_limit = match options.pod_max_pids.map(u32::try_from) {
        None => PidsLimit::Usual,
        Some(Ok(most)) => PidsLimit::AtMost(most),
        // The one negative number that is a limit.
        Some(Err(_)) => PidsLimit::Unlimited,
    };
    options.registries.apply(&mut settings.pull)?;
    Ok(settings)
}

/// Text that is not a number of processes.
#[derive(Debug, thiserror::Error)]
#[error("must be between 1 and {MOST_PIDS}, or {NO_PIDS_LIMIT} for as many as the node can have")]
struct InvalidPidsLimit;

fn pids_limit(text: &str) -> Result<i32, InvalidPidsLimit> {
    let limit = text.parse().ok().filter(|limit| *limit == NO_PIDS_LIMIT || (1..=MOST_PIDS).contains(limit));
    limit.ok_or(InvalidPidsLimit)
}

// === impl Options ===

impl Options {
    /// With what a configuration file says of them; what was asked for at the start wins.
    pub(crate) fn over(&self, config: &NodeConfig) -> Self {
        Self { pod_max_pids: self.pod_max_pids.or(config.pod_pids_limit), ..self.clone() }
    }
}

/// Runs a command on it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Command::Serve(args) = &args.command;
    log::to_stderr(args.log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Serve) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let paths = args.directories.absolute()?;
    let mut claim = Claim::take(&paths, Holder::Server, Extra::default()).await?;
    let mut settings = settings(&paths, claim.bridge(), &args.options)?;
    settings.rootfs_images = if args.allow_rootfs_images { RootfsImages::Allowed } else { RootfsImages::Refused };
    prepare_to_pull();
    let engine = Engine::open(settings).await.context(NOT_USABLE)?;
    let listener = Listener::bind(&args.listen).await.context("--listen")?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %args.listen.display(), "runtime listening");
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let connections = stream::unfold(listener, |listener| async {
        let connection = listener.accept().await;
        Some((Ok::<_, Infallible>(connection), listener))
    });
    let server = tonic::transport::Server::builder();
    let served = server.serve_with_incoming_shutdown(engine.server(), Box::pin(connections), stop);
    tokio::select! {
        served = served => served?,
        error = claim.lost() => return Err(error.into()),
    }
    tracing::info!("runtime stopping; containers keep running");
    Ok(())
}
