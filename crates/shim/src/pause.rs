//! The pause process, which holds a pod's namespaces.
//!
//! It has no files, no privileges and no program of its own. Where containers share a PID namespace it is the first process in it and
//! reaps; what containers can see of it leads nowhere.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    path::Path,
};

use keelet_linux::{
    capabilities,
    process::{close_all_and_wait, fork, reset_inherited_state},
    userns::{self, IdRange},
};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    unistd::{chdir, pivot_root, sethostname},
};
use rustix::fs::{Mode, OFlags, openat};

use crate::{
    confinement::no_capabilities,
    error::{StepError, step},
    protocol::Sandbox,
    report::Report,
};

/// The user and group ID it runs as, the same as in the pause image of Kubernetes.
const PAUSE_ID: u32 = 65_535;

/// Why a pod's namespaces were not created.
#[derive(Debug, thiserror::Error)]
enum PauseError {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    UserNamespace(#[from] userns::CreateError),
    #[error("cannot set sysctl {name}={value}: {source}")]
    Sysctl { name: String, value: String, source: io::Error },
}

/// Creates the namespaces and holds them, in a process of its own. `dir` is any directory to mount on.
pub(crate) fn hold(dir: &Path, sandbox: &Sandbox, report: Report) -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    match try_hold(dir, sandbox, &report) {
        Ok(code) => code,
        Err(error) => {
            report.failed(error);
            1
        }
    }
}

fn try_hold(dir: &Path, sandbox: &Sandbox, report: &Report) -> Result<i32, PauseError> {
    reset_inherited_state().map_err(step("reset signals, umask and keyring"))?;
    // Sysctls are set through this descriptor, when no file of the node is reachable any more.
    let sysctls = File::open("/proc/sys").map_err(step("open /proc/sys"))?;
    let user_namespace = sandbox.users.as_ref().map(userns::create).transpose()?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(step("create a mount namespace"))?;
    enter_empty_root(dir)?;
    // Before the other namespaces are created, so that the user namespace owns them.
    if let Some(user_namespace) = user_namespace {
        userns::enter(user_namespace.as_fd()).map_err(step("enter the user namespace"))?;
    }
    let mut flags = CloneFlags::empty();
    for (wanted, flag) in [
        (sandbox.network, CloneFlags::CLONE_NEWNET),
        (sandbox.ipc, CloneFlags::CLONE_NEWIPC),
        (sandbox.hostname.is_some(), CloneFlags::CLONE_NEWUTS),
        (sandbox.processes, CloneFlags::CLONE_NEWPID),
    ] {
        flags.set(flag, wanted);
    }
    unshare(flags).map_err(step("create the pod's namespaces"))?;
    // An empty name keeps the node's.
    if let Some(name) = sandbox.hostname.as_ref().filter(|name| !name.is_empty()) {
        sethostname(name).map_err(step(format!("set the host name {name:?}")))?;
    }
    for (name, value) in &sandbox.sysctls {
        set_sysctl(&sysctls, name, value).map_err(|source| PauseError::Sysctl {
            name: name.clone(),
            value: value.clone(),
            source,
        })?;
    }
    drop(sysctls);
    if !sandbox.processes {
        drop_privileges(sandbox)?;
        report_pid(report, std::process::id())?;
        wait_to_be_killed();
    }
    // The first child is the first process of the new PID namespace. This process reports its PID on the node and exits.
    let pid = fork(|| match drop_privileges(sandbox) {
        Ok(()) => wait_to_be_killed(),
        Err(error) => {
            report.failed(error);
            1
        }
    })
    .map_err(step("fork"))?;
    report_pid(report, pid)?;
    Ok(0)
}

fn report_pid(report: &Report, pid: u32) -> Result<(), StepError> {
    report.pid(pid, &[]).map_err(step("report the PID to the shim"))
}

/// Sysctls below `net`, `kernel` and `fs.mqueue` belong to namespaces; the runtime has checked that this is one of them.
fn set_sysctl(sysctls: &File, name: &str, value: &str) -> io::Result<()> {
    let path = path_of(name).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "invalid name of a sysctl"))?;
    let file = openat(sysctls, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(file).write_all(value.as_bytes())
}

/// The path of a sysctl below `/proc/sys`. As in sysctl(8), the first of `.` and `/` in the name is the separator; the other one is then a
/// dot within a component, such as the name of a VLAN interface.
fn path_of(name: &str) -> Option<String> {
    let swapped = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let path: String = match name.find(['.', '/']).map(|at| name.as_bytes()[at]) {
        Some(b'.') => name.chars().map(swapped).collect(),
        _ => name.to_owned(),
    };
    let is_component = |part: &str| !matches!(part, "" | "." | "..");
    path.split('/').all(is_component).then_some(path)
}

/// Makes an empty read-only tmpfs the root, so that `/proc/1/root` shows nothing of the node.
fn enter_empty_root(dir: &Path) -> Result<(), StepError> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(step("make all mounts private"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("none"), dir, Some("tmpfs"), flags, Some("size=4k,nr_inodes=1"))
        .map_err(step(format!("mount a tmpfs on {}", dir.display())))?;
    chdir(dir).map_err(step(format!("enter {}", dir.display())))?;
    pivot_root(".", ".").map_err(step("pivot_root to an empty root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(step("unmount the old root"))?;
    let read_only = flags | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, "/", none, read_only, none).map_err(step("make the empty root read-only"))?;
    chdir("/").map_err(step("enter the empty root"))
}

fn drop_privileges(sandbox: &Sandbox) -> Result<(), StepError> {
    let last = |range: IdRange| range.length.saturating_sub(1).min(PAUSE_ID);
    let (uid, gid) = sandbox.users.map_or((PAUSE_ID, PAUSE_ID), |users| (last(users.uids), last(users.gids)));
    capabilities::become_user(uid, gid, &[], &no_capabilities(), true).map_err(step("drop privileges"))
}

/// Closes all descriptors, the report among them, which reports success.
fn wait_to_be_killed() -> ! {
    let _ = rustix::thread::set_name(c"pause");
    close_all_and_wait()
}

#[cfg(test)]
mod tests {
    use super::path_of;

    #[test]
    fn the_first_separator_in_the_name_of_a_sysctl_decides() {
        let is = |name: &str, path: &str| assert_eq!(path_of(name).as_deref(), Some(path), "{name}");
        is("net.ipv4.ip_forward", "net/ipv4/ip_forward");
        is("net/ipv4/ip_forward", "net/ipv4/ip_forward");
        is("net/ipv4/conf/eth0.100/forwarding", "net/ipv4/conf/eth0.100/forwarding");
        is("net.ipv4.conf.eth0/100.forwarding", "net/ipv4/conf/eth0.100/forwarding");
        for name in ["", ".", "net..x", "/net/x", "net/../kernel/x", "net.//.x", "net/./x", "net.x."] {
            assert_eq!(path_of(name), None, "{name}");
        }
    }
}
