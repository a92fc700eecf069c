//! The `RuntimeDefault` profile.
//!
//! It is equivalent to the default of moby and containerd, so that an image behaves the same here: listed calls are allowed, all others
//! fail with EPERM, and some calls depend on the capabilities of the container. The kernel checks those capabilities itself; the filter
//! reduces the attack surface. Names of 32-bit calls are left out, because such calls are always denied.

use std::collections::BTreeSet;

use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator, LinuxSyscall,
};

use super::Architecture;
use crate::capabilities::Cap;

/// Allowed for every container. Tracing other processes is among them, because since Linux 4.8 a traced process cannot bypass its filter.
const ALWAYS: &str = "
    accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown clock_adjtime
    clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
    eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod
    fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat
    fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list
    get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid
    getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname
    getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1
    inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioctl ioprio_get ioprio_set
    kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen
    listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack
    membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect
    mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd
    msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2 pause pidfd_open
    pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2
    prlimit64 process_mrelease pselect6 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom
    recvmmsg recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq
    rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
    sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
    sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list
    set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid
    setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr setxattrat shmat shmctl shmdt shmget
    shutdown sigaltstack signalfd signalfd4 socketpair splice stat statfs statmount statx symlink symlinkat sync
    sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime
    timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat
    uretprobe utime utimensat utimes vfork vmsplice wait4 waitid write writev
    process_vm_readv process_vm_writev ptrace
";

/// Allowed on x86_64 only.
const X86_64: &str = "arch_prctl modify_ldt";

/// Allowed for containers with the capability.
const WITH_CAPABILITY: &[(Cap, &str)] = &[
    (Cap::DAC_READ_SEARCH, "open_by_handle_at"),
    (
        Cap::SYS_ADMIN,
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie lsm_get_self_attr \
         lsm_list_modules lsm_set_self_attr mount mount_setattr move_mount open_tree perf_event_open quotactl \
         quotactl_fd setdomainname sethostname setns syslog umount2 unshare",
    ),
    (Cap::SYS_BOOT, "reboot"),
    (Cap::SYS_CHROOT, "chroot"),
    (Cap::SYS_MODULE, "delete_module finit_module init_module"),
    (Cap::SYS_PACCT, "acct"),
    (Cap::SYS_PTRACE, "kcmp pidfd_getfd process_madvise"),
    (Cap::SYS_RAWIO, "ioperm iopl"),
    (Cap::SYS_TIME, "clock_settime settimeofday"),
    (Cap::SYS_TTY_CONFIG, "vhangup"),
    (Cap::SYS_NICE, "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    (Cap::SYSLOG, "syslog"),
    (Cap::BPF, "bpf"),
    (Cap::PERFMON, "perf_event_open"),
];

/// PER_LINUX and PER_LINUX32, both also with UNAME26, and the query for the current one.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Every flag of clone(2) that creates a namespace.
const NEW_NAMESPACES: u64 = 0x7e02_0000;

/// The address families that a socket may have, as (mask, value): 0 to 63 without AF_ALG (38), whose crypto interface has a history of
/// vulnerabilities, and AF_VSOCK (40), which leads out of the container to the host of a virtual machine.
///
/// Not written as "less than 38, or 39, or more than 40": the kernel reads the family from the low 32 bits alone, and a comparison of all
/// 64 would allow 2^32 + 38.
const SOCKET_FAMILIES: [(u64, u64); 8] = [
    (0xffff_ffe0, 0),
    (0xffff_fffc, 32),
    (0xffff_fffe, 36),
    (0xffff_ffff, 39),
    (0xffff_ffff, 41),
    (0xffff_fffe, 42),
    (0xffff_fffc, 44),
    (0xffff_fff0, 48),
];

/// The default profile for a container with these capabilities (those of its bounding set).
pub fn default_profile(caps: &BTreeSet<Cap>, architecture: Architecture) -> LinuxSeccomp {
    let has = |names: &str| -> Vec<String> {
        names.split_whitespace().filter(|name| architecture.syscall(name).is_some()).map(str::to_owned).collect()
    };
    let mut rules = vec![rule(has(ALWAYS), LinuxSeccompAction::ScmpActAllow, None)];
    if architecture == Architecture::X86_64 {
        rules.push(rule(has(X86_64), LinuxSeccompAction::ScmpActAllow, None));
    }
    for (mask, family) in SOCKET_FAMILIES {
        rules.push(rule(has("socket"), LinuxSeccompAction::ScmpActAllow, Some(masked_eq(mask, family))));
    }
    for personality in PERSONALITIES {
        rules.push(rule(has("personality"), LinuxSeccompAction::ScmpActAllow, Some(eq(personality))));
    }
    for (_, names) in WITH_CAPABILITY.iter().filter(|(cap, _)| caps.contains(cap)) {
        rules.push(rule(has(names), LinuxSeccompAction::ScmpActAllow, None));
    }
    if !caps.contains(&Cap::SYS_ADMIN) {
        rules.push(rule(has("clone"), LinuxSeccompAction::ScmpActAllow, Some(masked_eq(NEW_NAMESPACES, 0))));
        // Its flags are behind a pointer, which a filter cannot follow. C libraries fall back to clone after ENOSYS.
        let mut clone3 = rule(has("clone3"), LinuxSeccompAction::ScmpActErrno, None);
        clone3.set_errno_ret(Some(libc::ENOSYS.unsigned_abs()));
        rules.push(clone3);
    }
    rules.retain(|rule| !rule.names().is_empty());
    let mut profile = LinuxSeccomp::default();
    profile.set_default_action(LinuxSeccompAction::ScmpActErrno);
    profile.set_default_errno_ret(Some(libc::EPERM.unsigned_abs()));
    profile.set_architectures(Some(vec![architecture.oci()]));
    profile.set_syscalls(Some(rules));
    profile
}

fn rule(names: Vec<String>, action: LinuxSeccompAction, arg: Option<LinuxSeccompArg>) -> LinuxSyscall {
    let mut rule = LinuxSyscall::default();
    rule.set_names(names);
    rule.set_action(action);
    rule.set_args(arg.map(|arg| vec![arg]));
    rule
}

/// The first argument equals the value.
fn eq(value: u64) -> LinuxSeccompArg {
    first_argument(LinuxSeccompArgBuilder::default().op(LinuxSeccompOperator::ScmpCmpEq).value(value))
}

/// The masked first argument equals the value.
fn masked_eq(mask: u64, value: u64) -> LinuxSeccompArg {
    let op = LinuxSeccompOperator::ScmpCmpMaskedEq;
    first_argument(LinuxSeccompArgBuilder::default().op(op).value(mask).value_two(value))
}

fn first_argument(builder: LinuxSeccompArgBuilder) -> LinuxSeccompArg {
    // All fields have defaults, so building cannot fail. If it did, "equal to 0" would allow almost nothing.
    builder.index(0_usize).build().unwrap_or_default()
}
