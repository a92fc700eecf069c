//! Device rules on cgroup v2, where they are an eBPF program.
//!
//! The kernel runs the program for each attempt to open or create a device node, with the requested accesses as bits. The rules of a
//! container are ordered, and for each access the last matching rule applies. So the program evaluates them backwards and clears the bits
//! of allowed accesses: it returns at the first denial, or when no bit is left. An access without a matching rule is denied.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

mod bpf;

use crate::sys::bpf as kernel;

pub(crate) use bpf::Instruction;

/// The name that identifies our programs. The kernel keeps 15 characters.
const NAME: &CStr = c"keelet_devices";

/// Attaches the rules to a cgroup and replaces those of an earlier call.
///
/// The replacement is atomic. Programs of other owners stay attached: the kernel grants an access only if all programs from the cgroup up
/// to the root do.
pub fn attach(cgroup_dir: &Path, rules: &[LinuxDeviceCgroup]) -> io::Result<()> {
    let program = compile(rules)?;
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("device rules of {}: {error}", cgroup_dir.display()));
    let cgroup = File::open(cgroup_dir).map_err(at)?;
    replace(&cgroup, &program).map_err(at)
}

fn replace(cgroup: &File, program: &[Instruction]) -> io::Result<()> {
    let mut ours = ours(cgroup)?.into_iter();
    let new = kernel::load(program, NAME)?;
    kernel::attach(cgroup.as_fd(), new.as_fd(), ours.next().as_ref().map(AsFd::as_fd))?;
    // There should be one at most, but a stale second one would keep denying.
    ours.try_for_each(|old| kernel::detach(cgroup.as_fd(), old.as_fd()))
}

fn ours(cgroup: &File) -> io::Result<Vec<OwnedFd>> {
    let mut ours = Vec::new();
    for id in kernel::attached(cgroup.as_fd())? {
        // It may have been detached since.
        let Some(program) = kernel::open(id)? else { continue };
        if kernel::name(program.as_fd())? == NAME.to_bytes() {
            ours.push(program);
        }
    }
    Ok(ours)
}

/// A parsed rule. An absent device number matches all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    allow: bool,
    kind: Option<Kind>,
    major: Option<u32>,
    minor: Option<u32>,
    /// Bits of [`bpf::MKNOD`], [`bpf::READ`], [`bpf::WRITE`]; never none.
    access: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Block,
    Char,
}

/// Why a device rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum RuleError {
    #[error("invalid type p: must be a, b, c or u")]
    Type,
    #[error("invalid {field} {value}: must be 0 to {}, or -1 for all", u32::MAX)]
    DeviceNumber { field: &'static str, value: i64 },
    #[error("missing access: a rule that allows must have some of r, w and m")]
    MissingAccess,
    #[error("invalid access {letters:?}: must consist of r, w and m")]
    Access { letters: String },
}

/// Errors have the kind `InvalidInput` and name the rule.
fn compile(rules: &[LinuxDeviceCgroup]) -> io::Result<Vec<Instruction>> {
    let rules = rules
        .iter()
        .enumerate()
        .map(|(position, rule)| {
            Rule::parse(rule)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("devices[{position}]: {error}")))
        })
        .collect::<io::Result<Vec<_>>>()?;
    Ok(bpf::program(&rules))
}

// === impl Rule ===

impl Rule {
    fn parse(rule: &LinuxDeviceCgroup) -> Result<Self, RuleError> {
        let kind = match rule.typ().unwrap_or_default() {
            LinuxDeviceType::A => None,
            LinuxDeviceType::B => Some(Kind::Block),
            LinuxDeviceType::C | LinuxDeviceType::U => Some(Kind::Char),
            LinuxDeviceType::P => return Err(RuleError::Type),
        };
        Ok(Self {
            allow: rule.allow(),
            kind,
            major: device_number("major", rule.major())?,
            minor: device_number("minor", rule.minor())?,
            access: access(rule.access().as_deref().unwrap_or_default(), rule.allow())?,
        })
    }

    /// Whether it matches every device and every access, so that rules before it never apply.
    fn is_total(&self) -> bool {
        self.kind.is_none() && self.major.is_none() && self.minor.is_none() && self.access == bpf::ALL
    }
}

fn device_number(field: &'static str, value: Option<i64>) -> Result<Option<u32>, RuleError> {
    match value {
        // The wildcard of runc.
        None | Some(-1) => Ok(None),
        Some(value) => u32::try_from(value).map(Some).map_err(|_| RuleError::DeviceNumber { field, value }),
    }
}

fn access(letters: &str, allow: bool) -> Result<u32, RuleError> {
    if letters.is_empty() {
        // Ambiguous. Denying too much is safe, allowing too much is not.
        return if allow { Err(RuleError::MissingAccess) } else { Ok(bpf::ALL) };
    }
    letters.chars().try_fold(0, |access, letter| match letter {
        'r' => Ok(access | bpf::READ),
        'w' => Ok(access | bpf::WRITE),
        'm' => Ok(access | bpf::MKNOD),
        _ => Err(RuleError::Access { letters: letters.to_owned() }),
    })
}

#[cfg(test)]
mod tests;
