//! Sets aside files that cannot be read, so that a person can inspect them and nothing overwrites them.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{disk::Disk, names};

/// How many are kept of each file, so that a disk that damages a file at every start does not fill up.
const KEPT: usize = 4;

/// Renames the file with the next free number and removes the oldest ones beyond the limit. A number is not reused
/// while a higher one exists.
pub(crate) fn set_aside(disk: &impl Disk, path: &Path) -> io::Result<PathBuf> {
    let directory = path.parent().unwrap_or(path);
    let file = names::file_name(path);
    // A rename may work even if the directory cannot be listed.
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
        // One too many is not an error.
        let _ = disk.remove(&names::aside(path, *oldest));
    }
    Ok(moved)
}
