//! Device rules on cgroup v2, where they are an eBPF program of our own making.
//!
//! The kernel asks the program about each attempt to open or make a device node, with the wanted accesses as bits. The
//! rules of a container are in order, and for each access the last rule that is about it counts. So the program goes
//! through them backwards, and strikes off the accesses it has found allowed: the first denial ends it, and so does the
//! last allowance. What no rule is about is denied.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

mod bpf;
mod kernel;

use bpf::Instruction;

/// By this name a program is known to be ours. The kernel keeps 15 characters.
const NAME: &CStr = c"keelet_devices";

/// Puts the rules over a cgroup, in place of those that an earlier call put there.
///
/// From the old rules to the new ones there is no moment without any. Programs of others stay: the kernel grants an
/// access only if all programs on the way to the root do.
pub fn attach(cgroup_dir: &Path, rules: &[LinuxDeviceCgroup]) -> io::Result<()> {
    let program = compile(rules)?;
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("device rules of {}: {error}", cgroup_dir.display()));
    let cgroup = File::open(cgroup_dir).map_err(at)?;
    put_over(&cgroup, &program).map_err(at)
}

fn put_over(cgroup: &File, program: &[Instruction]) -> io::Result<()> {
    let mut ours = ours(cgroup)?.into_iter();
    let new = kernel::load(program, NAME)?;
    kernel::attach(cgroup.as_fd(), new.as_fd(), ours.next().as_ref().map(AsFd::as_fd))?;
    // More than one cannot come from here, but a stale one would go on denying.
    ours.try_for_each(|old| kernel::detach(cgroup.as_fd(), old.as_fd()))
}

fn ours(cgroup: &File) -> io::Result<Vec<OwnedFd>> {
    let mut ours = Vec::new();
    for id in kernel::attached(cgroup.as_fd())? {
        // It may have gone since.
        let Some(program) = kernel::open(id)? else { continue };
        if kernel::name(program.as_fd())? == NAME.to_bytes() {
            ours.push(program);
        }
    }
    Ok(ours)
}

/// A rule after reading. An absent number stands for all.
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

/// Errors have the kind `InvalidInput` and name the rule.
fn compile(rules: &[LinuxDeviceCgroup]) -> io::Result<Vec<Instruction>> {
    let rules = rules
        .iter()
        .enumerate()
        .map(|(position, rule)| {
            let invalid =
                |problem| io::Error::new(io::ErrorKind::InvalidInput, format!("devices[{position}]: {problem}"));
            Rule::read(rule).map_err(invalid)
        })
        .collect::<io::Result<Vec<_>>>()?;
    Ok(bpf::program(&rules))
}

// === impl Rule ===

impl Rule {
    fn read(rule: &LinuxDeviceCgroup) -> Result<Self, String> {
        let kind = match rule.typ().unwrap_or_default() {
            LinuxDeviceType::A => None,
            LinuxDeviceType::B => Some(Kind::Block),
            LinuxDeviceType::C | LinuxDeviceType::U => Some(Kind::Char),
            LinuxDeviceType::P => return Err("type is p; rules are about a, b, c and u".to_owned()),
        };
        Ok(Self {
            allow: rule.allow(),
            kind,
            major: number("major", rule.major())?,
            minor: number("minor", rule.minor())?,
            access: access(rule.access().as_deref().unwrap_or_default(), rule.allow())?,
        })
    }

    /// Decides about every device and every access, so that nothing before it matters.
    fn is_total(&self) -> bool {
        self.kind.is_none() && self.major.is_none() && self.minor.is_none() && self.access == bpf::ALL
    }
}

fn number(field: &str, value: Option<i64>) -> Result<Option<u32>, String> {
    match value {
        // The wildcard of runc and of everybody who writes rules for it.
        None | Some(-1) => Ok(None),
        Some(value) => u32::try_from(value).map(Some).map_err(|_| {
            format!("{field} is {value}; a device number is from 0 to {}, and -1 stands for all", u32::MAX)
        }),
    }
}

fn access(letters: &str, allow: bool) -> Result<u32, String> {
    if letters.is_empty() {
        // Nobody can tell what is meant. To deny too much is safe, to allow too much is not.
        return if allow {
            Err("access is missing; an allowance has some of r, w and m".to_owned())
        } else {
            Ok(bpf::ALL)
        };
    }
    letters.chars().try_fold(0, |access, letter| match letter {
        'r' => Ok(access | bpf::READ),
        'w' => Ok(access | bpf::WRITE),
        'm' => Ok(access | bpf::MKNOD),
        _ => Err(format!("access is {letters:?}; it is made of r, w and m")),
    })
}

#[cfg(test)]
mod tests;
