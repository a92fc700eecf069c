//! Linux capabilities: their names and numbers, which of them a container gets, and how a process gets them.
//!
//! [`effective_set`], [`cap_to`] and [`to_oci`] are pure. [`apply`] and [`become_user`] change the calling process, which must have a single
//! thread, because capabilities and IDs belong to a thread.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use oci_spec::runtime::{Capability, LinuxCapabilities, LinuxCapabilitiesBuilder};
use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet};

mod apply;

pub use apply::{apply, become_user};

/// A capability, by its number; ordered as in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cap(u8);

/// A name that is not a capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown capability {name:?}; known are {}, with or without CAP_, and ALL", known_names())]
pub struct UnknownCapability {
    /// What was written.
    pub name: String,
}

/// The requested capabilities, split by the bounding set of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Requested, and in the bounding set of the node.
    pub granted: BTreeSet<Cap>,
    /// Requested, but not in the bounding set of the node, so that no process of the node can have it.
    pub left_out: BTreeSet<Cap>,
}

macro_rules! capabilities {
    ($($number:literal $name:ident)*) => {
        impl Cap {
            $(
                #[doc = concat!("`CAP_", stringify!($name), "`")]
                pub const $name: Cap = Cap($number);
            )*
        }

        /// Names without prefix; the position is the number (checked by a test).
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

capabilities! {
    0 CHOWN            1 DAC_OVERRIDE    2 DAC_READ_SEARCH  3 FOWNER          4 FSETID
    5 KILL             6 SETGID          7 SETUID           8 SETPCAP         9 LINUX_IMMUTABLE
    10 NET_BIND_SERVICE 11 NET_BROADCAST 12 NET_ADMIN       13 NET_RAW        14 IPC_LOCK
    15 IPC_OWNER       16 SYS_MODULE     17 SYS_RAWIO       18 SYS_CHROOT     19 SYS_PTRACE
    20 SYS_PACCT       21 SYS_ADMIN      22 SYS_BOOT        23 SYS_NICE       24 SYS_RESOURCE
    25 SYS_TIME        26 SYS_TTY_CONFIG 27 MKNOD           28 LEASE          29 AUDIT_WRITE
    30 AUDIT_CONTROL   31 SETFCAP        32 MAC_OVERRIDE    33 MAC_ADMIN      34 SYSLOG
    35 WAKE_ALARM      36 BLOCK_SUSPEND  37 AUDIT_READ      38 PERFMON        39 BPF
    40 CHECKPOINT_RESTORE
}

/// The capabilities of a container that adds and drops none. The same set as containerd's, so that an image behaves the same on both.
pub const DEFAULT: [Cap; 14] = [
    Cap::CHOWN,
    Cap::DAC_OVERRIDE,
    Cap::FSETID,
    Cap::FOWNER,
    Cap::MKNOD,
    Cap::NET_RAW,
    Cap::SETGID,
    Cap::SETUID,
    Cap::SETFCAP,
    Cap::SETPCAP,
    Cap::NET_BIND_SERVICE,
    Cap::SYS_CHROOT,
    Cap::KILL,
    Cap::AUDIT_WRITE,
];

/// Which capabilities a container asks for, by CRI's rules.
///
/// `ALL` applies first, wherever it is listed: all are added, then all are dropped, then the named ones are added, then the named ones
/// are dropped. So "drop ALL, add X" is X alone, and "add ALL, drop X" is everything but X. A privileged container has all; its lists are
/// only validated.
pub fn effective_set(add: &[String], drop: &[String], privileged: bool) -> Result<BTreeSet<Cap>, UnknownCapability> {
    let add = Named::parse(add)?;
    let drop = Named::parse(drop)?;
    if privileged {
        return Ok(Cap::all().collect());
    }
    let mut set = match (add.all, drop.all) {
        (_, true) => BTreeSet::new(),
        (true, false) => Cap::all().collect(),
        (false, false) => BTreeSet::from(DEFAULT),
    };
    set.extend(&add.named);
    Ok(&set - &drop.named)
}

/// Splits requested capabilities by a bounding set: a process cannot give a child what is outside its own.
pub fn cap_to(wanted: &BTreeSet<Cap>, bounding: &BTreeSet<Cap>) -> Granted {
    Granted { granted: wanted & bounding, left_out: wanted - bounding }
}

/// The bounding set of this process, which limits all its descendants.
pub fn node_bounding() -> io::Result<BTreeSet<Cap>> {
    bounding_mask().map(from_mask)
}

/// A container's capabilities in OCI form.
///
/// Bounding, effective and permitted are `set`. Ambient is the intersection of `ambient` and `set`. Inheritable equals ambient: the kernel
/// raises no ambient capability that is not inheritable, and a process that dropped any other inheritable one could regain it through
/// file capabilities.
pub fn to_oci(set: &BTreeSet<Cap>, ambient: &BTreeSet<Cap>) -> LinuxCapabilities {
    let ambient = set & ambient;
    let oci =
        |set: &BTreeSet<Cap>| set.iter().filter_map(|cap| cap.to_oci()).collect::<oci_spec::runtime::Capabilities>();
    LinuxCapabilitiesBuilder::default()
        .bounding(oci(set))
        .effective(oci(set))
        .permitted(oci(set))
        .inheritable(oci(&ambient))
        .ambient(oci(&ambient))
        .build()
        .unwrap_or_default()
}

/// A list of names as in CRI.
struct Named {
    all: bool,
    named: BTreeSet<Cap>,
}

// === impl Cap ===

impl Cap {
    /// Every capability known here, in the kernel's order.
    pub fn all() -> impl Iterator<Item = Cap> {
        (0..).zip(NAMES).map(|(number, _)| Cap(number))
    }

    /// The kernel's number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The name without its prefix, as CRI and pod manifests write it.
    pub fn short_name(self) -> &'static str {
        // Every `Cap` comes from an entry of the table.
        NAMES.get(usize::from(self.0)).copied().unwrap_or("?")
    }

    /// Parses a name in any case, with or without `CAP_`.
    pub fn parse(name: &str) -> Result<Cap, UnknownCapability> {
        let upper = name.trim().to_ascii_uppercase();
        let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
        Cap::all().find(|cap| cap.short_name() == short).ok_or_else(|| UnknownCapability { name: name.to_owned() })
    }

    fn bit(self) -> u64 {
        1 << self.0
    }

    fn to_oci(self) -> Option<Capability> {
        self.short_name().parse().ok()
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CAP_{}", self.short_name())
    }
}

impl fmt::Debug for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Named ===

impl Named {
    fn parse(names: &[String]) -> Result<Self, UnknownCapability> {
        let is_all = |name: &&String| {
            let name = name.trim();
            name.eq_ignore_ascii_case("ALL") || name.eq_ignore_ascii_case("CAP_ALL")
        };
        let named = names.iter().filter(|name| !is_all(name)).map(|name| Cap::parse(name)).collect::<Result<_, _>>()?;
        Ok(Self { all: names.iter().any(|name| is_all(&name)), named })
    }
}

fn known_names() -> String {
    NAMES.join(", ")
}

fn from_mask(mask: u64) -> BTreeSet<Cap> {
    Cap::all().filter(|cap| mask & cap.bit() != 0).collect()
}

/// The bounding set of the calling thread, including capabilities that are newer than this table.
///
/// Not read from `/proc`: inside a container the image controls that directory.
fn bounding_mask() -> io::Result<u64> {
    let mut mask = 0;
    for bit in (0..u64::BITS).map(|shift| 1 << shift) {
        match thread::capability_is_in_bounding_set(CapabilitySet::from_bits_retain(bit)) {
            Ok(true) => mask |= bit,
            Ok(false) => {}
            // Above the last capability of this kernel.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(mask)
}

#[cfg(test)]
mod tests;
