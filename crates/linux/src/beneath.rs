//! Files in directories that a hostile pod may write to.
//!
//! A pod with a volume on `/var/log` can replace a log, its directory and the pod's directory by anything: a link to a file of the node, a
//! FIFO that blocks its reader. Everything opened here is resolved from a descriptor without following links, and is a regular file. The
//! path above the pod's directory belongs to the administrator and may have links.
//!
//! ```text
//! /var/log/pods / ns_pod_uid / container / 0.log
//! '- by path --'  '----------- no link ---------'
//! ```

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path},
};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat2};

/// How many trailing components of a path must not be links: the pod's directory, the container's, and the file.
const GUARDED: usize = 3;

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A directory that was reached without following a link in its last two components.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
}

/// Opens a regular file for reading.
///
/// # Errors
///
/// Also if it, its directory or the directory above that is a link, or if it is not a regular file.
pub fn read(path: &Path) -> io::Result<File> {
    let (directory, name) = parent(path)?;
    Directory::open(directory)?.read(name)
}

/// Opens a regular file for appending. Creates it, with its directories, if it is missing.
///
/// # Errors
///
/// As for [`read`].
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    let (directory, name) = parent(path)?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    Directory::make(directory)?.file(name, flags, Mode::from_raw_mode(mode))
}

fn parent(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let whole = path.parent().zip(path.file_name());
    whole.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))
}

/// The part of a directory's path that belongs to the administrator, and the rest.
fn split(directory: &Path) -> (&Path, &Path) {
    let guarded = directory.components().rev().take(GUARDED - 1);
    let guarded = guarded.take_while(|part| matches!(part, Component::Normal(_))).count();
    let trusted = directory.ancestors().nth(guarded).unwrap_or(Path::new("."));
    let trusted = if trusted.as_os_str().is_empty() { Path::new(".") } else { trusted };
    let rest = directory.strip_prefix(trusted).unwrap_or(directory);
    (trusted, if rest.as_os_str().is_empty() { Path::new(".") } else { rest })
}

// === impl Directory ===

impl Directory {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// Also if one of its last two components is a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (trusted, rest) = split(path);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let trusted = rustix::fs::openat(CWD, trusted, flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { descriptor: openat2(&trusted, rest, flags, Mode::empty(), RESOLVE)? })
    }

    /// Opens a directory and creates missing components, readable for all.
    ///
    /// # Errors
    ///
    /// As for [`Directory::open`].
    pub fn make(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let (trusted, rest) = split(path);
        std::fs::create_dir_all(trusted)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(CWD, trusted, flags, Mode::empty())?;
        for name in rest.components() {
            match mkdirat(&at, name.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            at = openat2(&at, name.as_os_str(), flags, Mode::empty(), RESOLVE)?;
        }
        Self::open(path)
    }

    /// Opens one of its regular files for reading.
    ///
    /// # Errors
    ///
    /// Also if it is not a regular file.
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.file(name.as_ref(), OFlags::RDONLY, Mode::empty())
    }

    /// Creates or truncates a regular file for writing. A link in its place is an error.
    ///
    /// # Errors
    ///
    /// As for [`Directory::read`].
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        self.file(name.as_ref(), flags, Mode::from_raw_mode(mode))
    }

    fn file(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<File> {
        // Non-blocking: opening a FIFO without a reader fails, and one without a writer does not wait.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let descriptor = openat2(&self.descriptor, name, flags, mode, RESOLVE)?;
        match FileType::from_raw_mode(fstat(&descriptor)?.st_mode) {
            FileType::RegularFile => Ok(File::from(descriptor)),
            other => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a regular file but a {other:?}"))),
        }
    }

    /// The metadata of a file, without following a link.
    ///
    /// # Errors
    ///
    /// If it is missing.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.descriptor, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The names in it that are UTF-8, unordered.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.descriptor.as_fd())? {
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Renames one of its files.
    ///
    /// # Errors
    ///
    /// As for rename(2).
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.descriptor, from, &self.descriptor, to)?)
    }

    /// Removes one of its files.
    ///
    /// # Errors
    ///
    /// As for unlink(2).
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read, Write},
        os::unix::fs::symlink,
        sync::mpsc,
        time::Duration,
    };

    use super::*;

    /// What a pod may have put in the place of a log.
    const HOSTILE: [&str; 6] =
        ["link to a file", "dangling link", "FIFO", "directory", "linked directory", "linked pod"];

    fn put(what: &str, pods: &Path, outside: &Path) {
        let (pod, container, log) = (pods.join("pod"), pods.join("pod/main"), pods.join("pod/main/0.log"));
        let made = |path: &Path| fs::create_dir_all(path).unwrap();
        fs::write(outside.join("0.log"), "of the node").unwrap();
        match what {
            "linked pod" => symlink(outside, &pod).unwrap(),
            "linked directory" => {
                made(&pod);
                symlink(outside, &container).unwrap();
            }
            _ => made(&container),
        }
        match what {
            "linked pod" => {
                made(&outside.join("main"));
                fs::write(outside.join("main/0.log"), "of the node").unwrap();
            }
            "linked directory" => {}
            "link to a file" => symlink(outside.join("0.log"), &log).unwrap(),
            "dangling link" => symlink(outside.join("new"), &log).unwrap(),
            "directory" => made(&log),
            "FIFO" => rustix::fs::mknodat(CWD, &log, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap(),
            other => panic!("{other}"),
        }
    }

    /// Every regular file below a directory, with what it holds.
    fn contents(directory: &Path) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => found.extend(contents(&entry.path())),
                false => found.push((entry.path().display().to_string(), fs::read_to_string(entry.path()).unwrap())),
            }
        }
        found.sort();
        found
    }

    /// Runs work that may block for ever on a thread of its own.
    fn returns<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, wait) = mpsc::sync_channel(1);
        std::thread::spawn(move || done.send(work()));
        wait.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what}: blocks"))
    }

    /// LOG-1
    #[test]
    fn nothing_that_a_pod_puts_there_leads_out_or_blocks() {
        for what in HOSTILE {
            let place = tempfile::tempdir().unwrap();
            let (pods, outside) = (place.path().join("pods"), place.path().join("outside"));
            fs::create_dir_all(&pods).unwrap();
            fs::create_dir_all(&outside).unwrap();
            put(what, &pods, &outside);
            let before = contents(&outside);
            let log = pods.join("pod/main/0.log");
            let opened = returns(what, {
                let log = log.clone();
                move || (read(&log).err().map(|error| error.to_string()), append(&log, 0o640).is_ok())
            });
            assert!(opened.0.is_some(), "{what}: was read");
            assert!(!opened.1, "{what}: was opened for writing");
            assert_eq!(contents(&outside), before, "{what}: changed the node");
        }
    }

    /// LOG-1
    #[test]
    fn a_fifo_that_a_process_reads_is_not_written_to() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("pod/main/0.log");
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        rustix::fs::mknodat(CWD, &log, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let _reader =
            rustix::fs::open(&log, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let error = append(&log, 0o640).expect_err("a FIFO");
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    #[test]
    fn a_log_is_created_with_its_directories_and_the_path_to_them_may_have_links() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("disk")).unwrap();
        symlink("disk", place.path().join("log")).unwrap();
        let log = place.path().join("log/pods/pod/main/0.log");
        append(&log, 0o640).unwrap().write_all(b"one\n").unwrap();
        append(&log, 0o640).unwrap().write_all(b"two\n").unwrap();
        let mut text = String::new();
        read(&log).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
        assert!(place.path().join("disk/pods/pod/main/0.log").exists());
    }

    #[test]
    fn a_directory_is_used_by_its_descriptor() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pod/main");
        fs::create_dir_all(&path).unwrap();
        let directory = Directory::open(&path).unwrap();
        // The path leads elsewhere from now on; the descriptor does not.
        fs::rename(&path, place.path().join("pod/kept")).unwrap();
        symlink("/nonexistent", &path).unwrap();
        directory.create("0.log.tmp", 0o600).unwrap().write_all(b"x").unwrap();
        directory.rename("0.log.tmp", "0.log").unwrap();
        assert_eq!(directory.names().unwrap(), ["0.log"]);
        assert_eq!(directory.stat("0.log").unwrap().st_size, 1);
        assert_eq!(fs::read_to_string(place.path().join("pod/kept/0.log")).unwrap(), "x");
        directory.remove("0.log").unwrap();
        assert!(directory.read("0.log").is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
        for outside in ["../escape", "/etc/passwd"] {
            assert!(directory.create(outside, 0o600).is_err(), "{outside}");
        }
    }

    #[test]
    fn the_last_two_components_of_a_directory_are_guarded() {
        let cases = [
            ("/var/log/pods/a/main", "/var/log/pods", "a/main"),
            ("/tmp/x", "/", "tmp/x"),
            ("/tmp", "/", "tmp"),
            ("/", "/", "."),
            ("x", ".", "x"),
            ("a/b/c", "a", "b/c"),
        ];
        for (directory, trusted, rest) in cases {
            assert_eq!(split(Path::new(directory)), (Path::new(trusted), Path::new(rest)), "{directory}");
        }
    }
}
