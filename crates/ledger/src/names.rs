//! Names in the file system.
//!
//! ```text
//! <durable root>/agent.pid                  PID of the agent that holds the lock, for people
//! <durable root>/heartbeat.json
//! <durable root>/pods/<uid>/evidence.json
//! <durable root>/pods/<uid>/pod.json
//! <durable root>/pods/<uid>/journal.json
//! <durable root>/events.json
//! <durable root>/gone/<place>.json
//! <durable root>/node.json
//! <volatile root>/events.json
//! <volatile root>/heartbeat.json
//! <volatile root>/node.json
//! <volatile root>/pods/<uid>/evidence.json
//! <volatile root>/pods/<uid>/history.json
//! ```

use std::path::{Path, PathBuf};

/// The pod directories live in here.
pub(crate) const PODS: &str = "pods";
/// Lifecycle evidence, in both tiers.
pub(crate) const EVIDENCE: &str = "evidence.json";
/// The copy of the pod.
pub(crate) const POD: &str = "pod.json";
/// What changed when.
pub(crate) const JOURNAL: &str = "journal.json";
/// Probe results.
pub(crate) const HISTORY: &str = "history.json";
/// The reasons of the newest plan in their old place, before they went into the evidence: still read, not written.
pub(crate) const WHY: &str = "why.json";
/// When the agent was last alive.
pub(crate) const HEARTBEAT: &str = "heartbeat.json";
/// The newest events of the node, in both tiers.
pub(crate) const EVENTS: &str = "events.json";
/// What is remembered of the node itself, in both tiers.
pub(crate) const NODE: &str = "node.json";
/// The directory of removed pods.
pub(crate) const GONE_PODS: &str = "gone";
/// Names the process that holds the lock.
pub(crate) const PID: &str = "agent.pid";

/// The prefix of a temporary file. No other name of the ledger starts with a dot.
const TEMPORARY: &str = ".new-";
/// The prefix of a pod directory that is being removed.
const GONE: &str = ".gone-";
/// The infix of a file that was set aside, before its number.
const ASIDE: &str = ".corrupt-";

/// A file name may have 255 bytes; this leaves room for prefixes and suffixes.
const LONGEST_NAME: usize = 200;

/// A pod UID that is not valid as a directory name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUid {
    /// There is none.
    #[error("the pod has no UID")]
    Empty,
    /// It does not fit into a file name.
    #[error(
        "the pod UID starting with {start:?} is too long: {bytes} bytes as a file name, the limit is {LONGEST_NAME}"
    )]
    TooLong {
        /// Its beginning.
        start: String,
        /// Its length as a file name.
        bytes: usize,
    },
}

/// The directory name for a pod. UIDs as Kubernetes makes them stay as they are; any byte besides letters, digits,
/// `-` and `_` becomes `=` and two hexadecimal digits, so the name neither leaves its directory nor clashes with
/// another.
pub(crate) fn directory_name(uid: &str) -> Result<String, BadUid> {
    if uid.is_empty() {
        return Err(BadUid::Empty);
    }
    let mut name = String::with_capacity(uid.len());
    for byte in uid.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("={byte:02x}"));
        }
    }
    if name.len() > LONGEST_NAME {
        return Err(BadUid::TooLong { start: uid.chars().take(40).collect(), bytes: name.len() });
    }
    Ok(name)
}

/// The UID of a directory name; `None` for a name that the ledger would not create.
pub(crate) fn uid_of(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'=' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let uid = String::from_utf8(bytes).ok()?;
    (directory_name(&uid).as_deref() == Ok(name)).then_some(uid)
}

/// The path of a pod directory.
pub(crate) fn pod_dir(root: &Path, directory: &str) -> PathBuf {
    root.join(PODS).join(directory)
}

/// The file of a removed pod.
pub(crate) fn gone_pod(place: u64) -> String {
    format!("{place:02}.json")
}

/// The slot of a file name; `None` for a name that the ledger would not create.
pub(crate) fn place_of_gone(name: &str) -> Option<u64> {
    let place = name.strip_suffix(".json")?.parse().ok()?;
    (gone_pod(place) == name).then_some(place)
}

/// The temporary path of a file that is being written.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    prefixed(path, TEMPORARY)
}

/// The temporary path of a pod directory that is being removed.
pub(crate) fn gone(path: &Path) -> PathBuf {
    prefixed(path, GONE)
}

/// Whether an interrupted write or removal left it behind.
pub(crate) fn is_leftover(name: &str) -> bool {
    name.starts_with(TEMPORARY) || name.starts_with(GONE)
}

/// Where the file is set aside under that number.
pub(crate) fn aside(path: &Path, number: u64) -> PathBuf {
    path.with_file_name(format!("{}{ASIDE}{number}", file_name(path)))
}

/// The number under which the file of that name was set aside.
pub(crate) fn aside_number(name: &str, file: &str) -> Option<u64> {
    name.strip_prefix(file)?.strip_prefix(ASIDE)?.parse().ok()
}

/// Whether it was set aside.
pub(crate) fn is_aside(name: &str) -> bool {
    name.rsplit_once(ASIDE).is_some_and(|(_, number)| number.parse::<u64>().is_ok())
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn prefixed(path: &Path, prefix: &str) -> PathBuf {
    path.with_file_name(format!("{prefix}{}", file_name(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_of_kubernetes_stay_as_they_are() {
        for uid in ["0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11", "5f4dcc3b5aa765d61d8327deb882cf99", "A_b-1"] {
            assert_eq!(directory_name(uid).as_deref(), Ok(uid));
            assert_eq!(uid_of(uid).as_deref(), Some(uid));
        }
    }

    #[test]
    fn odd_uids_stay_in_their_directory_and_come_back() {
        for uid in
            ["../../etc", ".", "..", "a/b", "ünïcode", "=41", "a b", "\u{0}", "evidence.json", ".new-x", "x.corrupt-1"]
        {
            let name = directory_name(uid).unwrap();
            assert!(!name.contains('/') && !name.contains('.') && name.is_ascii(), "{name}");
            assert_eq!(uid_of(&name).as_deref(), Some(uid));
        }
    }

    #[test]
    fn empty_and_endless_uids_are_refused() {
        assert_eq!(directory_name(""), Err(BadUid::Empty));
        assert!(matches!(directory_name(&"x".repeat(300)), Err(BadUid::TooLong { bytes: 300, .. })));
        assert!(matches!(directory_name(&"ü".repeat(40)), Err(BadUid::TooLong { bytes: 240, .. })));
    }

    #[test]
    fn names_that_the_ledger_would_not_create_have_no_uid() {
        for name in ["", "=4", "=zz", "=41", "=2E", "a.b", "lost+found", "=ff"] {
            assert_eq!(uid_of(name), None, "{name}");
        }
    }
}
