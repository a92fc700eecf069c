//! The user and group IDs of `name:group` inside an image, read from its own files without leaving it.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{At, Error, UserFault};
use crate::tree::open_directory;

/// A user of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// user ID
    pub uid: u32,
    /// primary group
    pub gid: u32,
    /// further groups, in order, each once
    pub groups: Vec<u32>,
    /// home directory, `/` for a user that the image does not know
    pub home: String,
    /// login name, if the image has one for the user
    pub name: Option<String>,
}

struct Account {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

/// Larger files are not lists of users.
const LARGEST_FILE: u64 = 8 * 1024 * 1024;
/// The kernel may return EAGAIN while other processes rename files; the limit stops a hostile loop of renames.
const TRIES: usize = 128;

/// Resolves ``, `1000`, `name`, `1000:1000` or `name:group`. Numeric IDs need not be known to the image, names must
/// be. An explicit group is the only one; otherwise the supplementary groups are those that list the name.
pub fn resolve_user(rootfs: &Path, spec: &str) -> Result<User, Error> {
    let wrong = |reason| Error::User { spec: spec.to_owned(), reason };
    let (user, group) = match spec.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (spec, None),
    };
    let accounts = parse_accounts(&read_in_root(rootfs, "etc/passwd")?);
    let groups = parse_groups(&read_in_root(rootfs, "etc/group")?);
    let number = if user.is_empty() { Some(0) } else { parse_id(user) };
    let account = accounts.iter().find(|account| number.map_or(account.name == user, |uid| account.uid == uid));
    let mut found = match (account, number) {
        (Some(account), _) => User {
            uid: account.uid,
            gid: account.gid,
            groups: Vec::new(),
            home: if account.home.is_empty() { "/".to_owned() } else { account.home.clone() },
            name: Some(account.name.clone()),
        },
        (None, Some(uid)) => User { uid, gid: 0, groups: Vec::new(), home: "/".to_owned(), name: None },
        (None, None) if looks_numeric(user) => {
            return Err(wrong(UserFault::UserId(user.to_owned())));
        }
        (None, None) => return Err(wrong(UserFault::UserName(user.to_owned()))),
    };
    match group {
        Some(group) => found.gid = resolve_group(&groups, group).map_err(wrong)?,
        None => found.groups = groups_listing(&groups, found.name.as_deref()),
    }
    Ok(found)
}

/// The groups of the image that list the user with this ID.
pub fn groups_of(rootfs: &Path, uid: u32) -> Result<Vec<u32>, Error> {
    let accounts = parse_accounts(&read_in_root(rootfs, "etc/passwd")?);
    let name = accounts.iter().find(|account| account.uid == uid).map(|account| account.name.as_str());
    if name.is_none() {
        return Ok(Vec::new());
    }
    Ok(groups_listing(&parse_groups(&read_in_root(rootfs, "etc/group")?), name))
}

fn resolve_group(groups: &[Group], wanted: &str) -> Result<u32, UserFault> {
    if let Some(gid) = parse_id(wanted) {
        return Ok(gid);
    }
    if looks_numeric(wanted) {
        return Err(UserFault::GroupId(wanted.to_owned()));
    }
    let found = groups.iter().find(|group| group.name == wanted);
    found.map(|group| group.gid).ok_or_else(|| UserFault::GroupName(wanted.to_owned()))
}

fn groups_listing(groups: &[Group], name: Option<&str>) -> Vec<u32> {
    let Some(name) = name else { return Vec::new() };
    let mut listing: Vec<u32> = Vec::new();
    for group in groups.iter().filter(|group| group.members.iter().any(|member| member == name)) {
        if !listing.contains(&group.gid) {
            listing.push(group.gid);
        }
    }
    listing
}

fn looks_numeric(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// An ID that the kernel takes: the largest number means "no change" to it.
fn parse_id(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| is_plain && *id != u32::MAX)
}

/// Lines that are not accounts are left out, as the C library does.
fn parse_accounts(content: &str) -> Vec<Account> {
    let parse = |line: &str| {
        let mut fields = line.trim().split(':');
        let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?.to_owned();
        let _password = fields.next()?;
        let uid = parse_id(fields.next()?)?;
        let gid = parse_id(fields.next()?)?;
        let _comment = fields.next();
        Some(Account { name, uid, gid, home: fields.next().unwrap_or_default().to_owned() })
    };
    content.lines().filter_map(parse).collect()
}

fn parse_groups(content: &str) -> Vec<Group> {
    let parse = |line: &str| {
        let mut fields = line.trim().split(':');
        let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?.to_owned();
        let _password = fields.next()?;
        let gid = parse_id(fields.next()?)?;
        let members = fields.next().unwrap_or_default().split(',').map(|member| member.trim().to_owned());
        Some(Group { name, gid, members: members.collect() })
    };
    content.lines().filter_map(parse).collect()
}

/// Reads a file as a process with this root would. One that is not there is empty.
fn read_in_root(rootfs: &Path, name: &'static str) -> Result<String, Error> {
    let path = rootfs.join(name);
    let root = open_directory(rootfs).at("open", rootfs)?;
    // The image decides what kind of file this is, and to open a device is to use it: a watchdog begins to count. Hence it is only
    // found here, and opened when it is known to be a file.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    let found = loop {
        tries += 1;
        match rustix::fs::openat2(&root, name, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => {}
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(String::new()),
            opened => break opened.at("open", &path)?,
        }
    };
    let stat = rustix::fs::fstat(&found).at("stat", &path)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::Damaged { path, reason: "not a regular file".into() });
    }
    let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).at("open", &path)?;
    let mut content = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut content).at("read", &path)?;
    if content.len() as u64 > LARGEST_FILE {
        return Err(Error::Damaged { path, reason: format!("larger than {LARGEST_FILE} bytes") });
    }
    Ok(String::from_utf8_lossy(&content).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn image() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        let passwd = "root:x:0:0:root:/root:/bin/sh\n# comment\nbroken\napp:x:1000:1001::/home/app:/bin/sh\nbad:x:-1:0::/:\nnohome:x:5:6\n";
        fs::write(root.path().join("etc/passwd"), passwd).unwrap();
        let group = "root:x:0:root\nwheel:x:10:root,app\nweb:x:33:app\nagain:x:33:app\nempty:x:44:\n";
        fs::write(root.path().join("etc/group"), group).unwrap();
        root
    }

    fn user(uid: u32, gid: u32, groups: &[u32], home: &str, name: Option<&str>) -> User {
        User { uid, gid, groups: groups.to_vec(), home: home.into(), name: name.map(str::to_owned) }
    }

    #[test]
    fn users_are_found_by_name_and_number_with_their_groups() {
        let root = image();
        for (spec, expected) in [
            ("", user(0, 0, &[0, 10], "/root", Some("root"))),
            ("0", user(0, 0, &[0, 10], "/root", Some("root"))),
            ("app", user(1000, 1001, &[10, 33], "/home/app", Some("app"))),
            ("1000", user(1000, 1001, &[10, 33], "/home/app", Some("app"))),
            ("app:", user(1000, 1001, &[10, 33], "/home/app", Some("app"))),
            ("app:web", user(1000, 33, &[], "/home/app", Some("app"))),
            ("1000:7", user(1000, 7, &[], "/home/app", Some("app"))),
            ("4242", user(4242, 0, &[], "/", None)),
            ("4242:web", user(4242, 33, &[], "/", None)),
            (":web", user(0, 33, &[], "/root", Some("root"))),
            ("nohome", user(5, 6, &[], "/", Some("nohome"))),
        ] {
            assert_eq!(resolve_user(root.path(), spec).unwrap(), expected, "{spec:?}");
        }
        assert_eq!(groups_of(root.path(), 1000).unwrap(), [10, 33]);
        assert_eq!(groups_of(root.path(), 4242).unwrap(), [0u32; 0]);
    }

    #[test]
    fn unknown_names_and_impossible_numbers_are_refused_by_name() {
        let root = image();
        for (spec, part) in [
            ("nobody", "no user \"nobody\""),
            ("app:nogroup", "no group \"nogroup\""),
            ("-1", "not a valid user ID"),
            ("4294967295", "not a valid user ID"),
            ("bad", "no user"),
            ("0:99999999999", "not a valid group ID"),
        ] {
            let error = resolve_user(root.path(), spec).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(&format!("{spec:?}")), "{error}");
        }
    }

    #[test]
    fn an_image_without_files_knows_numbers_only() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(resolve_user(root.path(), "").unwrap(), user(0, 0, &[], "/", None));
        assert_eq!(resolve_user(root.path(), "7:8").unwrap(), user(7, 8, &[], "/", None));
        assert!(resolve_user(root.path(), "root").is_err());
    }

    #[test]
    fn links_are_followed_inside_the_image_only() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("passwd"), "evil:x:666:0::/:\n").unwrap();
        let root = image();
        let passwd = root.path().join("etc/passwd");
        fs::rename(&passwd, root.path().join("real")).unwrap();
        symlink("/real", &passwd).unwrap();
        assert_eq!(resolve_user(root.path(), "app").unwrap().uid, 1000);
        fs::remove_file(&passwd).unwrap();
        symlink(outside.path().join("passwd"), &passwd).unwrap();
        assert!(resolve_user(root.path(), "evil").is_err());
        fs::remove_file(&passwd).unwrap();
        symlink("../../../../../../../../../../etc/passwd", &passwd).unwrap();
        assert!(resolve_user(root.path(), "daemon").is_err());
    }

    /// No driver has these device numbers, so opening the device fails.
    const NOBODYS_DEVICE: (u32, u32) = (4000, 1);

    #[test]
    fn special_files_are_refused_without_being_opened() {
        if !rustix::process::geteuid().is_root() {
            return keelet_report::skipped("making devices needs root");
        }
        let device = rustix::fs::makedev(NOBODYS_DEVICE.0, NOBODYS_DEVICE.1);
        for (kind, name) in [(FileType::Fifo, "etc/passwd"), (FileType::CharacterDevice, "etc/group")] {
            let root = image();
            let path = root.path().join(name);
            fs::remove_file(&path).unwrap();
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, Mode::from_raw_mode(0o600), device).unwrap();
            assert!(kind == FileType::Fifo || File::open(&path).is_err(), "the device was opened");
            let error = resolve_user(root.path(), "app").unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("not a regular file"), "{error}");
        }
    }
}
