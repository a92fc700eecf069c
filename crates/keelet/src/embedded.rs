//! The embedded runtime, where it is used and where it is offered to others.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, Subcommand};
use futures::future::BoxFuture;
use keelet_cri::Runtime;
use keelet_local::{Archive, ImageImport};
use keelet_runtime::{Engine, Image, Settings};
use tokio::{
    net::{UnixListener, UnixStream, unix::pipe},
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

/// Takes archives of images into the runtime's store.
#[derive(Debug)]
struct Import(Engine);

/// The runtime that pods run on, and what takes archives of images, if it can.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) runtime: Runtime,
    pub(crate) import: Option<Arc<dyn ImageImport>>,
}

/// The runtime on that socket, or else the embedded one.
pub(crate) async fn choose(endpoint: Option<&str>, paths: &Paths) -> Result<Choice> {
    match endpoint {
        Some(endpoint) => Ok(Choice { runtime: Runtime::connect(endpoint)?, import: None }),
        None => {
            let engine = open(paths).await?;
            Ok(Choice { runtime: engine.in_process(), import: Some(Arc::new(Import(engine))) })
        }
    }
}

/// Opens the runtime of a node.
async fn open(paths: &Paths) -> Result<Engine> {
    start(settings(paths)).await
}

fn settings(paths: &Paths) -> Settings {
    let mut settings = Settings::new(&paths.root_dir.join("runtime"), &paths.state_dir.join("runtime"));
    if let Some(bridge) = own_bridge(&paths.root_dir) {
        settings.network.bridge = bridge;
    }
    settings
}

/// A node has one bridge, and whoever has directories of his own has one of his own, with addresses that nobody else gives
/// away. Its name follows from the directory, so that the next one on that directory finds it again.
fn own_bridge(root: &Path) -> Option<String> {
    if root == Path::new(Paths::ROOT) {
        return None;
    }
    let hash = root
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    Some(format!("keelet{hash:08x}"))
}

// === impl Import ===

impl ImageImport for Import {
    fn import<'a>(&'a self, mut archive: Archive<'a>) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async move {
            let (reader, writer) = io::pipe().map_err(|error| error.to_string())?;
            let store = self.0.images().clone();
            let reading = tokio::task::spawn_blocking(move || store.import(reader, None));
            let mut writer = pipe::Sender::from_owned_fd(writer.into()).map_err(|error| error.to_string())?;
            let sent = tokio::io::copy(&mut archive, &mut writer).await;
            drop(writer);
            let imported = reading.await.map_err(|error| error.to_string())?;
            // What is wrong with the archive says more than that nobody read the rest of it.
            let images = imported.map_err(|error| error.to_string())?;
            sent.map_err(|error| format!("the archive did not arrive: {error}"))?;
            let name = |image: &Image| image.tags.first().cloned().unwrap_or_else(|| image.id.clone());
            Ok(images.iter().map(name).collect())
        })
    }
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
