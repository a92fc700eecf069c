//! `keelet agent`: the daemon.

pub(crate) mod facts;
mod local;
mod options;
mod systemd;

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use keelet_agent::{
    Agent, Doors, Settings, TokioTasks,
    board::Recall,
    clock::OsClock,
    config::{Change, NodeConfig},
    doors::Clock,
    source::{ManifestDir, ManifestSource},
};
use keelet_cli::{gates::Gates, number, paths::Paths, rules};
use keelet_cri::Runtime;
use keelet_host::{Layout, LocalObjects, OsHost};
use keelet_ledger::{OsDisk, Recovered, Snapshot};
use keelet_lifecycle::{BootId, Rules, restart::BackoffLimits};
use keelet_pod::{Features, Pod, Resolution, Strictness};
use keelet_prober::TcpDial;
use keelet_serve::Local;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::timeout,
};

use self::{
    options::{Options, read_config},
    systemd::ServiceManager,
};
use crate::{
    claim::{Claim, Extra, Holder},
    embedded,
    log::{self, LogOptions},
};

/// Run the node agent: pods from a directory of manifests, on a container runtime
///
/// Pods run on when the agent stops, and the next one takes them up as they are: no status changes because an agent
/// was restarted. Ask `keelet why` for the reasons behind a status.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Exit status: 0 told to stop by SIGTERM or SIGINT, 2 wrong usage, or it cannot start.\n\n\
                        Example:\n  keelet agent --container-runtime-endpoint unix:///run/containerd/containerd.sock \\\n    \
                        --pod-manifest-path /etc/keelet/manifests")]
pub(crate) struct Args {
    /// Configuration file: a KubeletConfiguration, YAML or JSON; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Socket of a container runtime (containerd, CRI-O), instead of the embedded one
    #[arg(long, value_name = "unix:///PATH")]
    container_runtime_endpoint: Option<String>,
    #[command(flatten)]
    embedded: embedded::Options,
    /// Directory with pod manifests; what is in it runs, what is taken out of it ends
    #[arg(long, value_name = "DIR")]
    pod_manifest_path: Option<PathBuf>,
    /// Directory with config maps and secrets: configmaps/NAMESPACE/NAME/KEY or configmaps/NAMESPACE/NAME.yaml, and
    /// the same under secrets
    #[arg(long, value_name = "DIR", default_value = LocalObjects::DIRECTORY)]
    local_objects_dir: PathBuf,
    #[command(flatten)]
    paths: Paths,
    /// Directory for the logs of containers [default: /var/log/pods]
    #[arg(long, value_name = "DIR")]
    pod_logs_dir: Option<PathBuf>,
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
    /// Turns that pods share for their exec probes, and as many for probes over the network; a pod has at most a quarter
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::parse::<NonZeroUsize>, default_value = "64")]
    max_concurrent_probes: NonZeroUsize,
    /// Port of loopback for /healthz and /metrics; 0 for none [default: 10248]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true, value_parser = number::parse::<u16>)]
    healthz_port: Option<u16>,
    #[command(flatten)]
    log: LogOptions,
    #[command(flatten)]
    _of_clusters: OfClusters,
}

/// What the kubelet takes and only a node of a cluster can use: refused with the reason, not as a slip of the pen.
#[derive(Debug, ClapArgs)]
struct OfClusters {
    #[arg(long, hide = true, value_parser = of_clusters)]
    kubeconfig: Option<String>,
    #[arg(long, hide = true, value_parser = of_clusters)]
    bootstrap_kubeconfig: Option<String>,
    #[arg(long, hide = true, value_parser = of_clusters)]
    register_with_taints: Option<String>,
    #[arg(long, hide = true, value_parser = of_clusters)]
    node_labels: Option<String>,
}

fn of_clusters(_: &str) -> Result<String, &'static str> {
    Err("keelet cannot be a node of a cluster yet; pods come from --pod-manifest-path")
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
    let Resolution { features, warnings } = args.gates.resolve_over(&options.config.feature_gates)?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    options.check_swap()?;
    let service_manager = Arc::new(ServiceManager::of_environment());
    let clock = Arc::new(OsClock::new().context("the clock of this machine cannot be used")?);
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
    let mut claim = Claim::take(&options.paths, Holder::Agent, Extra::default()).await?;
    let choice = embedded::choose(named, &options.paths, &claim, &embedded, None).await?;
    let embedded::Choice { runtime, images } = choice;
    let (recovered, lost_copies) = recovered(&options.paths, clock.now().boot_id, &features);
    let facts = options.facts(args)?;
    let layout = Layout::new(&options.paths.root_dir, &options.logs);
    let settings = Settings {
        rules: Rules {
            node_monitor_grace: Duration::from_secs(args.node_monitor_grace_period),
            crash_backoff: BackoffLimits::for_node(options.config.max_restart_period, &features)?,
            sysctls: options.config.sysctls.clone(),
            ..rules::of_node(&features)?
        },
        features: features.clone(),
        ledger: options.paths.ledger_settings(clock.now().boot_id),
        recall: Recall::AllRuns,
        probe_limit: args.max_concurrent_probes.get(),
        facts: facts.clone(),
        parallel_pulls: options.parallel_pulls(),
        upkeep: options.config.upkeep.clone(),
    };
    let host = OsHost::new(layout.clone())
        .with_objects(Arc::new(LocalObjects::new(&options.objects)))
        .with_facts(facts.clone());
    let doors = doors(&runtime, &clock, host)?;
    // Before anything is started: a signal that comes early must not be lost.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let agent = Arc::new(Agent::start(doors, settings).await?);
    let socket = local::socket(&options.paths.socket()).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"), runtime = runtime.endpoint(), manifests = %options.manifests.display(),
        "keelet is running"
    );
    service_manager.ready(RUNNING);
    if let Some(every) = service_manager.ping_every() {
        tokio::spawn(show_life(Arc::clone(&service_manager), Arc::clone(&agent), every));
    }
    tokio::spawn(greet(runtime.clone()));
    let (sender, mut listings) = watch::channel(Arc::default());
    let api = Local {
        agent: Arc::clone(&agent),
        runtime,
        started: clock.now(),
        clock,
        layout,
        facts,
        source: Arc::new(listings.clone()),
        images,
    };
    let api = Arc::new(api);
    let mut served = local::serve(socket, options.healthz(args), Arc::clone(&api));
    let mut source = ManifestDir::new(&options.manifests, features, Strictness::Strict).beside(recovered);
    if lost_copies {
        source = source.with_lost_copies();
    }
    if let Some(every) = options.config.file_check_frequency {
        source = source.relook_every(every);
    }
    let bell = source.bell();
    agent.follow(Box::new(ManifestSource { directory: source, listings: sender }));
    let mut config = options.config;
    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                service_manager.reloading();
                config = reload(args.config.as_deref(), config, &agent);
                bell.notify_one();
                agent.look_at_objects();
                service_manager.ready(RUNNING);
            }
            again = claim.made_again() => {
                // Not stopped in an orderly way: that would write to a directory that is not ours.
                again?;
                local::serve_again(&mut served, &options.paths.socket(), &api).await;
            }
            changed = listings.changed() => {
                changed.context("the directory of manifests is no longer watched")?;
                listings.mark_unchanged();
            }
        }
    }
    service_manager.stopping();
    tracing::info!("agent stopping; pods keep running");
    drop(served);
    agent.stop().await;
    Ok(())
}

/// The doors of an agent on this machine.
pub(crate) fn doors(runtime: &Runtime, clock: &Arc<OsClock>, host: OsHost) -> Result<Doors<OsDisk>> {
    Ok(Doors {
        runtime: runtime.clone(),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        dial: Arc::new(TcpDial::default()),
        disk: OsDisk,
        host: Arc::new(host),
        publisher: None,
        observer: None,
        tasks: Arc::new(TokioTasks::start().context("no thread for the ledger")?),
    })
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

/// Pings the watchdog of the service manager for as long as the agent's main loop turns.
async fn show_life(service_manager: Arc<ServiceManager>, agent: Arc<Agent>, every: Duration) {
    loop {
        match timeout(every, agent.pulse()).await {
            Ok(()) => service_manager.alive(),
            Err(_) => tracing::error!("the agent's main loop is blocked: no watchdog ping was sent"),
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

/// The pods that an earlier agent left running, as it knew them, without those that have to go, and whether there are more of
/// which no copy can be read. The agent reports what cannot be used of the ledger when it opens the ledger.
fn recovered(paths: &Paths, boot_id: BootId, features: &Features) -> (Vec<Arc<Pod>>, bool) {
    let ledger = paths.ledger_settings(boot_id);
    let pods = Snapshot::take(&ledger.durable_root, &ledger.volatile_root, boot_id).pods;
    let stays = |pod: &Recovered| !pod.evidence.durable.ending.as_ref().is_some_and(|ending| ending.deleted);
    let left: Vec<_> = pods.into_iter().filter(stays).collect();
    let expected = left.len();
    let copies = left.into_iter().filter_map(|pod| Pod::from_json(pod.copy?, features).ok());
    let copies: Vec<_> = copies.map(Arc::new).collect();
    let lost = copies.len() < expected;
    (copies, lost)
}

#[cfg(test)]
mod tests {
    use keelet_ledger::{Entry, Ledger, PodRef};
    use keelet_lifecycle::{
        Evidence, Moment, Wall,
        evidence::{Ending, EndingCause},
    };

    use super::*;

    /// Manifests are held against what runs and stays: a pod on its way out is not among it, and one whose copy is lost is told
    /// apart from none.
    #[test]
    fn pods_on_their_way_out_are_not_recovered() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths { root_dir: directory.path().join("root"), state_dir: directory.path().join("state") };
        let boot_id = BootId::from_u128(1);
        let now = Moment { boot_ms: 1, wall: Wall::from_millis(1), boot_id };
        let names = || {
            let (pods, lost) = recovered(&paths, boot_id, &Features::default());
            (pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>(), lost)
        };
        let remember = |name: &str, deleted: bool, copy: bool| {
            let manifest = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, uid: {name}}}\nspec: {{containers: [{{name: c, image: app}}]}}\n"
            );
            let pod = keelet_pod::parse_one(&manifest).unwrap();
            let reference = PodRef { uid: pod.uid.clone(), namespace: pod.namespace.clone(), name: pod.name.clone() };
            let mut evidence = Evidence::default();
            let grace = Duration::ZERO;
            evidence.durable.ending =
                deleted.then_some(Ending { cause: EndingCause::Deleted, since: now, grace, deleted });
            let mut ledger = Ledger::open(paths.ledger_settings(boot_id)).unwrap().ledger;
            let entry = Entry { pod: &reference, evidence: &evidence.into(), results: &[], why: None };
            assert!(ledger.commit(&entry, now).unwrap().durable.is_written());
            if copy {
                assert!(ledger.keep_pod(&reference, &pod.to_json().unwrap(), now).unwrap().is_written());
            }
        };
        remember("stays", false, true);
        remember("leaves", true, true);
        assert_eq!(names(), (vec!["stays".to_owned()], false));
        remember("lost", false, false);
        assert_eq!(names(), (vec!["stays".to_owned()], true), "there is one more, and no copy of it");
    }
}
