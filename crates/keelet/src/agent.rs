//! `keelet agent`: the daemon.

mod cluster;
mod gating;
mod https;
mod options;

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use futures::future::OptionFuture;
use keelet_agent::{
    Agent, Settings,
    config::{Change, NodeConfig},
    source::{Listing, ManifestDir, ManifestSource},
};
use keelet_assembly::{Assembly, Claim, ClusterThread, Extra, Holder, HttpsThread, ServiceManager, agent_socket};
use keelet_cli::{feature_gates::FeatureGateArgs, number, paths::Directories};
use keelet_cri::Runtime;
use keelet_host::{Layout, LocalObjects};
use keelet_lifecycle::{Rules, restart::BackoffLimits};
use keelet_pod::{Resolution, Strictness};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::timeout,
};

use self::{
    gating::GateSettings,
    options::{Options, read_config},
};
use crate::{
    embedded,
    log::{self, LogOptions},
};

/// Run the node agent: pods from a manifest directory or an API server, on a container runtime
///
/// Pods keep running when the agent stops. The next agent adopts them: no pod status changes because an agent was
/// restarted. `keelet why` shows the reasons behind a status.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Exit status: 0 stopped by SIGTERM or SIGINT, 2 wrong usage, or the agent cannot start.\n\n\
                        Example:\n  keelet agent --container-runtime-endpoint unix:///run/containerd/containerd.sock \\\n    \
                        --pod-manifest-path /etc/keelet/manifests")]
pub(crate) struct Args {
    /// Configuration file: a KubeletConfiguration, YAML or JSON; flags take precedence over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// CRI socket of a container runtime (containerd, CRI-O), instead of the embedded one
    #[arg(long, value_name = "unix:///PATH")]
    container_runtime_endpoint: Option<String>,
    #[command(flatten)]
    embedded: embedded::Options,
    /// Directory with pod manifests: the agent runs the pods in it, and deletes a pod when its manifest is removed
    #[arg(long, value_name = "DIR")]
    pod_manifest_path: Option<PathBuf>,
    /// Directory with config maps and secrets, each either a directory with a file per key
    /// (configmaps/NAMESPACE/NAME/KEY) or a manifest (configmaps/NAMESPACE/NAME.yaml); secrets likewise below secrets/
    #[arg(long, value_name = "DIR", default_value = LocalObjects::DIRECTORY)]
    local_objects_dir: PathBuf,
    #[command(flatten)]
    directories: Directories,
    /// Directory for container logs [default: /var/log/pods]
    #[arg(long, value_name = "DIR")]
    pod_logs_dir: Option<PathBuf>,
    /// Name of this node [default: its host name]
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// IP address of this node: the address of pods with hostNetwork
    #[arg(long, value_name = "IP")]
    node_ip: Option<std::net::IpAddr>,
    #[command(flatten)]
    feature_gates: FeatureGateArgs,
    /// How long the agent may be down before pods are unready until a readiness probe passes again
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = number::parse::<u64>, default_value_t = Rules::default().node_monitor_grace.as_secs())]
    node_monitor_grace_period: u64,
    /// Exec probes that run at once on this node, and likewise network probes; one pod gets at most a quarter
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::parse::<NonZeroUsize>, default_value = "64")]
    max_concurrent_probes: NonZeroUsize,
    /// Port on 127.0.0.1 for /healthz and /metrics; 0 disables it [default: 10248]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true, value_parser = number::parse::<u16>)]
    healthz_port: Option<u16>,
    #[command(flatten)]
    log: LogOptions,
    #[command(flatten)]
    cluster: cluster::Args,
    #[command(flatten)]
    https: https::Args,
}

/// What the service manager shows.
const RUNNING: &str = concat!("keelet ", env!("CARGO_PKG_VERSION"), " runs pods");

/// How often a runtime that does not answer is asked for its version.
const GREET_AGAIN: Duration = Duration::from_secs(5);

/// Runs the agent until SIGTERM or SIGINT stops it.
pub(crate) fn run(args: &Args) -> Result<()> {
    log::to_stderr(args.log);
    // One thread is enough for a node's pods: nothing on it waits, and the disk has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Args) -> Result<()> {
    let options = Options::of(args, read_config(args.config.as_deref())?)?;
    let gating = GateSettings::of(args, &options.config);
    let Resolution { features, warnings } = args.feature_gates.resolve_over(&gating.feature_gates)?;
    for warning in &warnings {
        tracing::warn!(%warning, "feature gate warning");
    }
    let gating = gating.unless_off(&features);
    options.check_swap()?;
    let service_manager = Arc::new(ServiceManager::of_environment());
    let endpoint = options.endpoint.as_deref();
    let embedded = match endpoint {
        None => args.embedded.over(&options.config),
        Some(endpoint) => {
            if options.config.pod_pids_limit.is_some() {
                tracing::warn!(endpoint, "podPidsLimit has no effect: the runtime is not the embedded one");
            }
            args.embedded.clone()
        }
    };
    let named = embedded::named(endpoint, &embedded)?;
    let facts = options.facts(args)?;
    let https = match args.cluster.kubeconfig {
        Some(_) => args.https.settings(&options.config, &facts)?,
        None => None,
    };
    let cluster = args.cluster.connect(&facts, &features, &gating.taints, &options.paths).await?;
    let mut claim = Claim::take(&options.paths, Holder::Agent, Extra::default()).await?;
    let runtime = embedded::choose(named, &options.paths, &claim, &embedded, None).await?;
    let usual = Assembly::new(&options.paths, facts, features.clone(), runtime)?;
    let assembly = Assembly {
        layout: Layout::new(&options.paths.root_dir, &options.logs),
        objects: options.objects.clone(),
        settings: Settings {
            rules: Rules {
                node_monitor_grace: Duration::from_secs(args.node_monitor_grace_period),
                crash_backoff: BackoffLimits::for_node(options.config.max_restart_period, &features)?,
                sysctls: options.config.sysctls.clone(),
                eager_probes: options.config.eager_probes.unwrap_or(usual.settings.rules.eager_probes),
                ..usual.settings.rules
            },
            probe_limit: args.max_concurrent_probes.get(),
            parallel_pulls: options.parallel_pulls(),
            upkeep: options.config.upkeep.clone(),
            node_probes: gating.probes,
            gating: gating.of_node,
            ..usual.settings
        },
        publisher: cluster.as_ref().map(ClusterThread::publisher),
        carried: cluster.as_ref().map(ClusterThread::carried),
        ..usual
    };
    // Before the agent opens the ledger and begins to change it.
    let source = options.manifests.as_ref().map(|manifests| {
        ManifestDir::new(manifests, features.clone(), Strictness::Strict)
            .recovering(&assembly.settings.ledger, &features)
    });
    // Before anything is started: a signal that comes early must not be lost.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let node = assembly.start().await?;
    let (agent, runtime) = (Arc::clone(&node.agent), node.agent.runtime().clone());
    let socket = agent_socket(&options.paths.socket()).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        runtime = runtime.endpoint(),
        manifests = options.manifests.as_ref().map(|path| path.display().to_string()),
        "agent started"
    );
    service_manager.ready(RUNNING);
    if let Some(every) = service_manager.ping_every() {
        tokio::spawn(send_keep_alives(Arc::clone(&service_manager), Arc::clone(&agent), every));
    }
    tokio::spawn(greet(runtime));
    // Without a directory everything that it wants is known.
    let nothing = Listing { complete: options.manifests.is_none(), ..Listing::default() };
    let (sender, mut listings) = watch::channel(Arc::new(nothing));
    let mut servers = node.servers(Arc::new(listings.clone()));
    if let Some(socket) = socket {
        servers.serve(socket);
    }
    if let Some(address) = options.healthz(args) {
        servers.serve_health(address);
    }
    // Both sources are opened before one of them says anything.
    let pods_of_cluster = cluster.as_ref().map(|_| agent.source());
    let mut without_directory = None;
    let mut serving = None;
    let hint = match source {
        Some(source) => {
            let source = match options.config.file_check_frequency {
                Some(every) => source.rescan_every(every),
                None => source,
            };
            let hint = source.hint();
            agent.follow(Box::new(ManifestSource { directory: source, listings: sender }));
            Some(hint)
        }
        None => {
            without_directory = Some(sender);
            None
        }
    };
    if let (Some(cluster), Some(feed)) = (&cluster, pods_of_cluster) {
        // Before the node is registered, so that its object names the port from the beginning.
        let https = match https {
            Some(settings) => Some(
                servers.serve_https(settings, cluster).await.context("cannot start the thread of the HTTPS server")?,
            ),
            None => None,
        };
        cluster.begin(feed, Arc::clone(&agent), https.as_ref());
        serving = https;
    }
    let mut config = options.config;
    let failure = loop {
        let of_cluster = async { OptionFuture::from(cluster.as_ref().map(ClusterThread::ended)).await };
        let of_https = async { OptionFuture::from(serving.as_ref().map(HttpsThread::ended)).await };
        tokio::select! {
            biased;
            _ = terminate.recv() => break None,
            _ = interrupt.recv() => break None,
            // A panic, which is in the log. The next agent takes over without a change of any status; without one the node would be lost.
            Some(()) = of_cluster => break Some("the connection to the API server"),
            Some(()) = of_https => break Some("the HTTPS server"),
            _ = hangup.recv() => {
                service_manager.reloading();
                config = reload(args.config.as_deref(), config, &agent);
                hint.iter().for_each(|hint| hint.notify_one());
                agent.refresh_objects();
                service_manager.ready(RUNNING);
            }
            again = claim.made_again() => {
                // Not stopped in an orderly way: that would write to a directory that is not ours.
                again?;
                servers.serve_again(&options.paths.socket()).await;
            }
            changed = listings.changed() => {
                changed.context("the directory of manifests is no longer watched")?;
                listings.mark_unchanged();
            }
        }
    };
    service_manager.stopping();
    tracing::info!("agent stopping; pods keep running");
    drop(without_directory);
    drop(serving);
    servers.stop().await;
    agent.stop().await;
    drop(cluster);
    match failure {
        Some(part) => bail!("the thread of {part} has panicked; the panic is in the log above: start the agent again"),
        None => Ok(()),
    }
}

/// Reads the configuration file again. What can change while the agent runs does; the rest is named. A file that cannot
/// be used changes nothing.
fn reload(path: Option<&Path>, old: NodeConfig, agent: &Agent) -> NodeConfig {
    tracing::info!("SIGHUP: reading manifests, config maps and secrets again");
    let new = match read_config(path) {
        Ok(new) => new,
        Err(error) => {
            tracing::error!(
                error = format!("{error:#}"),
                "cannot read the configuration file: the old configuration stays in effect"
            );
            return old;
        }
    };
    for Change { field, takes_effect } in old.changes(&new) {
        if takes_effect {
            tracing::info!(field, "configuration field changed");
        } else {
            tracing::warn!(field, "configuration field changed: it takes effect after a restart of the agent");
        }
    }
    agent.set_upkeep(new.upkeep.clone());
    // The old values stay, so that the next reload reports again what did not take effect.
    NodeConfig { upkeep: new.upkeep, ..old }
}

/// Pings the watchdog of the service manager for as long as the agent's main loop makes progress.
async fn send_keep_alives(service_manager: Arc<ServiceManager>, agent: Arc<Agent>, every: Duration) {
    loop {
        match timeout(every, agent.pulse()).await {
            Ok(()) => service_manager.alive(),
            Err(_) => tracing::error!("agent main loop blocked: no watchdog keep-alive sent"),
        }
        tokio::time::sleep(every).await;
    }
}

/// Logs the runtime's name and version, and before that, if need be, that it cannot be reached: without pods nothing
/// else would call it.
async fn greet(runtime: Runtime) {
    let mut told = false;
    loop {
        match runtime.version().await {
            Ok(answer) => {
                tracing::info!(
                    name = answer.runtime_name,
                    version = answer.runtime_version,
                    "connected to the container runtime"
                );
                return;
            }
            Err(error) if !told => {
                tracing::warn!(%error, "cannot reach the container runtime; retrying");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(GREET_AGAIN).await;
    }
}
