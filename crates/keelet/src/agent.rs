//! `keelet agent`: the daemon.

mod facts;

use std::{
    io::{self, IsTerminal},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use keelet_agent::{
    Agent, Doors, Extent, Mode, Settings, TokioTasks, Wanted,
    clock::OsClock,
    doors::Clock,
    host::{Layout, OsHost},
    readers::LocalReaders,
    source::ManifestDir,
};
use keelet_cri::Runtime;
use keelet_ledger::{OsDisk, Recovered, Snapshot};
use keelet_lifecycle::{BootId, Rules};
use keelet_pod::{Features, Pod, Resolution, Strictness};
use keelet_prober::TcpDial;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing_subscriber::{EnvFilter, fmt};

use crate::{embedded, gates::Gates, number, paths::Paths, rules};

/// Run the node agent: pods from a directory of manifests, on a container runtime
///
/// Pods run on when the agent stops, and the next one takes them up as they are: no status changes because an agent
/// was restarted. Ask `keelet why` for the reasons behind a status.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Exit status: 0 told to stop by SIGTERM or SIGINT, 2 wrong usage, or it cannot start.\n\n\
                        Example:\n  keelet agent --container-runtime-endpoint unix:///run/containerd/containerd.sock \\\n    \
                        --pod-manifest-path /etc/keelet/manifests")]
pub(crate) struct Args {
    /// Socket of a container runtime (containerd, CRI-O), instead of the embedded one
    #[arg(long, value_name = "unix:///PATH")]
    container_runtime_endpoint: Option<String>,
    /// Directory with pod manifests; what is in it runs, what is taken out of it ends
    #[arg(long, value_name = "DIR")]
    pod_manifest_path: PathBuf,
    #[command(flatten)]
    paths: Paths,
    /// Directory for the logs of containers
    #[arg(long, value_name = "DIR", default_value = Layout::LOGS)]
    pod_logs_dir: PathBuf,
    /// Name of this node, if not its host name
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Address of this node, for pods on its network
    #[arg(long, value_name = "IP")]
    node_ip: Option<std::net::IpAddr>,
    #[command(flatten)]
    gates: Gates,
    /// An agent that was away for longer than this asks readiness probes before it believes them
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = number::parse::<u64>, default_value_t = Rules::default().node_monitor_grace.as_secs())]
    node_monitor_grace_period: u64,
    /// Probe attempts that may be under way at once
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::parse::<NonZeroUsize>, default_value = "64")]
    max_concurrent_probes: NonZeroUsize,
    /// Say more; twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// How often a runtime that does not answer is asked who it is.
const GREET_AGAIN: Duration = Duration::from_secs(5);

/// Runs the agent until it is told to stop.
pub(crate) fn run(args: &Args) -> Result<()> {
    log_to_stderr(args.verbose);
    // One thread is enough for a node's pods: nothing on it waits, and the disk has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

pub(crate) fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let usual = || {
        EnvFilter::new(format!(
            "warn,keelet={level},keelet_agent={level},keelet_runtime={level},keelet_image={level},keelet_net={level}"
        ))
    };
    let asked = std::env::var("KEELET_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = asked.as_ref().map(EnvFilter::try_new);
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let wrong = filter.as_ref().and_then(|filter| filter.as_ref().err()).map(ToString::to_string);
    let filter = filter.and_then(Result::ok).unwrap_or_else(usual);
    fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colours).with_target(false).init();
    if let Some(error) = wrong {
        tracing::warn!(KEELET_LOG = asked, %error, "ignored: expected a filter such as warn,keelet_agent=debug");
    }
}

async fn serve(args: &Args) -> Result<()> {
    let Resolution { features, warnings } = args.gates.resolve()?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let directories = Directories::of(args)?;
    let clock = Arc::new(OsClock::new().context("the clock of this machine cannot be used")?);
    let runtime = match &args.container_runtime_endpoint {
        Some(endpoint) => Runtime::connect(endpoint)?,
        None => embedded::open(&directories.paths).await?.in_process(),
    };
    let readers = Arc::new(LocalReaders::default());
    let recovered = recovered(&directories.paths, clock.now().boot_id, &features);
    let settings = Settings {
        rules: Rules {
            node_monitor_grace: Duration::from_secs(args.node_monitor_grace_period),
            ..rules::of_node(&features)?
        },
        features: features.clone(),
        ledger: directories.paths.ledger_settings(clock.now().boot_id),
        mode: Mode::Standalone,
        probe_limit: args.max_concurrent_probes.get(),
        facts: facts::of_this_node(args.hostname_override.clone(), args.node_ip, &directories.paths.root_dir),
    };
    let doors = Doors {
        runtime: runtime.clone(),
        clock,
        dial: Arc::new(TcpDial),
        disk: OsDisk,
        host: Arc::new(OsHost::new(Layout::new(&directories.paths.root_dir, &directories.logs))),
        readers,
        tasks: Arc::new(TokioTasks::start().context("no thread for the ledger")?),
    };
    // Before anything is started: a signal that comes early must not be lost.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let agent = Agent::start(doors, settings).await?;
    tracing::info!(
        runtime = runtime.endpoint(), manifests = %directories.manifests.display(),
        "keelet {} is running", env!("CARGO_PKG_VERSION")
    );
    tokio::spawn(greet(runtime));
    let (sender, mut listings) = watch::channel(Arc::default());
    let source = ManifestDir::new(&directories.manifests, features, Strictness::Strict).beside(recovered);
    tokio::spawn(source.run(sender));
    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            changed = listings.changed() => {
                changed.context("the directory of manifests is no longer watched")?;
                let listing = Arc::clone(&listings.borrow_and_update());
                let wanted = listing.pods.iter().map(|(uid, pod)| (uid.clone(), Wanted::new(Arc::clone(pod))));
                let extent = if listing.complete { Extent::Complete } else { Extent::Partial };
                agent.set_pods(wanted.collect(), extent);
            }
        }
    }
    tracing::info!("stopping; pods run on");
    agent.stop().await;
    Ok(())
}

/// Says who the runtime is, and before that, if need be, that there is none: without pods nobody else would ask it.
async fn greet(runtime: Runtime) {
    let mut told = false;
    loop {
        match runtime.version().await {
            Ok(answer) => {
                tracing::info!(name = answer.runtime_name, version = answer.runtime_version, "the runtime answers");
                return;
            }
            Err(error) if !told => {
                tracing::warn!(%error, "the runtime does not answer; the agent keeps trying");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(GREET_AGAIN).await;
    }
}

/// Where everything is, as the runtime sees it: whatever the working directory.
struct Directories {
    paths: Paths,
    logs: PathBuf,
    manifests: PathBuf,
}

// === impl Directories ===

impl Directories {
    fn of(args: &Args) -> Result<Self> {
        // One that cannot be written may be so for a while only; one that cannot be a directory never will be.
        let own = |option: &str, path: &Path| {
            let kind = path.metadata().map(|found| found.is_dir());
            match kind.map_err(|error| error.kind()) {
                Ok(false) | Err(io::ErrorKind::NotADirectory) => {
                    bail!("{option}: {} is not a directory", path.display())
                }
                _ => absolute(option, path),
            }
        };
        Ok(Self {
            paths: Paths {
                root_dir: own("--root-dir", &args.paths.root_dir)?,
                state_dir: own("--state-dir", &args.paths.state_dir)?,
            },
            logs: own("--pod-logs-dir", &args.pod_logs_dir)?,
            // It may come and go.
            manifests: absolute("--pod-manifest-path", &args.pod_manifest_path)?,
        })
    }
}

fn absolute(option: &str, path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .with_context(|| format!("{option}: {:?} is no path of a directory", path.display().to_string()))
}

/// The pods that an earlier agent left running, as it knew them, without those that have to go. What cannot be used of the
/// ledger, the agent tells when it opens it.
fn recovered(paths: &Paths, boot_id: BootId, features: &Features) -> Vec<Arc<Pod>> {
    let ledger = paths.ledger_settings(boot_id);
    let pods = Snapshot::take(&ledger.durable_root, &ledger.volatile_root, boot_id).pods;
    let stays = |pod: &Recovered| !pod.evidence.durable.ending.as_ref().is_some_and(|ending| ending.deleted);
    let copies = pods.into_iter().filter(stays).filter_map(|pod| Pod::from_json(pod.copy?, features).ok());
    copies.map(Arc::new).collect()
}
