//! libcontainer, and its ways that are not ours.
//!
//! It gets a configuration without capabilities, because it would drop them before our filter can be set; without a score
//! for the killer of processes and without a working directory, because it fails where those cannot be had; and with
//! neither volumes nor a read-only root ([`super::late`]). It logs through `tracing`, and what it calls an error there is
//! passed on ([`super::complaints`]): its own errors tell the step that failed and not why.

use std::{
    cell::RefCell,
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use keelet_linux::{
    cgroup, devices_v2,
    mount::{Attributes, READ_ONLY, set_attributes},
    process::fork,
};
use libcontainer::{
    container::builder::ContainerBuilder,
    syscall::syscall::SyscallType,
    workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError},
};
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType, Spec};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};

use super::{CONSOLE, Job, Maker, complaints, late, stage, tell_failure, text};
use crate::{
    finish::{Confinement, become_command, enter, own_stdio, root},
    text::chain,
};

/// A container is made in a fraction of this time. Shorter than what the kernel needs to forget that somebody waited.
const MOST_WAITS: usize = 50;
const BETWEEN_WAITS: Duration = Duration::from_millis(4);

pub(super) struct Libcontainer;

// === impl Libcontainer ===

impl Maker for Libcontainer {
    fn make(&self, job: &Job<'_>) -> Result<(), String> {
        let cgroups = job.cgroups;
        let cgroup = job.spec.linux().as_ref().and_then(|linux| linux.cgroups_path().clone());
        if let Some(path) = &cgroup {
            let path = path.to_string_lossy();
            cgroups.make(&path).map_err(|error| text("cgroup", error))?;
            if cgroups.has_others() {
                let _ = fork(|| wait_for_others(cgroups, &path));
            }
        }
        let (spec, trees) = late::arrange(without_what_is_ours(job.spec), cgroups)?;
        let staged = stage::set(spec, job.dir)?;
        let (spec, job) = (
            &staged.spec,
            &Job { dir: &staged.dir, report: Rc::clone(&job.report), held: Rc::clone(&job.held), ..*job },
        );
        let executor = ContainerProcess {
            confinement: Confinement::of(job.spec, job.process)?,
            cwd: job.process.cwd().clone(),
            read_only: job.spec.root().as_ref().and_then(|root| root.readonly()).unwrap_or(false),
            trees: Rc::new(RefCell::new(trees)),
            held: Rc::clone(&job.held),
            report: Rc::clone(&job.report),
        };
        complaints::pass_on(&job.report).map_err(|error| text("report", error))?;
        let bundle = job.bundle(spec)?;
        let mut builder = ContainerBuilder::new(job.id.to_owned(), SyscallType::default())
            .with_root_path(job.dir.join("libcontainer"))
            .map_err(|error| chain(&error))?
            .with_executor(executor);
        let console = job.console()?;
        if console.is_some() {
            builder = builder.with_console_socket(Some(job.dir.join(CONSOLE)));
        } else {
            let [input, output, error] = job.stdio()?;
            builder = builder.with_stdin(input).with_stdout(output).with_stderr(error);
        }
        let made = builder.as_init(&bundle).with_systemd(false).with_detach(true).build();
        let mut container = made.map_err(|error| chain(&error))?;
        let pid = container.pid().ok_or("libcontainer names no process")?;
        if let Some(path) = &cgroup {
            cgroups.join_others(&path.to_string_lossy(), pid.as_raw()).map_err(|error| error.to_string())?;
        }
        limit_devices(cgroups, job.spec).map_err(|error| text("device rules", error))?;
        job.tell(pid.as_raw(), console)?;
        container.start().map_err(|error| chain(&error))
    }
}

/// Whoever joins a cgroup waits for every processor to take notice, some ten milliseconds, unless somebody has just waited.
/// So somebody with nothing else to do waits, again and again until the container is made, and those who make it do not.
fn wait_for_others(cgroups: &cgroup::Mounts, cgroup: &str) -> i32 {
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return 1;
    }
    for _ in 0..MOST_WAITS {
        if cgroups.join_others(cgroup, cgroup::SELF).is_err() {
            return 1;
        }
        std::thread::sleep(BETWEEN_WAITS);
    }
    0
}

/// The configuration as libcontainer gets it.
fn without_what_is_ours(spec: &Spec) -> Spec {
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

/// On the second generation of cgroups device rules are a program that libcontainer does not attach. On the first it
/// adds rules of its own after ours, and allows more than was asked for; so ours are written once more.
fn limit_devices(cgroups: &cgroup::Mounts, spec: &Spec) -> io::Result<()> {
    let Some(linux) = spec.linux() else { return Ok(()) };
    let rules = linux.resources().as_ref().and_then(|resources| resources.devices().clone()).unwrap_or_default();
    let Some(path) = linux.cgroups_path() else { return Ok(()) };
    let Some(dir) = cgroups.directory("devices", &path.to_string_lossy()) else { return Ok(()) };
    match cgroups {
        cgroup::Mounts::V2(_) => devices_v2::attach(&dir, &rules),
        cgroup::Mounts::V1(_) => rules.iter().try_for_each(|rule| {
            let name = if rule.allow() { "devices.allow" } else { "devices.deny" };
            fs::write(dir.join(name), in_words(rule))
        }),
    }
}

fn in_words(rule: &LinuxDeviceCgroup) -> String {
    let number =
        |number: Option<i64>| number.filter(|number| *number >= 0).map_or("*".to_owned(), |number| number.to_string());
    let kind = match rule.typ().unwrap_or_default() {
        LinuxDeviceType::B => "b",
        LinuxDeviceType::C | LinuxDeviceType::U => "c",
        _ => "a",
    };
    let access = rule.access().clone().unwrap_or_else(|| "rwm".to_owned());
    format!("{kind} {}:{} {access}", number(rule.major()), number(rule.minor()))
}

/// Directories of devices, which libcontainer makes so that everybody could write to them. Not those of a volume.
fn close_directories(spec: &Spec) -> Result<(), String> {
    let dev = Path::new("/dev");
    let devices = spec.linux().as_ref().and_then(|linux| linux.devices().clone()).unwrap_or_default();
    let volumes = spec.mounts().clone().unwrap_or_default();
    let in_volume =
        |dir: &Path| volumes.iter().any(|mount| mount.destination() != dev && dir.starts_with(mount.destination()));
    for device in &devices {
        for dir in device.path().ancestors().skip(1).take_while(|dir| *dir != dev && dir.starts_with(dev)) {
            if !in_volume(dir) {
                let mode = fs::Permissions::from_mode(0o755);
                fs::set_permissions(dir, mode).map_err(|error| format!("{}: {error}", dir.display()))?;
            }
        }
    }
    Ok(())
}

/// The memory of the kernel has another name everywhere else.
fn rename_core() {
    if fs::read_link("/dev/kcore").is_ok_and(|target| target == Path::new("/proc/kcore")) {
        // Of no use to most, so of no harm if it stays.
        let _ = fs::rename("/dev/kcore", "/dev/core");
    }
}

/// What libcontainer calls in place of the command.
#[derive(Clone)]
struct ContainerProcess {
    confinement: Confinement,
    cwd: PathBuf,
    read_only: bool,
    trees: Rc<RefCell<Vec<late::Tree>>>,
    held: Rc<RefCell<Vec<OwnedFd>>>,
    report: Rc<OwnedFd>,
}

// === impl ContainerProcess ===

impl ContainerProcess {
    /// The last steps. Returns only if one fails.
    fn finish(&self, spec: &Spec) -> Result<(), String> {
        let process = spec.process().as_ref().ok_or("the configuration has no process")?;
        drop(self.held.take());
        close_directories(spec)?;
        rename_core();
        late::set_propagation(spec.mounts().as_deref().unwrap_or_default())?;
        let root = root().map_err(|error| text("the root", error))?;
        self.trees.take().into_iter().try_for_each(|tree| tree.put(root.as_fd()))?;
        if self.read_only {
            let read_only = Attributes { set: READ_ONLY, propagation: 0, recursive: false };
            set_attributes(root.as_fd(), &read_only).map_err(|error| text("a read-only root", error))?;
        }
        drop(root);
        own_stdio(process.user().uid()).map_err(|error| text("standard input and output", error))?;
        enter(Path::new(&self.cwd))?;
        // As soon as it has no more privileges than others in the pod, those could look at what it still has open of the
        // node. The command can be looked at again.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| text("not dumpable", error.into()))?;
        self.confinement.apply().map_err(|error| format!("cannot be confined: {error}"))?;
        let none = Vec::new();
        let (args, env) = (process.args().as_ref().unwrap_or(&none), process.env().as_ref().unwrap_or(&none));
        Err(become_command(args, env))
    }
}

impl Executor for ContainerProcess {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        self.finish(spec).map_err(|error| {
            tell_failure(&self.report, &error);
            ExecutorError::Other(error)
        })
    }

    /// Nothing before the command takes over: it may only be found with the privileges it will have.
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        Ok(())
    }

    /// The environment is given to the command itself.
    #[expect(clippy::disallowed_types, reason = "libcontainer's own signature")]
    fn setup_envs(&self, _: std::collections::HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{LinuxDeviceCgroupBuilder, LinuxDeviceType};

    use super::in_words;

    #[test]
    fn device_rules_are_written_as_the_kernel_reads_them() {
        let all = LinuxDeviceCgroupBuilder::default().allow(false).access("rwm").build().expect("a rule");
        assert_eq!(in_words(&all), "a *:* rwm");
        let one =
            LinuxDeviceCgroupBuilder::default().allow(true).typ(LinuxDeviceType::B).major(8).minor(-1).access("r");
        assert_eq!(in_words(&one.build().expect("a rule")), "b 8:* r");
    }
}
