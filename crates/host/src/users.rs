//! Which IDs of the node are the users of a pod that has its own.
//!
//! Every such pod has a range that no other pod of this agent has. It is written down in the pod's directory, in the
//! kubelet's form, before anything is made with it, and goes with the directory. So nothing has to be remembered: an
//! agent that was killed is followed by one that finds the same.
//!
//! Ranges come from what the administrator set aside for the kubelet in `/etc/subuid` and `/etc/subgid`, or else
//! from the IDs after the first 65536.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use keelet_launch::IdRange;
use serde::{Deserialize, Serialize};

use super::names_in;
use crate::HostError;

/// The reason of an error with a pod's users.
const NO_USERS: &str = "CreatePodSandboxError";

/// The file in a pod's directory.
const FILE: &str = "userns";

/// How many IDs a pod has. The API promises this many.
const PER_POD: u32 = 65_536;

/// How many pods can have their own where `/etc/subuid` does not say so: as many as a kubelet runs by default.
const USUAL_PODS: u32 = 110;

/// Whose line in `/etc/subuid` is meant.
const NAME: &str = "kubelet";

/// All IDs that are there for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pool {
    first: u32,
    pods: u32,
}

/// What is written down.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The range of the pod with that directory: the one it has, or else the first that no pod has. One caller at a time.
pub(super) fn range(pods: &Path, dir: &Path, etc: &Path) -> Result<IdRange, HostError> {
    find_or_reserve(pods, dir, etc).map_err(|error| HostError::new(NO_USERS, format_args!("hostUsers: false: {error}")))
}

/// Why a pod gets no IDs.
#[derive(Debug, thiserror::Error)]
enum RangeError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot parse {}: {source}", path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("{}: must have one range for users and the same one for groups, starting at 0 in the pod", .0.display())]
    Mappings(PathBuf),
    #[error("all {0} ranges of user IDs are taken by pods")]
    AllTaken(u32),
    #[error("{}: {NAME:?} has more than one range", .0.display())]
    SeveralRanges(PathBuf),
    #[error("{}: {line:?} is not a range", path.display())]
    NoRange { path: PathBuf, line: String },
    #[error("/etc/subuid and /etc/subgid do not set aside the same IDs for {NAME:?}")]
    UsersAndGroupsDiffer,
    #[error(
        "/etc/subuid: the IDs of {NAME:?} are {first}:{length}, they have to be from a multiple of {PER_POD}, and not \
         from 0, and a multiple of {PER_POD} of them"
    )]
    NotAligned { first: u32, length: u32 },
}

fn find_or_reserve(pods: &Path, dir: &Path, etc: &Path) -> Result<IdRange, RangeError> {
    if let Some(range) = read(&dir.join(FILE))? {
        return Ok(range);
    }
    let mut taken = BTreeSet::new();
    for name in names_in(pods).map_err(|source| RangeError::Read { path: pods.to_owned(), source })? {
        taken.extend(read(&pods.join(name).join(FILE))?.map(|range| (range.first, range.length)));
    }
    let pool = Pool::of(etc)?;
    let free = pool.ranges().find(|range| !taken.iter().any(|(first, length)| overlap(*range, *first, *length)));
    let range = free.ok_or(RangeError::AllTaken(pool.pods))?;
    let path = dir.join(FILE);
    write(&path, range).map_err(|source| RangeError::Write { path, source })?;
    Ok(range)
}

fn overlap(range: IdRange, first: u32, length: u32) -> bool {
    range.first < first.saturating_add(length) && first < range.first.saturating_add(range.length)
}

/// The range that the file records; none if there is no file. What cannot be parsed may be any pod's range, so none is
/// made up.
fn read(path: &Path) -> Result<Option<IdRange>, RangeError> {
    let text = match fs::read(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        text => text.map_err(|source| RangeError::Read { path: path.to_owned(), source })?,
    };
    let note: Note =
        serde_json::from_slice(&text).map_err(|source| RangeError::Parse { path: path.to_owned(), source })?;
    match (note.uid_mappings.as_slice(), note.gid_mappings.as_slice()) {
        ([uids], [gids]) if uids == gids && uids.container_id == 0 && uids.length > 0 && uids.host_id > 0 => {
            Ok(Some(IdRange { first: uids.host_id, length: uids.length }))
        }
        _ => Err(RangeError::Mappings(path.to_owned())),
    }
}

/// In one step, and on the disk before anything is made with it.
fn write(path: &Path, range: IdRange) -> io::Result<()> {
    let mapping = Mapping { host_id: range.first, container_id: 0, length: range.length };
    let note = Note { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec(&note)?)?;
    file.sync_all()?;
    fs::rename(new, path)
}

// === impl Pool ===

impl Pool {
    fn of(etc: &Path) -> Result<Self, RangeError> {
        let (uids, gids) = (set_aside(&etc.join("subuid"))?, set_aside(&etc.join("subgid"))?);
        let (first, length) = match (uids, gids) {
            (None, None) => return Ok(Self { first: PER_POD, pods: USUAL_PODS }),
            (Some(uids), Some(gids)) if uids == gids => uids,
            _ => return Err(RangeError::UsersAndGroupsDiffer),
        };
        let whole = |number: u32| number.is_multiple_of(PER_POD);
        if first < PER_POD || !whole(first) || length < PER_POD || !whole(length) || first.checked_add(length).is_none()
        {
            return Err(RangeError::NotAligned { first, length });
        }
        Ok(Self { first, pods: length / PER_POD })
    }

    fn ranges(self) -> impl Iterator<Item = IdRange> {
        (0..self.pods).map(move |number| IdRange { first: self.first + number * PER_POD, length: PER_POD })
    }
}

/// What a file such as `/etc/subuid` has for the kubelet: lines of a name, the first ID, and how many.
fn set_aside(path: &Path) -> Result<Option<(u32, u32)>, RangeError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|source| RangeError::Read { path: path.to_owned(), source })?,
    };
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(NAME)?.strip_prefix(':'));
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(RangeError::SeveralRanges(path.to_owned()));
    }
    let numbers =
        line.split_once(':').and_then(|(first, count)| Some((first.parse().ok()?, count.trim().parse().ok()?)));
    let no_range = || RangeError::NoRange { path: path.to_owned(), line: format!("{NAME}:{line}") };
    numbers.map(Some).ok_or_else(no_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods with these names, and an `/etc`.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new(pods: &[&str]) -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            for name in pods {
                fs::create_dir_all(place.pods().join(name)).unwrap();
            }
            fs::create_dir(place.0.path().join("etc")).unwrap();
            place
        }

        fn pods(&self) -> PathBuf {
            self.0.path().join("pods")
        }

        fn etc(&self, name: &str, text: &str) {
            fs::write(self.0.path().join("etc").join(name), text).unwrap();
        }

        fn range(&self, pod: &str) -> Result<IdRange, HostError> {
            range(&self.pods(), &self.pods().join(pod), &self.0.path().join("etc"))
        }

        fn first(&self, pod: &str) -> u32 {
            let IdRange { first, length } = self.range(pod).unwrap();
            assert_eq!(length, 65_536);
            first
        }
    }

    #[test]
    fn every_pod_has_a_range_of_its_own_and_keeps_it() {
        let place = Place::new(&["a", "b", "c"]);
        assert_eq!([place.first("a"), place.first("b"), place.first("a")], [65_536, 131_072, 65_536]);
        // A pod that goes leaves its range to the next.
        fs::remove_dir_all(place.pods().join("a")).unwrap();
        assert_eq!([place.first("c"), place.first("b")], [65_536, 131_072]);
        let text = fs::read_to_string(place.pods().join("b/userns")).unwrap();
        let mapping = r#"[{"hostId":131072,"containerId":0,"length":65536}]"#;
        assert_eq!(text, format!(r#"{{"uidMappings":{mapping},"gidMappings":{mapping}}}"#), "the kubelet's form");
    }

    #[test]
    fn ranges_end_somewhere() {
        let names: Vec<_> = (0..111).map(|number| format!("p{number}")).collect();
        let place = Place::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names[..110] {
            place.range(name).unwrap();
        }
        let error = place.range("p110").unwrap_err();
        assert!(error.message.contains("all 110 ranges"), "{error}");
        assert_eq!(place.first("p109"), 110 * 65_536, "and those who have one keep it");
    }

    #[test]
    fn what_was_set_aside_for_the_kubelet_is_used() {
        let place = Place::new(&["a", "b", "c"]);
        for name in ["subuid", "subgid"] {
            place.etc(name, "user:65536:65536\nkubeletter:1:1\nkubelet:655360:131072\n");
        }
        assert_eq!([place.first("a"), place.first("b")], [655_360, 720_896]);
        assert!(place.range("c").unwrap_err().message.contains("all 2 ranges"));
    }

    #[test]
    fn what_cannot_be_understood_is_named_and_nothing_is_given() {
        let place = Place::new(&["a", "b"]);
        for (uids, gids, why) in [
            ("kubelet:65536:65536", "", "do not set aside the same"),
            ("kubelet:65536:65536", "kubelet:131072:65536", "do not set aside the same"),
            ("kubelet:100000:65536", "kubelet:100000:65536", "100000:65536"),
            ("kubelet:0:65536", "kubelet:0:65536", "0:65536"),
            ("kubelet:65536:100", "kubelet:65536:100", "65536:100"),
            ("kubelet:4294901760:65536", "kubelet:4294901760:65536", "4294901760"),
            ("kubelet:many", "kubelet:many", "kubelet:many"),
            ("kubelet:65536:65536\nkubelet:131072:65536", "", "more than one"),
        ] {
            place.etc("subuid", uids);
            place.etc("subgid", gids);
            let error = place.range("a").unwrap_err();
            assert!(error.message.contains(why) && error.message.contains("hostUsers"), "{error}");
        }
        for name in ["subuid", "subgid"] {
            place.etc(name, "");
        }
        for text in ["", "{}", r#"{"uidMappings":[],"gidMappings":[]}"#] {
            fs::write(place.pods().join("b/userns"), text).unwrap();
            for pod in ["a", "b"] {
                let error = place.range(pod).unwrap_err();
                assert!(error.message.contains("b/userns"), "{error}");
            }
            assert!(!place.pods().join("a/userns").exists(), "its range might be the other's");
        }
    }
}
