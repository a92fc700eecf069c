//! An agent, and the observed state of its pods.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use keelet_ledger::{Recovered, Snapshot};
use keelet_lifecycle::BootId;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::{
    Remains, Runs, Seen, eventually, processes,
    runtime::{self, asked, looked_up},
};

/// How much of the agent's log a failed test shows.
const LOG_LINES: usize = 80;

/// How often to read a ledger that is being removed file by file.
const GLANCES: usize = 1000;

/// The directory of a node, its binary and its runtime.
#[derive(Clone, Debug)]
pub struct Place {
    /// An empty directory.
    pub directory: PathBuf,
    /// keelet.
    pub binary: PathBuf,
    /// An image with a shell and the usual commands.
    pub image: String,
    /// The runtime.
    pub runtime: Runs,
}

/// A node: manifests, directories, and an agent that a test starts, stops and kills.
#[derive(Debug)]
pub struct Node {
    place: Place,
    /// More arguments for the agent.
    arguments: Vec<String>,
    agent: Option<Child>,
    /// The resources that existed before any pod.
    pub(crate) before: Remains,
    /// UIDs of pods by name, as far as they were needed.
    uids: RefCell<BTreeMap<String, String>>,
}

// === impl Node ===

/// Its manifests and its agent.
impl Node {
    /// A node without manifests and without an agent.
    pub fn new(place: Place) -> Self {
        let node = Self { place, arguments: Vec::new(), agent: None, before: Remains::now(), uids: RefCell::default() };
        for directory in ["manifests", "root", "state", "logs", "ctl"] {
            fs::create_dir_all(node.path(directory)).expect("a directory");
        }
        fs::write(node.path("ctl/diary"), "").expect("a diary");
        node
    }

    /// The path of a file of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.directory.join(name)
    }

    /// Writes the manifest of a pod. `IMAGE` in the manifest is the image of the place, `CTL` a directory for test and containers.
    pub fn want(&self, pod: &str, manifest: &str) {
        self.uids.borrow_mut().remove(pod);
        let text = manifest.replace("IMAGE", &self.place.image).replace("CTL", &self.path("ctl").display().to_string());
        let whole = self.path("manifest.new");
        fs::write(&whole, text).expect("a manifest");
        fs::rename(whole, self.manifest(pod)).expect("a manifest in its place");
    }

    /// Removes the manifest of a pod.
    pub fn want_no_more(&self, pod: &str) {
        fs::remove_file(self.manifest(pod)).expect("a manifest");
    }

    fn manifest(&self, pod: &str) -> PathBuf {
        self.path("manifests").join(format!("{pod}.yaml"))
    }

    /// Gives the agents that are started from now on one more argument.
    pub fn configure(&mut self, argument: &str) {
        self.arguments.push(argument.to_owned());
    }

    /// Starts an agent.
    pub fn start(&mut self) {
        assert!(self.agent.is_none(), "one agent at a time");
        let log = File::options().create(true).append(true).open(self.path("agent.log")).expect("a log");
        let mut command = Command::new(&self.place.binary);
        command.args(["agent", "-v"]).args(&self.arguments);
        if let Runs::On(runtime) = &self.place.runtime {
            command.args(["--container-runtime-endpoint", runtime.endpoint()]);
        }
        let directories = [
            ("--pod-manifest-path", "manifests"),
            ("--root-dir", "root"),
            ("--state-dir", "state"),
            ("--pod-logs-dir", "logs"),
            ("--local-objects-dir", "objects"),
        ];
        for (option, directory) in directories {
            command.arg(option).arg(self.path(directory));
        }
        let config = self.path("config.yaml");
        if config.exists() {
            command.arg("--config").arg(config);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        self.agent = Some(command.spawn().expect("keelet"));
    }

    /// A command of keelet against this node's agent. It ends with the test.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.place.binary);
        command
            .args(arguments)
            .env("KEELET_SOCKET", self.path("state/keelet.sock"))
            .env("TMPDIR", &self.place.directory);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Writes a file of the test, with the directories above it: `objects/configmaps/default/conf/key`.
    pub fn put(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a directory above it")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    /// Sends the agent SIGHUP: it reads its configuration again.
    pub fn reload(&self) {
        let id = self.agent().expect("an agent that runs");
        kill_process(pid(id), Signal::HUP).expect("a signal");
    }

    /// Kills the agent with SIGKILL.
    pub async fn kill(&mut self) {
        let mut agent = self.agent.take().expect("an agent");
        let ended = agent.try_wait().expect("the agent can be asked");
        assert!(ended.is_none(), "the agent was to be killed but has ended by itself: {ended:?}");
        agent.kill().await.expect("the agent dies");
    }

    /// Sends the agent SIGTERM and waits until it has exited.
    pub async fn terminate(&mut self) -> ExitStatus {
        let mut agent = self.agent.take().expect("an agent");
        kill_process(pid(agent.id().expect("a running agent")), Signal::TERM).expect("the agent can be signalled");
        tokio::time::timeout(Duration::from_secs(60), agent.wait()).await.expect("the agent stops").expect("a status")
    }

    /// Waits until the agent has exited by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut agent = self.agent.take().expect("an agent");
        tokio::time::timeout(Duration::from_secs(60), agent.wait()).await.expect("the agent ends").expect("a status")
    }

    /// The PID of the running agent.
    pub fn agent(&self) -> Option<u32> {
        self.agent.as_ref().and_then(Child::id)
    }

    /// The log of all agents so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }
}

/// The observed state of pods.
impl Node {
    /// A pod's state in the ledger.
    pub fn recovered(&self, pod: &str) -> Option<Recovered> {
        let boot_id: BootId =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot ID").parse().expect("a boot ID");
        let (durable, volatile) = (self.path("root/ledger"), self.path("state/ledger"));
        let known = self.uids.borrow().get(pod).cloned();
        let take = || match &known {
            Some(uid) => Snapshot::of_pod(&durable, &volatile, boot_id, uid),
            None => Snapshot::take(&durable, &volatile, boot_id),
        };
        let mut snapshot = take();
        // The files of a pod are removed one after the other, and a read in between misses some.
        for _ in 0..GLANCES {
            if snapshot.losses.is_empty() {
                break;
            }
            pause();
            snapshot = take();
        }
        assert!(snapshot.losses.is_empty(), "the ledger is damaged: {:?}", snapshot.losses);
        let is_it = |found: &Recovered| found.pod.as_ref().is_some_and(|known| known.name == pod);
        let found = snapshot.pods.into_iter().find(is_it)?;
        self.uids.borrow_mut().insert(pod.to_owned(), found.uid.clone());
        Some(found)
    }

    /// A pod's state in the ledger and in the runtime.
    pub async fn see(&self, pod: &str) -> Result<Seen, String> {
        let found = self.recovered(pod).ok_or("the ledger does not know the pod")?;
        let durable = found.evidence.durable;
        let status = durable.published.ok_or("the pod has no status yet")?;
        let (sandboxes, containers) = match &self.place.runtime {
            Runs::On(runtime) => asked(runtime, pod).await.map_err(|error| error.to_string())?,
            Runs::Embedded => looked_up(&self.path("state"), pod).map_err(|error| error.to_string())?,
        };
        let journal = found.journal.into_iter().map(|note| note.what).collect();
        Ok(Seen { uid: found.uid, status, version: durable.version, journal, sandboxes, containers })
    }

    /// Waits until the ledger shows a pod as it should be.
    pub async fn pod_until(&self, pod: &str, what: &str, right: impl Fn(&Seen) -> bool) -> Seen {
        eventually(&format!("{pod} to be {what}"), async || {
            let seen = self.see(pod).await?;
            if right(&seen) { Ok(seen) } else { Err(format!("it is {seen:#?}")) }
        })
        .await
    }

    /// Waits until a pod is as it should be and ledger and runtime agree about it.
    pub async fn pod_when(&self, pod: &str, what: &str, right: impl Fn(&Seen) -> bool) -> Seen {
        eventually(&format!("{pod} to be {what}"), async || {
            let seen = self.see(pod).await?;
            if !right(&seen) {
                return Err(format!("it is {seen:#?}"));
            }
            seen.agrees()?;
            self.at_work(pod, &seen).map(|()| seen)
        })
        .await
    }

    /// Whether the actors that run have begun: a container runs before its script does.
    fn at_work(&self, pod: &str, seen: &Seen) -> Result<(), String> {
        if matches!(self.place.runtime, Runs::On(_)) {
            return Ok(());
        }
        for name in seen.running().into_keys() {
            let (instances, [starts]) = (seen.counts([name])[0] + 1, self.starts(pod, [name]));
            if u32::try_from(starts).is_ok_and(|starts| starts < instances) {
                return Err(format!("{name} has not begun its instance number {instances}: {:#?}", self.diary()));
            }
        }
        Ok(())
    }

    /// Waits until a pod is Ready.
    pub async fn ready(&self, pod: &str) -> Seen {
        self.pod_when(pod, "Ready", Seen::is_ready).await
    }

    /// Waits until the ledger has nothing of the pod.
    pub async fn gone(&self, pod: &str) {
        eventually(&format!("{pod} to be gone"), async || match self.recovered(pod) {
            None => Ok(()),
            Some(found) => Err(format!("it is {:#?}", found.evidence.durable.published)),
        })
        .await;
    }

    /// Removes all manifests and waits until every pod is deleted and no resource is left behind.
    pub async fn leaves_nothing(&self) {
        for manifest in fs::read_dir(self.path("manifests")).expect("a directory").flatten() {
            fs::remove_file(manifest.path()).expect("a manifest");
        }
        let agent = self.agent();
        eventually("nothing to be left", async || {
            let left = Remains::now().without(&self.before).without_process(agent);
            let mut files: Vec<String> = Vec::new();
            let kept = [
                "root/pods",
                "root/runtime/sandboxes",
                "root/ledger/pods",
                "state/ledger/pods",
                "state/runtime/sandboxes",
                "logs",
            ];
            let more = ["root/runtime/images/roots", "root/runtime/images/mounts", "root/runtime/network/sandboxes"];
            for directory in kept.iter().chain(&more) {
                let found = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
                files.extend(found.map(|entry| entry.path().display().to_string()));
            }
            match left.is_nothing() && files.is_empty() {
                true => Ok(()),
                false => Err(format!("there are {left:#?}\nand {files:#?}")),
            }
        })
        .await;
    }
}

/// Actions of a test on containers, shims and pause processes.
impl Node {
    /// Runs a script in a container of a pod; its output.
    pub async fn run_in(&self, seen: &Seen, container: &str, script: &str) -> String {
        let command = ["sh", "-c", script].map(String::from);
        let (code, out, err) = match &self.place.runtime {
            Runs::On(runtime) => {
                let id = seen.running_id(container).expect("a running container");
                let answer = runtime.exec_sync(id, &command, Duration::from_secs(30)).await.expect("a command");
                (Some(answer.exit_code), answer.stdout, answer.stderr)
            }
            Runs::Embedded => {
                let target = seen.pid(container).to_string();
                let mut enter = Command::new("nsenter");
                enter.args(["--target", &target, "--mount", "--pid", "--net", "--ipc", "--uts"]);
                // The pod's user namespace, which only a process outside of it can join.
                let users = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).expect("a process");
                if users(&target) != users("self") {
                    enter.arg("--user");
                }
                enter.arg("--").args(command);
                let output = enter.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("nsenter");
                (output.status.code(), output.stdout, output.stderr)
            }
        };
        assert_eq!(code, Some(0), "{script}: {}", String::from_utf8_lossy(&err));
        String::from_utf8_lossy(&out).trim().to_owned()
    }

    /// Kills a container's process.
    pub fn kill_container(&self, seen: &Seen, container: &str) {
        signal(seen.pid(container), Signal::KILL);
    }

    /// Waits until a container's process is gone: one that has written its last line may take a moment more.
    pub async fn buried(&self, seen: &Seen, container: &str) {
        let process = Path::new("/proc").join(seen.pid(container).to_string());
        eventually(&format!("{container} to be buried"), async || {
            if process.exists() { Err(format!("{} is there", process.display())) } else { Ok(()) }
        })
        .await;
    }

    /// Kills the pause process of a pod.
    pub fn kill_pause(&self, seen: &Seen) {
        signal(seen.sandbox().pause.expect("a process"), Signal::KILL);
    }

    /// Cgroups in a pod's sandbox of containers that the runtime has removed.
    pub fn stray_cgroups(&self, seen: &Seen) -> Vec<String> {
        let sandbox = format!("/{}/", seen.sandbox().id);
        let known = |name: &str| seen.containers.iter().any(|container| container.id == name);
        let of_containers = |cgroup: &str| Some(cgroup.split_once(&sandbox)?.1.split('/').next()?.to_owned());
        let found = Remains::now();
        found.cgroups().filter_map(of_containers).filter(|name| !known(name)).collect()
    }

    /// How many processes of the machine run that very command.
    pub fn processes(&self, command: &str) -> usize {
        processes::all().iter().filter(|process| process.command == command).count()
    }

    /// The shim of a pod.
    pub fn shim(&self, seen: &Seen) -> Option<u32> {
        let sandbox = seen.sandbox();
        runtime::shim(&sandbox.id).filter(|pid| Some(*pid) != sandbox.pause)
    }

    /// Kills every shim and every pause process that there is, and returns when none of these runs any more.
    #[expect(clippy::disallowed_methods, reason = "a test waits for the kernel")]
    pub fn kill_shims(&self) {
        let is_shim = |process: &processes::Process| process.command.contains(" shim ");
        let shims: Vec<u32> = processes::all().iter().filter(|process| is_shim(process)).map(|shim| shim.pid).collect();
        for shim in &shims {
            // It may have just exited.
            let _ = kill_process(pid(*shim), Signal::KILL);
        }
        for _ in 0..6000 {
            if !processes::all().iter().any(|process| is_shim(process) && shims.contains(&process.pid)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("shims outlive SIGKILL: {:?}", processes::all());
    }

    /// Kills the shim of a pod.
    pub fn kill_shim(&self, seen: &Seen) {
        signal(self.shim(seen).expect("a shim"), Signal::KILL);
    }
}

impl Drop for Node {
    #[expect(clippy::print_stderr, reason = "a failed test shows what the agent said")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the end of the agent's log\n{}", tail(&self.path("agent.log")));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has its thread for itself")]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).expect("a process")
}

fn signal(number: u32, signal: Signal) {
    kill_process(pid(number), signal).expect("a process that runs");
}

fn tail(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
