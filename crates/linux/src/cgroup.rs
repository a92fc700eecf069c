//! Cgroups of both versions: finding, joining, reading and removing them.
//!
//! libcontainer creates a container's cgroups and sets their limits; all that follows is done here.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

mod kill;

/// Where cgroups are mounted on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mounts {
    /// cgroup v1: one hierarchy per controller, by the controller's name.
    V1(BTreeMap<String, PathBuf>),
    /// cgroup v2: one hierarchy for all controllers.
    V2(PathBuf),
}

/// The v1 controllers that libcontainer knows: every container has a cgroup in each.
pub const CONTROLLERS: [&str; 12] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
];

/// How long killed processes may take to disappear: the kernel closes their files and frees their memory first.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
const REMOVAL_RETRY: Duration = Duration::from_millis(10);
/// In `cgroup.procs`: the process that writes it.
pub const SELF: i32 = 0;
/// The name here of the v2 hierarchy where it is mounted beside v1.
const UNIFIED: &str = "unified";
/// Where systemd and every distribution mount them.
const ROOT: &str = "/sys/fs/cgroup";

// === impl Mounts ===

impl Mounts {
    /// Finds the mounts of this node.
    pub fn find() -> io::Result<Self> {
        Self::parse(&fs::read_to_string("/proc/self/mountinfo")?).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no cgroup file system is mounted below {ROOT}"))
        })
    }

    fn parse(mountinfo: &str) -> Option<Self> {
        let mut controllers = BTreeMap::new();
        let mut unified = None;
        for line in mountinfo.lines() {
            let Some((front, back)) = line.split_once(" - ") else { continue };
            let Some(point) = front.split(' ').nth(4).filter(|point| point.starts_with(ROOT)) else { continue };
            let mut back = back.split(' ');
            let (kind, options) = (back.next(), back.nth(1).unwrap_or_default());
            match kind {
                Some("cgroup2") if point == ROOT => unified = Some(PathBuf::from(point)),
                // Beside v1 it has no controllers, but every process is in one of its cgroups.
                Some("cgroup2") => {
                    controllers.insert(UNIFIED.to_owned(), PathBuf::from(point));
                }
                Some("cgroup") => {
                    let names = options.split(',').filter(|name| !matches!(*name, "rw" | "ro" | "xattr" | "noprefix"));
                    for name in names.filter(|name| !name.starts_with("release_agent")) {
                        controllers.entry(name.to_owned()).or_insert_with(|| PathBuf::from(point));
                    }
                }
                _ => {}
            }
        }
        match unified {
            Some(point) => Some(Self::V2(point)),
            None if controllers.keys().all(|name| name == UNIFIED) => None,
            None => Some(Self::V1(controllers)),
        }
    }

    /// The directories of a cgroup in all hierarchies, without duplicates.
    pub fn directories(&self, cgroup: &str) -> Vec<PathBuf> {
        let below = cgroup.trim_start_matches('/');
        match self {
            Self::V2(point) => vec![point.join(below)],
            Self::V1(controllers) => {
                let mut points: Vec<_> = controllers.values().collect();
                points.sort();
                points.dedup();
                points.into_iter().map(|point| point.join(below)).collect()
            }
        }
    }

    /// The directory of a cgroup that has this controller's files.
    pub fn directory(&self, controller: &str, cgroup: &str) -> Option<PathBuf> {
        let below = cgroup.trim_start_matches('/');
        match self {
            Self::V2(point) => Some(point.join(below)),
            Self::V1(controllers) => Some(controllers.get(controller)?.join(below)),
        }
    }

    /// Whether this node has the controller.
    pub fn has(&self, controller: &str) -> bool {
        match self {
            Self::V1(controllers) => controllers.contains_key(controller),
            Self::V2(point) => fs::read_to_string(point.join("cgroup.controllers"))
                .is_ok_and(|names| names.split_whitespace().any(|name| name == controller)),
        }
    }

    /// Moves the calling process into an existing cgroup, and in one hierarchy into the child cgroup `part`, so that the process can be
    /// killed together with its descendants.
    pub fn join(&self, cgroup: &str, part: Option<&str>) -> io::Result<()> {
        // On v2 a container may have created cgroups below its own; then no process can join the container's own cgroup.
        if let (Self::V2(_), Some(part)) = (self, part) {
            return self.join_part(cgroup, part);
        }
        for directory in self.directories(cgroup).into_iter().filter(|directory| directory.is_dir()) {
            join_at(&directory, SELF)?;
        }
        part.map_or(Ok(()), |part| self.join_part(cgroup, part))
    }

    /// Creates the directories of a cgroup on v1.
    pub fn create(&self, cgroup: &str) -> io::Result<()> {
        let Self::V1(_) = self else { return Ok(()) };
        self.directories(cgroup).iter().try_for_each(fs::create_dir_all)
    }

    /// Moves a process into a cgroup in the hierarchies that libcontainer does not know, so that a container is in its own cgroup in
    /// each.
    pub fn join_others(&self, cgroup: &str, pid: i32) -> io::Result<()> {
        self.others(cgroup).iter().try_for_each(|directory| join_at(directory, pid))
    }

    /// Whether the node has hierarchies that libcontainer does not know.
    pub fn has_others(&self) -> bool {
        !self.others("").is_empty()
    }

    fn others(&self, cgroup: &str) -> Vec<PathBuf> {
        let Self::V1(controllers) = self else { return Vec::new() };
        let others = controllers.iter().filter(|(name, _)| !CONTROLLERS.contains(&name.as_str()));
        others.map(|(_, point)| point.join(cgroup.trim_start_matches('/'))).collect()
    }

    /// Creates a child cgroup and moves the calling process into it. One hierarchy is enough to find and kill the processes.
    fn join_part(&self, cgroup: &str, part: &str) -> io::Result<()> {
        let Some(directory) = self.tracking(cgroup) else { return Ok(()) };
        let part = directory.join(part);
        fs::create_dir_all(&part)?;
        join_at(&part, SELF)
    }

    /// The directory of a cgroup in the hierarchy that child cgroups are created in. They set no limits; those of the parent apply. The
    /// freezer comes first, because processes that are frozen can be killed without a race.
    fn tracking(&self, cgroup: &str) -> Option<PathBuf> {
        let preferred = ["freezer", "pids", "devices", "memory", "cpu"].into_iter();
        preferred.filter_map(|controller| self.directory(controller, cgroup)).find(|directory| directory.is_dir())
    }

    /// The PIDs in a cgroup and its descendants.
    pub fn processes(&self, cgroup: &str) -> Vec<u32> {
        let mut found = Vec::new();
        if let Some(directory) = self.tracking(cgroup) {
            collect(&directory, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Removes a cgroup and its descendants, which must have no processes. A missing cgroup is not an error.
    pub fn remove(&self, cgroup: &str) -> io::Result<()> {
        if cgroup.trim_matches('/').is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the root cgroup cannot be removed"));
        }
        self.directories(cgroup).iter().try_for_each(|directory| remove(directory))
    }

    /// Kills all processes of a cgroup and removes it. Blocks until the killed processes have disappeared.
    pub fn clear(&self, cgroup: &str) -> io::Result<()> {
        let mut retries = REMOVAL_TIMEOUT.as_millis() / REMOVAL_RETRY.as_millis();
        loop {
            self.kill(cgroup);
            match self.remove(cgroup) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && retries > 0 => retries -= 1,
                removed => return removed,
            }
            std::thread::sleep(REMOVAL_RETRY);
        }
    }

    /// Creates a cgroup with these controllers if it is missing, and writes its files: controller, name, text.
    pub fn limit(&self, cgroup: &str, files: &[(&str, String, String)]) -> io::Result<()> {
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"))
        };
        for (controller, name, text) in files {
            let directory = self.directory(controller, cgroup).filter(|_| self.has(controller)).ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("this node has no cgroup controller {controller}"))
            })?;
            fs::create_dir_all(&directory).map_err(at(&directory))?;
            if let Self::V2(point) = self {
                // A cgroup has a controller only if every ancestor delegates it.
                let mut ancestor = point.clone();
                for part in cgroup.trim_matches('/').split('/') {
                    let control = ancestor.join("cgroup.subtree_control");
                    fs::write(&control, format!("+{controller}")).map_err(at(&control))?;
                    ancestor.push(part);
                }
            }
            let file = directory.join(name);
            fs::write(&file, text).map_err(at(&file))?;
        }
        Ok(())
    }

    /// How many processes of a cgroup the OOM killer has killed.
    pub fn oom_kills(&self, cgroup: &str) -> u64 {
        let Some(directory) = self.directory("memory", cgroup) else { return 0 };
        let file = match self {
            Self::V1(_) => "memory.oom_control",
            Self::V2(_) => "memory.events",
        };
        fs::read_to_string(directory.join(file)).ok().and_then(|text| field(&text, "oom_kill")).unwrap_or(0)
    }
}

/// The value of a key in a flat keyed file: lines of `key value`.
pub fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn join_at(directory: &Path, pid: i32) -> io::Result<()> {
    fs::write(directory.join("cgroup.procs"), pid.to_string()).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot move process {pid} to the cgroup {}: {error}", directory.display()),
        )
    })
}

fn collect(directory: &Path, found: &mut Vec<u32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    for child in children(directory) {
        collect(&child, found);
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

fn remove(directory: &Path) -> io::Result<()> {
    for child in children(directory) {
        remove(&child)?;
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io::Error::new(error.kind(), format!("cannot remove the cgroup {}: {error}", directory.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
