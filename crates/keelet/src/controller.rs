//! `keelet controller`: node readiness gates for a cluster.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::{ArgAction, Args as ClapArgs, ValueEnum};
use keelet_cli::{feature_gates::FeatureGateArgs, gates::GateFlags};
use keelet_gates::{
    api::{Api, connect, connect_in_cluster},
    clock::SystemClock,
    controller::{Election, LeaseOptions, Options, RuleObjects},
    election::Timing,
    engine::Mode,
    process::{self, BindAddress, Endpoint, LEASE, LEASE_NAMESPACE, Process},
    settings::Settings,
};
use keelet_pod::{Switch, duration};
use tokio::signal::unix::{SignalKind, signal};

use crate::log::{self, LogOptions};

/// Run the node readiness gates controller for a cluster
///
/// A node that is registered with the taint readiness.k8s.io/CNIReady:NoSchedule gets no pods until a reporter sets its
/// condition CNIReady to True: then the controller removes the taint. Any cluster, any kubelet, any number of
/// replicas: the one that holds the lease acts. NodeReadinessRule objects are honoured where the cluster has them.
///
/// An API server that does not answer and a permission that is missing are logged and waited for; neither needs a restart.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Exit status: 0 stopped by SIGTERM or SIGINT, or switched off by a feature gate, 2 wrong usage, or the controller \
                        cannot start.\n\n\
                        Examples:\n  \
                        keelet controller                                          # in a pod, with its service account\n  \
                        keelet controller --dry-run --kubeconfig ~/.kube/config    # what would it do? Needs to read only\n  \
                        keelet controller --enforcement=continuous --max-held=5%   # taints return with their reason\n  \
                        curl localhost:8080/readyz"
)]
pub(crate) struct Args {
    /// Kubeconfig whose current context names the API server and the user [default: the service account of this pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Log and count what would be done, and change nothing; needs to list and watch only, and no lease
    #[arg(long)]
    dry_run: bool,
    /// Address of /healthz, /readyz and /metrics: :PORT for all addresses, IP:PORT, or 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    bind_address: BindAddress,
    #[command(flatten)]
    feature_gates: FeatureGateArgs,
    #[command(flatten)]
    log: LogOptions,
    // Last: their headings go on until the next one.
    #[command(flatten)]
    gates: GateOptions,
    #[command(flatten)]
    election: ElectionOptions,
}

/// What is done about gates.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Gates")]
struct GateOptions {
    #[command(flatten)]
    flags: GateFlags,
    /// Whether NodeReadinessRule objects (readiness.node.x-k8s.io/v1alpha1) are honoured
    #[arg(long, value_enum, value_name = "WHETHER", default_value_t = Honoured::Auto)]
    rules: Honoured,
}

/// Which replica acts.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Leader election")]
struct ElectionOptions {
    /// Act only while holding the lease. Without it there must be one replica only
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    leader_elect: bool,
    /// Name of the lease
    #[arg(long, value_name = "NAME", default_value = LEASE, value_parser = process::name)]
    leader_elect_resource_name: String,
    /// Namespace of the lease [default: that of this pod; kube-system with --kubeconfig]
    #[arg(long, value_name = "NAMESPACE", value_parser = process::name)]
    leader_elect_resource_namespace: Option<String>,
    /// How long other replicas wait for a leader that does not renew; whole seconds
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse)]
    leader_elect_lease_duration: Duration,
    /// How long a leader that cannot renew goes on acting; shorter than the lease duration
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    leader_elect_renew_deadline: Duration,
    /// How often a leader renews
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    leader_elect_retry_period: Duration,
}

/// Whether rules are honoured.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Honoured {
    /// Where the cluster has them
    Auto,
    /// Never; no access to them is needed
    Off,
}

const FEATURE: &str = "NodeReadinessGates";

/// Runs the controller until SIGTERM or SIGINT stops it.
pub(crate) fn run(args: &Args) -> Result<()> {
    log::to_stderr(args.log);
    if is_off(args)? {
        tracing::info!(feature_gate = FEATURE, "feature gate is off: the controller does nothing and exits");
        return Ok(());
    }
    let settings = args.gates.flags.settings()?;
    let timing = args.election.timing()?;
    // One thread is enough for the nodes of a cluster: reading a heartbeat takes some 30 microseconds.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(args, settings, timing))
}

async fn serve(args: &Args, settings: Settings, timing: Timing) -> Result<()> {
    // Before anything is started: a signal that comes early must not be lost.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let client = match &args.kubeconfig {
        Some(path) => connect(path).await?,
        None => connect_in_cluster()?,
    };
    let namespace = match (&args.election.leader_elect_resource_namespace, &args.kubeconfig) {
        (Some(namespace), _) => namespace.clone(),
        (None, Some(_)) => LEASE_NAMESPACE.to_owned(),
        (None, None) => client.default_namespace().to_owned(),
    };
    let election = match (args.dry_run, args.election.leader_elect) {
        (true, _) | (_, false) => Election::Alone,
        (false, true) => Election::Lease(Box::new(LeaseOptions {
            namespace,
            name: args.election.leader_elect_resource_name.clone(),
            identity: process::identity(),
            timing,
        })),
    };
    let options = Options {
        settings,
        mode: if args.dry_run { Mode::DryRun } else { Mode::Act },
        election,
        rules: match args.gates.rules {
            Honoured::Auto => RuleObjects::Auto,
            Honoured::Off => RuleObjects::Off,
        },
    };
    let endpoint = Endpoint::bind(args.bind_address).await?;
    let process = Process { api: Api::new(client), clock: Arc::new(SystemClock), options, endpoint };
    let mut signalled = async || {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    process
        .run(async {
            let signal = signalled().await;
            tracing::info!(signal, "controller stopping");
        })
        .await;
    Ok(())
}

/// Starting the controller switches the feature on, unless the flag says otherwise.
fn is_off(args: &Args) -> Result<bool> {
    for warning in args.feature_gates.resolve()?.warnings {
        tracing::warn!(%warning, "feature gate warning");
    }
    let implied = [(FEATURE.to_owned(), true)].into();
    Ok(args.feature_gates.resolve_over(&implied)?.features.node_readiness_gates == Switch::Off)
}

// === impl ElectionOptions ===

impl ElectionOptions {
    fn timing(&self) -> Result<Timing> {
        let (duration, deadline) = (self.leader_elect_lease_duration, self.leader_elect_renew_deadline);
        Timing::new(duration, deadline, self.leader_elect_retry_period).context("leader election")
    }
}
