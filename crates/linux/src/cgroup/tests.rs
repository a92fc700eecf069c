//! Finding cgroups, and killing their processes.

use std::{
    fs,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{Mounts, field};

const V1: &str = "25 22 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
    26 25 0:21 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n\
    27 25 0:22 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
    28 25 0:23 / /mnt/elsewhere rw - cgroup cgroup rw,pids\n\
    29 25 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

#[test]
fn controllers_are_found_below_sys_fs_cgroup() {
    let mounts = Mounts::parse(V1).expect("some");
    assert_eq!(mounts.directory("cpuacct", "/pod/a"), Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/pod/a")));
    assert_eq!(mounts.directory("pids", "/pod/a"), None, "mounts elsewhere are ignored");
    assert_eq!(mounts.directories("/a").len(), 3, "cpu and cpuacct are one hierarchy");
}

#[test]
fn a_unified_hierarchy_is_distinguished_from_a_hybrid_one() {
    let v2 = "30 22 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    assert_eq!(Mounts::parse(v2), Some(Mounts::V2("/sys/fs/cgroup".into())));
    assert!(matches!(Mounts::parse(V1), Some(Mounts::V1(_))));
    assert_eq!(Mounts::parse("1 2 0:3 / / rw - ext4 /dev/vda rw\n"), None);
}

#[test]
fn a_value_is_found_by_its_whole_key() {
    assert_eq!(field("oom_kill_disable 1\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
    assert_eq!(field("oom_kill_disable 1\n", "oom_kill"), None);
}

#[test]
fn the_root_cgroup_is_not_removed() {
    let mounts = Mounts::parse(V1).expect("some");
    assert!(mounts.remove("/").is_err());
    assert!(mounts.remove("").is_err());
}

/// How long the processes of the fork bomb keep forking at most, in case they cannot be killed. Longer than the test waits for them on a
/// busy machine.
const FORKED_FOR: i64 = 120;

/// Processes that each fork two and exit, as many as the limit allows: a list of their PIDs is out of date once it has been read.
#[test]
fn a_fork_bomb_is_killed_completely() {
    let mounts = match Mounts::find() {
        Ok(mounts) if rustix::process::geteuid().is_root() && mounts.has("pids") => mounts,
        _ => return keelet_report::skipped("it needs root and the pids controller"),
    };
    let cgroup = format!("/keelet-test-bomb-{}", std::process::id());
    mounts.limit(&cgroup, &[("pids", "pids.max".to_owned(), "64".to_owned())]).expect("a limit");
    let directories = ["pids", "freezer"].into_iter().filter_map(|controller| mounts.directory(controller, &cgroup));
    let lists: Vec<OwnedFd> = directories
        .map(|directory| {
            fs::create_dir_all(&directory).expect("made");
            fs::OpenOptions::new().write(true).open(directory.join("cgroup.procs")).expect("open").into()
        })
        .collect();
    for round in 0..5 {
        let reaper = bomb(&lists);
        let begun = Instant::now();
        while mounts.processes(&cgroup).len() < 16 {
            assert!(begun.elapsed() < Duration::from_secs(60), "round {round}: the processes do not fork");
            std::thread::yield_now();
        }
        mounts.kill(&cgroup);
        let left = mounts.processes(&cgroup);
        assert!(left.is_empty(), "round {round}: {} processes survived", left.len());
        #[expect(unsafe_code, reason = "waits for a child of this test's own")]
        unsafe {
            libc::waitpid(reaper, std::ptr::null_mut(), 0);
        }
    }
    mounts.clear(&cgroup).expect("removed");
}

/// Starts a fork bomb. Returns the PID of its parent, which reaps its processes and exits after the last of them: zombies count against the
/// limit, and the machine's own init may be too slow to leave room for new processes. Both make system calls only, because this process
/// has threads.
fn bomb(lists: &[OwnedFd]) -> i32 {
    let seconds = || {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        #[expect(unsafe_code, reason = "fills in a structure of its own")]
        unsafe {
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        }
        now.tv_sec
    };
    let end = seconds() + FORKED_FOR;
    #[expect(unsafe_code, reason = "system calls only, until the process exits")]
    unsafe {
        let reaper = libc::fork();
        if reaper != 0 {
            return reaper;
        }
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        if libc::fork() > 0 {
            while libc::waitpid(-1, std::ptr::null_mut(), 0) > 0 {}
            libc::_exit(0);
        }
        for list in lists {
            libc::write(list.as_raw_fd(), c"0".as_ptr().cast(), 1);
        }
        while seconds() < end {
            // Both children continue; a process with two children exits.
            if libc::fork() > 0 && libc::fork() > 0 {
                libc::_exit(0);
            }
        }
        libc::_exit(0)
    }
}
