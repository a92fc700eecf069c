//! The log files of a container: one for each instance, and what rotation made of it.
//!
//! ```text
//! <log directory of the pod>/<container>/3.log                        the instance with restart count 3, being written
//!                                        3.log.20260102-150405        an older part of it
//!                                        3.log.20260102-140000.gz     an older part, compressed
//! ```

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    ops::Bound,
    path::{Path, PathBuf},
};

use keelet_linux::beneath::{self, Directory};

/// The parts of one instance's log, the oldest first. The newest may still be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InstanceLog {
    /// By what is behind `.log.`: a time, so they are in order.
    rotated: BTreeMap<String, PathBuf>,
    pub(super) newest: Option<PathBuf>,
}

/// The parts of one instance's log at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) instance: InstanceLog,
    /// The part that is written, open: its name may be another's when it is its turn.
    pub(super) held: Option<(PathBuf, File)>,
}

/// A rotated part, open.
#[derive(Debug)]
pub(super) enum Rotated {
    Plain(File),
    Compressed(File),
}

/// The parts of an instance, and the one that is written open.
pub(super) fn snapshot(directory: &Path, attempt: u32) -> io::Result<Snapshot> {
    let list = || instances(directory).map(|mut instances| instances.remove(&attempt).unwrap_or_default());
    let mut instance = list()?;
    loop {
        let held = match instance.written().map(|path| (path, beneath::read(path))) {
            Some((path, Ok(file))) => Some((path.to_owned(), file)),
            Some((_, Err(error))) if error.kind() == io::ErrorKind::NotFound => None,
            Some((_, Err(error))) => return Err(error),
            None => None,
        };
        // Rotated between the listing and the opening, another file would have the name. That happens once a second at most,
        // and no name comes twice.
        let again = list()?;
        if again == instance {
            return Ok(Snapshot { instance, held });
        }
        instance = again;
    }
}

/// Opens a rotated part by either of its names. None if it was collected.
pub(super) fn open(path: &Path) -> io::Result<Option<Rotated>> {
    let plain = if is_compressed(path) { path.with_extension("") } else { path.to_owned() };
    let mut compressed = plain.clone().into_os_string();
    compressed.push(".gz");
    // In this order: the plain one goes once the compressed one is there.
    for (path, kind) in [(plain, Rotated::Plain as fn(File) -> Rotated), (compressed.into(), Rotated::Compressed)] {
        match beneath::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened.map(|file| Some(kind(file))),
        }
    }
    Ok(None)
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// All instances that left a log, by restart count. None if there is no directory yet.
pub(super) fn instances(directory: &Path) -> io::Result<BTreeMap<u32, InstanceLog>> {
    let names = match Directory::open(directory).and_then(|directory| directory.names()) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    Ok(sorted(names.into_iter().map(|name| directory.join(name)).collect()))
}

fn sorted(paths: Vec<PathBuf>) -> BTreeMap<u32, InstanceLog> {
    let mut instances: BTreeMap<u32, InstanceLog> = BTreeMap::new();
    for path in paths {
        let Some((attempt, part)) = path.file_name().and_then(|name| part(name.to_str()?)) else { continue };
        let instance = instances.entry(attempt).or_default();
        match part {
            Part::Newest => instance.newest = Some(path),
            // While a part is compressed there are two of it for a moment.
            Part::Compressed(time) => drop(instance.rotated.entry(time).or_insert(path)),
            Part::Rotated(time) => drop(instance.rotated.insert(time, path)),
        }
    }
    instances
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Newest,
    Rotated(String),
    Compressed(String),
}

fn part(name: &str) -> Option<(u32, Part)> {
    let (attempt, rest) = name.split_once(".log")?;
    let attempt = attempt.parse().ok()?;
    let is_time = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let part = match rest.strip_prefix('.') {
        None if rest.is_empty() => Part::Newest,
        None => return None,
        Some(time) => match time.strip_suffix(".gz") {
            Some(time) if is_time(time) => Part::Compressed(time.to_owned()),
            None if is_time(time) => Part::Rotated(time.to_owned()),
            // Half-made, or no part of a log.
            _ => return None,
        },
    };
    Some((attempt, part))
}

// === impl InstanceLog ===

impl InstanceLog {
    /// All parts, the oldest first.
    pub(super) fn parts(&self) -> impl DoubleEndedIterator<Item = &Path> {
        self.rotated.values().chain(&self.newest).map(PathBuf::as_path)
    }

    /// The parts that were rotated after the one of that time, with their times.
    pub(super) fn rotated_after(&self, time: Option<&str>) -> impl Iterator<Item = (&str, &Path)> {
        let from = time.map_or(Bound::Unbounded, Bound::Excluded);
        self.rotated.range::<str, _>((from, Bound::Unbounded)).map(|(time, path)| (time.as_str(), path.as_path()))
    }

    /// The part that is written, or was last. Between two steps of a rotation it has the name of a rotated one.
    fn written(&self) -> Option<&Path> {
        let last = self.rotated.values().next_back().filter(|path| !is_compressed(path));
        self.newest.as_ref().or(last).map(PathBuf::as_path)
    }

    /// When the newest part was rotated that is not written any more.
    pub(super) fn last_time(&self) -> Option<&str> {
        let mut times = self.rotated.iter().rev();
        if self.newest.is_none() && self.written().is_some() {
            times.next();
        }
        times.next().map(|(time, _)| time.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_have_their_parts_in_order_and_nothing_else() {
        let names = [
            "0.log",
            "1.log",
            "1.log.20260102-150405",
            "1.log.20260102-150405.gz",
            "1.log.20260101-000000.gz",
            "1.log.20260103-000000.gz.tmp",
            "1.log.tmp",
            "x.log",
            "2.logs",
            "readme",
        ];
        // A directory has no order.
        let listed: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        let turned: Vec<PathBuf> = listed.iter().rev().cloned().collect();
        for instances in [sorted(listed), sorted(turned)] {
            let names =
                |attempt: u32| instances[&attempt].parts().map(|path| path.to_str().unwrap()).collect::<Vec<_>>();
            assert_eq!(instances.keys().copied().collect::<Vec<_>>(), [0, 1]);
            assert_eq!(names(0), ["0.log"]);
            assert_eq!(names(1), ["1.log.20260101-000000.gz", "1.log.20260102-150405", "1.log"]);
        }
        assert!(instances(Path::new("/nonexistent/directory")).unwrap().is_empty());
    }
}
