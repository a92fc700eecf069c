//! The embedded runtime, where it is used and where it is offered to others.

use std::{
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, Subcommand};
use futures::{future::BoxFuture, stream};
use keelet_agent::config::{MOST_PIDS, NO_PIDS_LIMIT, NodeConfig};
use keelet_cli::{
    image::{name_of, prepare_to_pull, told},
    paths::Paths,
    registries::Registries,
};
use keelet_cri::Runtime;
use keelet_runtime::{Engine, OciRuntime, PidsLimit, Pulling, RootfsImages, Settings};
use keelet_serve::{Archive, Images, Listener, api};
use tokio::{
    net::unix::pipe,
    signal::unix::{SignalKind, signal},
};

use crate::{
    claim::{self, Claim, Extra, Holder},
    log::{self, LogOptions},
};

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

/// Offer the embedded runtime to others, on a CRI socket
///
/// For crictl, for critest, and for a kubelet. `keelet agent` and `keelet run` need no socket: they have it in process.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Example:\n  keelet runtime serve &\n  crictl --runtime-endpoint unix:///run/keelet/cri.sock pods"
)]
struct Serve {
    /// Socket to listen on; only root can connect
    #[arg(long, value_name = "PATH", default_value = "/run/keelet/cri.sock")]
    listen: PathBuf,
    /// Take rootfs:/PATH, a directory of the node, for an image: every client of the socket can then read all files of the node
    #[arg(long)]
    allow_rootfs_images: bool,
    #[command(flatten)]
    paths: Paths,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    log: LogOptions,
}

/// Options of the embedded runtime, wherever it runs.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct Options {
    /// What creates containers for the embedded runtime: libcontainer, which is built in, runc, or the path of a
    /// program that is called as runc is [default: libcontainer]
    #[arg(long, value_name = "NAME|PATH")]
    oci_runtime: Option<OciRuntime>,
    /// How many processes and threads a pod may have in the embedded runtime; -1 for as many as the node can [default: an
    /// eighth of what the node can, at most 4096]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = pids_limit)]
    pod_max_pids: Option<i32>,
    #[command(flatten)]
    registries: Registries,
}

/// The images of the embedded runtime.
#[derive(Debug)]
struct Store(Engine);

/// The runtime that pods run on, and its images, if it is in this process.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) runtime: Runtime,
    pub(crate) images: Option<Arc<dyn Images>>,
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
) -> Result<Choice> {
    if let Some(runtime) = named {
        return Ok(Choice { runtime, images: None });
    }
    let mut settings = settings(paths, claim.bridge(), options)?;
    settings.images = store.map_or(settings.images, Path::to_owned);
    // Pods say where they come from, and those that may not name a directory of the node do not get as far as this.
    settings.rootfs_images = RootfsImages::Allowed;
    let engine = start(settings).await?;
    Ok(Choice { runtime: engine.in_process(), images: Some(Arc::new(Store(engine))) })
}

/// The settings of a runtime in these directories.
pub(crate) fn in_place(paths: &Paths, bridge: Option<&str>) -> Settings {
    let mut settings = Settings::new(&paths.root_dir.join("runtime"), &paths.state_dir.join("runtime"));
    settings.images = paths.root_dir.join(Paths::IMAGES);
    settings.network.owner = Some(claim::real(&paths.root_dir));
    if let Some(bridge) = bridge {
        bridge.clone_into(&mut settings.network.bridge);
    }
    settings
}

fn settings(paths: &Paths, bridge: Option<&str>, options: &Options) -> Result<Settings> {
    let mut settings = in_place(paths, bridge);
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

fn pids_limit(text: &str) -> Result<i32, String> {
    let limit = text.parse().ok().filter(|limit| *limit == NO_PIDS_LIMIT || (1..=MOST_PIDS).contains(limit));
    limit.ok_or_else(|| {
        format!("must be between 1 and {MOST_PIDS}, or {NO_PIDS_LIMIT} for as many as the node can have")
    })
}

// === impl Options ===

impl Options {
    /// With what a configuration file says of them; what was asked for at the start wins.
    pub(crate) fn over(&self, config: &NodeConfig) -> Self {
        Self { pod_max_pids: self.pod_max_pids.or(config.pod_pids_limit), ..self.clone() }
    }
}

// === impl Store ===

impl Images for Store {
    fn import<'a>(&'a self, mut archive: Archive<'a>) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async move {
            let (reader, writer) = io::pipe().map_err(|error| error.to_string())?;
            let store = self.0.images().clone();
            let reading = tokio::task::spawn_blocking(move || store.import(reader, None));
            let mut writer = pipe::Sender::from_owned_fd(writer.into()).map_err(|error| error.to_string())?;
            let sent = tokio::io::copy(&mut archive, &mut writer).await;
            drop(writer);
            let imported = reading.await.map_err(|error| error.to_string())?;
            // What is wrong with the archive says more than the broken pipe that follows from it.
            let images = imported.map_err(|error| error.to_string())?;
            sent.map_err(|error| format!("the archive did not arrive: {error}"))?;
            Ok(images.iter().map(name_of).collect())
        })
    }

    fn pulling(&self) -> Vec<api::Pulling> {
        self.0.pulling().into_iter().map(|Pulling { image, tally }| told(image, &tally)).collect()
    }
}

async fn start(settings: Settings) -> Result<Engine> {
    prepare_to_pull();
    Engine::open(settings).await.context("the embedded runtime cannot be used")
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
    let paths = args.paths.absolute()?;
    let mut claim = Claim::take(&paths, Holder::Server, Extra::default()).await?;
    let mut settings = settings(&paths, claim.bridge(), &args.options)?;
    settings.rootfs_images = if args.allow_rootfs_images { RootfsImages::Allowed } else { RootfsImages::Refused };
    let engine = start(settings).await?;
    let listener = Listener::bind(&args.listen).await.context("--listen")?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %args.listen.display(), "keelet runtime is listening");
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
        error = claim.lost() => return Err(error),
    }
    tracing::info!("runtime stopping; containers keep running");
    Ok(())
}
