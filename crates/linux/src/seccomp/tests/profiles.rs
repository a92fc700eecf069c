//! What single rules and the default profile mean.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::capabilities::DEFAULT;

const X32: u32 = 0x4000_0000;
const I386: u32 = 0x4000_0003;

#[test]
fn every_action_has_its_own_return_value() {
    let rules = json!([
        { "names": ["read"], "action": "SCMP_ACT_KILL" },
        { "names": ["write"], "action": "SCMP_ACT_KILL_THREAD" },
        { "names": ["open"], "action": "SCMP_ACT_KILL_PROCESS" },
        { "names": ["close"], "action": "SCMP_ACT_TRAP" },
        { "names": ["stat"], "action": "SCMP_ACT_ERRNO" },
        { "names": ["fstat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 },
        { "names": ["lstat"], "action": "SCMP_ACT_TRACE" },
        { "names": ["poll"], "action": "SCMP_ACT_TRACE", "errnoRet": 65535 },
        { "names": ["lseek"], "action": "SCMP_ACT_LOG" },
        { "names": ["mmap"], "action": "SCMP_ACT_ALLOW" },
    ]);
    let profile = profile(json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 13, "syscalls": rules }));
    let expected = [
        ("read", 0),
        ("write", 0),
        ("open", 0x8000_0000),
        ("close", 0x0003_0000),
        ("stat", errno(libc::EPERM)),
        ("fstat", errno(libc::ENOSYS)),
        ("lstat", 0x7ff0_0001),
        ("poll", 0x7ff0_ffff),
        ("lseek", 0x7ffc_0000),
        ("mmap", ALLOW),
    ];
    for (name, action) in expected {
        assert_eq!(ask(&profile, name, &[]), action, "{name}");
    }
    // brk is above all of them, so it counts as newer than the profile. A gap gets the default.
    assert_eq!(ask(&profile, "brk", &[]), errno(libc::ENOSYS));
    let gap = profile_of("SCMP_ACT_KILL_PROCESS", json!([{ "names": ["brk"], "action": "SCMP_ACT_ALLOW" }]));
    assert_eq!(ask(&gap, "mmap", &[]), 0x8000_0000);
}

#[test]
fn an_unconditional_rule_overrides_conditional_ones_in_any_position() {
    let conditional = json!({ "names": ["socket"], "action": "SCMP_ACT_KILL_PROCESS", "args": [{ "index": 0, "value": 40, "op": "SCMP_CMP_EQ" }] });
    let plain = json!({ "names": ["socket"], "action": "SCMP_ACT_ALLOW" });
    for rules in [json!([conditional, plain]), json!([plain, conditional])] {
        let profile = profile_of("SCMP_ACT_ERRNO", rules);
        assert_eq!(ask(&profile, "socket", &[40]), ALLOW);
        let program = compile_for(&profile, Architecture::X86_64).unwrap();
        assert!(matches!(program.warnings(), [Warning::Shadowed { name, .. }] if name == "socket"));
    }
}

#[test]
fn an_argument_named_twice_makes_alternatives() {
    let args = json!([
        { "index": 0, "value": 3, "op": "SCMP_CMP_EQ" },
        { "index": 0, "value": 5, "op": "SCMP_CMP_EQ" },
        { "index": 1, "value": 7, "op": "SCMP_CMP_EQ" },
    ]);
    let profile =
        profile_of("SCMP_ACT_ERRNO", json!([{ "names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": args }]));
    for (args, action) in [([3, 0], ALLOW), ([5, 0], ALLOW), ([0, 7], ALLOW), ([4, 0], errno(libc::EPERM))] {
        assert_eq!(ask(&profile, "socket", &args), action, "{args:?}");
    }
    let program = compile_for(&profile, Architecture::X86_64).unwrap();
    assert!(matches!(program.warnings(), [Warning::RepeatedArgument { index: 0, .. }]), "{:?}", program.warnings());
}

#[test]
fn calls_above_the_profile_get_enosys_unless_the_default_lets_them_through() {
    let rules = json!([{ "names": ["close_range"], "action": "SCMP_ACT_KILL_PROCESS" }]);
    let newer = Call::new(Architecture::X86_64.audit_number(), 437, &[]);
    for (default, action) in [
        ("SCMP_ACT_ERRNO", errno(libc::ENOSYS)),
        ("SCMP_ACT_KILL_THREAD", errno(libc::ENOSYS)),
        ("SCMP_ACT_ALLOW", ALLOW),
        ("SCMP_ACT_LOG", 0x7ffc_0000),
    ] {
        let program = compile_for(&profile_of(default, rules.clone()), Architecture::X86_64).unwrap();
        assert_eq!(machine::run(&program, &newer), action, "{default}");
    }
    // A call that is named only to be denied is known to the profile nevertheless.
    let named = profile_of("SCMP_ACT_ERRNO", json!([{ "names": ["openat2"], "action": "SCMP_ACT_ERRNO" }]));
    assert_eq!(ask(&named, "openat2", &[]), errno(libc::EPERM));
    // Without any rule the age of the profile is unknown.
    assert_eq!(ask(&profile_of("SCMP_ACT_ERRNO", json!([])), "openat2", &[]), errno(libc::EPERM));
}

#[test]
fn unknown_names_are_ignored_with_a_warning() {
    let profile =
        profile_of("SCMP_ACT_ERRNO", json!([{ "names": ["read", "time_travel"], "action": "SCMP_ACT_ALLOW" }]));
    let program = compile_for(&profile, Architecture::X86_64).unwrap();
    assert_eq!(machine::run(&program, &call("read", &[])), ALLOW);
    let warnings: Vec<String> = program.warnings().iter().map(Warning::to_string).collect();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("syscalls[0]: system call \"time_travel\""), "{warnings:?}");
}

#[test]
fn calls_of_other_architectures_are_denied_by_every_profile() {
    let mut everything = profile(json!({ "defaultAction": "SCMP_ACT_ALLOW" }));
    everything.set_architectures(Some(vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32]));
    let program = compile_for(&everything, Architecture::X86_64).unwrap();
    let native = Architecture::X86_64.audit_number();
    assert_eq!(machine::run(&program, &Call::new(I386, 1, &[])), 0x8000_0000);
    for number in [X32, X32 + 1, X32 + 0x1000, u32::MAX] {
        assert_eq!(machine::run(&program, &Call::new(native, number, &[])), errno(libc::ENOSYS), "{number:#x}");
    }
    assert_eq!(machine::run(&program, &Call::new(native, X32 - 1, &[])), ALLOW);
    let foreign: Vec<_> = program.warnings().iter().map(Warning::to_string).collect();
    assert_eq!(foreign.len(), 2, "{foreign:?}");
}

#[test]
fn an_unsupported_profile_is_rejected_with_the_position() {
    let rule = |rule: Value| {
        refusal(&profile_of("SCMP_ACT_ERRNO", json!([{ "names": ["read"], "action": "SCMP_ACT_ALLOW" }, rule])))
    };
    let notify = rule(json!({ "names": ["write"], "action": "SCMP_ACT_NOTIFY" }));
    assert!(notify.starts_with("syscalls[1].action: SCMP_ACT_NOTIFY is not supported"), "{notify}");
    let default = refusal(&profile_of("SCMP_ACT_NOTIFY", json!([])));
    assert!(default.starts_with("defaultAction: SCMP_ACT_NOTIFY"), "{default}");
    let errno = rule(json!({ "names": ["write"], "action": "SCMP_ACT_ERRNO", "errnoRet": 4096 }));
    assert!(errno.contains("invalid errnoRet 4096: must be at most 4095"), "{errno}");
    let index = rule(
        json!({ "names": ["write"], "action": "SCMP_ACT_ALLOW", "args": [{ "index": 6, "value": 0, "op": "SCMP_CMP_EQ" }] }),
    );
    assert_eq!(index, "syscalls[1].args[0]: invalid index 6: must be 0 to 5");
    let empty = rule(json!({ "names": [""], "action": "SCMP_ACT_ALLOW" }));
    assert!(empty.starts_with("syscalls[1].names: "), "{empty}");
    let flag = refusal(&profile(
        json!({ "defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"] }),
    ));
    assert!(flag.starts_with("flags: "), "{flag}");
}

#[test]
fn a_profile_beyond_the_kernels_limit_is_rejected() {
    let args = |value: u64| json!([{ "index": 0, "value": value, "op": "SCMP_CMP_EQ" }]);
    let rules: Vec<Value> =
        (0..1000).map(|value| json!({ "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": args(value) })).collect();
    let refusal = refusal(&profile_of("SCMP_ACT_ERRNO", json!(rules)));
    assert!(refusal.contains("the kernel accepts 4096"), "{refusal}");
}

#[test]
fn jumps_over_more_than_255_instructions_arrive() {
    let args = |value: u64| json!([{ "index": 0, "value": value, "op": "SCMP_CMP_EQ" }]);
    let mut rules: Vec<Value> =
        (0..200).map(|value| json!({ "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": args(value) })).collect();
    rules.push(json!({ "names": ["mmap"], "action": "SCMP_ACT_LOG" }));
    let profile = profile_of("SCMP_ACT_ERRNO", json!(rules));
    assert!(compile_for(&profile, Architecture::X86_64).unwrap().size() > 800);
    for (name, arg, action) in
        [("read", 0, ALLOW), ("read", 199, ALLOW), ("read", 200, errno(libc::EPERM)), ("mmap", 0, 0x7ffc_0000)]
    {
        assert_eq!(ask(&profile, name, &[arg]), action, "{name} with the argument {arg}");
    }
}

#[test]
fn flags_are_the_kernels() {
    let flags = json!(["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW", "SECCOMP_FILTER_FLAG_TSYNC"]);
    let program =
        compile_for(&profile(json!({ "defaultAction": "SCMP_ACT_ALLOW", "flags": flags })), Architecture::X86_64)
            .unwrap();
    assert_eq!(program.flags, 0b111);
}

#[test]
fn the_default_profile_has_no_warnings_and_is_small_on_both_architectures() {
    for architecture in [Architecture::X86_64, Architecture::Aarch64] {
        for caps in [BTreeSet::new(), Cap::all().collect()] {
            let program = compile_for(&default_profile(&caps, architecture), architecture).unwrap();
            assert_eq!(program.warnings(), [], "{architecture:?}");
            assert!(program.size() < 600, "{architecture:?}: {}", program.size());
        }
    }
}

#[test]
fn the_default_profile_denies_privileged_calls() {
    let profile = default_profile(&DEFAULT.into(), Architecture::X86_64);
    let refused = "mount umount2 keyctl add_key request_key bpf unshare setns init_module kexec_load reboot swapon \
                   io_uring_setup perf_event_open userfaultfd open_by_handle_at settimeofday iopl pivot_root \
                   syslog acct vhangup mbind kcmp quotactl fsopen move_pages uselib";
    for name in refused.split_whitespace() {
        assert_eq!(ask(&profile, name, &[]), errno(libc::EPERM), "{name}");
    }
    assert_eq!(ask(&profile, "clone3", &[]), errno(libc::ENOSYS));
    for name in "read write execve openat futex ptrace chroot prctl arch_prctl rseq newfstatat".split_whitespace() {
        assert_eq!(ask(&profile, name, &[]), ALLOW, "{name}");
    }
    let aarch64 = compile_for(&default_profile(&DEFAULT.into(), Architecture::Aarch64), Architecture::Aarch64).unwrap();
    for (name, action) in [("newfstatat", ALLOW), ("openat", ALLOW), ("mount", errno(libc::EPERM))] {
        let number = Architecture::Aarch64.syscall(name).unwrap();
        let call = Call::new(Architecture::Aarch64.audit_number(), number, &[]);
        assert_eq!(machine::run(&aarch64, &call), action, "{name}");
    }
}

#[test]
fn the_default_profile_checks_arguments() {
    let profile = default_profile(&DEFAULT.into(), Architecture::X86_64);
    let eperm = errno(libc::EPERM);
    let mut cases = vec![
        ("personality", 0, ALLOW),
        ("personality", 8, ALLOW),
        ("personality", 0x2_0000, ALLOW),
        ("personality", 0x2_0008, ALLOW),
        ("personality", 0xffff_ffff, ALLOW),
        ("personality", 0x0040_0000, eperm),
        // What fork and pthread_create use.
        ("clone", 0x0120_0011, ALLOW),
        ("clone", 0x003d_0f00, ALLOW),
        ("clone", 0x2000_0011, eperm),
        ("clone", 0x1000_0011, eperm),
        ("clone", 0x0002_0011, eperm),
        // The kernel ignores the high half, so it must not bypass the filter.
        ("socket", (1 << 32) + 38, eperm),
        ("socket", (1 << 32) + 40, eperm),
        ("socket", (1 << 32) + 2, ALLOW),
    ];
    cases.extend((0..64).map(|family| ("socket", family, if [38, 40].contains(&family) { eperm } else { ALLOW })));
    for (name, argument, action) in cases {
        assert_eq!(ask(&profile, name, &[argument]), action, "{name} {argument:#x}");
    }
}

#[test]
fn capabilities_open_their_calls() {
    for (cap, name) in [
        (Cap::SYS_ADMIN, "mount"),
        (Cap::SYS_ADMIN, "clone3"),
        (Cap::SYS_ADMIN, "unshare"),
        (Cap::BPF, "bpf"),
        (Cap::PERFMON, "perf_event_open"),
        (Cap::SYS_MODULE, "init_module"),
        (Cap::SYSLOG, "syslog"),
        (Cap::SYS_TIME, "settimeofday"),
        (Cap::SYS_PTRACE, "kcmp"),
        (Cap::SYS_CHROOT, "chroot"),
        (Cap::SYS_BOOT, "reboot"),
        (Cap::SYS_PACCT, "acct"),
        (Cap::SYS_RAWIO, "iopl"),
        (Cap::SYS_TTY_CONFIG, "vhangup"),
        (Cap::SYS_NICE, "mbind"),
        (Cap::DAC_READ_SEARCH, "open_by_handle_at"),
    ] {
        let without = default_profile(&BTreeSet::new(), Architecture::X86_64);
        let with = default_profile(&[cap].into(), Architecture::X86_64);
        assert_ne!(ask(&without, name, &[]), ALLOW, "{name}");
        assert_eq!(ask(&with, name, &[]), ALLOW, "{name} with {cap}");
    }
    let admin = default_profile(&[Cap::SYS_ADMIN].into(), Architecture::X86_64);
    assert_eq!(ask(&admin, "clone", &[0x7e02_0000]), ALLOW);
}

fn profile_of(default: &str, rules: Value) -> LinuxSeccomp {
    profile(json!({ "defaultAction": default, "syscalls": rules }))
}
