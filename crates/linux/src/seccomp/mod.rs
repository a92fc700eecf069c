//! Which system calls a container may make: OCI seccomp profiles, and the filter programs made of them.
//!
//! A profile comes from [`default_profile`] or [`read_profile`], [`compile`] turns it into a [`Program`] for the
//! kernel's classic BPF machine, and [`load`] puts that over the calling thread, for good. The first three are pure.
//! Whatever cannot be expressed exactly is an error: a profile is either enforced or the container does not start.
//!
//! # What a profile means
//!
//! Profiles are written for runc and libseccomp, so they mean here what they mean there:
//!
//! - Conditions of one rule must all hold. But if a rule names the same argument twice, each of its conditions is a rule
//!   of its own.
//! - A rule without conditions beats all rules with conditions for the same call, wherever it stands. The first such
//!   rule counts. Of the rules with conditions, the first that matches counts.
//! - A rule whose action is the default action is no rule at all.
//! - Names that this machine does not know are passed over: a profile may be newer than the kernel.
//! - A call with a number above every call the profile names did not exist when the profile was written. It gets ENOSYS
//!   rather than the default action, because C libraries then try the older call. This is so unless the default lets
//!   calls through.
//!
//! One thing is stricter than there. Only calls of the machine's own kind are ever let through. 32-bit calls (`int
//! 0x80`) end the process with SIGSYS, and x32 calls get ENOSYS, as from a kernel that lacks them, whatever
//! `architectures` says. A second call table is a second surface to be attacked by, and a second reading of every rule.

use oci_spec::runtime::Arch;

mod arch;
mod bpf;
mod compile;
mod default;
mod load;
mod read;

pub use arch::Architecture;
pub use compile::{compile, compile_for};
pub use default::default_profile;
pub use load::load;
pub use read::{Circumstances, read_profile};

use bpf::Instruction;

/// A filter, ready to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    instructions: Vec<Instruction>,
    flags: u32,
    warnings: Vec<Warning>,
}

/// Something in a profile that is probably not what its author believes, though its meaning is clear.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// No call of this name exists here; the rule does nothing for it.
    #[error("{place}: system call {name:?} is unknown on this machine and passed over")]
    UnknownSyscall {
        /// Where in the profile.
        place: String,
        /// The name.
        name: String,
    },
    /// A rule that can never act.
    #[error("{place}: the rule for {name:?} has no effect: another rule for it has no conditions and counts alone")]
    Shadowed {
        /// Where in the profile.
        place: String,
        /// The call.
        name: String,
    },
    /// A rule that names an argument twice.
    #[error("{place}: argument {index} is named twice, so that each condition counts alone")]
    RepeatedArgument {
        /// Where in the profile.
        place: String,
        /// The argument.
        index: usize,
    },
    /// The profile wants calls of another kind let through.
    #[error("architectures: calls of {arch} are refused, not filtered")]
    ForeignArchitecture {
        /// The kind of calls.
        arch: Arch,
    },
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not a profile.
    #[error("not a seccomp profile: {0}")]
    Json(#[from] serde_json::Error),
    /// A field has a value that cannot be.
    #[error("{place}: {problem}")]
    Field {
        /// Where in the profile.
        place: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// More than the kernel accepts.
    #[error("the profile needs a filter of {0} instructions; the kernel accepts {max}", max = bpf::MAX_INSTRUCTIONS)]
    TooLong(usize),
    /// Neither x86_64 nor aarch64.
    #[error("seccomp filters are made for x86_64 and aarch64 only")]
    Machine,
}

// === impl Program ===

impl Program {
    /// What is odd about the profile.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// How many instructions the filter has.
    pub fn size(&self) -> usize {
        self.instructions.len()
    }
}

// === impl Error ===

impl Error {
    fn field(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { place: place.into(), problem: problem.into() }
    }
}

#[cfg(test)]
mod tests;
