//! What is written down in both directories, and what follows from it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What works with a pair of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holder {
    /// `keelet agent`.
    Agent,
    /// `keelet runtime serve`.
    Server,
    /// `keelet run`.
    Run,
}

/// Written to both directories by their holder, the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Made with the pair. A directory that has another one, or none, is not the one that was there.
    pub id: String,
    /// What works with them.
    pub holder: Holder,
    /// Its process.
    pub pid: u32,
    /// No process outlives a reboot, so a record of an earlier boot does not bind the next holder.
    pub boot_id: String,
    /// One of the two.
    pub root_dir: PathBuf,
    /// The other one.
    pub state_dir: PathBuf,
    /// The bridge that pods are connected to, if not the usual one. It follows from the name of the root directory, and stays if
    /// that is called by another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Where the images of a run are, if not below its root directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<PathBuf>,
    /// Whether the root directory is to go with the run.
    #[serde(default)]
    pub temporary: bool,
}

/// The directories as they were named now, and what their records of this boot say.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) root_dir: &'a Path,
    pub(super) state_dir: &'a Path,
    pub(super) root: Option<&'a Record>,
    pub(super) state: Option<&'a Record>,
}

/// Why these two directories cannot be used together while pods run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The root directory was moved or copied.
    Moved {
        /// Where it is.
        now: PathBuf,
        /// Where it was.
        was: PathBuf,
    },
    /// The pods of the root directory have their state elsewhere.
    OtherState {
        /// The root directory.
        root: PathBuf,
        /// Where the state of its pods is.
        recorded: PathBuf,
        /// The state directory that was named.
        named: PathBuf,
    },
    /// The pods of the state directory are those of another root directory.
    OtherRoot {
        /// The state directory.
        state: PathBuf,
        /// The root directory of its pods.
        recorded: PathBuf,
        /// The root directory that was named.
        named: PathBuf,
    },
    /// The root directory is not the one that was there. The records of the pods are whole.
    RootReplaced {
        /// The root directory.
        dir: PathBuf,
        /// The record that says so.
        record: PathBuf,
    },
    /// The state directory is not the one that was there. Without the records no agent can adopt the pods.
    StateReplaced {
        /// The state directory.
        dir: PathBuf,
        /// The record that says so.
        record: PathBuf,
    },
}

const NOT_THE_SAME: &str = "is not the directory that it was, and pods of it run: it is empty, or another file system is mounted \
                            there; mount what belongs there";

/// The record's name.
pub(super) const FILE: &str = "owner.json";

/// Whether the directories may be used together. `in_use` says of a state directory whether pods run whose state is there.
pub(super) fn judge(found: &Found<'_>, in_use: impl Fn(&Path) -> bool) -> Result<(), Refusal> {
    let Found { root_dir, state_dir, root, state } = found;
    if let Some(root) = root.filter(|root| in_use(&root.state_dir)) {
        if root.root_dir != *root_dir {
            return Err(Refusal::Moved { now: root_dir.to_path_buf(), was: root.root_dir.clone() });
        }
        if root.state_dir != *state_dir {
            let (recorded, named) = (root.state_dir.clone(), state_dir.to_path_buf());
            return Err(Refusal::OtherState { root: root_dir.to_path_buf(), recorded, named });
        }
    }
    if !in_use(state_dir) {
        return Ok(());
    }
    match (root, state) {
        (_, Some(state)) if state.root_dir != *root_dir => {
            let (recorded, named) = (state.root_dir.clone(), root_dir.to_path_buf());
            Err(Refusal::OtherRoot { state: state_dir.to_path_buf(), recorded, named })
        }
        (Some(root), None) if root.state_dir == *state_dir => {
            Err(Refusal::StateReplaced { dir: state_dir.to_path_buf(), record: root_dir.join(FILE) })
        }
        (root, Some(state)) if root.is_none_or(|root| root.id != state.id) => {
            Err(Refusal::RootReplaced { dir: root_dir.to_path_buf(), record: state_dir.join(FILE) })
        }
        _ => Ok(()),
    }
}

// === impl Refusal ===

impl std::error::Error for Refusal {}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Moved { now, was } => {
                let (now, was) = (now.display(), was.display());
                write!(f, "--root-dir: {now} was moved or copied from {was}, and pods of it run; ")?;
                write!(f, "start with --root-dir {was}, or remove the pods first")
            }
            Self::OtherState { root, recorded, named } => {
                let (root, recorded, named) = (root.display(), recorded.display(), named.display());
                write!(f, "--state-dir: pods of {root} run, and their state is in {recorded}, not in {named}; ")?;
                write!(f, "start with --state-dir {recorded}, or remove the pods first")
            }
            Self::OtherRoot { state, recorded, named } => {
                let (state, recorded, named) = (state.display(), recorded.display(), named.display());
                write!(f, "--root-dir: the pods whose state is in {state} belong to {recorded}, not to {named}; ")?;
                write!(f, "start with --root-dir {recorded}, or remove the pods first")
            }
            Self::RootReplaced { dir, record } => {
                write!(f, "--root-dir: {} {NOT_THE_SAME}, ", dir.display())?;
                write!(f, "or remove {} to have the pods rebuilt here", record.display())
            }
            Self::StateReplaced { dir, record } => {
                write!(f, "--state-dir: {} {NOT_THE_SAME}, ", dir.display())?;
                write!(f, "or end the pods with `keelet run --clean` and remove {}", record.display())
            }
        }
    }
}

// === impl Holder ===

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Agent => "keelet agent",
            Self::Server => "keelet runtime server",
            Self::Run => "keelet run",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Found, Holder, Record, Refusal, judge};

    fn record(id: &str, root: &str, state: &str) -> Record {
        Record {
            id: id.to_owned(),
            holder: Holder::Agent,
            pid: 1,
            boot_id: "boot".to_owned(),
            root_dir: root.into(),
            state_dir: state.into(),
            bridge: None,
            images: None,
            temporary: false,
        }
    }

    /// DIR-2, DIR-3, DIR-4: every way in which two directories can fail to belong together, with pods that run and without.
    #[test]
    fn directories_that_do_not_belong_together_are_refused_by_name_while_pods_run() {
        let (pair, other) = (record("a", "/lib", "/run"), record("b", "/lib", "/run"));
        let elsewhere = record("a", "/lib", "/run2");
        for (name, root_dir, state_dir, root, state, expected) in [
            ("the same again", "/lib", "/run", Some(&pair), Some(&pair), None),
            ("new ones", "/lib", "/run", None, None, None),
            ("another state directory", "/lib", "/new", Some(&pair), None, Some("--state-dir /run,")),
            ("one that others use", "/lib", "/run2", Some(&pair), Some(&elsewhere), Some("--state-dir /run,")),
            ("another root directory", "/new", "/run", None, Some(&pair), Some("--root-dir /lib,")),
            ("a root directory that was moved", "/new", "/run", Some(&pair), Some(&pair), Some("from /lib,")),
            ("one that was copied", "/new", "/new-run", Some(&pair), None, Some("from /lib,")),
            ("an empty root directory", "/lib", "/run", None, Some(&pair), Some("--root-dir: /lib is not")),
            ("one mounted over it", "/lib", "/run", Some(&other), Some(&pair), Some("--root-dir: /lib is not")),
            ("an empty state directory", "/lib", "/run", Some(&pair), None, Some("--state-dir: /run is not")),
        ] {
            let found = Found { root_dir: Path::new(root_dir), state_dir: Path::new(state_dir), root, state };
            let said = judge(&found, |_| true).err().map(|refusal: Refusal| refusal.to_string());
            match expected {
                None => assert_eq!(said, None, "{name}"),
                Some(words) => assert!(said.as_ref().is_some_and(|said| said.contains(words)), "{name}: {said:?}"),
            }
            assert_eq!(judge(&found, |_| false), Ok(()), "{name}, without pods");
        }
    }
}
