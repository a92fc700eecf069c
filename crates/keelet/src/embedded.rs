//! The embedded runtime, where it is used and where it is offered to others.

use std::{fs, io, os::unix::fs::PermissionsExt, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, Subcommand};
use keelet_runtime::{Engine, Settings};
use tokio::{
    net::{UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
};
use tokio_stream::wrappers::UnixListenerStream;

use crate::{paths::Paths, registries::Registries};

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
    #[command(flatten)]
    paths: Paths,
    #[command(flatten)]
    registries: Registries,
    /// Say more; twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Opens the runtime of a node.
pub(crate) async fn open(paths: &Paths) -> Result<Engine> {
    start(settings(paths)).await
}

fn settings(paths: &Paths) -> Settings {
    Settings::new(&paths.root_dir.join("runtime"), &paths.state_dir.join("runtime"))
}

async fn start(settings: Settings) -> Result<Engine> {
    // For pulling images; an earlier one is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Engine::open(settings).await.context("the embedded runtime cannot be used")
}

/// Runs a command on it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Command::Serve(args) = &args.command;
    crate::agent::log_to_stderr(args.verbose);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Serve) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut settings = settings(&args.paths.absolute()?);
    args.registries.apply(&mut settings.pull);
    let engine = start(settings).await?;
    let listener = listen(&args.listen).await.with_context(|| format!("--listen: {}", args.listen.display()))?;
    tracing::info!(socket = %args.listen.display(), "keelet {} offers its runtime", env!("CARGO_PKG_VERSION"));
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let serving = tonic::transport::Server::builder().serve_with_incoming_shutdown(
        engine.server(),
        UnixListenerStream::new(listener),
        stop,
    );
    serving.await?;
    tracing::info!("stopping; containers run on");
    Ok(())
}

/// A socket that a dead server left is replaced; one that is answered is somebody else's.
async fn listen(path: &PathBuf) -> Result<UnixListener> {
    if UnixStream::connect(path).await.is_ok() {
        bail!("somebody listens there already");
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
