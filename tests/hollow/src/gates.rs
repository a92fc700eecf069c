//! `hollow gates`: what `keelet controller` costs on this control plane, compared with what it promises.
//!
//! 1. Some nodes at a rate: how long a taint outlives its condition, with a bare client and with the controller.
//! 2. Many nodes as fast as the API server answers: how long all of it takes, with both, in turns.
//! 3. Memory after that, and memory and CPU time while the nodes report their heartbeats and nothing else happens.
//!
//! The controller never runs while the bare client is measured.

use std::{
    path::PathBuf,
    process::{ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use keelet_hollow::{
    Pace, Shape, fleet,
    flip::{self, FlipSettings, Rate, Remover, Report},
};
use kube::Client;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::{Child, Command},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// Measures a controller, and fails where it misses a promise
#[derive(Args)]
pub(crate) struct Gates {
    /// The keelet to be measured
    #[arg(long, value_name = "FILE")]
    controller: PathBuf,
    /// Nodes that are flipped at a rate
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Flips a second
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// Nodes that are flipped at full rate, and that heartbeat when the controller is at rest
    #[arg(long, default_value_t = 5000)]
    most: usize,
    /// How often each way is measured at full rate; the best counts
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// How long the controller is watched at rest
    #[arg(long, default_value = "60s", value_parser = keelet_pod::duration::parse_some)]
    rest: Duration,
}

/// A fleet that is kept alive.
struct Kept {
    shape: Shape,
    keeper: JoinHandle<()>,
}

/// A controller that runs.
struct Controller {
    child: Child,
    pid: u32,
}

/// Promises and what was measured.
#[derive(Default)]
struct Checks {
    missed: usize,
}

/// What a process has used.
struct Usage {
    resident: f64,
    most_resident: f64,
    cpu: Duration,
}

const CONDITION: &str = "NetworkReady";
const TAINT: &str = "readiness.k8s.io/NetworkReady";

/// As kubelets report: the controller manager believes a node for 50 s.
const PACE: Pace = Pace { lease: Duration::from_secs(20), heartbeat: Duration::from_secs(300), in_flight: 32 };

/// Where the controller is asked. The bed has a network namespace of its own.
const ADDRESS: &str = "127.0.0.1:8080";

/// How long anything may take that is not measured.
const PATIENCE: Duration = Duration::from_secs(300);

/// The unit of CPU times in /proc: 1/100 s on every Linux that has a bed.
const TICK: Duration = Duration::from_millis(10);

const MIB: f64 = 1024.0;

/// Measures everything, one line for each promise.
pub(crate) async fn measure(client: &Client, gates: &Gates) -> anyhow::Result<ExitCode> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, load {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
    let mut checks = Checks::default();

    let few = Kept::create(client, "rated", gates.nodes).await?;
    let rate = Rate::PerSecond(gates.rate);
    let bare = flip(client, &few.shape, rate, Remover::Bare).await?;
    let controller = Controller::start(gates).await?;
    let ours = flip(client, &few.shape, rate, Remover::Controller).await?;
    controller.stop().await?;
    few.delete(client).await?;
    println!("{} nodes at {} flips a second, from the answer to the event without the taint:", gates.nodes, gates.rate);
    println!("  bare client: {}", bare.latency);
    println!("  controller:  {}", ours.latency);
    checks.within("p50, ms", millis(ours.latency.at(50)), 15.0);
    checks.within("p99, ms", millis(ours.latency.at(99)), 50.0);
    checks.within("taints that stayed", ours.missed as f64, 0.0);

    let many = Kept::create(client, "many", gates.most).await?;
    let (mut bare_took, mut ours_took) = (f64::INFINITY, f64::INFINITY);
    let mut last = None;
    for _ in 0..gates.rounds.max(1) {
        // The one before.
        if let Some(controller) = Option::take(&mut last) {
            Controller::stop(controller).await?;
        }
        let bare = flip(client, &many.shape, Rate::Full, Remover::Bare).await?;
        let controller = Controller::start(gates).await?;
        let ours = flip(client, &many.shape, Rate::Full, Remover::Controller).await?;
        if ours.missed > 0 {
            bail!("{} of {} taints stayed", ours.missed, gates.most);
        }
        println!("{} nodes at full rate: bare client {:?}, controller {:?}", gates.most, bare.took, ours.took);
        bare_took = bare_took.min(bare.took.as_secs_f64());
        ours_took = ours_took.min(ours.took.as_secs_f64());
        last = Some(controller);
    }
    checks.within("times the bare client", ours_took / bare_took, 1.2);

    let Some(controller) = last else { bail!("no round") };
    // Events about the flips are written when nothing else is to do.
    controller.is_idle(gates.most).await?;
    let before = controller.usage()?;
    let begun = Instant::now();
    sleep(gates.rest).await;
    let after = controller.usage()?;
    let share = (after.cpu - before.cpu).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
    println!("{} nodes that heartbeat, for {:?}:", gates.most, gates.rest);
    checks.within("resident, MiB", after.resident, 32.0);
    checks.within("growth at rest, MiB", after.resident - before.resident, 1.0);
    checks.within("CPU, % of a core", share, 2.0);
    println!("  (most resident so far: {:.1} MiB)", after.most_resident);
    controller.stop().await?;
    many.delete(client).await?;
    Ok(if checks.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn flip(client: &Client, shape: &Shape, rate: Rate, remover: Remover) -> anyhow::Result<Report> {
    let settings = FlipSettings {
        shape: shape.clone(),
        condition: CONDITION.to_owned(),
        taint: TAINT.to_owned(),
        rate,
        in_flight: 64,
        remover,
        patience: PATIENCE,
    };
    Ok(flip::measure(client, &settings).await?)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A number from the metrics of the controller.
async fn metric(name: &str) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect(ADDRESS).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.with_context(|| format!("there is no {name}"))
}

/// Waits until a metric is so.
async fn until(name: &str, is_so: impl Fn(f64) -> bool) -> anyhow::Result<()> {
    let waited = async {
        while !metric(name).await.is_ok_and(&is_so) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, waited).await.with_context(|| format!("{name} did not change"))
}

// === impl Kept ===

impl Kept {
    async fn create(client: &Client, prefix: &str, nodes: usize) -> anyhow::Result<Self> {
        let shape = Shape::new(prefix, nodes);
        let tally = Arc::new(fleet::Tally::default());
        let keeper = {
            let (client, shape, tally) = (client.clone(), shape.clone(), Arc::clone(&tally));
            tokio::spawn(async move { fleet::keep_alive(&client, &shape, &PACE, &tally).await })
        };
        fleet::create(client, &shape, PACE.in_flight, &tally).await?;
        fleet::accepted(client, &shape).await?;
        Ok(Self { shape, keeper })
    }

    async fn delete(self, client: &Client) -> anyhow::Result<()> {
        self.keeper.abort();
        Ok(fleet::delete(client, &self.shape.prefix).await?)
    }
}

// === impl Controller ===

impl Controller {
    /// Starts one, and waits until it leads and knows all nodes.
    async fn start(gates: &Gates) -> anyhow::Result<Self> {
        let kubeconfig = std::env::var("KUBECONFIG").context("KUBECONFIG is not set")?;
        let child = Command::new(&gates.controller)
            .args(["controller", "--bind-address", ADDRESS, "--kubeconfig", &kubeconfig])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", gates.controller.display()))?;
        let pid = child.id().context("it has ended")?;
        until("keelet_gates_leader", |leads| leads == 1.0).await?;
        until("keelet_gates_synced", |synced| synced == 1.0).await?;
        Ok(Self { child, pid })
    }

    /// Waits until it has written all its events.
    async fn is_idle(&self, events: usize) -> anyhow::Result<()> {
        until("keelet_gates_events_total{outcome=\"written\"}", |written| written >= events as f64).await
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.pid));
        let status = read("status")?;
        let size = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).map(|size| size / MIB)
        };
        let stat = read("stat")?;
        // The name of the process, in brackets, may have anything in it.
        let (_, fields) = stat.rsplit_once(')').context("stat of the process")?;
        let ticks: u32 = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
        let missing = "status of the process";
        Ok(Usage {
            resident: size("VmRSS:").context(missing)?,
            most_resident: size("VmHWM:").context(missing)?,
            cpu: TICK * ticks,
        })
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid)?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        timeout(PATIENCE, self.child.wait()).await??;
        Ok(())
    }
}

// === impl Checks ===

impl Checks {
    fn within(&mut self, what: &str, measured: f64, promised: f64) {
        let result = if measured <= promised { "ok" } else { "MISSED" };
        self.missed += usize::from(measured > promised);
        println!("  {what}: {measured:.2}, at most {promised}: {result}");
    }
}
