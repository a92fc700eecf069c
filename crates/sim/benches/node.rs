//! What a full node costs: 110 pods, two http probes each second each, over real sockets, a real disk and the simulated
//! runtime behind a socket of its own. Servers and runtime are another process, so what is measured here is the agent.
//!
//! `KEELET_BENCH_SECONDS` sets how long it is measured (default 30). Limits are those of SPECIFICATION.md; a run that
//! exceeds one fails.

#![allow(clippy::print_stdout, missing_docs)]

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use keelet_agent::{Agent, Extent, Wanted};
use keelet_cri::Runtime;
use keelet_launch::NodeFacts;
use keelet_lifecycle::status::ConditionType;
use keelet_pod::parse_one;
use keelet_sim::bare_agent;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

/// Tells the other process what it is, and its socket.
const SERVE: &str = "KEELET_BENCH_SERVE";
const PODS: usize = 110;
const CPU_PER_PROBE_MS: f64 = 0.3;
const MEMORY_MIB: f64 = 24.0;
/// What the allocator may add without anything having grown.
const GROWTH_MIB: f64 = 1.0;

fn main() -> ExitCode {
    if let Some(socket) = env::var_os(SERVE) {
        serve(Path::new(&socket));
        return ExitCode::SUCCESS;
    }
    // `cargo test --benches` only asks whether it runs.
    if env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let seconds = env::var("KEELET_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let directory = tempfile::tempdir().expect("a directory");
    let mut peers = start_peers(&directory.path().join("runtime.sock"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let kept = runtime.block_on(measure(directory.path(), peers.port, Duration::from_secs(seconds)));
    let _ = peers.process.kill();
    #[expect(clippy::disallowed_methods, reason = "it was killed the line before")]
    let _ = peers.process.wait();
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn measure(directory: &Path, port: u16, span: Duration) -> bool {
    let volatile = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let socket = directory.join("runtime.sock");
    let before = resident_mib();
    let runtime = Runtime::connect(socket.to_str().expect("plain text")).expect("an endpoint");
    let facts = NodeFacts { name: "bench".to_owned(), address: Some("127.0.0.1".to_owned()), ..NodeFacts::default() };
    let (doors, settings, _) = bare_agent(directory, volatile.path(), runtime, facts);
    let agent = Agent::start(doors, settings).await.expect("an agent");
    let wanted = (0..PODS).map(|number| {
        let pod = Arc::new(parse_one(&manifest(number, port)).expect("a valid manifest"));
        (pod.uid.clone(), Wanted::new(pod))
    });
    agent.set_pods(wanted.collect(), Extent::Complete);
    let ready = || {
        agent.board().statuses().values().filter(|published| published.status.is_true(&ConditionType::Ready)).count()
    };
    while ready() < PODS {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Start-up has its own costs: the audits right after it, first connections, the allocator's growth.
    tokio::time::sleep(Duration::from_secs(15)).await;

    let (cpu, probes, memory, begun) = (cpu_ms(), probes(&agent), resident_mib(), tokio::time::Instant::now());
    tokio::time::sleep(span).await;
    let (cpu, probes) = (cpu_ms() - cpu, probes_since(&agent, probes));
    let (elapsed, after) = (begun.elapsed().as_secs_f64(), resident_mib());
    let per_probe = cpu / probes;
    println!("{PODS} pods, 2 http probes a second each, real sockets and disk, simulated runtime");
    println!("  probes        {probes:.0} in {elapsed:.1} s, {} pods ready", ready());
    println!(
        "  cpu           {per_probe:.3} ms a probe (limit {CPU_PER_PROBE_MS}), {:.1} % of a core",
        cpu / elapsed / 10.0
    );
    println!("  memory        {after:.1} MiB resident (limit {MEMORY_MIB}), {before:.1} before the first pod");
    println!("  growth        {:+.2} MiB in {elapsed:.0} s (limit {GROWTH_MIB})", after - memory);
    agent.stop().await;
    ready() == PODS && per_probe <= CPU_PER_PROBE_MS && after <= MEMORY_MIB && after - memory <= GROWTH_MIB
}

fn manifest(number: usize, port: u16) -> String {
    let probe = format!("{{httpGet: {{path: /, port: {port}}}, periodSeconds: 1}}");
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: pod-{number}, namespace: bench}}
spec:
  hostNetwork: true
  containers:
  - name: main
    image: app:1
    readinessProbe: {probe}
    livenessProbe: {probe}
"
    )
}

/// Probe attempts so far, by the agent's own count.
fn probes(agent: &Agent) -> f64 {
    let text = agent.metrics();
    let lines = text.lines().filter(|line| line.starts_with("prober_probe_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn probes_since(agent: &Agent, before: f64) -> f64 {
    probes(agent) - before
}

fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// What pods need of a node, in a process of its own, so that only the agent is measured.
struct Peers {
    process: Child,
    /// Where every request is answered with 200.
    port: u16,
}

fn start_peers(socket: &Path) -> Peers {
    let this = env::current_exe().expect("this program");
    let mut process =
        Command::new(this).env(SERVE, socket).stdout(Stdio::piped()).spawn().expect("the other process starts");
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("its port");
    Peers { process, port: line.trim().parse().expect("a port") }
}

/// A web server and a container runtime, until the process is killed.
fn serve(socket: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let connections = UnixListenerStream::new(UnixListener::bind(socket).expect("a socket"));
        println!("{port}");
        let server = tonic::transport::Server::builder();
        server.serve_with_incoming(keelet_sim::bare_server(1), connections).await.expect("a server");
    });
}

fn answer(mut stream: TcpStream) {
    let mut request = [0; 1024];
    let _ = stream.read(&mut request);
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
}
