//! An agent on a containerd, and what can be seen of its pods.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use keelet_cri::v1;
use keelet_ledger::{Recovered, Snapshot};
use keelet_lifecycle::{
    BootId,
    status::{ContainerState, PodStatus},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::{Bed, bed::told, eventually};

/// How much of the agent's log a failed test shows.
const LOG_LINES: usize = 60;

/// A node: manifests, directories, and an agent that a test starts, stops and kills.
#[derive(Debug)]
pub struct Node {
    bed: Bed,
    agent: Option<Child>,
}

/// A pod as the ledger and the runtime have it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its UID.
    pub uid: String,
    /// Its status.
    pub status: PodStatus,
    /// How many different statuses it has had.
    pub version: u64,
    /// Its sandboxes.
    pub sandboxes: Vec<v1::PodSandbox>,
    /// The address of each sandbox, in the same order.
    pub addresses: Vec<String>,
    /// Its containers, those that ended included.
    pub containers: Vec<v1::Container>,
}

// === impl Node ===

impl Node {
    /// A node without manifests and without an agent.
    pub fn new(bed: &Bed) -> Self {
        let node = Self { bed: bed.clone(), agent: None };
        for directory in ["manifests", "root", "state", "logs"] {
            fs::create_dir_all(node.path(directory)).expect("a directory");
        }
        node
    }

    /// Where on the node something of the test is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.bed.directory.join(name)
    }

    /// Asks for a pod. `IMAGE` in the manifest is the image of the test bed.
    pub fn want(&self, pod: &str, manifest: &str) {
        let whole = self.path("manifest.new");
        fs::write(&whole, manifest.replace("IMAGE", &self.bed.image)).expect("a manifest");
        fs::rename(whole, self.manifest(pod)).expect("a manifest in its place");
    }

    /// Asks for a pod no more.
    pub fn want_no_more(&self, pod: &str) {
        fs::remove_file(self.manifest(pod)).expect("a manifest");
    }

    fn manifest(&self, pod: &str) -> PathBuf {
        self.path("manifests").join(format!("{pod}.yaml"))
    }

    /// Starts an agent.
    pub fn start(&mut self) {
        assert!(self.agent.is_none(), "one agent at a time");
        let log = File::options().create(true).append(true).open(self.path("agent.log")).expect("a log");
        let mut command = Command::new(told("KEELET_E2E_AGENT"));
        let config = self.path("config.yaml");
        let with_config = config.exists().then(|| ["--config".into(), config.into_os_string()]);
        let agent = command
            .args(["agent", "--container-runtime-endpoint", self.bed.runtime.endpoint(), "-v"])
            .arg("--pod-manifest-path")
            .arg(self.path("manifests"))
            .arg("--root-dir")
            .arg(self.path("root"))
            .arg("--state-dir")
            .arg(self.path("state"))
            .arg("--pod-logs-dir")
            .arg(self.path("logs"))
            .arg("--local-objects-dir")
            .arg(self.path("objects"))
            .args(with_config.into_iter().flatten())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("keelet");
        self.agent = Some(agent);
    }

    /// Writes a file of the test, with the directories above it: `objects/configmaps/default/conf/key`.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a directory above it")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    /// Tells the agent to look at its configuration again.
    pub fn reload(&self) {
        let id = self.agent.as_ref().and_then(Child::id).expect("an agent that runs");
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, Signal::HUP).expect("a signal");
    }

    /// Kills the agent without a warning.
    pub async fn kill(&mut self) {
        let mut agent = self.agent.take().expect("an agent");
        let ended = agent.try_wait().expect("the agent can be asked");
        assert!(ended.is_none(), "the agent was to be killed but has ended by itself: {ended:?}");
        agent.kill().await.expect("the agent dies");
    }

    /// Asks the agent to stop and waits until it has.
    pub async fn terminate(&mut self) -> ExitStatus {
        let mut agent = self.agent.take().expect("an agent");
        let pid = agent.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).expect("a running agent");
        kill_process(pid, Signal::TERM).expect("the agent can be told");
        tokio::time::timeout(Duration::from_secs(60), agent.wait()).await.expect("the agent stops").expect("a status")
    }

    /// What the ledger has of a pod.
    pub fn recovered(&self, pod: &str) -> Option<Recovered> {
        let boot_id: BootId =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot ID").parse().expect("a boot ID");
        let snapshot = Snapshot::take(&self.path("root/ledger"), &self.path("state/ledger"), boot_id);
        assert!(snapshot.losses.is_empty(), "the ledger is damaged: {:?}", snapshot.losses);
        snapshot.pods.into_iter().find(|found| found.pod.as_ref().is_some_and(|known| known.name == pod))
    }

    /// What the ledger and the runtime have of a pod.
    pub async fn see(&self, pod: &str) -> Result<Seen, String> {
        let found = self.recovered(pod).ok_or("the ledger does not know the pod")?;
        let durable = found.evidence.durable;
        let status = durable.published.ok_or("the pod has no status yet")?;
        let label_selector = BTreeMap::from([("io.kubernetes.pod.name".to_owned(), pod.to_owned())]);
        let sandboxes = v1::PodSandboxFilter { label_selector: label_selector.clone(), ..Default::default() };
        let containers = v1::ContainerFilter { label_selector, ..Default::default() };
        let said = |error: keelet_cri::Error| error.to_string();
        let sandboxes = self.bed.runtime.list_pod_sandbox(Some(sandboxes)).await.map_err(said)?;
        let containers = self.bed.runtime.list_containers(Some(containers)).await.map_err(said)?;
        let mut addresses = Vec::new();
        for sandbox in &sandboxes {
            let sandbox = self.bed.runtime.pod_sandbox_status(&sandbox.id).await.map_err(said)?;
            addresses.push(sandbox.network.unwrap_or_default().ip);
        }
        Ok(Seen { uid: found.uid, status, version: durable.version, sandboxes, addresses, containers })
    }

    /// Waits until a pod is as it should be and ledger and runtime agree about it.
    pub async fn pod_when(&self, pod: &str, what: &str, right: impl Fn(&Seen) -> bool) -> Seen {
        eventually(&format!("{pod} to be {what}"), async || {
            let seen = self.see(pod).await?;
            if !right(&seen) {
                return Err(format!("it is {seen:#?}"));
            }
            seen.agrees().map(|()| seen)
        })
        .await
    }

    /// Waits until a pod is Ready.
    pub async fn ready(&self, pod: &str) -> Seen {
        self.pod_when(pod, "Ready", Seen::is_ready).await
    }

    /// Runs a script in a container of a pod; what it said.
    pub async fn run_in(&self, seen: &Seen, container: &str, script: &str) -> String {
        let command = ["sh", "-c", script].map(String::from);
        let id = seen.running_id(container).expect("a running container");
        let answer = self.bed.runtime.exec_sync(id, &command, Duration::from_secs(30)).await.expect("a command");
        assert_eq!(answer.exit_code, 0, "{script}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
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

fn tail(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

// === impl Seen ===

impl Seen {
    /// Whether the pod takes traffic.
    pub fn is_ready(&self) -> bool {
        self.status.is_true(&keelet_lifecycle::status::ConditionType::Ready)
    }

    /// The ID of the instance that runs, as the status says.
    pub fn running_id(&self, container: &str) -> Option<&str> {
        let status = self.status.container(container)?;
        let id = bare(status.container_id.as_deref()?);
        matches!(status.state, ContainerState::Running(_)).then_some(id)
    }

    /// How often a container was restarted, as the status says.
    pub fn restarts(&self, container: &str) -> Option<u32> {
        self.status.container(container).map(|status| status.restart_count)
    }

    /// The one sandbox that is ready.
    pub fn sandbox(&self) -> &str {
        let [sandbox] = self.ready_sandboxes()[..] else { panic!("not one ready sandbox: {:?}", self.sandboxes) };
        &self.sandboxes[sandbox].id
    }

    /// What runs in the runtime: the ID by name.
    pub fn running(&self) -> BTreeMap<&str, &str> {
        let running = self.containers.iter().filter(|found| found.state() == v1::ContainerState::ContainerRunning);
        running.map(|found| (name(found), found.id.as_str())).collect()
    }

    /// Whether the status says what the runtime has: what runs, in which attempt, at which address.
    pub fn agrees(&self) -> Result<(), String> {
        let [sandbox] = self.ready_sandboxes()[..] else {
            return Err(format!("there is not one ready sandbox: {:?}", self.sandboxes));
        };
        let address = self.status.pod_ip.as_deref().unwrap_or_default();
        if address != self.addresses[sandbox] {
            return Err(format!("the status has address {address:?}, the runtime {:?}", self.addresses[sandbox]));
        }
        let told: BTreeMap<&str, &str> = self
            .status
            .all_containers()
            .filter_map(|status| Some((status.name.as_str(), self.running_id(&status.name)?)))
            .collect();
        let instances = self.containers.iter().filter(|found| found.state() == v1::ContainerState::ContainerRunning);
        if told != self.running() || told.len() != instances.count() {
            return Err(format!("the status says that {told:?} run, the runtime has {:#?}", self.containers));
        }
        for found in &self.containers {
            let attempt = found.metadata.as_ref().map(|metadata| metadata.attempt);
            if told.get(name(found)) == Some(&found.id.as_str()) && attempt != self.restarts(name(found)) {
                return Err(format!("{} is attempt {attempt:?} in the runtime: {:#?}", name(found), self.status));
            }
        }
        Ok(())
    }

    fn ready_sandboxes(&self) -> Vec<usize> {
        let ready = |index: &usize| self.sandboxes[*index].state() == v1::PodSandboxState::SandboxReady;
        (0..self.sandboxes.len()).filter(ready).collect()
    }
}

/// The name of a container in its pod.
fn name(container: &v1::Container) -> &str {
    container.metadata.as_ref().map_or("", |metadata| &metadata.name)
}

/// A container ID without the runtime's name before it.
fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, bare)| bare)
}
