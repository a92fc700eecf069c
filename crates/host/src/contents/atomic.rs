//! Writing the files of a volume so that readers see all of the old ones or all of the new ones.
//!
//! ```text
//! volume/..2026_11_16_08_30_00.123456789/dir/file    the files
//! volume/..data -> ..2026_11_16_08_30_00.123456789   replaced in one step
//! volume/dir -> ..data/dir                           what containers open
//! ```
//!
//! This is the kubelet's scheme, which programs that watch their configuration know. Whatever an agent that died in
//! between left behind, the next writing puts right.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

use super::{
    DATA,
    payload::{File, Payload},
};

/// The link before it replaces the one in use.
const NEW_DATA: &str = "..data_tmp";
const DIR_MODE: u32 = 0o755;
/// What the group of the volume may do with its files: read them. Others write nothing here.
const GROUP_FILE: u32 = 0o440;
/// The same for directories; what is made in them belongs to the group as well.
const GROUP_DIR: u32 = 0o2550;

/// Whether anything was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    Yes,
    No,
}

/// Brings a volume to what it should hold. `group` gets to read it.
pub(super) fn write(volume: &Path, payload: &Payload, group: Option<u32>) -> io::Result<Changed> {
    let link = volume.join(DATA);
    let current = match fs::read_link(&link) {
        Ok(name) => Some(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(name) = &current
        && holds(&volume.join(name), payload, group).unwrap_or(false)
    {
        show(volume, payload)?;
        return Ok(Changed::No);
    }
    let name = make_directory(volume)?;
    let directory = volume.join(&name);
    fill(&directory, payload, group)?;
    let new = volume.join(NEW_DATA);
    remove_if_there(&new)?;
    symlink(&name, &new)?;
    fs::rename(&new, &link)?;
    show(volume, payload)?;
    clear(volume, payload, &name)?;
    Ok(Changed::Yes)
}

/// A directory of a name that was not there before: readers recognise by it that something is new.
fn make_directory(volume: &Path) -> io::Result<OsString> {
    loop {
        let name = OsString::from(stamp());
        match DirBuilder::new().mode(DIR_MODE).create(volume.join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| name),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a name that was not used yet, for people to read; nothing is decided by it"
)]
fn stamp() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = jiff::Timestamp::new(now.as_secs().cast_signed(), now.subsec_nanos().cast_signed()).unwrap_or_default();
    now.strftime("..%Y_%m_%d_%H_%M_%S.%9f").to_string()
}

fn fill(directory: &Path, payload: &Payload, group: Option<u32>) -> io::Result<()> {
    own(directory, DIR_MODE, group, GROUP_DIR)?;
    for (path, File { bytes, mode, owner }) in payload {
        let above: Vec<_> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
        for above in above.into_iter().rev() {
            let above = directory.join(above);
            match DirBuilder::new().mode(DIR_MODE).create(&above) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made?;
                    own(&above, DIR_MODE, group, GROUP_DIR)?;
                }
            }
        }
        let path = directory.join(path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(bytes)?;
        if owner.is_some() {
            chown(&path, *owner, None)?;
        }
        own(&path, *mode, group, GROUP_FILE)?;
    }
    Ok(())
}

/// Sets owner and mode, whatever the process's own mask says.
fn own(path: &Path, mode: u32, group: Option<u32>, of_group: u32) -> io::Result<()> {
    if group.is_some() {
        chown(path, None, group)?;
    }
    fs::set_permissions(path, Permissions::from_mode(with_group(mode, group, of_group)))
}

fn with_group(mode: u32, group: Option<u32>, of_group: u32) -> u32 {
    if group.is_some() { mode | of_group } else { mode }
}

/// Whether a directory holds exactly this.
fn holds(directory: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let found = files(directory)?;
    if !found.keys().eq(payload.keys()) {
        return Ok(false);
    }
    for (path, File { bytes, mode, owner }) in payload {
        let metadata = &found[path];
        let same = metadata.permissions().mode() & 0o7777 == with_group(*mode, group, GROUP_FILE)
            && group.is_none_or(|group| metadata.gid() == group)
            && owner.is_none_or(|owner| metadata.uid() == owner)
            && metadata.len() == bytes.len() as u64
            && fs::read(directory.join(path))? == *bytes;
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// All files below a directory, by their path in it.
fn files(directory: &Path) -> io::Result<BTreeMap<PathBuf, fs::Metadata>> {
    let mut found = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        for entry in fs::read_dir(directory.join(&inner))? {
            let entry = entry?;
            let (path, metadata) = (inner.join(entry.file_name()), entry.metadata()?);
            if metadata.is_dir() {
                open.push(path);
            } else {
                found.insert(path, metadata);
            }
        }
    }
    Ok(found)
}

/// The names that containers open.
fn visible(payload: &Payload) -> BTreeSet<OsString> {
    payload.keys().filter_map(|path| path.components().next()).map(|first| first.as_os_str().to_owned()).collect()
}

fn show(volume: &Path, payload: &Payload) -> io::Result<()> {
    for name in visible(payload) {
        match symlink(Path::new(DATA).join(&name), volume.join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    Ok(())
}

/// Removes names of what is gone, and earlier directories. No reader sees those any more.
fn clear(volume: &Path, payload: &Payload, current: &OsString) -> io::Result<()> {
    let visible = visible(payload);
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == DATA || name == *current || visible.contains(&name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str, u32)]) -> Payload {
        let file = |text: &str, mode| File { bytes: text.as_bytes().to_vec(), mode, owner: None };
        files.iter().map(|(path, text, mode)| (path.into(), file(text, *mode))).collect()
    }

    fn names(volume: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(volume).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.retain(|name| !name.starts_with("..2"));
        names
    }

    fn generations(volume: &Path) -> usize {
        fs::read_dir(volume).unwrap().filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir()).count()
    }

    #[test]
    fn all_files_change_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path();
        let old = payload(&[("a", "1", 0o644), ("d/b", "2", 0o400), ("gone", "", 0o644)]);
        assert_eq!(write(volume, &old, None).unwrap(), Changed::Yes);
        assert_eq!(names(volume), ["..data", "a", "d", "gone"]);
        assert_eq!(fs::read_link(volume.join("d")).unwrap(), Path::new("..data/d"));
        assert_eq!(format!("{:o}", fs::metadata(volume.join("d/b")).unwrap().permissions().mode() & 0o7777), "400");
        let before = fs::read_link(volume.join(DATA)).unwrap();
        assert_eq!(write(volume, &old, None).unwrap(), Changed::No);
        assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), before);
        // As a process that reads the old ones at this moment has it.
        let open = fs::File::open(volume.join("a")).unwrap();
        let new = payload(&[("a", "one", 0o644), ("d/c", "3", 0o644)]);
        assert_eq!(write(volume, &new, None).unwrap(), Changed::Yes);
        assert_ne!(fs::read_link(volume.join(DATA)).unwrap(), before);
        assert_eq!(names(volume), ["..data", "a", "d"]);
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "one");
        assert!(!volume.join("d/b").exists() && volume.join("d/c").exists());
        assert_eq!(io::read_to_string(open).unwrap(), "1");
        assert_eq!(generations(volume), 1);
    }

    #[test]
    fn a_change_of_the_mode_alone_is_a_change() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &payload(&[("a", "1", 0o644)]), None).unwrap();
        assert_eq!(write(directory.path(), &payload(&[("a", "1", 0o600)]), None).unwrap(), Changed::Yes);
        assert_eq!(
            format!("{:o}", fs::metadata(directory.path().join("a")).unwrap().permissions().mode() & 0o7777),
            "600"
        );
    }

    /// An agent that died while it wrote leaves a directory without a link, a new link, or names that are missing.
    #[test]
    fn what_a_dead_agent_left_is_put_right() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path();
        let wanted = payload(&[("a", "1", 0o644)]);
        write(volume, &wanted, None).unwrap();
        fs::create_dir(volume.join("..half")).unwrap();
        symlink("..half", volume.join(NEW_DATA)).unwrap();
        fs::remove_file(volume.join("a")).unwrap();
        assert_eq!(write(volume, &wanted, None).unwrap(), Changed::No);
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "1");
        write(volume, &payload(&[("a", "2", 0o644)]), None).unwrap();
        assert_eq!((names(volume), generations(volume)), (vec!["..data".to_owned(), "a".to_owned()], 1));
    }

    #[test]
    fn nothing_is_content_too() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(write(directory.path(), &Payload::new(), None).unwrap(), Changed::Yes);
        assert_eq!(write(directory.path(), &Payload::new(), None).unwrap(), Changed::No);
        assert_eq!(names(directory.path()), ["..data"]);
    }

    #[test]
    fn the_group_of_the_pod_may_read() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path();
        // A group that this process may give things to, whichever user runs the test.
        let group = fs::metadata(volume).unwrap().gid();
        let wanted = payload(&[("d/a", "1", 0o400)]);
        write(volume, &wanted, Some(group)).unwrap();
        assert_eq!(write(volume, &wanted, Some(group)).unwrap(), Changed::No);
        let mode = |path: &str| fs::metadata(volume.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("d/a"), mode("d")), (0o440, 0o2755));
    }
}
