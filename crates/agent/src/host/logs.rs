//! Log files of containers: their sizes, their rotation, and the end of old ones, with the termination messages of their lives.
//! Blocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use rustix::fs::OFlags;

use super::names_in;

/// A file that is being compressed.
const HALF: &str = ".tmp";
const COMPRESSED: &str = ".gz";

/// What has to be done with the rotated files of a log before the next one is rotated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tidy {
    remove: Vec<String>,
    compress: Vec<String>,
}

/// The size of a log; `None` if it is not there.
pub(super) fn size(log: &Path) -> Option<u64> {
    match fs::symlink_metadata(log) {
        Ok(metadata) => Some(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // Nobody knows; it is looked at again.
        Err(_) => Some(0),
    }
}

/// Makes room for another rotated file and gives the log its name.
pub(super) fn rotate(log: &Path, max_files: u32, stamp: &str) -> io::Result<()> {
    let directory = log.parent().unwrap_or(log);
    let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = names_in(directory)?;
    let new = format!("{name}.{stamp}");
    if names.iter().any(|name| name.strip_suffix(COMPRESSED).unwrap_or(name) == new) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a log was rotated in this very second"));
    }
    // The one in use and the one that is rotated now count as well.
    let keep = usize::try_from(max_files.saturating_sub(2)).unwrap_or(usize::MAX);
    let Tidy { remove, compress } = tidy(&names, &name, keep);
    for file in remove {
        fs::remove_file(directory.join(file))?;
    }
    for file in compress {
        shrink(&directory.join(file))?;
    }
    fs::rename(log, rotated(log, stamp))
}

/// Gives a log its name back.
pub(super) fn unrotate(log: &Path, stamp: &str) -> io::Result<()> {
    // The runtime may have begun a new one after all.
    if log.symlink_metadata().is_ok() {
        return Ok(());
    }
    fs::rename(rotated(log, stamp), log)
}

fn rotated(log: &Path, stamp: &str) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(format!(".{stamp}"));
    name.into()
}

/// What becomes of the rotated files of a log, by the names in its directory.
fn tidy(names: &[String], log: &str, keep: usize) -> Tidy {
    let prefix = format!("{log}.");
    let all: BTreeSet<&str> = names.iter().map(String::as_str).filter(|name| name.starts_with(&prefix)).collect();
    let mut tidy = Tidy::default();
    // By when they were rotated, oldest first, under whatever name.
    let mut rotated: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in all {
        if name.ends_with(HALF) {
            tidy.remove.push(name.to_owned());
        } else {
            rotated.entry(name.strip_suffix(COMPRESSED).unwrap_or(name)).or_default().push(name);
        }
    }
    let excess = rotated.len().saturating_sub(keep);
    for (index, (plain, forms)) in rotated.into_iter().enumerate() {
        match forms.as_slice() {
            forms if index < excess => tidy.remove.extend(forms.iter().map(|name| (*name).to_owned())),
            // Compressed, and the agent died before it removed the other one.
            [_, _] => tidy.remove.push(plain.to_owned()),
            [name] if !name.ends_with(COMPRESSED) => tidy.compress.push((*name).to_owned()),
            _ => {}
        }
    }
    tidy
}

/// Compresses a file. It has its new name only once it is complete.
fn shrink(path: &Path) -> io::Result<()> {
    let other = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut from = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let half = other(HALF);
    let to = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(&half)?;
    to.set_permissions(Permissions::from_mode(from.metadata()?.permissions().mode() & 0o777))?;
    let mut encoder = GzEncoder::new(to, Compression::default());
    io::copy(&mut from, &mut encoder)?;
    encoder.finish()?;
    fs::rename(&half, other(COMPRESSED))?;
    fs::remove_file(path)
}

/// The life that a log is of, by its name.
pub(super) fn life_of_log(name: &str) -> Option<u32> {
    let (number, rest) = name.split_once(".log")?;
    let is_log = rest.is_empty() || rest.starts_with('.');
    number.parse().ok().filter(|_| is_log)
}

/// The life that a termination message is of, by its name.
pub(super) fn life_of_message(name: &str) -> Option<u32> {
    name.parse().ok()
}

/// Removes the files of all lives in a directory but the newest ones. Files of other names are left alone.
pub(super) fn drop_old(directory: &Path, keep: u32, life: fn(&str) -> Option<u32>) -> io::Result<()> {
    let names = match names_in(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names?,
    };
    for name in past(&names, keep, life) {
        match fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Files of lives before the newest ones.
fn past(names: &[String], keep: u32, life: fn(&str) -> Option<u32>) -> Vec<&str> {
    let lives: BTreeSet<u32> = names.iter().filter_map(|name| life(name)).collect();
    let kept: BTreeSet<u32> = lives.into_iter().rev().take(keep as usize).collect();
    names.iter().map(String::as_str).filter(|name| life(name).is_some_and(|life| !kept.contains(&life))).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_oldest_go_and_the_others_are_compressed() {
        type Names = &'static [&'static str];
        let cases: [(Names, usize, Names, Names); 6] = [
            (&["0.log"], 3, &[], &[]),
            (&["0.log", "0.log.1", "1.log.1"], 3, &[], &["0.log.1"]),
            (&["0.log.3", "0.log.2.gz", "0.log.1.gz"], 2, &["0.log.1.gz"], &["0.log.3"]),
            (&["0.log.2", "0.log.1"], 0, &["0.log.1", "0.log.2"], &[]),
            // Left by an agent that died.
            (&["0.log.1.tmp", "0.log.1"], 3, &["0.log.1.tmp"], &["0.log.1"]),
            (&["0.log.1", "0.log.1.gz"], 3, &["0.log.1"], &[]),
        ];
        for (names, keep, remove, compress) in cases {
            let expected = Tidy { remove: owned(remove), compress: owned(compress) };
            assert_eq!(tidy(&owned(names), "0.log", keep), expected, "{names:?}");
        }
    }

    #[test]
    fn a_log_has_never_more_files_than_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("0.log");
        for round in 1..=8 {
            fs::write(&log, format!("round {round}\n")).unwrap();
            rotate(&log, 4, &format!("2026010{round}-000000")).unwrap();
            fs::write(&log, "new").unwrap();
            assert!(names_in(directory.path()).unwrap().len() <= 4, "after {round}");
        }
        let mut names = names_in(directory.path()).unwrap();
        names.sort();
        assert_eq!(names, ["0.log", "0.log.20260106-000000.gz", "0.log.20260107-000000.gz", "0.log.20260108-000000"]);
        let mut text = String::new();
        let compressed = fs::File::open(directory.path().join(&names[1])).unwrap();
        GzDecoder::new(compressed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "round 6\n");
    }

    #[test]
    fn a_rotation_can_be_undone() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("0.log");
        fs::write(&log, "x").unwrap();
        assert_eq!(size(&log), Some(1));
        rotate(&log, 5, "20260101-000000").unwrap();
        assert_eq!(size(&log), None);
        unrotate(&log, "20260101-000000").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "x");
        // Should the runtime have begun a new one, nothing is lost.
        rotate(&log, 5, "20260101-000000").unwrap();
        fs::write(&log, "new").unwrap();
        unrotate(&log, "20260101-000000").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "new");
        assert!(rotate(&log, 5, "20260101-000000").is_err(), "nothing is overwritten");
    }

    #[test]
    fn logs_of_past_lives_go() {
        let names = owned(&["0.log", "3.log", "3.log.20260101-000000.gz", "4.log", "5.log", "note", "x.log"]);
        assert_eq!(past(&names, 2, life_of_log), ["0.log", "3.log", "3.log.20260101-000000.gz"]);
        let directory = tempfile::tempdir().unwrap();
        for name in &names {
            fs::write(directory.path().join(name), "").unwrap();
        }
        drop_old(directory.path(), 1, life_of_log).unwrap();
        let mut left = names_in(directory.path()).unwrap();
        left.sort();
        assert_eq!(left, ["5.log", "note", "x.log"]);
        drop_old(&directory.path().join("none"), 1, life_of_log).unwrap();
    }
}
