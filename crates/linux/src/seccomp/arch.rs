//! The architectures that filters are compiled for, and the numbers of their system calls.

use oci_spec::runtime::Arch;

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

// === impl Architecture ===

impl Architecture {
    /// The architecture of this build; none if filters cannot be compiled for it.
    pub const fn native() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    /// `AUDIT_ARCH_*`: ELF machine, 64 bit, little endian.
    pub(super) fn audit_number(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The first number of another call table under the same audit number.
    pub(super) fn first_foreign_call(self) -> Option<u32> {
        match self {
            // The x32 bit.
            Self::X86_64 => Some(0x4000_0000),
            Self::Aarch64 => None,
        }
    }

    pub(super) fn oci(self) -> Arch {
        match self {
            Self::X86_64 => Arch::ScmpArchX86_64,
            Self::Aarch64 => Arch::ScmpArchAarch64,
        }
    }

    /// Its name in docker's profiles.
    pub(super) fn docker_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The number of a call.
    pub(super) fn syscall(self, name: &str) -> Option<u32> {
        let number = match (self, name) {
            (Self::X86_64, _) => name.parse::<syscalls::x86_64::Sysno>().ok()?.id(),
            // newfstatat in the kernel's headers and in profiles, fstatat in this table.
            (Self::Aarch64, "newfstatat") => syscalls::aarch64::Sysno::fstatat.id(),
            (Self::Aarch64, _) => name.parse::<syscalls::aarch64::Sysno>().ok()?.id(),
        };
        u32::try_from(number).ok()
    }
}
