//! Log files of containers: their sizes, their rotation, and the end of old ones, with the termination messages of
//! their instances. Blocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use keelet_linux::beneath::Directory;

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
    match place(log).and_then(|(directory, name)| directory.stat(name)) {
        Ok(stat) => Some(u64::try_from(stat.st_size).unwrap_or(0)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // Not known; it is read again.
        Err(_) => Some(0),
    }
}

/// Makes room for another rotated file and gives the log its name.
pub(super) fn rotate(log: &Path, max_files: u32, stamp: &str) -> io::Result<()> {
    let (directory, name) = place(log)?;
    let names = directory.names()?;
    let new = format!("{name}.{stamp}");
    if names.iter().any(|name| name.strip_suffix(COMPRESSED).unwrap_or(name) == new) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a log was rotated in this very second"));
    }
    // The one in use and the one that is rotated now count as well.
    let keep = usize::try_from(max_files.saturating_sub(2)).unwrap_or(usize::MAX);
    let Tidy { remove, compress } = tidy(&names, name, keep);
    for file in remove {
        directory.remove(&file)?;
    }
    for file in compress {
        shrink(&directory, &file)?;
    }
    directory.rename(name, &new)
}

/// Gives a log its name back.
pub(super) fn unrotate(log: &Path, stamp: &str) -> io::Result<()> {
    let (directory, name) = place(log)?;
    // The runtime may have begun a new one after all.
    if directory.stat(name).is_ok() {
        return Ok(());
    }
    directory.rename(&format!("{name}.{stamp}"), name)
}

/// The directory of a log, by its descriptor, and the log's name in it.
fn place(log: &Path) -> io::Result<(Directory, &str)> {
    let parts = log.parent().zip(log.file_name().and_then(|name| name.to_str()));
    let (directory, name) =
        parts.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the path of a log"))?;
    Ok((Directory::open(directory)?, name))
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
fn shrink(directory: &Directory, name: &str) -> io::Result<()> {
    let mut from = directory.read(name)?;
    let half = format!("{name}{HALF}");
    let to = directory.create(&half, 0o600)?;
    to.set_permissions(Permissions::from_mode(from.metadata()?.permissions().mode() & 0o777))?;
    let mut encoder = GzEncoder::new(to, Compression::default());
    io::copy(&mut from, &mut encoder)?;
    encoder.finish()?;
    directory.rename(&half, &format!("{name}{COMPRESSED}"))?;
    directory.remove(name)
}

/// The instance that a log is of, by its name.
pub(super) fn attempt_of_log(name: &str) -> Option<u32> {
    let (number, rest) = name.split_once(".log")?;
    let is_log = rest.is_empty() || rest.starts_with('.');
    number.parse().ok().filter(|_| is_log)
}

/// The instance that a termination message is of, by its name.
pub(super) fn attempt_of_message(name: &str) -> Option<u32> {
    name.parse().ok()
}

/// Removes the files of all instances in a directory but the newest ones. Files of other names are left alone.
pub(super) fn drop_old(directory: &Path, keep: u32, attempt: fn(&str) -> Option<u32>) -> io::Result<()> {
    let directory = match Directory::open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        directory => directory?,
    };
    for name in past(&directory.names()?, keep, attempt) {
        match directory.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Files of instances before the newest ones.
fn past(names: &[String], keep: u32, attempt: fn(&str) -> Option<u32>) -> Vec<&str> {
    let attempts: BTreeSet<u32> = names.iter().filter_map(|name| attempt(name)).collect();
    let kept: BTreeSet<u32> = attempts.into_iter().rev().take(keep as usize).collect();
    names
        .iter()
        .map(String::as_str)
        .filter(|name| attempt(name).is_some_and(|attempt| !kept.contains(&attempt)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read, os::unix::fs::symlink};

    use flate2::read::GzDecoder;

    use super::*;
    use crate::names_in;

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
    fn logs_of_past_attempts_go() {
        let names = owned(&["0.log", "3.log", "3.log.20260101-000000.gz", "4.log", "5.log", "note", "x.log"]);
        assert_eq!(past(&names, 2, attempt_of_log), ["0.log", "3.log", "3.log.20260101-000000.gz"]);
        let directory = tempfile::tempdir().unwrap();
        for name in &names {
            fs::write(directory.path().join(name), "").unwrap();
        }
        drop_old(directory.path(), 1, attempt_of_log).unwrap();
        let mut left = names_in(directory.path()).unwrap();
        left.sort();
        assert_eq!(left, ["5.log", "note", "x.log"]);
        drop_old(&directory.path().join("none"), 1, attempt_of_log).unwrap();
    }
    /// LOG-1: a pod that can write to the directory of logs puts links there.
    #[test]
    fn what_is_beyond_a_link_is_neither_rotated_nor_removed() {
        let place = tempfile::tempdir().unwrap();
        let (pod, node) = (place.path().join("pods/pod"), place.path().join("node"));
        fs::create_dir_all(&pod).unwrap();
        fs::create_dir_all(&node).unwrap();
        let names = ["0.log", "0.log.20260101-000000", "0.log.20260102-000000.tmp", "1.log", "2.log"];
        names.iter().for_each(|name| fs::write(node.join(name), "of the node").unwrap());
        symlink(&node, pod.join("linked")).unwrap();
        let log = pod.join("linked/0.log");
        rotate(&log, 5, "20260103-000000").expect_err("its directory is a link");
        unrotate(&log, "20260101-000000").expect_err("its directory is a link");
        drop_old(&pod.join("linked"), 1, attempt_of_log).expect_err("it is a link");
        // A rotated file that is a link is not compressed into the pod's directory.
        fs::create_dir(pod.join("main")).unwrap();
        fs::write(pod.join("main/0.log"), "new").unwrap();
        symlink(node.join("0.log"), pod.join("main/0.log.20260101-000000")).unwrap();
        rotate(&pod.join("main/0.log"), 5, "20260103-000000").expect_err("a rotated file is a link");
        let mut left = names_in(&node).unwrap();
        left.sort();
        assert_eq!(left, names);
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert!(names.iter().all(|name| text(&node.join(name)) == "of the node"));
        assert!(!pod.join("main/0.log.20260101-000000.gz").exists(), "a file of the node was copied");
    }
}
