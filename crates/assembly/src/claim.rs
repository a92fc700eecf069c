//! The claim of this process on its two directories: one agent, server or run has a directory at a time, and the two of them
//! belong together.
//!
//! Both are locked before anything else is done, because the runtime takes what it does not find in its state directory for gone.
//! Each has a record (`owner.json`) that names both: an agent that is started on the right root directory and the wrong
//! state directory reports it, and nothing happens to pods that run.

mod record;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use keelet_agent::{
    clock::{ClockError, OsClock},
    doors::Clock,
};
use keelet_runtime::runs_in;
use keelet_shim::running::SANDBOXES;
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

use self::record::{FILE, Found, judge};
pub use self::record::{Holder, Record, Refusal};
use crate::paths::Paths;

/// A process that is being started has the locks of the one that starts it, until it is a program of its own. If that one dies
/// meanwhile, the next has to wait for a moment, which may be long on a busy machine: two seconds.
const ATTEMPTS_TO_LOCK: usize = 200;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// Bytes of a record that are read: four paths of the longest kind, and some words.
const LARGEST_RECORD: u64 = 20 << 10;

/// How often to see whether the directories are still there. Looking costs two calls of the kernel.
const PERIOD: Duration = Duration::from_secs(10);

/// Both directories, locked for as long as this value exists.
#[derive(Debug)]
pub struct Claim {
    record: Record,
    places: Vec<Place>,
}

/// One of the two directories.
#[derive(Debug)]
enum Place {
    Held(Held),
    /// It cannot be made, opened or locked. It is locked as soon as it can be.
    Missing {
        option: &'static str,
        path: PathBuf,
    },
}

/// A directory, and a handle that holds its lock.
#[derive(Debug)]
struct Held {
    option: &'static str,
    path: PathBuf,
    handle: File,
}

/// What a run says of itself.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Where its images are, if not below its root directory.
    pub images: Option<PathBuf>,
    /// Whether its root directory is to go with it.
    pub temporary: bool,
}

/// Why directories cannot be used, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// One directory cannot be both.
    #[error("--root-dir and --state-dir must not be the same directory, {}", .0.display())]
    Same(PathBuf),
    /// The root of the file system is no directory for it.
    #[error("{0} must not be /; it needs a directory of its own")]
    Root(&'static str),
    /// Any user could put files in it.
    #[error(
        "{option}: every user can write to {}; use a directory that only its owner can write to (a tmpfs needs mode=755)",
        .path.display()
    )]
    Writable {
        /// The option that names the directory.
        option: &'static str,
        /// The directory.
        path: PathBuf,
    },
    /// Another process uses one of them.
    #[error("{option}: another {holder} uses {}; each needs directories of its own", .path.display())]
    Held {
        /// The option that names the directory.
        option: &'static str,
        /// The other process.
        holder: String,
        /// The directory.
        path: PathBuf,
    },
    /// They do not belong together.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It is not known which boot this is.
    #[error("cannot read the clock of this machine")]
    Clock(#[from] ClockError),
    /// The kernel gives no random number.
    #[error("cannot get a random number")]
    NoRandomNumber(#[source] io::Error),
    /// A directory was deleted, and cannot be made again.
    #[error("{option}: {} was deleted", .path.display())]
    Deleted {
        /// The option that names the directory.
        option: &'static str,
        /// The directory.
        path: PathBuf,
        /// Why it cannot be made again.
        source: io::Error,
    },
    /// A directory was moved.
    #[error("{option}: {} was moved while in use; pods keep running", .path.display())]
    Moved {
        /// The option that names the directory.
        option: &'static str,
        /// Where it was.
        path: PathBuf,
    },
    /// Another directory is in its place.
    #[error("{option}: {} was replaced, or a file system was mounted over it; pods keep running", .path.display())]
    Replaced {
        /// The option that names the directory.
        option: &'static str,
        /// The directory.
        path: PathBuf,
    },
}

/// What became of a directory since it was locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Deleted,
    MovedAway,
    Replaced,
}

// === impl Claim ===

impl Claim {
    /// Locks both directories and checks that they belong together. Nothing else is done to them.
    pub async fn take(paths: &Paths, holder: Holder, extra: Extra) -> Result<Self, ClaimError> {
        let (root_dir, state_dir) = (real(&paths.root_dir), real(&paths.state_dir));
        if root_dir == state_dir {
            return Err(ClaimError::Same(root_dir));
        }
        let mut places = Vec::new();
        for (option, path) in [("--root-dir", &paths.root_dir), ("--state-dir", &paths.state_dir)] {
            places.push(match lock(option, path).await? {
                Ok(held) => Place::Held(held),
                Err(error) => {
                    tracing::warn!(option, dir = %path.display(), %error, "cannot lock directory; continuing without it, and retrying");
                    Place::Missing { option, path: path.clone() }
                }
            });
        }
        let (root_dir, state_dir) = (real(&paths.root_dir), real(&paths.state_dir));
        let boot_id = OsClock::new()?.now().boot_id.to_string();
        let (root_record, state_record) = judge_records(&root_dir, &state_dir, &boot_id)?;
        let (id, bridge) = match state_record.or(root_record) {
            Some(record) => (record.id, record.bridge),
            None => (new_id()?, own_bridge(&paths.root_dir)),
        };
        let Extra { images, temporary } = extra;
        let pid = std::process::id();
        let record = Record { id, holder, pid, boot_id, root_dir, state_dir, bridge, images, temporary };
        let claim = Self { record, places };
        claim.write_down();
        Ok(claim)
    }

    /// The bridge that pods are connected to, if not the usual one.
    pub fn bridge(&self) -> Option<&str> {
        self.record.bridge.as_deref()
    }

    /// A disk that cannot be written may be so for a while only; the locks hold without it.
    fn write_down(&self) {
        for held in self.held() {
            if let Err(error) = write(&held.path, &self.record) {
                let option = held.option;
                tracing::warn!(option, dir = %held.path.display(), %error, "cannot write owner.json; the lock holds without it");
            }
        }
    }

    fn held(&self) -> impl Iterator<Item = &Held> {
        self.places.iter().filter_map(|place| match place {
            Place::Held(held) => Some(held),
            Place::Missing { .. } => None,
        })
    }

    /// Resolves when a directory was deleted or emptied, and is there again. An error if another one is in its place, or if it was moved:
    /// nothing that is found there then can be trusted, and whatever is written there may belong to others.
    pub async fn made_again(&mut self) -> Result<(), ClaimError> {
        loop {
            tokio::time::sleep(PERIOD).await;
            if self.check().await? {
                return Ok(());
            }
        }
    }

    /// Resolves when nothing in the directories can be trusted any more, with the reason.
    pub async fn lost(&mut self) -> ClaimError {
        loop {
            if let Err(error) = self.made_again().await {
                return error;
            }
        }
    }

    /// Whether a directory had to be made again, or filled again, or is there at last.
    async fn check(&mut self) -> Result<bool, ClaimError> {
        let (mut again, mut new) = (false, false);
        for place in &mut self.places {
            match place {
                Place::Held(held) => again |= held.check()?,
                Place::Missing { option, path } => {
                    let (option, path) = (*option, path.clone());
                    if let Ok(held) = lock(option, &path).await? {
                        tracing::info!(option, dir = %path.display(), "directory locked at last");
                        *place = Place::Held(held);
                        new = true;
                    }
                }
            }
        }
        if new {
            let Record { root_dir, state_dir, boot_id, .. } = &self.record;
            // What has no record yet has had no holder; this one's is written below.
            if self.held().all(|held| read(&held.path).is_some()) {
                judge_records(root_dir, state_dir, boot_id)?;
            }
        }
        again |= new;
        // What is mounted below a directory keeps it from being deleted, but not from being emptied.
        again |= self.held().any(|held| matches!(held.path.join(FILE).try_exists(), Ok(false)));
        if again {
            self.write_down();
        }
        Ok(again)
    }
}

// === impl Held ===

impl Held {
    /// Whether it had to be made again. An error if it is not the directory that was locked.
    fn check(&mut self) -> Result<bool, ClaimError> {
        let (option, path) = (self.option, self.path.clone());
        match self.change() {
            Change::None => Ok(false),
            Change::Deleted => {
                tracing::error!(option, dir = %path.display(), "directory deleted while in use: creating it again");
                self.make_again().map_err(|source| ClaimError::Deleted { option, path, source })?;
                Ok(true)
            }
            Change::MovedAway => Err(ClaimError::Moved { option, path }),
            Change::Replaced => Err(ClaimError::Replaced { option, path }),
        }
    }

    fn change(&self) -> Change {
        let Ok(ours) = self.handle.metadata() else { return Change::None };
        match fs::metadata(&self.path) {
            Ok(now) if (now.dev(), now.ino()) == (ours.dev(), ours.ino()) => Change::None,
            _ if ours.nlink() == 0 => Change::Deleted,
            Ok(_) => Change::Replaced,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Change::MovedAway,
            // What cannot be asked just now has not changed.
            Err(_) => Change::None,
        }
    }

    fn make_again(&mut self) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        let handle = File::open(&self.path)?;
        flock(&handle, FlockOperation::NonBlockingLockExclusive)?;
        self.handle = handle;
        Ok(())
    }
}

/// The records of this boot in both directories, if they allow to use the two together.
fn judge_records(
    root_dir: &Path,
    state_dir: &Path,
    boot_id: &str,
) -> Result<(Option<Record>, Option<Record>), Refusal> {
    let of_this_boot = |dir: &Path| read(dir).filter(|record| record.boot_id == boot_id);
    let (root, state) = (of_this_boot(root_dir), of_this_boot(state_dir));
    let found = Found { root_dir, state_dir, root: root.as_ref(), state: state.as_ref() };
    let known = [root_dir, state_dir].iter().any(|dir| has_pods(dir));
    judge(&found, |state| known || runs_in(&sandboxes(state)))?;
    Ok((root, state))
}

/// Locks a directory, which is made if it is not there; why it cannot be made, opened or locked. The directory itself is locked, not
/// a file in it: that works on a disk that cannot be written too.
async fn lock(option: &'static str, path: &Path) -> Result<io::Result<Held>, ClaimError> {
    let made = fs::create_dir_all(path);
    let handle = match made.and_then(|()| File::open(path)) {
        Ok(handle) => handle,
        Err(error) => return Ok(Err(error)),
    };
    if let (Ok(found), Ok(root)) = (handle.metadata(), fs::metadata("/")) {
        if (found.dev(), found.ino()) == (root.dev(), root.ino()) {
            return Err(ClaimError::Root(option));
        }
        // Also with a sticky bit, as `/tmp` has it: another user could have put there what is yet to be made.
        if found.mode() & 0o002 != 0 {
            return Err(ClaimError::Writable { option, path: path.to_owned() });
        }
    }
    for _ in 0..ATTEMPTS_TO_LOCK {
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Ok(Held { option, path: path.to_owned(), handle })),
            Err(Errno::WOULDBLOCK) => tokio::time::sleep(BETWEEN_ATTEMPTS).await,
            Err(error) => return Ok(Err(error.into())),
        }
    }
    let holder = match read(path) {
        Some(record) => format!("{} (pid {})", record.holder, record.pid),
        None => "keelet".to_owned(),
    };
    Err(ClaimError::Held { option, holder, path: path.to_owned() })
}

/// Whether a process has this directory.
pub(crate) fn is_held(dir: &Path) -> bool {
    let Ok(handle) = File::open(dir) else { return false };
    matches!(flock(&handle, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
}

/// The record in a directory, if there is one that can be used. The directory may belong to another user, so no link is followed and
/// no pipe is waited for.
pub(crate) fn read(dir: &Path) -> Option<Record> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(dir.join(FILE)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(LARGEST_RECORD).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Written under another name first, and never through a link that is already there.
fn write(dir: &Path, record: &Record) -> io::Result<()> {
    let (file, new) = (dir.join(FILE), dir.join("owner.json.new"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut created = OpenOptions::new().write(true).create_new(true).open(&new)?;
    created.write_all(&serde_json::to_vec_pretty(record)?)?;
    fs::rename(new, file)
}

fn new_id() -> Result<String, ClaimError> {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(ClaimError::NoRandomNumber)?;
    Ok(id.trim().to_owned())
}

/// A node has one bridge, and every root directory but the default one has a bridge of its own, with addresses that no
/// other bridge has. Its name follows from the directory, so that the next holder of that directory finds it again.
pub(crate) fn own_bridge(root: &Path) -> Option<String> {
    if root == Path::new(Paths::ROOT) {
        return None;
    }
    let hash = root
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    Some(format!("keelet{hash:08x}"))
}

/// Where the sandboxes of a state directory are.
pub(crate) fn sandboxes(state_dir: &Path) -> PathBuf {
    state_dir.join("runtime").join(SANDBOXES)
}

/// Whether a ledger in there knows pods.
fn has_pods(dir: &Path) -> bool {
    fs::read_dir(dir.join("ledger/pods")).is_ok_and(|mut entries| entries.next().is_some())
}

/// The directory by the one name that it has however it is called.
pub(crate) fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
