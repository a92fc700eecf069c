//! libcontainer, and what is done here in its place.
//!
//! It gets a configuration without capabilities, because it would drop them before our seccomp filter can be loaded; without an OOM score
//! and without a working directory, because it fails where those are not available; and with neither volumes nor a read-only root
//! ([`super::mounts`]). Its error values name the step that failed; the cause is in its log, which is forwarded ([`super::diagnostics`]).

use std::{
    cell::RefCell,
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use keelet_linux::{
    cgroup,
    mount::{Attributes, READ_ONLY, set_attributes},
    process::fork,
};
use libcontainer::{
    container::builder::ContainerBuilder,
    syscall::syscall::SyscallType,
    workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError},
};
use oci_spec::runtime::Spec;
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};

use super::{CONSOLE, CreateError, Creator, Job, device_rules, diagnostics, mounts, userns_root};
use crate::{
    command::{enter, execute, root},
    confinement::{Confinement, own_stdio},
    error::{StepError, step},
    report::Report,
};

/// Bounds the time of [`keep_cgroups_warm`]. A container is created in a fraction of it.
const WARM_ROUNDS: usize = 50;
/// Shorter than the time after which the kernel waits for all processors again.
const WARM_INTERVAL: Duration = Duration::from_millis(4);

pub(super) struct Libcontainer;

/// What libcontainer calls in place of the command.
#[derive(Clone)]
struct ContainerProcess {
    confinement: Confinement,
    cwd: PathBuf,
    read_only: bool,
    late_mounts: Rc<RefCell<Vec<mounts::LateMount>>>,
    held: Rc<RefCell<Vec<OwnedFd>>>,
    report: Rc<Report>,
}

// === impl Libcontainer ===

impl Creator for Libcontainer {
    fn create(&self, job: &Job<'_>) -> Result<(), CreateError> {
        let cgroups = job.cgroups;
        let cgroup = job.spec.linux().as_ref().and_then(|linux| linux.cgroups_path().as_ref());
        let cgroup = cgroup.map(|path| path.to_string_lossy().into_owned());
        if let Some(cgroup) = &cgroup {
            cgroups.create(cgroup).map_err(step(format!("create the cgroup {cgroup}")))?;
            if cgroups.has_others() {
                let _ = fork(|| keep_cgroups_warm(cgroups, cgroup));
            }
        }
        let (spec, late_mounts) = mounts::split(for_libcontainer(job.spec), cgroups)?;
        let prepared = userns_root::prepare(spec, job.dir)?;
        let (report, held) = (Rc::clone(&job.report), Rc::clone(&job.held));
        let (spec, job) = (&prepared.spec, &Job { dir: &prepared.dir, report, held, ..*job });
        let executor = ContainerProcess {
            confinement: Confinement::of(job.spec, job.process)?,
            cwd: job.process.cwd().clone(),
            read_only: job.spec.root().as_ref().and_then(|root| root.readonly()).unwrap_or(false),
            late_mounts: Rc::new(RefCell::new(late_mounts)),
            held: Rc::clone(&job.held),
            report: Rc::clone(&job.report),
        };
        diagnostics::forward(&job.report).map_err(step("forward the log of libcontainer"))?;
        let bundle = job.bundle(spec)?;
        let mut builder = ContainerBuilder::new(job.id.to_owned(), SyscallType::default())
            .with_root_path(job.dir.join("libcontainer"))?
            .with_executor(executor);
        let console = job.console()?;
        if console.is_some() {
            builder = builder.with_console_socket(Some(job.dir.join(CONSOLE)));
        } else {
            let [input, output, error] = job.stdio()?;
            builder = builder.with_stdin(input).with_stdout(output).with_stderr(error);
        }
        let mut container = builder.as_init(&bundle).with_systemd(false).with_detach(true).build()?;
        let pid = container.pid().ok_or(CreateError::NoPid)?.as_raw();
        if let Some(cgroup) = &cgroup {
            cgroups.join_others(cgroup, pid).map_err(step("join cgroups that libcontainer does not know"))?;
        }
        device_rules::apply(cgroups, job.spec).map_err(step("set the device rules of the container"))?;
        job.report_pid(pid.unsigned_abs(), console)?;
        Ok(container.start()?)
    }
}

/// A process that joins a cgroup waits until every processor has noticed, some ten milliseconds, unless another process has just waited.
/// So a process with nothing else to do joins again and again until the container is created, and the creator does not wait.
fn keep_cgroups_warm(cgroups: &cgroup::Mounts, cgroup: &str) -> i32 {
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return 1;
    }
    for _ in 0..WARM_ROUNDS {
        if cgroups.join_others(cgroup, cgroup::SELF).is_err() {
            return 1;
        }
        std::thread::sleep(WARM_INTERVAL);
    }
    0
}

/// The configuration as libcontainer gets it.
fn for_libcontainer(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    if let Some(process) = spec.process_mut() {
        process.set_capabilities(None).set_oom_score_adj(None).set_cwd(PathBuf::from("/"));
    }
    if let Some(root) = spec.root_mut() {
        root.set_readonly(Some(false));
    }
    if let Some(linux) = spec.linux_mut() {
        linux.set_seccomp(None).set_uid_mappings(None).set_gid_mappings(None);
    }
    spec
}

/// Sets the mode of directories of devices, which libcontainer creates writable for all users. Directories in volumes keep theirs.
fn close_directories(spec: &Spec) -> Result<(), StepError> {
    let dev = Path::new("/dev");
    let devices = spec.linux().as_ref().and_then(|linux| linux.devices().clone()).unwrap_or_default();
    let volumes = spec.mounts().clone().unwrap_or_default();
    let in_volume =
        |dir: &Path| volumes.iter().any(|mount| mount.destination() != dev && dir.starts_with(mount.destination()));
    for device in &devices {
        for dir in device.path().ancestors().skip(1).take_while(|dir| *dir != dev && dir.starts_with(dev)) {
            if !in_volume(dir) {
                let mode = fs::Permissions::from_mode(0o755);
                fs::set_permissions(dir, mode).map_err(step(format!("set the mode of {}", dir.display())))?;
            }
        }
    }
    Ok(())
}

/// Renames libcontainer's link to the kernel's memory to the name that other runtimes use.
fn rename_core() {
    if fs::read_link("/dev/kcore").is_ok_and(|target| target == Path::new("/proc/kcore")) {
        // Hardly any program uses it, so a failure is harmless.
        let _ = fs::rename("/dev/kcore", "/dev/core");
    }
}

// === impl ContainerProcess ===

impl ContainerProcess {
    /// The last steps. Returns only if one fails.
    fn finish(&self, spec: &Spec) -> Result<(), CreateError> {
        let process = spec.process().as_ref().ok_or(CreateError::NoProcess)?;
        drop(self.held.take());
        close_directories(spec)?;
        rename_core();
        mounts::set_propagation(spec.mounts().as_deref().unwrap_or_default())?;
        let root = root().map_err(step("open the root of the container"))?;
        self.late_mounts.take().into_iter().try_for_each(|mount| mount.attach(root.as_fd()))?;
        if self.read_only {
            let read_only = Attributes { set: READ_ONLY, propagation: 0, recursive: false };
            set_attributes(root.as_fd(), &read_only).map_err(step("make the root read-only"))?;
        }
        drop(root);
        own_stdio(process.user().uid()).map_err(step("change the owner of standard input and output"))?;
        enter(Path::new(&self.cwd))?;
        // Without its privileges this process could be traced by others in the pod, which would reach the descriptors of the node that it
        // still has. execve makes it dumpable again.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(step("make the process not dumpable"))?;
        self.confinement.apply().map_err(step("drop privileges"))?;
        let none = Vec::new();
        let (args, env) = (process.args().as_ref().unwrap_or(&none), process.env().as_ref().unwrap_or(&none));
        match execute(args, env)? {}
    }
}

impl Executor for ContainerProcess {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        self.finish(spec).map_err(|error| {
            self.report.failed(&error);
            ExecutorError::Other(error.to_string())
        })
    }

    /// Accepts every command: it is looked up with the privileges that it will have.
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        Ok(())
    }

    /// The environment is passed to execve.
    #[expect(clippy::disallowed_types, reason = "libcontainer's own signature")]
    fn setup_envs(&self, _: std::collections::HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        Ok(())
    }
}
