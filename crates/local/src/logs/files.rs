//! The log files of a container: one for each life, and what rotation made of it.
//!
//! ```text
//! <log directory of the pod>/<container>/3.log                        the life with restart count 3, being written
//!                                        3.log.20260102-150405        an older part of it
//!                                        3.log.20260102-140000.gz     an older part, compressed
//! ```

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The parts of one life's log, the oldest first. The newest may still be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Life {
    /// By what is behind `.log.`: a time, so they are in order.
    rotated: BTreeMap<String, PathBuf>,
    pub(super) newest: Option<PathBuf>,
}

/// All lives that left a log, by restart count. None if there is no directory yet.
pub(super) fn lives(directory: &Path) -> io::Result<BTreeMap<u32, Life>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(sorted(paths))
}

fn sorted(paths: Vec<PathBuf>) -> BTreeMap<u32, Life> {
    let mut lives: BTreeMap<u32, Life> = BTreeMap::new();
    for path in paths {
        let Some((attempt, part)) = path.file_name().and_then(|name| part(name.to_str()?)) else { continue };
        let life = lives.entry(attempt).or_default();
        match part {
            Part::Newest => life.newest = Some(path),
            // While a part is compressed there are two of it for a moment.
            Part::Compressed(time) => drop(life.rotated.entry(time).or_insert(path)),
            Part::Rotated(time) => drop(life.rotated.insert(time, path)),
        }
    }
    lives
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
            // Half-made, or nobody's.
            _ => return None,
        },
    };
    Some((attempt, part))
}

// === impl Life ===

impl Life {
    /// All parts, the oldest first.
    pub(super) fn parts(&self) -> impl DoubleEndedIterator<Item = &Path> {
        self.rotated.values().chain(&self.newest).map(PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_have_their_parts_in_order_and_nothing_else() {
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
        for lives in [sorted(listed), sorted(turned)] {
            let names = |attempt: u32| lives[&attempt].parts().map(|path| path.to_str().unwrap()).collect::<Vec<_>>();
            assert_eq!(lives.keys().copied().collect::<Vec<_>>(), [0, 1]);
            assert_eq!(names(0), ["0.log"]);
            assert_eq!(names(1), ["1.log.20260101-000000.gz", "1.log.20260102-150405", "1.log"]);
        }
        assert!(lives(Path::new("/nonexistent/directory")).unwrap().is_empty());
    }
}
