//! Random profiles and random calls: the filter decides as a plain evaluation of the profile does.

use oci_spec::runtime::{LinuxSeccompAction as Action, LinuxSeccompArg, LinuxSeccompOperator as Operator};
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Neighbours, ends of the table, and one that does not exist.
const NAMES: [&str; 8] = ["read", "write", "open", "mmap", "socket", "clone3", "removexattrat", "nonsense"];

/// Values around the borders of both halves.
const VALUES: [u64; 9] =
    [0, 1, 38, 0x7fff_ffff, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0026, 0x8000_0000_0000_0000, u64::MAX];

const ACTIONS: [&str; 8] = [
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_KILL",
    "SCMP_ACT_KILL_PROCESS",
    "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_TRAP",
    "SCMP_ACT_LOG",
    "SCMP_ACT_TRACE",
];

const OPERATORS: [&str; 7] =
    ["SCMP_CMP_NE", "SCMP_CMP_LT", "SCMP_CMP_LE", "SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_MASKED_EQ"];

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => prop::sample::select(&VALUES[..]),
        2 => (prop::sample::select(&VALUES[..]), prop::sample::select(vec![1, u64::MAX])).prop_map(|(a, b)| a.wrapping_add(b)),
        1 => any::<u64>(),
    ]
}

fn argument() -> impl Strategy<Value = Value> {
    (0..6_usize, value(), prop::option::of(value()), prop::sample::select(&OPERATORS[..]))
        .prop_map(|(index, value, two, op)| json!({ "index": index, "value": value, "valueTwo": two, "op": op }))
}

fn rule() -> impl Strategy<Value = Value> {
    let names = prop::collection::vec(prop::sample::select(&NAMES[..]), 1..4);
    let args = prop::collection::vec(argument(), 0..4);
    (names, prop::sample::select(&ACTIONS[..]), prop::option::of(0..100_u32), args).prop_map(
        |(names, action, errno, args)| json!({ "names": names, "action": action, "errnoRet": errno, "args": args }),
    )
}

fn any_profile() -> impl Strategy<Value = LinuxSeccomp> {
    let rules = prop::collection::vec(rule(), 0..12);
    (prop::sample::select(&ACTIONS[..]), prop::option::of(0..100_u32), rules).prop_map(|(action, errno, rules)| {
        profile(json!({ "defaultAction": action, "defaultErrnoRet": errno, "syscalls": rules }))
    })
}

fn any_call(architecture: Architecture) -> impl Strategy<Value = Call> {
    let number = prop_oneof![
        6 => prop::sample::select(&NAMES[..7])
            .prop_map(move |name| architecture.syscall(name).unwrap_or(1)),
        2 => 0..480_u32,
        1 => (0..480_u32).prop_map(|number| number | 0x4000_0000),
        1 => any::<u32>(),
    ];
    let arch = prop_oneof![9 => Just(architecture.audit_number()), 1 => prop::sample::select(vec![0x4000_0003, 0x4000_0028, 0])];
    (arch, number, prop::array::uniform6(value())).prop_map(|(arch, number, args)| Call { arch, number, args })
}

fn action(action: Action, data: Option<u32>) -> u32 {
    match action {
        Action::ScmpActKill | Action::ScmpActKillThread => 0,
        Action::ScmpActKillProcess => 0x8000_0000,
        Action::ScmpActTrap => 0x0003_0000,
        Action::ScmpActErrno => 0x0005_0000 + data.unwrap_or(1),
        Action::ScmpActTrace => 0x7ff0_0000 + data.unwrap_or(1),
        Action::ScmpActLog => 0x7ffc_0000,
        Action::ScmpActAllow => 0x7fff_0000,
        Action::ScmpActNotify => unreachable!(),
    }
}

fn holds(arg: &LinuxSeccompArg, call: &Call) -> bool {
    let actual = call.args[arg.index()];
    match arg.op() {
        Operator::ScmpCmpNe => actual != arg.value(),
        Operator::ScmpCmpLt => actual < arg.value(),
        Operator::ScmpCmpLe => actual <= arg.value(),
        Operator::ScmpCmpEq => actual == arg.value(),
        Operator::ScmpCmpGe => actual >= arg.value(),
        Operator::ScmpCmpGt => actual > arg.value(),
        Operator::ScmpCmpMaskedEq => (actual ^ arg.value_two().unwrap_or(0)) & arg.value() == 0,
    }
}

/// The profile, evaluated from top to bottom.
fn evaluated(profile: &LinuxSeccomp, architecture: Architecture, call: &Call) -> u32 {
    let enosys = 0x0005_0000 + 38;
    if call.arch != architecture.audit_number() {
        return 0x8000_0000;
    }
    if architecture == Architecture::X86_64 && call.number >= 0x4000_0000 {
        return enosys;
    }
    let default = action(profile.default_action(), profile.default_errno_ret());
    let rules = profile.syscalls().as_ref().unwrap();
    let numbers = || rules.iter().flat_map(|rule| rule.names()).filter_map(|name| architecture.syscall(name));
    let permissive = [Action::ScmpActAllow, Action::ScmpActLog].contains(&profile.default_action());
    if !permissive && numbers().max().is_some_and(|highest| call.number > highest) {
        return enosys;
    }
    let mut conditional = None;
    for rule in rules {
        let result = action(rule.action(), rule.errno_ret());
        let for_this = rule.names().iter().any(|name| architecture.syscall(name) == Some(call.number));
        if !for_this || result == default {
            continue;
        }
        let args = rule.args().as_deref().unwrap_or_default();
        if args.is_empty() {
            return result;
        }
        let twice = (0..6).any(|index| args.iter().filter(|arg| arg.index() == index).count() > 1);
        let mut held = args.iter().map(|arg| holds(arg, call));
        let matches = if twice { held.any(|held| held) } else { held.all(|held| held) };
        if matches {
            conditional = conditional.or(Some(result));
        }
    }
    conditional.unwrap_or(default)
}

fn agree(architecture: Architecture, profile: &LinuxSeccomp, calls: &[Call]) -> Result<(), TestCaseError> {
    let program = compile_for(profile, architecture).unwrap();
    for call in calls {
        let (filter, book) = (machine::run(&program, call), evaluated(profile, architecture, call));
        prop_assert_eq!(filter, book, "{:?}: filter {:#x}, profile {:#x}", call, filter, book);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_filter_decides_as_the_profile(
        profile in any_profile(),
        calls in prop::collection::vec(any_call(Architecture::X86_64), 40),
    ) {
        agree(Architecture::X86_64, &profile, &calls)?;
    }

    #[test]
    fn the_filter_decides_as_the_profile_on_aarch64(
        profile in any_profile(),
        calls in prop::collection::vec(any_call(Architecture::Aarch64), 40),
    ) {
        agree(Architecture::Aarch64, &profile, &calls)?;
    }
}

/// Every call number, so that no boundary between two ranges is off by one.
#[test]
fn the_default_filter_decides_as_the_default_profile_for_every_number() {
    let profile = default_profile(&[Cap::BPF, Cap::SYS_CHROOT].into(), Architecture::X86_64);
    let program = compile_for(&profile, Architecture::X86_64).unwrap();
    for number in 0..600 {
        let call = Call::new(Architecture::X86_64.audit_number(), number, &[3, 4]);
        assert_eq!(machine::run(&program, &call), evaluated(&profile, Architecture::X86_64, &call), "{number}");
    }
}
