//! A process that switches to a user and capabilities: `/proc/self/status` shows exactly the requested ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use keelet_linux::capabilities::{Cap, apply, become_user, node_bounding, to_oci};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::{Case, Shown, child, is_root, needs_root, output_of};

pub(crate) const CASES: &[Case] = &[
    ("root_has_exactly_the_requested_capabilities", root_has_exactly_the_requested_capabilities),
    ("another_user_has_exactly_the_requested_capabilities", another_user_has_exactly_the_requested_capabilities),
    ("ambient_capabilities_survive_execve", ambient_capabilities_survive_execve),
    (
        "other_users_lose_all_but_ambient_capabilities_at_execve",
        other_users_lose_all_but_ambient_capabilities_at_execve,
    ),
    ("no_capability_at_all_is_possible", no_capability_at_all_is_possible),
    ("capabilities_without_a_change_of_user", capabilities_without_a_change_of_user),
    ("a_forged_proc_is_not_read", a_forged_proc_is_not_read),
    ("an_impossible_request_is_an_error", an_impossible_request_is_an_error),
    (
        "a_process_that_cannot_lower_its_oom_score_gets_an_error",
        a_process_that_cannot_lower_its_oom_score_gets_an_error,
    ),
];

/// Arguments: then, uid, gid, groups, capabilities, ambient ones, no_new_privs.
pub(crate) fn play(role: &str, args: &[String]) -> bool {
    match (role, args) {
        ("user", [then, uid, gid, groups, caps, ambient, no_new_privs]) => {
            let groups: Vec<u32> = groups.split_terminator(',').map(|group| group.parse().unwrap()).collect();
            let caps = to_oci(&set(caps), &set(ambient));
            become_user(uid.parse().unwrap(), gid.parse().unwrap(), &groups, &caps, no_new_privs == "true").unwrap();
            match then.as_str() {
                "exec" => panic!("{}", Command::new("/bin/cat").arg("/proc/self/status").exec()),
                _ => print!("{}", fs::read_to_string("/proc/self/status").unwrap()),
            }
        }
        ("apply", [caps, ambient]) => {
            apply(&to_oci(&set(caps), &set(ambient))).unwrap();
            print!("{}", fs::read_to_string("/proc/self/status").unwrap());
        }
        ("user-without-proc", []) => {
            unshare_mounts();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount("none", "/proc", "tmpfs", MountFlags::empty(), None).unwrap();
            fs::create_dir("/proc/self").unwrap();
            fs::write("/proc/self/status", "CapBnd:\t0000000000000001\n").unwrap();
            become_user(1234, 1234, &[], &to_oci(&set("CHOWN"), &BTreeSet::new()), true).unwrap();
            println!("{:?}", node_bounding().unwrap());
        }
        ("apply-twice", [first, second]) => {
            apply(&to_oci(&set(first), &BTreeSet::new())).unwrap();
            apply(&to_oci(&set(second), &BTreeSet::new())).unwrap();
        }
        ("oom-score", [caps]) => {
            apply(&to_oci(&set(caps), &BTreeSet::new())).unwrap();
            let score = || fs::read_to_string("/proc/self/oom_score_adj").unwrap();
            let before = score();
            println!("{:?}", keelet_linux::oom::cannot_lower_score().map(|error| error.kind()));
            assert_eq!(score(), before, "the score is restored");
        }
        _ => return false,
    }
    true
}

fn root_has_exactly_the_requested_capabilities() -> Shown {
    if let Some(skipped) = unable() {
        return skipped;
    }
    for then in ["stay", "exec"] {
        let status = status("user", &[then, "0", "0", "", "CHOWN,KILL", "", "false"]);
        // 0x21 is CHOWN (bit 0) and KILL (bit 5).
        status.has("CapBnd", "0000000000000021");
        status.has("CapPrm", "0000000000000021");
        status.has("CapEff", "0000000000000021");
        status.has("CapInh", "0000000000000000");
        status.has("CapAmb", "0000000000000000");
        status.has("Uid", "0 0 0 0");
        status.has("Groups", "");
        status.has("NoNewPrivs", "0");
    }
    Shown::Yes
}

fn another_user_has_exactly_the_requested_capabilities() -> Shown {
    if let Some(skipped) = unable() {
        return skipped;
    }
    let status =
        status("user", &["stay", "1234", "5678", "10,20,4000000000", "CHOWN,NET_BIND_SERVICE,MKNOD", "", "true"]);
    status.has("Uid", "1234 1234 1234 1234");
    status.has("Gid", "5678 5678 5678 5678");
    status.has("Groups", "10 20 4000000000");
    for set in ["CapBnd", "CapPrm", "CapEff"] {
        status.has(set, "0000000008000401");
    }
    status.has("CapInh", "0000000000000000");
    status.has("CapAmb", "0000000000000000");
    status.has("NoNewPrivs", "1");
    Shown::Yes
}

fn ambient_capabilities_survive_execve() -> Shown {
    if let Some(skipped) = unable() {
        return skipped;
    }
    let status = status("user", &["exec", "1234", "1234", "", "CHOWN,NET_BIND_SERVICE", "NET_BIND_SERVICE", "true"]);
    status.has("CapBnd", "0000000000000401");
    for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        status.has(set, "0000000000000400");
    }
    status.has("NoNewPrivs", "1");
    Shown::Yes
}

fn other_users_lose_all_but_ambient_capabilities_at_execve() -> Shown {
    if let Some(skipped) = unable() {
        return skipped;
    }
    let status = status("user", &["exec", "1234", "1234", "", "CHOWN,NET_BIND_SERVICE", "", "false"]);
    status.has("CapBnd", "0000000000000401");
    for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        status.has(set, "0000000000000000");
    }
    Shown::Yes
}

fn no_capability_at_all_is_possible() -> Shown {
    if let Some(skipped) = unable() {
        return skipped;
    }
    for then in ["stay", "exec"] {
        let status = status("user", &[then, "0", "0", "7", "", "", "true"]);
        for set in ["CapBnd", "CapPrm", "CapEff", "CapInh", "CapAmb"] {
            status.has(set, "0000000000000000");
        }
        status.has("Groups", "7");
    }
    Shown::Yes
}

fn capabilities_without_a_change_of_user() -> Shown {
    if let Some(skipped) = unable() {
        return skipped;
    }
    let status = status("apply", &["CHOWN,SETPCAP", "CHOWN"]);
    for set in ["CapBnd", "CapPrm", "CapEff"] {
        status.has(set, "0000000000000101");
    }
    for set in ["CapInh", "CapAmb"] {
        status.has(set, "0000000000000001");
    }
    Shown::Yes
}

/// A container controls its `/proc`, so an exec into it must not rely on that.
fn a_forged_proc_is_not_read() -> Shown {
    if let Some(skipped) = unable() {
        return skipped;
    }
    assert_eq!(output_of("user-without-proc", &[]), "{CAP_CHOWN}\n");
    Shown::Yes
}

fn an_impossible_request_is_an_error() -> Shown {
    if let Some(skipped) = unable() {
        return skipped;
    }
    let error = |role: &str, args: &[&str]| {
        let output = child(role, args);
        assert!(!output.status.success(), "{role} {args:?} was allowed: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let raised = error("apply-twice", &["CHOWN,SETPCAP", "CHOWN,KILL"]);
    assert!(raised.contains("the bounding set lacks {CAP_KILL}"), "{raised}");
    let unable = error("apply-twice", &["CHOWN,KILL", "CHOWN"]);
    assert!(unable.contains("drop capability 5 from the bounding set"), "{unable}");
    let keep = u32::MAX.to_string();
    let invalid = error("user", &["stay", &keep, "0", "", "", "", "false"]);
    assert!(invalid.contains("invalid uid 4294967295"), "{invalid}");
    Shown::Yes
}

struct Status(BTreeMap<String, String>);

impl Status {
    fn has(&self, field: &str, expected: &str) {
        assert_eq!(self.0.get(field).map(String::as_str), Some(expected), "{field}");
    }
}

fn status(role: &str, args: &[&str]) -> Status {
    let output = output_of(role, args);
    let fields = output.lines().filter_map(|line| line.split_once(':'));
    Status(
        fields
            .map(|(field, value)| (field.to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
            .collect(),
    )
}

fn set(names: &str) -> BTreeSet<Cap> {
    names.split_terminator(',').map(|name| Cap::parse(name).unwrap()).collect()
}

/// Why the case is skipped on this machine.
fn unable() -> Option<Shown> {
    if !is_root() {
        return Some(needs_root());
    }
    let needed = set("CHOWN,KILL,SETGID,SETUID,SETPCAP,NET_BIND_SERVICE,SYS_ADMIN,MKNOD");
    let lacking = &needed - &node_bounding().unwrap();
    (!lacking.is_empty()).then(|| Shown::Skipped(format!("this machine lacks {lacking:?}")))
}

#[expect(unsafe_code, reason = "unshare is unsafe because of other flags")]
fn unshare_mounts() {
    // SAFETY: the only thing unshared is the mount namespace (and with it the working directory) of this one thread.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
}

fn a_process_that_cannot_lower_its_oom_score_gets_an_error() -> Shown {
    if let Some(skipped) = unable() {
        return skipped;
    }
    assert_eq!(output_of("oom-score", &["CHOWN"]), "Some(PermissionDenied)\n");
    if keelet_linux::oom::cannot_lower_score().is_some() {
        return Shown::Skipped("this machine does not allow lower OOM scores".to_owned());
    }
    assert_eq!(output_of("oom-score", &["SYS_RESOURCE"]), "None\n");
    Shown::Yes
}
