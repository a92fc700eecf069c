//! `keelet agent`: the daemon.

mod facts;

use std::{io::IsTerminal, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
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
use keelet_ledger::OsDisk;
use keelet_lifecycle::{
    Rules,
    restart::{BackoffLimits, RestartAllRule},
};
use keelet_pod::{Features, Resolution, Strictness, Switch};
use keelet_prober::TcpDial;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing_subscriber::{EnvFilter, fmt};

use crate::{gates, paths::Paths};

/// Run the node agent: pods from a directory of manifests, on a container runtime
///
/// Pods run on when the agent stops, and the next one takes them up as they are: no status changes because an agent
/// was restarted. Ask `keelet why` for the reasons behind a status.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Socket of the container runtime (containerd, CRI-O)
    #[arg(long, value_name = "unix:///PATH")]
    container_runtime_endpoint: String,
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
    /// Feature switches, as the kubelet takes them
    #[arg(long, value_name = "NAME=true|false,...", default_value = "")]
    feature_gates: String,
    /// An agent that was away for longer than this asks readiness probes before it believes them
    #[arg(long, value_name = "SECONDS", default_value_t = 50)]
    node_monitor_grace_period: u64,
    /// Probe attempts that may be under way at once
    #[arg(long, value_name = "N", default_value = "64")]
    max_concurrent_probes: NonZeroUsize,
    /// Say more; twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Runs the agent until it is told to stop.
pub(crate) fn run(args: &Args) -> Result<()> {
    log_to_stderr(args.verbose);
    // One thread is enough for a node's pods: nothing on it waits, and the disk has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("KEELET_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,keelet={level},keelet_agent={level}")));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).with_target(false).init();
}

async fn serve(args: &Args) -> Result<()> {
    let Resolution { features, warnings } = gates::resolve(&args.feature_gates)?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    let clock = Arc::new(OsClock::new().context("the clock of this machine cannot be used")?);
    let runtime = Runtime::connect(&args.container_runtime_endpoint)?;
    let readers = Arc::new(LocalReaders::default());
    let settings = Settings {
        rules: rules(args, &features)?,
        features: features.clone(),
        ledger: args.paths.ledger_settings(clock.now().boot_id),
        mode: Mode::Standalone,
        probe_limit: args.max_concurrent_probes.get(),
        facts: facts::of_this_node(args.hostname_override.clone(), args.node_ip, &args.paths.root_dir),
    };
    let doors = Doors {
        runtime,
        clock,
        dial: Arc::new(TcpDial),
        disk: OsDisk,
        host: Arc::new(OsHost::new(Layout::new(&args.paths.root_dir, &args.pod_logs_dir))),
        readers,
        tasks: Arc::new(TokioTasks),
    };
    // Before anything is started: a signal that comes early must not be lost.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let agent = Agent::start(doors, settings).await?;
    tracing::info!(
        runtime = args.container_runtime_endpoint, manifests = %args.pod_manifest_path.display(),
        "keelet {} is running", env!("CARGO_PKG_VERSION")
    );
    let (sender, mut listings) = watch::channel(Arc::default());
    tokio::spawn(ManifestDir::new(&args.pod_manifest_path, features, Strictness::Strict).run(sender));
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

fn rules(args: &Args, features: &Features) -> Result<Rules> {
    Ok(Rules {
        agent_restart: features.agent_restart,
        restart_all: match features.restart_all {
            Switch::On => RestartAllRule::Honoured,
            Switch::Off => RestartAllRule::Ignored,
        },
        crash_backoff: BackoffLimits::for_node(None, features)?,
        node_monitor_grace: Duration::from_secs(args.node_monitor_grace_period),
        ..Rules::default()
    })
}
