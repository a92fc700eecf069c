//! Directories that no other user can change: neither what is in them nor what their names lead to.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// In a directory with this bit a file can be renamed or removed by its owner only.
const STICKY: u32 = 0o1000;

/// The real path of a directory, if no user but this one and root can change what is in it or replace it. That is so if every directory
/// on the way belongs to one of the two and is not writable by others. Above the directory itself a sticky bit is enough, as
/// `/tmp` has it. Below a directory that others cannot enter nothing else has to be checked.
///
/// # Errors
///
/// When there is no such directory, or its state cannot be read.
pub fn private_directory(path: &Path) -> io::Result<Option<PathBuf>> {
    let real = fs::canonicalize(path)?;
    let own = rustix::process::geteuid().as_raw();
    let mut down: Vec<&Path> = real.ancestors().collect();
    down.reverse();
    for dir in down {
        let found = fs::symlink_metadata(dir)?;
        let sticky = found.mode() & STICKY != 0 && dir != real;
        if !found.is_dir() || ![0, own].contains(&found.uid()) || found.mode() & 0o022 != 0 && !sticky {
            return Ok(None);
        }
        if found.mode() & 0o077 == 0 {
            break;
        }
    }
    Ok(Some(real))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, chown, symlink},
    };

    use super::*;

    /// DIR-10
    #[test]
    fn a_directory_is_private_if_no_other_user_can_change_or_replace_it() {
        let place = tempfile::tempdir().expect("a directory");
        let top = place.path().canonicalize().expect("a path");
        fs::create_dir_all(top.join("a/b")).expect("made");
        let mode =
            |path: &str, mode| fs::set_permissions(top.join(path), Permissions::from_mode(mode)).expect("a mode");
        let is_private = || private_directory(&top.join("a/b")).expect("there").is_some();
        for (of_top, of_a, of_b, expected) in [
            (0o755, 0o755, 0o755, true),
            (0o755, 0o755, 0o775, false),
            (0o755, 0o755, 0o757, false),
            (0o755, 0o755, 0o1777, false),
            (0o755, 0o777, 0o755, false),
            (0o755, 0o1777, 0o755, true),
            (0o1777, 0o755, 0o755, true),
            (0o777, 0o755, 0o755, false),
            (0o700, 0o777, 0o777, true),
        ] {
            for (path, bits) in [("", of_top), ("a", of_a), ("a/b", of_b)] {
                mode(path, bits);
            }
            assert_eq!(is_private(), expected, "{of_top:o} {of_a:o} {of_b:o}");
        }
        mode("", 0o755);
        mode("a", 0o755);
        mode("a/b", 0o755);
        symlink("a", top.join("link")).expect("a link");
        assert_eq!(private_directory(&top.join("link/b")).expect("there"), Some(top.join("a/b")), "by its real path");
        fs::write(top.join("file"), "").expect("written");
        assert_eq!(private_directory(&top.join("file")).expect("there"), None, "a file");
        private_directory(&top.join("nowhere")).expect_err("not there");
    }

    /// DIR-10
    #[test]
    fn a_directory_of_another_user_is_not_private() {
        if !rustix::process::geteuid().is_root() {
            keelet_report::skipped("files of another user need root");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("a mode");
        let below = place.path().join("a/b");
        fs::create_dir_all(&below).expect("made");
        assert!(private_directory(&below).expect("there").is_some());
        for other in ["a/b", "a"] {
            chown(place.path().join(other), Some(65534), None).expect("given away");
            assert_eq!(private_directory(&below).expect("there"), None, "{other}");
            chown(place.path().join(other), Some(0), None).expect("taken back");
        }
    }
}
