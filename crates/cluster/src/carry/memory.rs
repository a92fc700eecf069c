//! What was seen of objects, for the next agent of this boot.
//!
//! It is on a tmpfs of its own below the agent's state directory, mode 0700, its files 0600: never on a disk, and gone with the boot,
//! wherever the state directory is. Volumes with secrets are kept the same way. Where no tmpfs can be mounted nothing is remembered.
//! A write that fails is reported once; the pods of this agent do not need it.
//!
//! ```text
//! <dir>/objects/<kind>/<namespace>/<name>    the values as JSON; null if there is no such object
//! <dir>/tokens/<uid>                         the tokens of a pod
//! <dir>/services/<namespace>                 the services that pods of a namespace see
//! <dir>/new                                  a file before it has its name
//! ```

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::ByteString;
use keelet_host::mount_private_tmpfs;
use keelet_launch::{Data, ObjectKind, Service};
use tracing::{debug, warn};

use super::{objects::ObjectKey, tokens::Token};

/// The memory of one boot.
pub(super) struct Memory {
    directory: PathBuf,
    medium: Medium,
    usable: OnceLock<bool>,
    reported: AtomicBool,
}

/// What the files are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Tmpfs,
    /// Whatever the directory is on.
    #[cfg(test)]
    AsFound,
}

const OBJECTS: &str = "objects";
const TOKENS: &str = "tokens";
const SERVICES: &str = "services";

// === impl Memory ===

impl Memory {
    /// A memory in this directory. It is made, and a tmpfs mounted on it, when it is first used: the directory above has to be ours then.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, medium: Medium::Tmpfs, usable: OnceLock::new(), reported: AtomicBool::new(false) }
    }

    /// A memory for tests, which may not be allowed to mount.
    #[cfg(test)]
    pub(super) fn without_mount(directory: PathBuf) -> Self {
        Self { medium: Medium::AsFound, ..Self::new(directory) }
    }

    /// Remembers the values of an object, or that there is none.
    pub(super) fn remember(&self, key: &ObjectKey, data: Option<&Data>) {
        let bytes = |data: &Data| -> BTreeMap<String, ByteString> {
            data.iter().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect()
        };
        let Ok(text) = serde_json::to_vec(&data.map(bytes)) else { return };
        self.write(&self.path(key), &text);
    }

    /// What is remembered of an object: its values, or that there is none. `None` if nothing is.
    pub(super) fn recall(&self, key: &ObjectKey) -> Option<Option<Data>> {
        if !self.is_usable() {
            return None;
        }
        let text = fs::read(self.path(key)).ok()?;
        let data: Option<BTreeMap<String, ByteString>> = serde_json::from_slice(&text).ok()?;
        Some(data.map(|data| data.into_iter().map(|(key, value)| (key, value.0)).collect()))
    }

    /// Remembers the tokens of a pod.
    pub(super) fn remember_tokens(&self, uid: &str, tokens: &[Token]) {
        let (Some(path), Ok(text)) = (self.path_of_tokens(uid), serde_json::to_vec(tokens)) else { return };
        self.write(&path, &text);
    }

    /// The tokens of a pod that are remembered.
    pub(super) fn recall_tokens(&self, uid: &str) -> Vec<Token> {
        let read = || fs::read(self.path_of_tokens(uid).filter(|_| self.is_usable())?).ok();
        read().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Remembers the services that pods of a namespace see.
    pub(super) fn remember_services(&self, namespace: &str, services: &[Service]) {
        if let (true, Ok(text)) = (is_plain(namespace), serde_json::to_vec(services)) {
            self.write(&self.directory.join(SERVICES).join(namespace), &text);
        }
    }

    /// The services that pods of a namespace saw; `None` if that is not remembered.
    pub(super) fn recall_services(&self, namespace: &str) -> Option<Vec<Service>> {
        if !is_plain(namespace) || !self.is_usable() {
            return None;
        }
        serde_json::from_slice(&fs::read(self.directory.join(SERVICES).join(namespace)).ok()?).ok()
    }

    /// Forgets the tokens of pods that are gone.
    pub(super) fn retain_tokens(&self, keep: impl Fn(&str) -> bool) {
        self.retain_in(TOKENS, keep);
    }

    /// Forgets the services of namespaces without a pod.
    pub(super) fn retain_services(&self, keep: impl Fn(&str) -> bool) {
        self.retain_in(SERVICES, keep);
    }

    fn retain_in(&self, part: &str, keep: impl Fn(&str) -> bool) {
        if !self.is_usable() {
            return;
        }
        let part = self.directory.join(part);
        for name in names(&part).into_iter().filter(|name| !keep(name)) {
            self.report(fs::remove_file(part.join(name)));
        }
    }

    /// A UID comes from the API server, and becomes the name of a file.
    fn path_of_tokens(&self, uid: &str) -> Option<PathBuf> {
        is_plain(uid).then(|| self.directory.join(TOKENS).join(uid))
    }

    /// Forgets what no pod refers to.
    pub(super) fn retain(&self, keep: impl Fn(&ObjectKey) -> bool) {
        if !self.is_usable() {
            return;
        }
        for kind in [ObjectKind::ConfigMap, ObjectKind::Secret] {
            let of_kind = self.directory.join(OBJECTS).join(kind.resource());
            for namespace in names(&of_kind) {
                let of_namespace = of_kind.join(&namespace);
                for name in names(&of_namespace) {
                    if !ObjectKey::new(kind, &namespace, &name).is_ok_and(|key| keep(&key)) {
                        self.report(fs::remove_file(of_namespace.join(&name)));
                    }
                }
            }
        }
    }

    fn path(&self, key: &ObjectKey) -> PathBuf {
        self.directory.join(OBJECTS).join(key.kind.resource()).join(&key.namespace).join(&key.name)
    }

    fn write(&self, path: &Path, bytes: &[u8]) {
        if !self.is_usable() {
            return;
        }
        let new = self.directory.join("new");
        let written = make_directories(path.parent().unwrap_or(path)).and_then(|()| {
            // Left by an agent that was killed here.
            let _ = fs::remove_file(&new);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            fs::rename(&new, path)
        });
        self.report(written);
    }

    fn is_usable(&self) -> bool {
        *self.usable.get_or_init(|| {
            let made = make_directories(&self.directory).and_then(|()| match self.medium {
                Medium::Tmpfs => mount_private_tmpfs(&self.directory),
                #[cfg(test)]
                Medium::AsFound => Ok(()),
            });
            if let Err(error) = &made {
                warn!(
                    directory = %self.directory.display(), %error,
                    "cannot mount a tmpfs for objects of the API server: an agent that is restarted while the API server is away does without them"
                );
            }
            made.is_ok()
        })
    }

    fn report(&self, done: io::Result<()>) {
        let Err(error) = done else { return };
        let directory = self.directory.display();
        if self.reported.swap(true, Ordering::Relaxed) {
            debug!(%directory, %error, "cannot remember objects of the API server");
        } else {
            warn!(%directory, %error, "cannot remember objects of the API server");
        }
    }
}

/// Whether a UID or a namespace can be the name of a file.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= 253 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn make_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(kind: ObjectKind, name: &str) -> ObjectKey {
        ObjectKey::new(kind, "shop", name).expect("a name")
    }

    /// CLU-19, CLU-31
    #[test]
    fn objects_are_remembered_by_the_next_agent_and_forgotten_with_their_pods() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Memory::without_mount(directory.path().join("cluster"));
        let data = Data::from([("token".to_owned(), vec![0, 159, 255]), (".hidden".to_owned(), b"x".to_vec())]);
        let (secret, other) = (key(ObjectKind::Secret, "keys"), key(ObjectKind::ConfigMap, "keys"));
        let memory = open();
        assert_eq!(memory.recall(&secret), None);
        memory.remember(&secret, Some(&data));
        memory.remember(&other, None);
        let next = open();
        assert_eq!((next.recall(&secret), next.recall(&other)), (Some(Some(data)), Some(None)));
        let mode = |path: &Path| format!("{:o}", fs::metadata(path).unwrap().permissions().mode() & 0o7777);
        let modes = [mode(&next.path(&secret)), mode(&directory.path().join("cluster"))];
        assert_eq!(modes, ["600", "700"]);
        next.retain(|kept| *kept == other);
        assert_eq!((next.recall(&secret), next.recall(&other)), (None, Some(None)));
    }

    /// What is there may be half of a file that an agent wrote when it was killed, or no file at all.
    #[test]
    fn what_cannot_be_read_is_not_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::without_mount(directory.path().to_owned());
        let key = key(ObjectKind::Secret, "keys");
        memory.remember(&key, None);
        fs::write(memory.path(&key), "{").unwrap();
        fs::write(directory.path().join("new"), "left").unwrap();
        assert_eq!(memory.recall(&key), None);
        memory.remember(&key, Some(&Data::new()));
        assert_eq!(memory.recall(&key), Some(Some(Data::new())));
    }

    /// CLU-19: never on a disk.
    #[test]
    fn the_memory_is_on_a_tmpfs_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("cluster");
        let memory = Memory::new(place.clone());
        if !memory.is_usable() {
            return keelet_report::skipped("mounting needs root");
        }
        memory.remember(&key(ObjectKind::Secret, "keys"), Some(&Data::new()));
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let own = mounts.lines().filter(|line| line.split(' ').nth(1) == place.to_str()).count();
        assert!(Memory::new(place.clone()).is_usable(), "the next agent finds it mounted");
        let again = fs::read_to_string("/proc/self/mounts").unwrap();
        let twice = again.lines().filter(|line| line.split(' ').nth(1) == place.to_str()).count();
        keelet_host::remove_directory(directory.path()).expect("unmounted");
        assert_eq!((own, twice), (1, 1), "{mounts}");
    }
}
