//! The process that holds a pod's namespaces.
//!
//! It has nothing: no files, no privileges, no program of its own. Where containers share their processes it is the first of
//! them and reaps; what they can see of it leads nowhere.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use keelet_linux::{
    capabilities,
    process::{fork, start_afresh},
    userns::{self, IdRange},
};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    unistd::{chdir, pivot_root, sethostname},
};
use rustix::fs::{Mode, OFlags, openat};

use crate::{
    finish::none,
    maker::{PID, tell_failure},
    protocol::Sandbox,
    wire,
};

/// Who it runs as: nobody in particular, as in everybody's pause image.
const NOBODY: u32 = 65_535;

/// Makes the namespaces and holds them, in a process of its own. `dir` is any directory to start from.
pub(crate) fn hold(dir: &Path, sandbox: &Sandbox, report: OwnedFd) -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    match try_hold(dir, sandbox, &report) {
        Ok(code) => code,
        Err(error) => {
            tell_failure(&report, &error);
            1
        }
    }
}

fn try_hold(dir: &Path, sandbox: &Sandbox, report: &OwnedFd) -> Result<i32, String> {
    start_afresh().map_err(|error| format!("a new start: {error}"))?;
    // Through this directory, kernel parameters can be reached when nothing else of the node can.
    let parameters = File::open("/proc/sys").map_err(|error| format!("/proc/sys: {error}"))?;
    let users = sandbox.users.as_ref().map(userns::make).transpose()?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("cannot make a mount namespace: {error}"))?;
    leave_files(dir)?;
    // Before the other namespaces, which are then theirs to administer.
    if let Some(users) = users {
        userns::enter(users.as_fd()).map_err(|error| format!("cannot enter the user namespace: {error}"))?;
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
    unshare(flags).map_err(|error| format!("cannot make the pod's namespaces: {error}"))?;
    // Without a name of its own it keeps the node's.
    if let Some(name) = sandbox.hostname.as_ref().filter(|name| !name.is_empty()) {
        sethostname(name).map_err(|error| format!("cannot set the host name {name:?}: {error}"))?;
    }
    for (name, value) in &sandbox.sysctls {
        set_sysctl(&parameters, name, value).map_err(|error| format!("sysctl {name}={value}: {error}"))?;
    }
    drop(parameters);
    if !sandbox.processes {
        give_up_privileges(sandbox)?;
        tell(report, std::process::id())?;
        wait_for_ever(report);
    }
    // The first process that is made from here is the first one in there. It waits until its number is known out here.
    let pid = fork(|| match give_up_privileges(sandbox) {
        Ok(()) => wait_for_ever(report),
        Err(error) => {
            tell_failure(report, &error);
            1
        }
    })
    .map_err(|error| format!("fork: {error}"))?;
    tell(report, pid)?;
    Ok(0)
}

fn tell(report: &OwnedFd, pid: u32) -> Result<(), String> {
    wire::send(report, format!("{PID}{pid}\n").as_bytes(), &[]).map_err(|error| format!("report: {error}"))
}

/// Kernel parameters below `net`, `kernel` and `fs.mqueue` belong to namespaces; the server has seen that it is one of those.
fn set_sysctl(parameters: &File, name: &str, value: &str) -> io::Result<()> {
    let path = path_of(name)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the name of a kernel parameter"))?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(parameters, path, flags, Mode::empty())?;
    File::from(file).write_all(value.as_bytes())
}

/// Where a kernel parameter is. The first of `.` and `/` in its name is what separates there, as with sysctl(8); the other is
/// then a dot that belongs to a name, such as that of an interface for a VLAN.
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
    let is_name = |part: &str| !matches!(part, "" | "." | "..");
    path.split('/').all(is_name).then_some(path)
}

/// An empty root directory that cannot be written: who follows `/proc/1/root` sees nothing of the node.
fn leave_files(dir: &Path) -> Result<(), String> {
    let fail = |what: &str, error: nix::Error| format!("{what}: {error}");
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|error| fail("private mounts", error))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("none"), dir, Some("tmpfs"), flags, Some("size=4k,nr_inodes=1"))
        .map_err(|error| fail("empty root", error))?;
    chdir(dir).map_err(|error| fail("empty root", error))?;
    pivot_root(".", ".").map_err(|error| fail("pivot_root", error))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(|error| fail("old root", error))?;
    let read_only = flags | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, "/", none, read_only, none).map_err(|error| fail("read-only root", error))?;
    chdir("/").map_err(|error| fail("empty root", error))
}

fn give_up_privileges(sandbox: &Sandbox) -> Result<(), String> {
    let last = |range: IdRange| range.length.saturating_sub(1).min(NOBODY);
    let (uid, gid) = sandbox.users.map_or((NOBODY, NOBODY), |users| (last(users.uids), last(users.gids)));
    capabilities::become_user(uid, gid, &[], &none(), true)
        .map_err(|error| format!("cannot give up privileges: {error}"))
}

/// Lets go of everything and waits to be killed.
fn wait_for_ever(report: &OwnedFd) -> ! {
    let _ = rustix::thread::set_name(c"pause");
    // The connection ends here, which tells that all went well.
    let _ = report.as_fd();
    #[expect(unsafe_code, reason = "nothing in this process uses a descriptor from here on, and no handler runs")]
    unsafe {
        // Whoever says so has his children reaped by the kernel, those that others left to him as well.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::close_range(0, libc::c_uint::MAX, 0);
        loop {
            libc::pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::path_of;

    #[test]
    fn the_first_separator_of_a_parameter_says_what_the_other_is() {
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
