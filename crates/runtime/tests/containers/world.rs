//! Where a case runs: a machine of its own as far as namespaces go, and a runtime in it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use keelet_cri::{Error, Runtime, v1};
use keelet_linux::cgroup::Mounts;
use keelet_runtime::{Engine, Settings};

/// The first process of the namespaces: prepares them, starts the case and reaps whatever is left to it.
pub(crate) fn init(args: &[&str]) -> ExitCode {
    let [name, dir, cgroup] = args else { return ExitCode::FAILURE };
    run("mount", &["-t", "tmpfs", "tmpfs", dir]);
    loopback_up(Path::new(dir));
    let exe = std::env::current_exe().unwrap();
    #[expect(clippy::zombie_processes, reason = "it is waited for below, with all other children")]
    let child = Command::new(exe).args(["case", name, dir, cgroup]).spawn().unwrap();
    loop {
        use rustix::process::{WaitOptions, wait};
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().unsigned_abs() == child.id() => {
                let code = status.exit_status().unwrap_or(100);
                std::process::exit(code);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("waiting for the case: {error}"),
        }
    }
}

/// Brings loopback up without a tool that a bare machine need not have.
fn loopback_up(dir: &Path) {
    let network = keelet_net::Network::open(keelet_net::Settings::new(dir.join("loopback"))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(network.loopback_only(Path::new("/proc/self/ns/net"))).unwrap();
}

pub(crate) fn run(program: &str, args: &[&str]) {
    let status = Command::new(program).args(args).status().unwrap();
    assert!(status.success(), "{program} {args:?}: {status}");
}

/// The machine of one case.
pub(crate) struct World {
    pub(crate) dir: PathBuf,
    pub(crate) cgroup: String,
    pub(crate) settings: Settings,
    engine: Option<(Engine, Runtime)>,
    mounts_before: BTreeSet<String>,
}

/// A sandbox, and what it was asked for with.
#[derive(Clone)]
pub(crate) struct Pod {
    pub(crate) id: String,
    pub(crate) config: v1::PodSandboxConfig,
}

impl World {
    pub(crate) fn at(dir: &Path, cgroup: &str) -> Self {
        let mut settings = Settings::new(&dir.join("root"), &dir.join("state"));
        settings.rootfs_images = keelet_runtime::RootfsImages::Allowed;
        settings.network.cni_conf_dir = dir.join("no-cni");
        settings.cgroup = cgroup.to_owned();
        settings.pull.docker_config = None;
        let mounts_before = mounts();
        Self { dir: dir.to_owned(), cgroup: cgroup.to_owned(), settings, engine: None, mounts_before }
    }

    pub(crate) async fn open(mut self) -> Self {
        self.reopen().await;
        self
    }

    /// Another server on the same directories; the earlier one is dropped.
    pub(crate) async fn reopen(&mut self) {
        self.close();
        let engine = Engine::open(self.settings.clone()).await.expect("the runtime opens");
        let cri = engine.in_process();
        self.engine = Some((engine, cri));
    }

    pub(crate) fn close(&mut self) {
        self.engine = None;
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine.as_ref().expect("open").0
    }

    pub(crate) fn cri(&self) -> &Runtime {
        &self.engine.as_ref().expect("open").1
    }

    pub(crate) fn sandbox_dir(&self, id: &str) -> PathBuf {
        self.dir.join("state/sandboxes").join(id)
    }

    pub(crate) async fn pod(&self, name: &str) -> Pod {
        self.run_pod(self.pod_config(name)).await.expect("a sandbox")
    }

    pub(crate) async fn run_pod(&self, config: v1::PodSandboxConfig) -> Result<Pod, Error> {
        let id = self.cri().run_pod_sandbox(config.clone(), "").await?;
        Ok(Pod { id, config })
    }

    /// A pod on the node's network, which is this case's own and cheap; containers have their own processes.
    pub(crate) fn pod_config(&self, name: &str) -> v1::PodSandboxConfig {
        pod_config(name, &self.dir.join("logs").join(name), self.options())
    }

    pub(crate) fn options(&self) -> v1::NamespaceOption {
        v1::NamespaceOption {
            network: v1::NamespaceMode::Node.into(),
            pid: v1::NamespaceMode::Container.into(),
            ..v1::NamespaceOption::default()
        }
    }

    /// A container that runs a script of the shell, in a copy of this machine's files.
    pub(crate) fn container(&self, name: &str, script: &str) -> v1::ContainerConfig {
        let security_context =
            v1::LinuxContainerSecurityContext { namespace_options: Some(self.options()), ..Default::default() };
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "rootfs:/".to_owned(), ..Default::default() }),
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            log_path: format!("{name}.log"),
            linux: Some(v1::LinuxContainerConfig {
                security_context: Some(security_context),
                ..v1::LinuxContainerConfig::default()
            }),
            ..v1::ContainerConfig::default()
        }
    }

    pub(crate) async fn create(&self, pod: &Pod, config: v1::ContainerConfig) -> Result<String, Error> {
        self.cri().create_container(&pod.id, config, pod.config.clone()).await
    }

    pub(crate) async fn start(&self, pod: &Pod, config: v1::ContainerConfig) -> String {
        let id = self.create(pod, config).await.expect("created");
        self.cri().start_container(&id).await.expect("started");
        id
    }

    pub(crate) async fn status(&self, id: &str) -> v1::ContainerStatus {
        self.cri().container_status(id, false).await.expect("a status").0
    }

    pub(crate) async fn state(&self, id: &str) -> v1::ContainerState {
        self.status(id).await.state()
    }

    pub(crate) async fn pid(&self, id: &str) -> u32 {
        let (_, info) = self.cri().container_status(id, true).await.expect("a status");
        let info: serde_json::Value = serde_json::from_str(&info["info"]).expect("JSON");
        u32::try_from(info["pid"].as_u64().expect("a number")).expect("a PID")
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self, id: &str) -> v1::ContainerStatus {
        until("the container has ended", async || {
            let status = self.status(id).await;
            (!matches!(status.state(), v1::ContainerState::ContainerRunning)).then_some(status)
        })
        .await
    }

    /// Runs a container to its end; how that was, and what it said.
    pub(crate) async fn run(&self, pod: &Pod, config: v1::ContainerConfig) -> (v1::ContainerStatus, String) {
        let name = config.metadata.clone().unwrap().name;
        let id = self.start(pod, config).await;
        let status = self.ended(&id).await;
        (status, self.said(pod, &name))
    }

    /// What a script prints in a container of its own.
    pub(crate) async fn output(&self, pod: &Pod, config: v1::ContainerConfig) -> String {
        let (status, said) = self.run(pod, config).await;
        assert_eq!(status.exit_code, 0, "{}: {said}", status.message);
        said
    }

    pub(crate) fn log(&self, pod: &Pod, name: &str) -> String {
        let path = Path::new(&pod.config.log_directory).join(format!("{name}.log"));
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The text of a log, without times, streams and tags, and without a line that is being written.
    pub(crate) fn said(&self, pod: &Pod, name: &str) -> String {
        let log = self.log(pod, name);
        let mut text = String::new();
        for line in log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let mut parts = line.splitn(4, ' ');
            let (tag, words) = (parts.nth(2).unwrap_or_default(), parts.next().unwrap_or_default());
            text.push_str(words);
            if tag == "F" {
                text.push('\n');
            }
        }
        text
    }

    pub(crate) async fn try_exec(&self, id: &str, script: &str, seconds: u64) -> Result<v1::ExecSyncResponse, Error> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        self.cri().exec_sync(id, &command, Duration::from_secs(seconds)).await
    }

    /// What a command prints in a container that runs.
    pub(crate) async fn exec(&self, id: &str, script: &str) -> String {
        let answer = self.try_exec(id, script, 60).await.expect("it ran");
        let (out, err) = (String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
        assert_eq!(answer.exit_code, 0, "{script}: {out}{err}");
        out.into_owned()
    }

    /// The file of a container's cgroup.
    pub(crate) fn limit(&self, pod: &Pod, id: &str, controller: &str, file: &str) -> String {
        let mounts = Mounts::find().expect("cgroups");
        let dir = mounts.directory(controller, &format!("{}/{}/{id}", self.cgroup, pod.id)).expect("a controller");
        fs::read_to_string(dir.join(file)).unwrap_or_else(|error| panic!("{file}: {error}")).trim().to_owned()
    }

    /// Removes everything, and finds nothing that was not there before.
    pub(crate) async fn leaves_nothing(&mut self) {
        if self.engine.is_none() {
            self.reopen().await;
        }
        for sandbox in self.cri().list_pod_sandbox(None).await.expect("sandboxes") {
            self.cri().stop_pod_sandbox(&sandbox.id).await.expect("stopped");
            self.cri().remove_pod_sandbox(&sandbox.id).await.expect("removed");
        }
        let found = until_or("nothing is left", async || {
            let left = self.left();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
        if let Err(left) = found {
            panic!("left behind: {left:#?}");
        }
    }

    fn left(&self) -> Vec<String> {
        let mut left: Vec<_> = mounts().difference(&self.mounts_before).map(|line| format!("mount {line}")).collect();
        for (what, dir) in [
            ("sandbox", "state/sandboxes"),
            ("files", "root/sandboxes"),
            ("root", "root/images/roots"),
            ("image volume", "root/images/mounts"),
        ] {
            left.extend(names(&self.dir.join(dir)).into_iter().map(|name| format!("{what} {name}")));
        }
        let own = std::process::id();
        for pid in names(Path::new("/proc")).iter().filter_map(|name| name.parse::<u32>().ok()) {
            // What has ended is about to be reaped.
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let ended = stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'));
            if pid != 1 && pid != own && !ended {
                let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                left.push(format!("process {pid} {:?} {}", command.replace('\0', " "), stat.trim()));
            }
        }
        // The view of sysfs is the machine's; this case's own is in /proc.
        let interfaces = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let interfaces = interfaces.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
        left.extend(
            interfaces.filter(|name| name != "lo" && name != "keelet0").map(|name| format!("interface {name}")),
        );
        for dir in Mounts::find().map(|mounts| mounts.directories(&self.cgroup)).unwrap_or_default() {
            left.extend(below(&dir).into_iter().map(|dir| format!("cgroup {}", dir.display())));
        }
        left
    }
}

pub(crate) fn pod_config(name: &str, logs: &Path, options: v1::NamespaceOption) -> v1::PodSandboxConfig {
    let security = v1::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        hostname: name.to_owned(),
        log_directory: logs.display().to_string(),
        linux: Some(v1::LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() }),
        ..v1::PodSandboxConfig::default()
    }
}

/// The security settings of a container that is being asked for.
pub(crate) fn security(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerSecurityContext {
    config.linux.get_or_insert_default().security_context.get_or_insert_default()
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Mount points and what is mounted there; numbers differ from one mount to the next.
pub(crate) fn mounts() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            Some(format!("{} {}", front.split(' ').nth(4)?, back.split(' ').next()?))
        })
        .collect()
}

/// Waits for something, for as long as a busy machine may take.
pub(crate) async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    until_or(what, async || found().await.ok_or(())).await.unwrap_or_else(|()| panic!("waited in vain until {what}"))
}

/// How many times longer everything may take, where the processor is a program.
pub(crate) fn slower() -> u32 {
    std::env::var("KEELET_SLOWER").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

async fn until_or<T, E>(_: &str, mut found: impl AsyncFnMut() -> Result<T, E>) -> Result<T, E> {
    let end = tokio::time::Instant::now() + Duration::from_secs(45).saturating_mul(slower());
    loop {
        match found().await {
            Err(_) if tokio::time::Instant::now() < end => tokio::time::sleep(Duration::from_millis(20)).await,
            ended => return ended,
        }
    }
}
