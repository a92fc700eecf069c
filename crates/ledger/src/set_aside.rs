//! Moving away what cannot be read, so that a person can look at it and nothing is written over it.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{disk::Disk, names};

/// How many are kept of each file. A disk that spoils a file at every start must not fill up with the spoils.
const KEPT: usize = 4;

/// Moves it to the next free number and drops the oldest ones beyond the bound. Numbers are not used again while a
/// higher one is there.
pub(crate) fn set_aside(disk: &impl Disk, path: &Path) -> io::Result<PathBuf> {
    let directory = path.parent().unwrap_or(path);
    let file = names::file_name(path);
    // A directory that cannot be listed may still let go of a name.
    let entries = disk.list(directory).unwrap_or_default();
    let mut numbers: Vec<u64> = entries.iter().filter_map(|entry| names::aside_number(&entry.name, &file)).collect();
    numbers.sort_unstable();
    let mut number = numbers.last().map_or(1, |newest| newest.saturating_add(1));
    let moved = loop {
        let to = names::aside(path, number);
        match disk.rename_aside(path, &to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < u64::MAX => number += 1,
            other => break other.map(|()| to)?,
        }
    };
    let too_many = (numbers.len() + 1).saturating_sub(KEPT);
    for oldest in &numbers[..too_many.min(numbers.len())] {
        // One too many is no reason to fail.
        let _ = disk.remove(&names::aside(path, *oldest));
    }
    Ok(moved)
}
