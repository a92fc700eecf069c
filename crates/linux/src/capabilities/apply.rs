//! Switching to the user and capabilities of a container: the last steps before execve.
//!
//! The kernel dictates the order. Bounding capabilities are dropped first, because that needs `CAP_SETPCAP`. Then supplementary groups,
//! then the group, then the user, because each needs a capability that the next step may remove. The permitted set survives the change
//! of user only with keepcaps, and the effective set never does, so the sets are written after it. Ambient capabilities come last,
//! because they must be permitted and inheritable by then.

use std::io;

use oci_spec::runtime::{Capabilities, LinuxCapabilities};
use rustix::process::{Gid, Uid};
use rustix::thread;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Cap, bounding_mask};

/// The five sets as bit masks. A missing list is an empty set.
struct Masks {
    bounding: u64,
    effective: u64,
    permitted: u64,
    inheritable: u64,
    ambient: u64,
}

/// Gives the calling process, which has a single thread, exactly these capabilities.
///
/// Needs `CAP_SETPCAP` if the bounding set is to shrink. Nothing is rolled back: after an error the process must exit.
pub fn apply(caps: &LinuxCapabilities) -> io::Result<()> {
    let masks = Masks::of(caps)?;
    drop_bounding(masks.bounding)?;
    set_sets(&masks)
}

/// Turns the calling process, which has a single thread, into this user with exactly these capabilities.
///
/// For a forked child before execve. After an error the process has part of its privileges and must exit. Without `no_new_privs` a seccomp
/// filter has to be loaded before this, while the process has `CAP_SYS_ADMIN`; with it the filter is better loaded afterwards, so that it
/// need not allow the system calls made here.
pub fn become_user(uid: u32, gid: u32, groups: &[u32], caps: &LinuxCapabilities, no_new_privs: bool) -> io::Result<()> {
    let masks = Masks::of(caps)?;
    let user = Uid::from_raw(id("uid", uid)?);
    let group = Gid::from_raw(id("gid", gid)?);
    let groups =
        groups.iter().map(|&gid| id("supplementary group", gid).map(Gid::from_raw)).collect::<io::Result<Vec<_>>>()?;

    drop_bounding(masks.bounding)?;
    step("keep capabilities over the change of user", thread::set_keep_capabilities(true))?;
    step("set supplementary groups", thread::set_thread_groups(&groups))?;
    step(&format!("become group {gid}"), thread::set_thread_res_gid(group, group, group))?;
    step(&format!("become user {uid}"), thread::set_thread_res_uid(user, user, user))?;
    step("stop keeping capabilities", thread::set_keep_capabilities(false))?;
    set_sets(&masks)?;
    if no_new_privs {
        step("set no_new_privs", thread::set_no_new_privs(true))?;
    }
    Ok(())
}

/// For the kernel this value means "unchanged", which would keep root.
fn id(what: &str, value: u32) -> io::Result<u32> {
    if value == u32::MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid {what} {value}")));
    }
    Ok(value)
}

/// Also drops capabilities that are newer than our table: the requested set is the limit.
fn drop_bounding(wanted: u64) -> io::Result<()> {
    let have = bounding_mask()?;
    let missing = wanted & !have;
    if missing != 0 {
        let message = format!("the bounding set lacks {:?}, and a process cannot add to it", super::from_mask(missing));
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    for bit in single_bits(have & !wanted) {
        let what = || format!("drop capability {} from the bounding set", bit.trailing_zeros());
        step_with(what, thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(bit)))?;
    }
    Ok(())
}

fn set_sets(masks: &Masks) -> io::Result<()> {
    // Before the others: an unchanged permitted set would leave the ambient set as it is.
    step("clear the ambient capabilities", thread::clear_ambient_capability_set())?;
    let sets = CapabilitySets {
        effective: CapabilitySet::from_bits_retain(masks.effective),
        permitted: CapabilitySet::from_bits_retain(masks.permitted),
        inheritable: CapabilitySet::from_bits_retain(masks.inheritable),
    };
    step("set effective, permitted and inheritable capabilities", thread::set_capabilities(None, sets))?;
    for bit in single_bits(masks.ambient) {
        let what = || format!("raise ambient capability {}", bit.trailing_zeros());
        step_with(what, thread::configure_capability_in_ambient_set(CapabilitySet::from_bits_retain(bit), true))?;
    }
    Ok(())
}

fn single_bits(mask: u64) -> impl Iterator<Item = u64> {
    (0..u64::BITS).map(|shift| 1 << shift).filter(move |bit| mask & bit != 0)
}

fn step(what: &str, result: rustix::io::Result<()>) -> io::Result<()> {
    step_with(|| what.to_owned(), result)
}

fn step_with(what: impl FnOnce() -> String, result: rustix::io::Result<()>) -> io::Result<()> {
    result.map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", what()))
    })
}

// === impl Masks ===

impl Masks {
    fn of(caps: &LinuxCapabilities) -> io::Result<Self> {
        Ok(Self {
            bounding: mask(caps.bounding())?,
            effective: mask(caps.effective())?,
            permitted: mask(caps.permitted())?,
            inheritable: mask(caps.inheritable())?,
            ambient: mask(caps.ambient())?,
        })
    }
}

fn mask(list: &Option<Capabilities>) -> io::Result<u64> {
    list.iter().flatten().try_fold(0, |mask, capability| {
        let cap = Cap::parse(&capability.to_string())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
        Ok(mask | cap.bit())
    })
}
