//! What real pods cost on the embedded runtime: restarting, crashing, memory, starting many. Beside libcontainer, which
//! is built in, the same agent drives runc where it is installed.
//!
//! Everything happens on a machine of its own (`keelet_harness::bed`); what has to be durable is on a real disk. The
//! containers are this program: they write down the moment they begin and the moment they are about to end, so what is
//! measured is what a container sees, not what the agent says. Limits are those of SPECIFICATION.md; a run that exceeds one
//! fails.
//!
//! `KEELET_BENCH_ROUNDS` sets how many pods restart, and how many crash (default 21).

#![allow(clippy::print_stdout, missing_docs)]

use std::{
    env, fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use keelet_harness::{Node, Place, Seen, bed, eventually};
use rustix::time::{ClockId, clock_gettime};

/// Tells this program that it is a container, and what it does.
const ROLE: &str = "KEELET_BENCH_ROLE";

const RESTART_ALL_MS: f64 = 100.0;
const CRASH_MS: f64 = 50.0;
/// No restart may take longer.
const WORST_MS: f64 = 5000.0;
const MEMORY_MIB: f64 = 40.0;
const ALL_READY_S: f64 = 6.0;

const MEMORY_PODS: usize = 10;
const PROBED_PODS: usize = 50;

/// The runtime that makes the containers.
const MAKERS: [&str; 2] = ["libcontainer", "runc"];

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        return act(&role);
    }
    // `cargo test --benches` only asks whether it runs.
    if env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let place = match bed::enter(env!("CARGO_BIN_EXE_keelet")) {
        bed::Entered::Inside(place) => place,
        bed::Entered::Left(code) => return code,
        bed::Entered::Not(why) => {
            println!("skipped: real containers, because {why}");
            return ExitCode::SUCCESS;
        }
    };
    let rounds = env::var("KEELET_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(21);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let kept = runtime.block_on(measure(&place, rounds));
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

// === Inside a container ===

/// What a container does: `WHAT NAME`.
fn act(role: &str) -> ExitCode {
    let (what, name) = role.split_once(' ').unwrap_or((role, ""));
    note("start", name);
    match what {
        "init" => ExitCode::SUCCESS,
        "serve" => serve(),
        // Until it is told with which code to end.
        _ => loop {
            let order = format!("/ctl/{name}.exit");
            if let Some(code) = fs::read_to_string(&order).ok().and_then(|code| code.parse::<u8>().ok()) {
                let _ = fs::remove_file(&order);
                note("end", name);
                return ExitCode::from(code);
            }
            nap(Duration::from_millis(20));
        },
    }
}

/// One line, in one write: several containers share the file.
fn note(what: &str, name: &str) {
    let line = format!("{what} {name} {}\n", nanoseconds());
    let file = fs::OpenOptions::new().append(true).open("/ctl/times");
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("a note");
}

/// Answers every request with 200.
fn serve() -> ExitCode {
    let listener = TcpListener::bind("0.0.0.0:8080").expect("a port");
    for mut stream in listener.incoming().flatten() {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    ExitCode::SUCCESS
}

/// The machine's own clock, the same for all its processes.
fn nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[expect(clippy::disallowed_methods, reason = "a container has its thread for itself")]
fn nap(time: Duration) {
    std::thread::sleep(time);
}

// === Outside ===

async fn measure(place: &Place, rounds: usize) -> bool {
    put_on_disk(&place.directory.join("root"));
    let mut kept = true;
    for maker in MAKERS {
        let mut node = Node::new(place.clone());
        if maker != "libcontainer" {
            if !is_installed(maker) {
                println!("{maker}: skipped, because it is not installed");
                continue;
            }
            node.configure(&format!("--oci-runtime={maker}"));
        }
        println!("{maker}");
        let restarted = restarts(&mut node, rounds, Company::None).await;
        kept &= show("restart of all, 1 init + 2: exit to all running", &restarted, RESTART_ALL_MS) || maker == "runc";
        let restarted = restarts(&mut node, rounds, Company::All).await;
        show(&format!("the same beside {} such pods", rounds - 1), &restarted, f64::INFINITY);
        let crashed = crashes(&mut node, rounds).await;
        kept &= show("crash to running again", &crashed, CRASH_MS) || maker == "runc";
        let memory = memory(&mut node).await;
        kept &= memory.show();
        let seconds = all_ready(&mut node).await;
        println!(
            "  {PROBED_PODS} pods with 2 http probes each, start of the agent to all Ready: {seconds:.2} s (limit {ALL_READY_S})"
        );
        kept &= seconds <= ALL_READY_S || maker == "runc";
        println!("  after all were deleted: no mount, process, cgroup, interface or address is left");
    }
    kept
}

/// The rest of the machine is in memory, and there a file is durable for nothing.
fn put_on_disk(directory: &Path) {
    fs::create_dir_all(directory).expect("a directory");
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join("containers");
    let _ = fs::remove_dir_all(&disk);
    fs::create_dir_all(&disk).expect("a directory on disk");
    #[expect(clippy::disallowed_methods, reason = "nothing else runs yet")]
    let mounted = Command::new("mount").arg("--bind").arg(&disk).arg(directory).status();
    assert!(mounted.is_ok_and(|status| status.success()), "{} cannot be mounted", disk.display());
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).exists())
}

/// How long a pod takes, from the exit of one container until both run again, so many times. The init container runs
/// between. Each pod restarts once: restarts in a row are slowed down on purpose. Either it is alone on the node, or all of
/// them are there.
async fn restarts(node: &mut Node, rounds: usize, company: Company) -> Vec<f64> {
    let names: Vec<_> = (0..rounds).map(|number| format!("all-{number}")).collect();
    let mut measured = Vec::new();
    if company == Company::All {
        names.iter().for_each(|name| node.want(name, &restarting(name)));
    }
    begin(node, if company == Company::All { &names } else { &[] }).await;
    for name in &names {
        if company == Company::None {
            node.want(name, &restarting(name));
            up(node, name).await;
        }
        let both = [format!("{name}.main"), format!("{name}.other")];
        node.write(&format!("{}.exit", both[0]), "42");
        let again = async |started: &String| happened(node, "start", started, 2).await;
        let running = again(&both[0]).await.max(again(&both[1]).await);
        measured.push(milliseconds(happened(node, "end", &both[0], 1).await, running));
        up(node, name).await;
        if company == Company::None {
            node.want_no_more(name);
            node.gone(name).await;
        }
    }
    end(node).await;
    measured
}

/// The other containers on the node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    None,
    All,
}

fn restarting(name: &str) -> String {
    let rule = "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    let init = container("init", &format!("{name}.setup"), "");
    let main = container("work", &format!("{name}.main"), &format!(", restartPolicy: Never, {rule}"));
    let other = container("work", &format!("{name}.other"), "");
    let fields = format!("restartPolicy: Never\n  initContainers: [{init}]\n  containers: [{main}, {other}]");
    manifest(name, &fields)
}

/// How long each of so many pods takes to start a container again that ended with an error. The first time a container
/// crashes it is started again at once.
async fn crashes(node: &mut Node, rounds: usize) -> Vec<f64> {
    let names: Vec<_> = (0..rounds).map(|number| format!("crash-{number}")).collect();
    for name in &names {
        let main = container("work", &format!("{name}.main"), "");
        let other = container("work", &format!("{name}.other"), "");
        node.want(name, &manifest(name, &format!("containers: [{main}, {other}]")));
    }
    let mut measured = Vec::new();
    begin(node, &names).await;
    for name in &names {
        let main = format!("{name}.main");
        node.write(&format!("{main}.exit"), "1");
        let running = happened(node, "start", &main, 2).await;
        measured.push(milliseconds(happened(node, "end", &main, 1).await, running));
        up(node, name).await;
    }
    end(node).await;
    measured
}

struct Memory {
    agent: f64,
    shims: f64,
    pauses: f64,
}

// === impl Memory ===

impl Memory {
    fn show(&self) -> bool {
        let all = self.agent + self.shims + self.pauses;
        println!(
            "  {MEMORY_PODS} pods of 2 containers: {all:.1} MiB proportional (limit {MEMORY_MIB}): agent {:.1}, shims {:.1}, \
             holders of namespaces {:.1}",
            self.agent, self.shims, self.pauses
        );
        all <= MEMORY_MIB
    }
}

/// What agent and shims take with some pods of two containers. Memory that processes share is counted once.
async fn memory(node: &mut Node) -> Memory {
    let names: Vec<_> = (0..MEMORY_PODS).map(|number| format!("still-{number}")).collect();
    for name in &names {
        let one = container("work", &format!("{name}.one"), "");
        let two = container("work", &format!("{name}.two"), "");
        node.want(name, &manifest(name, &format!("containers: [{one}, {two}]")));
    }
    begin(node, &names).await;
    // Until the first audits are over.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut memory = Memory { agent: proportional(node.agent().expect("an agent")), shims: 0.0, pauses: 0.0 };
    for name in &names {
        let seen = up(node, name).await;
        memory.shims += proportional(node.shim(&seen).expect("a shim"));
        memory.pauses += proportional(seen.sandbox().pause.expect("a holder"));
    }
    end(node).await;
    memory
}

/// How long it takes from the start of an agent until all pods are Ready.
async fn all_ready(node: &mut Node) -> f64 {
    let probe = "{httpGet: {path: /, port: 8080}, periodSeconds: 1}";
    let names: Vec<_> = (0..PROBED_PODS).map(|number| format!("probed-{number}")).collect();
    for name in &names {
        let fields = format!(", readinessProbe: {probe}, livenessProbe: {probe}");
        let main = container("serve", &format!("{name}.main"), &fields);
        node.want(name, &manifest(name, &format!("containers: [{main}]")));
    }
    fs::write(node.path("ctl/times"), "").expect("a file");
    let begun = nanoseconds();
    node.start();
    // Looking into every pod's files would take the processors away from what is measured.
    while ready_containers(&node.path("state/keelet.sock")) < names.len() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let seconds = milliseconds(begun, nanoseconds()) / 1000.0;
    end(node).await;
    seconds
}

/// How many containers the agent calls ready; none while it cannot be asked.
fn ready_containers(socket: &Path) -> usize {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(b"GET /v1/pods HTTP/1.1\r\nHost: keelet\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map(|_| answer)
    };
    let answer: Vec<u8> = ask().unwrap_or_default();
    String::from_utf8_lossy(&answer).matches("\"ready\":true").count()
}

/// Starts an agent and waits until its pods are Ready.
async fn begin(node: &mut Node, names: &[String]) {
    fs::write(node.path("ctl/times"), "").expect("a file");
    node.start();
    for name in names {
        up(node, name).await;
    }
}

async fn up(node: &Node, name: &str) -> Seen {
    node.pod_until(name, "Ready", Seen::is_ready).await
}

/// Takes all pods away, sees that nothing is left, and stops the agent.
async fn end(node: &mut Node) {
    node.leaves_nothing().await;
    node.terminate().await;
}

fn manifest(name: &str, fields: &str) -> String {
    let exe = env::current_exe().expect("this program");
    let directory = exe.parent().expect("a directory").display();
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{{name: ctl, hostPath: {{path: CTL}}}}, {{name: bench, hostPath: {{path: {directory}}}}}]
  {fields}
"
    )
}

fn container(role: &str, name: &str, fields: &str) -> String {
    let exe = env::current_exe().expect("this program");
    let program = exe.file_name().expect("a name").display();
    let short = name.rsplit('.').next().unwrap_or(name);
    format!(
        "{{name: {short}, image: IMAGE, command: [/bench/{program}], env: [{{name: {ROLE}, value: {role} {name}}}], \
         volumeMounts: [{{name: ctl, mountPath: /ctl}}, {{name: bench, mountPath: /bench}}]{fields}}}"
    )
}

/// When a container wrote that down for the so manieth time.
async fn happened(node: &Node, what: &str, name: &str, time: usize) -> u64 {
    let start = format!("{what} {name} ");
    eventually(&format!("{start}{time}"), async || {
        let times = fs::read_to_string(node.path("ctl/times")).expect("a file");
        let mut found = times.lines().filter_map(|line| line.strip_prefix(&start)?.parse().ok());
        found.nth(time - 1).ok_or(times)
    })
    .await
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds")]
fn milliseconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}

/// Whether the median is within the limit, and all are within that of the worst.
fn show(what: &str, measured: &[f64], limit: f64) -> bool {
    let mut sorted = measured.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: usize| sorted[(sorted.len() - 1) * share / 100];
    let told = if limit.is_finite() { format!(" (limit {limit})") } else { String::new() };
    println!(
        "  {what}: median {:.1} ms{told}, least {:.1}, 90 of 100 within {:.1}, most {:.1}, of {}",
        at(50),
        at(0),
        at(90),
        at(100),
        sorted.len()
    );
    at(50) <= limit && at(100) <= WORST_MS
}

/// Memory in MiB, where pages shared by n processes count as an nth.
fn proportional(pid: u32) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("a process");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).expect("Pss");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}
