//! Filters on real processes.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use keelet_linux::capabilities::{self, Cap, DEFAULT};
use keelet_linux::seccomp::{Architecture, Program, compile, default_profile, load};
use oci_spec::runtime::LinuxSeccomp;

use super::{Case, Shown, child, is_root, needs_root, output_of};

pub(crate) const CASES: &[Case] = &[
    ("the_default_profile_denies_calls", the_default_profile_denies_calls),
    ("a_shell_works_under_the_default_profile", a_shell_works_under_the_default_profile),
    ("a_32_bit_call_kills_the_process", a_32_bit_call_kills_the_process),
    ("a_rule_with_the_kill_action_kills", a_rule_with_the_kill_action_kills),
    ("without_privilege_a_filter_needs_no_new_privs", without_privilege_a_filter_needs_no_new_privs),
    ("a_filter_is_loaded_before_privileges_are_dropped", a_filter_is_loaded_before_privileges_are_dropped),
    ("the_kernel_accepts_the_flags", the_kernel_accepts_the_flags),
];

/// Calls whose arguments are nonsense, so that they do nothing where they are allowed.
const CALLS: [(&str, libc::c_long, [u64; 2]); 9] = [
    ("mount", libc::SYS_mount, [0, 0]),
    ("keyctl", libc::SYS_keyctl, [u64::MAX, 0]),
    ("bpf", libc::SYS_bpf, [u64::MAX, 0]),
    ("clone3", libc::SYS_clone3, [0, 0]),
    ("getpid", libc::SYS_getpid, [0, 0]),
    ("new", 999, [0, 0]),
    ("inet", libc::SYS_socket, [2, 1]),
    ("alg", libc::SYS_socket, [38, 5]),
    ("alg_with_high_bits", libc::SYS_socket, [38 + (1 << 32), 5]),
];

pub(crate) fn play(role: &str, _args: &[String]) -> bool {
    match role {
        "calls" => make_calls(),
        "filtered-calls" => {
            load(&default()).unwrap();
            make_calls();
        }
        "filtered-shell" => {
            confine(&default());
            let script = "echo $((40 + 2)); ls / | wc -l; grep Seccomp: /proc/self/status; (exit 7); echo $?";
            panic!("{}", Command::new("/bin/sh").arg("-c").arg(script).exec());
        }
        "int80" => println!("{}", getpid_as_32_bit()),
        "filtered-int80" => {
            confine(&compile(&everything("[]")).unwrap());
            println!("{}", getpid_as_32_bit());
        }
        "killed" => {
            let rules = r#"[{ "names": ["getppid"], "action": "SCMP_ACT_KILL_PROCESS" }]"#;
            confine(&compile(&everything(rules)).unwrap());
            println!("{}", call(libc::SYS_getppid, [0, 0]));
        }
        "unprivileged" => unprivileged(),
        "filtered-user" => {
            load(&default()).unwrap();
            let caps = capabilities::to_oci(&[Cap::KILL].into(), &[Cap::KILL].into());
            capabilities::become_user(1234, 1234, &[7], &caps, false).unwrap();
            let script = "grep -E '^(Seccomp|NoNewPrivs|CapEff):' /proc/self/status; id -u";
            panic!("{}", Command::new("/bin/sh").arg("-c").arg(script).exec());
        }
        "flagged" => {
            let mut profile = default_profile(&DEFAULT.into(), machine());
            profile.set_flags(
                serde_json::from_str(
                    r#"["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW", "SECCOMP_FILTER_FLAG_TSYNC"]"#,
                )
                .unwrap(),
            );
            load(&compile(&profile).unwrap()).unwrap();
            make_calls();
        }
        _ => return false,
    }
    true
}

fn the_default_profile_denies_calls() -> Shown {
    if !is_root() {
        return needs_root();
    }
    let (without, with) = (output_of("calls", &[]), output_of("filtered-calls", &[]));
    let answer = |output: &str, name: &str| -> i64 {
        let line = output.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {output}")).parse().unwrap()
    };
    for name in ["mount", "keyctl", "bpf", "alg", "alg_with_high_bits"] {
        assert_eq!(answer(&with, name), -i64::from(libc::EPERM), "{name}: {with}");
        assert_ne!(answer(&without, name), -i64::from(libc::EPERM), "{name} is denied without a filter: {without}");
    }
    assert_eq!(answer(&with, "clone3"), -i64::from(libc::ENOSYS), "{with}");
    assert_ne!(answer(&without, "clone3"), -i64::from(libc::ENOSYS), "{without}");
    assert_eq!(answer(&with, "new"), -i64::from(libc::ENOSYS), "{with}");
    assert!(answer(&with, "getpid") > 0, "{with}");
    assert!(answer(&with, "inet") > 0, "{with}");
    if cfg!(target_arch = "x86_64") {
        assert_eq!(answer(&with, "x32"), -i64::from(libc::ENOSYS), "{with}");
    }
    Shown::Yes
}

fn a_shell_works_under_the_default_profile() -> Shown {
    let output = output_of("filtered-shell", &[]);
    let lines: Vec<&str> = output.lines().collect();
    let [sum, files, filter, code] = lines[..] else { panic!("expected four lines: {output}") };
    assert_eq!((sum, filter, code), ("42", "Seccomp:\t2", "7"), "a sum, the filter and an exit code");
    assert!(files.trim().parse::<u32>().unwrap() > 3, "{output}");
    Shown::Yes
}

fn a_32_bit_call_kills_the_process() -> Shown {
    let control = child("int80", &[]);
    if !control.status.success() || control.stdout.starts_with(b"-") {
        return Shown::Skipped("this kernel has no 32-bit calls".to_owned());
    }
    // Everything is allowed by that profile.
    let output = child("filtered-int80", &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
    assert_eq!(output.stdout, b"");
    Shown::Yes
}

fn a_rule_with_the_kill_action_kills() -> Shown {
    let output = child("killed", &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "a process that made a forbidden call: {output:?}");
    Shown::Yes
}

fn without_privilege_a_filter_needs_no_new_privs() -> Shown {
    if !is_root() {
        return needs_root();
    }
    assert_eq!(output_of("unprivileged", &[]), "without: 13\nwith: 0\nmount: -1\n");
    Shown::Yes
}

/// The order for a container that may gain privileges: the default profile denies none of the calls before execve.
fn a_filter_is_loaded_before_privileges_are_dropped() -> Shown {
    if !is_root() {
        return needs_root();
    }
    let expected = "CapEff:\t0000000000000020\nNoNewPrivs:\t0\nSeccomp:\t2\n1234\n";
    assert_eq!(output_of("filtered-user", &[]), expected);
    Shown::Yes
}

fn the_kernel_accepts_the_flags() -> Shown {
    if !is_root() {
        return needs_root();
    }
    assert!(output_of("flagged", &[]).contains("mount -1"));
    Shown::Yes
}

fn unprivileged() {
    let nothing = capabilities::to_oci(&BTreeSet::new(), &BTreeSet::new());
    capabilities::become_user(65534, 65534, &[], &nothing, false).unwrap();
    let code = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error()).unwrap_or(0);
    println!("without: {}", code(load(&default())));
    rustix::thread::set_no_new_privs(true).unwrap();
    println!("with: {}", code(load(&default())));
    println!("mount: {}", call(libc::SYS_mount, [0, 0]));
}

fn make_calls() {
    for (name, number, args) in CALLS {
        println!("{name} {}", call(number, args));
    }
    if cfg!(target_arch = "x86_64") {
        println!("x32 {}", call(0x4000_0000 | libc::SYS_getpid, [0, 0]));
    }
}

/// Loads a filter as root, or with no_new_privs.
fn confine(program: &Program) {
    if !is_root() {
        rustix::thread::set_no_new_privs(true).unwrap();
    }
    load(program).unwrap();
}

fn default() -> Program {
    compile(&default_profile(&DEFAULT.into(), machine())).unwrap()
}

fn machine() -> Architecture {
    Architecture::native().unwrap()
}

fn everything(rules: &str) -> LinuxSeccomp {
    serde_json::from_str(&format!(r#"{{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": {rules} }}"#)).unwrap()
}

#[expect(unsafe_code, reason = "calls that have no safe form, with arguments that do nothing")]
fn call(number: libc::c_long, [first, second]: [u64; 2]) -> i64 {
    // SAFETY: none of the calls is given a valid pointer, so none writes anywhere.
    match unsafe { libc::syscall(number, first, second, 0_u64, 0_u64, 0_u64, 0_u64) } {
        -1 => -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        result => result,
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "there is no other way to make a 32-bit call from 64-bit code")]
fn getpid_as_32_bit() -> i64 {
    let result: i64;
    // SAFETY: getpid (20 in the 32-bit table) touches nothing; what the kernel may change is declared.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") 20_i64 => result,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
fn getpid_as_32_bit() -> i64 {
    -1
}
