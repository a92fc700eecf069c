//! Filters are run on an interpreter and compared with a plain evaluation of the profile.

mod machine;
mod profiles;
mod random;
mod reading;

use oci_spec::runtime::LinuxSeccomp;
use serde_json::Value;

use machine::Call;

use super::*;
use crate::capabilities::Cap;

const ALLOW: u32 = bpf::ALLOW;

fn errno(number: i32) -> u32 {
    bpf::ERRNO | number.unsigned_abs()
}

fn profile(json: Value) -> LinuxSeccomp {
    serde_json::from_value(json).unwrap()
}

/// The action that the filter of a profile returns for a call of x86_64.
fn ask(profile: &LinuxSeccomp, name: &str, args: &[u64]) -> u32 {
    let program = compile_for(profile, Architecture::X86_64).unwrap();
    machine::run(&program, &call(name, args))
}

fn call(name: &str, args: &[u64]) -> Call {
    let number = Architecture::X86_64.syscall(name).unwrap_or_else(|| panic!("{name} is not a system call"));
    Call::new(Architecture::X86_64.audit_number(), number, args)
}

fn refusal(profile: &LinuxSeccomp) -> String {
    compile_for(profile, Architecture::X86_64).unwrap_err().to_string()
}

fn circumstances(caps: &[Cap]) -> Circumstances {
    Circumstances { caps: caps.iter().copied().collect(), architecture: Architecture::X86_64, kernel: (6, 1) }
}
