//! Device rules on a real cgroup.

use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use keelet_linux::device_filter::attach;
use oci_spec::runtime::LinuxDeviceCgroup;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::{Case, Shown, is_root, needs_root, output_of};

pub(crate) const CASES: &[Case] = &[("device_rules_are_enforced_and_replaced", device_rules_are_enforced_and_replaced)];

/// Arguments: the cgroup to join, or `-`, and a directory for device nodes.
pub(crate) fn play(role: &str, args: &[String]) -> bool {
    let ("devices", [cgroup, directory]) = (role, args) else { return false };
    if cgroup != "-" {
        fs::write(Path::new(cgroup).join("cgroup.procs"), process::id().to_string()).unwrap();
    }
    for (device, read, write) in [
        ("null", true, true),
        ("null", true, false),
        ("zero", true, false),
        ("zero", true, true),
        ("full", true, false),
    ] {
        let result = OpenOptions::new().read(read).write(write).open(Path::new("/dev").join(device)).map(drop);
        println!("{device} {}{}: {}", if read { "r" } else { "" }, if write { "w" } else { "" }, outcome(result));
    }
    for (name, kind, major, minor) in
        [("random", FileType::CharacterDevice, 1, 8), ("disk", FileType::BlockDevice, 8, 0)]
    {
        let path = Path::new(directory).join(name);
        let result = mknodat(CWD, &path, kind, Mode::RUSR, makedev(major, minor)).map_err(io::Error::from);
        println!("make {name}: {}", outcome(result));
    }
    true
}

fn outcome(result: io::Result<()>) -> String {
    match result {
        Ok(()) => "yes".to_owned(),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => "no".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn device_rules_are_enforced_and_replaced() -> Shown {
    if !is_root() {
        return needs_root();
    }
    let Some(root) = cgroup2() else { return Shown::Skipped("no cgroup2 is mounted".to_owned()) };
    let cgroup = match TestCgroup::new(&root) {
        Ok(cgroup) => cgroup,
        Err(error) => return Shown::Skipped(format!("cannot create a cgroup in {}: {error}", root.display())),
    };
    let free = attempts(None);
    assert!(free.lines().all(|line| line.ends_with(": yes")), "this machine denies devices without any rule:\n{free}");

    let first = r#"[
        { "allow": false, "access": "rwm" },
        { "allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw" },
        { "allow": true, "type": "c", "major": 1, "minor": 5, "access": "r" },
        { "allow": true, "type": "c", "access": "m" }
    ]"#;
    attach(&cgroup.0, &rules(first)).unwrap();
    let expected = "null rw: yes\nnull r: yes\nzero r: yes\nzero rw: no\nfull r: no\nmake random: yes\nmake disk: no\n";
    assert_eq!(attempts(Some(&cgroup.0)), expected);

    // If the old program were still attached, both would have to allow an access, and hardly any would be allowed.
    let second = r#"[
        { "allow": true, "access": "rwm" },
        { "allow": false, "type": "c", "major": 1, "minor": 3, "access": "w" },
        { "allow": false, "type": "c", "major": -1, "minor": -1, "access": "m" }
    ]"#;
    attach(&cgroup.0, &rules(second)).unwrap();
    let expected =
        "null rw: no\nnull r: yes\nzero r: yes\nzero rw: yes\nfull r: yes\nmake random: no\nmake disk: yes\n";
    assert_eq!(attempts(Some(&cgroup.0)), expected);

    attach(&cgroup.0, &[]).unwrap();
    let nothing = attempts(Some(&cgroup.0));
    assert!(nothing.lines().all(|line| line.ends_with(": no")), "{nothing}");

    let many: Vec<LinuxDeviceCgroup> = rules(first).into_iter().cycle().take(400).collect();
    attach(&cgroup.0, &many).unwrap();
    assert!(attempts(Some(&cgroup.0)).starts_with("null rw: yes\n"), "a long list is accepted");

    let invalid = rules(r#"[{ "allow": true, "type": "c", "access": "x" }]"#);
    assert!(attach(&cgroup.0, &invalid).unwrap_err().to_string().contains("devices[0]"));
    assert!(attempts(Some(&cgroup.0)).starts_with("null rw: yes\n"), "an invalid rule leaves the old rules in place");
    Shown::Yes
}

fn attempts(cgroup: Option<&Path>) -> String {
    let directory = tempfile::tempdir().unwrap();
    let cgroup = cgroup.map_or("-".into(), Path::to_string_lossy);
    output_of("devices", &[&cgroup, &directory.path().to_string_lossy()])
}

fn rules(json: &str) -> Vec<LinuxDeviceCgroup> {
    serde_json::from_str(json).unwrap()
}

/// Where the v2 hierarchy is mounted, alone or beside v1.
fn cgroup2() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        source.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

struct TestCgroup(PathBuf);

impl TestCgroup {
    fn new(root: &Path) -> io::Result<Self> {
        let path = root.join(format!("keelet-test-{}", process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
