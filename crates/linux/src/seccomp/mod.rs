//! Which system calls a container may make: OCI seccomp profiles, and the filter programs compiled from them.
//!
//! A profile comes from [`default_profile`] or [`read_profile`], [`compile`] turns it into a [`Program`] for the kernel's classic BPF
//! machine, and [`load`] installs that on the calling thread, irrevocably. The first three are pure. A profile that cannot be expressed
//! exactly is an error: it is either enforced or the container does not start.
//!
//! # What a profile means
//!
//! Profiles are written for runc and libseccomp, so they have the same meaning here:
//!
//! - All conditions of a rule must hold. But if a rule names the same argument twice, each of its conditions is a rule of its own.
//! - A rule without conditions overrides all rules with conditions for the same call, in any position. The first such rule applies. Of
//!   the rules with conditions, the first that matches applies.
//! - A rule whose action is the default action is ignored.
//! - Names that this architecture does not know are ignored: a profile may be newer than the kernel.
//! - A call with a number above every call that the profile names did not exist when the profile was written. It fails with ENOSYS
//!   instead of the default action, because C libraries then fall back to an older call. This does not apply if the default action allows
//!   or logs.
//!
//! One thing is stricter than in runc. Only calls of the native architecture are ever allowed. 32-bit calls (`int 0x80`) kill the process
//! with SIGSYS, and x32 calls fail with ENOSYS, as on a kernel without them, whatever `architectures` says. A second call table is a second
//! attack surface, and gives every rule a second meaning.

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

/// Something in a profile that is probably not what its author intended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The architecture has no call of this name; the rule has no effect on it.
    #[error("{place}: system call {name:?} is unknown on this architecture and ignored")]
    UnknownSyscall {
        /// Where in the profile.
        place: String,
        /// The name.
        name: String,
    },
    /// A rule that never applies.
    #[error("{place}: the rule for {name:?} has no effect, because another rule for it has no conditions")]
    Shadowed {
        /// Where in the profile.
        place: String,
        /// The call.
        name: String,
    },
    /// A rule that names an argument twice.
    #[error("{place}: argument {index} is named twice, so each condition is a rule of its own")]
    RepeatedArgument {
        /// Where in the profile.
        place: String,
        /// The argument.
        index: usize,
    },
    /// The profile lists an architecture that is not the native one.
    #[error("architectures: calls of {arch} are always denied")]
    ForeignArchitecture {
        /// The architecture.
        arch: Arch,
    },
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not a profile.
    #[error("not a seccomp profile: {0}")]
    Json(#[from] serde_json::Error),
    /// A field has an invalid value.
    #[error("{place}: {problem}")]
    Field {
        /// Where in the profile.
        place: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// The filter is longer than the kernel accepts.
    #[error("the profile needs a filter of {0} instructions; the kernel accepts {max}", max = bpf::MAX_INSTRUCTIONS)]
    TooLong(usize),
    /// Neither x86_64 nor aarch64.
    #[error("unsupported architecture: seccomp filters exist for x86_64 and aarch64 only")]
    Architecture,
}

// === impl Program ===

impl Program {
    /// What its author should know about the profile.
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
