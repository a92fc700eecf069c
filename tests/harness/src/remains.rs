//! Resources that pods could leave behind on a machine: mounts, processes, cgroups, interfaces, addresses.

use std::{collections::BTreeSet, fs, path::Path};

use crate::processes;

/// The existing resources, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    mounts: BTreeSet<String>,
    processes: BTreeSet<(u32, String)>,
    cgroups: BTreeSet<String>,
    interfaces: BTreeSet<String>,
    addresses: BTreeSet<String>,
}

/// The cgroup that all others of the embedded runtime are in. It stays.
const PARENT: &str = "/keelet";

// === impl Remains ===

impl Remains {
    /// The resources that exist now.
    pub fn now() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let mounts = read("/proc/self/mountinfo");
        let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect();
        let interfaces = read("/proc/net/dev");
        let interfaces =
            interfaces.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned());
        let addresses = read("/proc/net/fib_trie");
        let addresses =
            addresses.lines().filter_map(|line| line.trim().strip_prefix("|-- ")).map(str::to_owned).collect();
        let mut cgroups = BTreeSet::new();
        collect(Path::new("/sys/fs/cgroup"), &mut cgroups);
        Self {
            mounts,
            processes: processes::all().into_iter().map(|process| (process.pid, process.command)).collect(),
            cgroups,
            interfaces: interfaces.collect(),
            addresses,
        }
    }

    /// The resources in this list that are not in the other.
    pub(crate) fn without(&self, other: &Self) -> Self {
        Self {
            mounts: &self.mounts - &other.mounts,
            processes: &self.processes - &other.processes,
            cgroups: &self.cgroups - &other.cgroups,
            interfaces: &self.interfaces - &other.interfaces,
            addresses: &self.addresses - &other.addresses,
        }
    }

    pub(crate) fn without_process(mut self, pid: Option<u32>) -> Self {
        self.processes.retain(|(number, _)| Some(*number) != pid);
        self
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().map(|(pid, _)| *pid)
    }

    pub(crate) fn mounts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.mounts.iter().map(String::as_str)
    }

    pub(crate) fn cgroups(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.cgroups.iter().map(String::as_str)
    }

    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

fn collect(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let path = entry.path();
            let text = path.display().to_string();
            if !text.ends_with(PARENT) {
                found.insert(text);
            }
            collect(&path, found);
        }
    }
}
