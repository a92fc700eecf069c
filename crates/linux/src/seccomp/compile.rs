//! From a profile to a filter. The parent module explains what profiles mean.

use std::collections::BTreeMap;

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSeccompOperator, LinuxSyscall,
};

use super::bpf::{self, CallAction, Condition, Range, Rule, Test};
use super::{Architecture, Error, Program, Warning};

/// The kernel silently truncates greater ones.
const MAX_ERRNO: u32 = 4095;

/// The kernel passes 16 bits to a tracer.
const MAX_TRACE_DATA: u32 = 0xffff;

/// `SECCOMP_FILTER_FLAG_*`.
const FLAG_TSYNC: u32 = 1;
const FLAG_LOG: u32 = 1 << 1;
const FLAG_SPEC_ALLOW: u32 = 1 << 2;

/// Compiles a profile for the native architecture.
pub fn compile(profile: &LinuxSeccomp) -> Result<Program, Error> {
    compile_for(profile, Architecture::native().ok_or(Error::Architecture)?)
}

/// Compiles a profile for a given architecture.
pub fn compile_for(profile: &LinuxSeccomp, architecture: Architecture) -> Result<Program, Error> {
    let default = action("defaultAction", profile.default_action(), "defaultErrnoRet", profile.default_errno_ret())?;
    let flags = flags(profile)?;
    let mut warnings = foreign_architectures(profile, architecture);
    let mut calls = BTreeMap::new();
    let rules = profile.syscalls().as_deref().unwrap_or_default();
    for (position, syscall) in rules.iter().enumerate() {
        collect(position, syscall, default, architecture, &mut calls, &mut warnings)?;
    }
    let calls = calls.into_iter().map(|(number, rules)| (number, verdict(rules, default, &mut warnings))).collect();
    let instructions = bpf::program(architecture, &ranges(&calls, default, architecture));
    if instructions.len() > bpf::MAX_INSTRUCTIONS {
        return Err(Error::TooLong(instructions.len()));
    }
    Ok(Program { instructions, flags, warnings })
}

/// A rule with its position in the profile.
struct PlacedRule {
    place: String,
    name: String,
    rule: Rule,
}

/// Adds a rule of the profile to each call that it names.
fn collect(
    position: usize,
    syscall: &LinuxSyscall,
    default: u32,
    architecture: Architecture,
    calls: &mut BTreeMap<u32, Vec<PlacedRule>>,
    warnings: &mut Vec<Warning>,
) -> Result<(), Error> {
    let place = format!("syscalls[{position}]");
    let action = action(&format!("{place}.action"), syscall.action(), "errnoRet", syscall.errno_ret())?;
    let args = syscall.args().as_deref().unwrap_or_default();
    let conditions = args
        .iter()
        .enumerate()
        .map(|(index, arg)| condition(&format!("{place}.args[{index}]"), arg))
        .collect::<Result<Vec<_>, _>>()?;
    let repeated = conditions
        .iter()
        .enumerate()
        .find_map(|(at, condition)| conditions.iter().take(at).find(|earlier| earlier.argument == condition.argument));
    let alternatives = match repeated {
        Some(condition) => {
            warnings.push(Warning::RepeatedArgument { place: place.clone(), index: usize::from(condition.argument) });
            conditions.iter().map(|condition| vec![*condition]).collect()
        }
        None => vec![conditions],
    };
    for name in syscall.names() {
        if name.is_empty() {
            return Err(Error::field(format!("{place}.names"), "empty name of a system call"));
        }
        let Some(number) = architecture.syscall(name) else {
            warnings.push(Warning::UnknownSyscall { place: place.clone(), name: name.clone() });
            continue;
        };
        // Also without an effective rule: the profile knows the call, so ENOSYS begins above it.
        let sources = calls.entry(number).or_default();
        if action != default {
            sources.extend(alternatives.iter().map(|conditions| PlacedRule {
                place: place.clone(),
                name: name.clone(),
                rule: Rule { conditions: conditions.clone(), action },
            }));
        }
    }
    Ok(())
}

/// The effect of all rules for one call.
fn verdict(sources: Vec<PlacedRule>, default: u32, warnings: &mut Vec<Warning>) -> CallAction {
    if sources.is_empty() {
        return CallAction::Always(default);
    }
    let Some(winner) = sources.iter().find(|source| source.rule.conditions.is_empty()) else {
        return CallAction::ByArguments(sources.into_iter().map(|source| source.rule).collect(), default);
    };
    let shadowed = sources.iter().filter(|source| source.rule.action != winner.rule.action);
    warnings
        .extend(shadowed.map(|source| Warning::Shadowed { place: source.place.clone(), name: source.name.clone() }));
    CallAction::Always(winner.rule.action)
}

/// Maps all call numbers to verdicts; neighbours with equal verdicts are one range.
fn ranges(calls: &BTreeMap<u32, CallAction>, default: u32, architecture: Architecture) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut push = |first: u32, verdict: CallAction| {
        if ranges.last().is_none_or(|last| last.verdict != verdict) {
            ranges.push(Range { first, verdict });
        }
    };
    let mut next = 0;
    for (&number, verdict) in calls {
        if number > next {
            push(next, CallAction::Always(default));
        }
        push(number, verdict.clone());
        next = number.saturating_add(1);
    }
    let allows = default == bpf::ALLOW || default == bpf::LOG;
    let newer_calls = if calls.is_empty() || allows { default } else { enosys() };
    push(next, CallAction::Always(newer_calls));
    if let Some(first) = architecture.first_foreign_call() {
        push(first, CallAction::Always(enosys()));
    }
    ranges
}

fn enosys() -> u32 {
    bpf::ERRNO | libc::ENOSYS.unsigned_abs()
}

fn action(place: &str, action: LinuxSeccompAction, data_field: &str, data: Option<u32>) -> Result<u32, Error> {
    let eperm = libc::EPERM.unsigned_abs();
    let data = |max: u32| {
        let data = data.unwrap_or(eperm);
        if data > max {
            return Err(Error::field(place, format!("invalid {data_field} {data}: must be at most {max}")));
        }
        Ok(data)
    };
    Ok(match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => bpf::KILL_THREAD,
        LinuxSeccompAction::ScmpActKillProcess => bpf::KILL_PROCESS,
        LinuxSeccompAction::ScmpActTrap => bpf::TRAP,
        LinuxSeccompAction::ScmpActErrno => bpf::ERRNO | data(MAX_ERRNO)?,
        LinuxSeccompAction::ScmpActTrace => bpf::TRACE | data(MAX_TRACE_DATA)?,
        LinuxSeccompAction::ScmpActLog => bpf::LOG,
        LinuxSeccompAction::ScmpActAllow => bpf::ALLOW,
        LinuxSeccompAction::ScmpActNotify => {
            return Err(Error::field(
                place,
                "SCMP_ACT_NOTIFY is not supported: keelet runs no listener for notifications",
            ));
        }
    })
}

fn condition(place: &str, arg: &LinuxSeccompArg) -> Result<Condition, Error> {
    let argument = u8::try_from(arg.index())
        .ok()
        .filter(|&index| index < 6)
        .ok_or_else(|| Error::field(place, format!("invalid index {}: must be 0 to 5", arg.index())))?;
    let value = arg.value();
    let test = match arg.op() {
        LinuxSeccompOperator::ScmpCmpEq => Test::Eq(value),
        LinuxSeccompOperator::ScmpCmpNe => Test::Ne(value),
        LinuxSeccompOperator::ScmpCmpLt => Test::Lt(value),
        LinuxSeccompOperator::ScmpCmpLe => Test::Le(value),
        LinuxSeccompOperator::ScmpCmpGt => Test::Gt(value),
        LinuxSeccompOperator::ScmpCmpGe => Test::Ge(value),
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            // Bits outside the mask never match; libseccomp ignores them as well.
            Test::MaskedEq { mask: value, value: arg.value_two().unwrap_or(0) & value }
        }
    };
    Ok(Condition { argument, test })
}

fn flags(profile: &LinuxSeccomp) -> Result<u32, Error> {
    profile.flags().iter().flatten().try_fold(0, |flags, flag| {
        Ok(flags
            | match flag {
                LinuxSeccompFilterFlag::SeccompFilterFlagLog => FLAG_LOG,
                LinuxSeccompFilterFlag::SeccompFilterFlagTsync => FLAG_TSYNC,
                LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => FLAG_SPEC_ALLOW,
                LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv => {
                    let problem = format!("{flag} is not supported: it needs SCMP_ACT_NOTIFY");
                    return Err(Error::field("flags", problem));
                }
            })
    })
}

fn foreign_architectures(profile: &LinuxSeccomp, architecture: Architecture) -> Vec<Warning> {
    let own = |arch: &Arch| *arch == architecture.oci() || *arch == Arch::ScmpArchNative;
    let listed = profile.architectures().iter().flatten();
    listed.filter(|arch| !own(arch)).map(|&arch| Warning::ForeignArchitecture { arch }).collect()
}
