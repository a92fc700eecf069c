//! Reading the machine: the files in which the kernel and the operating system describe it.

use std::{
    collections::BTreeMap,
    env::consts::ARCH,
    fs,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::{Path, PathBuf},
    thread,
};

use keelet_launch::{Cgroups, NodeFacts};

use super::facts::{Facts, Resources, System};

/// The files of a machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// `/`; a test has files of its own.
    root: PathBuf,
}

/// What is used of a machine at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// How long all processors together were busy since the boot; none if the kernel does not say.
    pub cpu_busy_ms: Option<u64>,
    /// Memory that could not be had for something else.
    pub memory_used_bytes: Option<u64>,
}

/// The amounts of `/proc/meminfo` in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    total: Option<u64>,
    available: Option<u64>,
}

/// Where the second generation of cgroups is, or the directories of the first.
const CGROUPS: &str = "sys/fs/cgroup";
/// A directory for each size: `hugepages-2048kB`.
const HUGE_PAGES: &str = "sys/kernel/mm/hugepages";

// === impl Machine ===

impl Machine {
    /// The machine that this process runs on.
    pub fn this() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// A machine whose files are below a directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// What the machine says of itself. Pods may have all of it. `name` and `address` win over the machine's own; `directory` is the
    /// root directory of the agent, which may not be there yet.
    pub fn facts(&self, name: Option<String>, address: Option<IpAddr>, directory: &Path) -> Facts {
        let cgroups_root = self.root.join(CGROUPS);
        let cgroups = cgroups(&cgroups_root);
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        let memory = Memory::parse(&self.text("proc/meminfo"));
        let capacity = Resources {
            cpu_millis: i64::try_from(processors).unwrap_or(1) * 1000,
            memory_bytes: memory.total.map_or(0, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
            storage_bytes: storage(directory),
            huge_pages: huge_pages(&self.root.join(HUGE_PAGES)),
            pods: None,
        };
        let hostname = || self.text("proc/sys/kernel/hostname").trim().to_lowercase();
        let for_pods = NodeFacts {
            name: name.unwrap_or_else(hostname),
            address: Some(address.unwrap_or_else(own_address).to_string()),
            resolv_conf: fs::read_to_string(self.root.join("etc/resolv.conf")).ok(),
            cpu_millis: capacity.cpu_millis,
            memory_bytes: capacity.memory_bytes,
            storage_bytes: capacity.storage_bytes,
            huge_page_sizes: capacity.huge_pages.keys().copied().collect(),
            swap_limits: limits_swap(&cgroups_root, cgroups),
            cgroups,
            seccomp_root: directory.join("seccomp"),
            ..NodeFacts::default()
        };
        Facts { for_pods, capacity, system: self.system() }
    }

    fn system(&self) -> System {
        System {
            kernel_version: self.text("proc/sys/kernel/osrelease").trim().to_owned(),
            os_image: os_image(&self.text("etc/os-release")),
            architecture: architecture(ARCH).to_owned(),
            machine_id: self.text("etc/machine-id").trim().to_owned(),
            system_uuid: self.text("sys/class/dmi/id/product_uuid").trim().to_owned(),
        }
    }

    /// What is used of the machine.
    pub fn usage(&self) -> Usage {
        Usage {
            cpu_busy_ms: busy_ms(&self.text("proc/stat"), rustix::param::clock_ticks_per_second()),
            memory_used_bytes: Memory::parse(&self.text("proc/meminfo")).used(),
        }
    }

    /// The first place that the machine swaps to.
    pub fn swap(&self) -> Option<String> {
        first_swap(&self.text("proc/swaps")).map(str::to_owned)
    }

    /// Files of the kernel's own file systems and small ones of the operating system: none of them waits for anything. A file that
    /// is not there says nothing.
    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }
}

// === impl Memory ===

impl Memory {
    fn parse(meminfo: &str) -> Self {
        let field = |name: &str| -> Option<u64> {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
        };
        Self { total: field("MemTotal:"), available: field("MemAvailable:") }
    }

    fn used(self) -> Option<u64> {
        Some(self.total?.saturating_sub(self.available?))
    }
}

/// The address that this node would use towards others. Nothing is sent: a datagram socket only looks up the route.
fn own_address() -> IpAddr {
    let ask = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // An address reserved for documentation: never routed, yet good enough to choose the interface by.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    };
    ask().map_or(Ipv4Addr::LOCALHOST.into(), |address: std::net::SocketAddr| address.ip())
}

fn cgroups(root: &Path) -> Cgroups {
    if root.join("cgroup.controllers").exists() { Cgroups::V2 } else { Cgroups::V1 }
}

/// Whether the kernel counts what is swapped. In the second generation the topmost cgroup has no limits, but those below it do.
fn limits_swap(root: &Path, generation: Cgroups) -> bool {
    let has_limit = |dir: &Path| dir.join("memory.swap.max").exists();
    let mut below = fs::read_dir(root).into_iter().flatten().flatten();
    match generation {
        Cgroups::V1 => root.join("memory/memory.memsw.limit_in_bytes").exists(),
        Cgroups::V2 => has_limit(root) || below.any(|entry| has_limit(&entry.path())),
    }
}

/// The whole file system that this directory is on, or will be.
fn storage(root: &Path) -> i64 {
    let found = root.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok());
    found.map_or(0, |found| i64::try_from(found.f_blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX))
}

/// Bytes that the kernel keeps in huge pages, by the size of the page.
fn huge_pages(root: &Path) -> BTreeMap<i64, i64> {
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<i64>().ok();
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let of_size = |entry: fs::DirEntry| {
        let size = size(entry.file_name().to_str()?)?.saturating_mul(1024);
        let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok();
        let count: i64 = count.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        Some((size, size.saturating_mul(count)))
    };
    entries.filter_map(of_size).collect()
}

fn os_image(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or("Linux", |name| name.trim_matches('"')).to_owned()
}

/// As Go names it.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// How long all processors together were busy: user, nice, system, irq, softirq and steal of `/proc/stat`.
fn busy_ms(stat: &str, ticks_per_second: u64) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|index| ticks.get(*index)).sum();
    (busy * 1000).checked_div(ticks_per_second)
}

/// The first line is a heading.
fn first_swap(swaps: &str) -> Option<&str> {
    swaps.lines().nth(1)?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use keelet_launch::Cgroups;

    use super::*;

    /// NoSwap is the only behaviour there is, so where swap can be limited it is.
    #[test]
    fn limits_of_swap_are_found_in_both_generations() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path();
        let has = || (cgroups(root), limits_swap(root, cgroups(root)));
        fs::create_dir_all(root.join("memory")).expect("made");
        assert_eq!(has(), (Cgroups::V1, false));
        fs::write(root.join("memory/memory.memsw.limit_in_bytes"), "").expect("written");
        assert_eq!(has(), (Cgroups::V1, true));
        fs::write(root.join("cgroup.controllers"), "").expect("written");
        assert_eq!(has(), (Cgroups::V2, false));
        fs::create_dir(root.join("system.slice")).expect("made");
        fs::write(root.join("system.slice/memory.swap.max"), "max").expect("written");
        assert_eq!(has(), (Cgroups::V2, true));
    }

    #[test]
    fn sizes_of_huge_pages_are_found() {
        let place = tempfile::tempdir().expect("a directory");
        for name in ["hugepages-1048576kB", "hugepages-2048kB", "something-else", "hugepages-kB"] {
            fs::create_dir(place.path().join(name)).expect("made");
        }
        fs::write(place.path().join("hugepages-2048kB/nr_hugepages"), "3\n").expect("written");
        assert_eq!(huge_pages(place.path()), [(2 << 20, 6 << 20), (1 << 30, 0)].into());
        assert_eq!(huge_pages(&place.path().join("none")), BTreeMap::new());
    }

    #[test]
    fn storage_is_that_of_the_file_system_even_before_the_directory_is_there() {
        let place = tempfile::tempdir().expect("a directory");
        let whole = storage(place.path());
        assert!(whole > 0, "{whole}");
        assert_eq!(storage(&place.path().join("not/yet")), whole);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let total = |text| Memory::parse(text).total;
        assert_eq!(total("MemTotal:       24579164 kB\nMemFree: 1 kB\n"), Some(24_579_164 * 1024));
        assert_eq!(total("nonsense"), None);
        let used = |text| Memory::parse(text).used();
        assert_eq!(used("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n"), Some(600 * 1024));
        assert_eq!(used("MemTotal: 1000 kB\n"), None);
    }

    #[test]
    fn usage_is_read_from_the_kernels_files() {
        assert_eq!(busy_ms("cpu  100 10 50 900 20 3 2 1 0 0\ncpu0 1 1 1\n", 100), Some(1660));
        assert_eq!(busy_ms("nonsense", 100), None);
    }

    #[test]
    fn names_are_those_that_people_know() {
        assert_eq!(os_image("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 13\"\n"), "Debian GNU/Linux 13");
        assert_eq!((architecture("x86_64"), architecture("aarch64")), ("amd64", "arm64"));
    }

    #[test]
    fn swap_is_seen() {
        let heading = "Filename\t\t\t\tType\t\tSize\n";
        assert_eq!(first_swap(heading), None);
        assert_eq!(first_swap(""), None);
        assert_eq!(first_swap(&format!("{heading}/dev/sda2 partition 1 0 -2\n")), Some("/dev/sda2"));
    }

    /// A machine is its files; one that has none of them is a node of which nothing is known.
    #[test]
    fn facts_are_read_from_the_files_of_the_machine() {
        let place = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().expect("one above")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 48 kB\n");
        write("proc/sys/kernel/hostname", "Worker-1\n");
        write("proc/sys/kernel/osrelease", "6.18.1\n");
        write("proc/swaps", "Filename\n/swap file 1 0 -2\n");
        write("etc/machine-id", "abc\n");
        write("etc/os-release", "PRETTY_NAME=\"Debian\"\n");
        write("etc/resolv.conf", "nameserver 192.0.2.53\n");
        write("sys/class/dmi/id/product_uuid", "0f\n");
        write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1");
        let machine = Machine::at(place.path());
        let facts = machine.facts(None, Some(Ipv4Addr::new(192, 0, 2, 7).into()), place.path());
        assert_eq!((facts.for_pods.name.as_str(), facts.for_pods.address.as_deref()), ("worker-1", Some("192.0.2.7")));
        assert_eq!(facts.for_pods.resolv_conf.as_deref(), Some("nameserver 192.0.2.53\n"));
        assert_eq!((facts.capacity.memory_bytes, facts.for_pods.memory_bytes), (2 << 20, 2 << 20));
        assert_eq!(
            (&facts.capacity.huge_pages, &facts.for_pods.huge_page_sizes),
            (&[(2 << 20, 2 << 20)].into(), &vec![2 << 20])
        );
        assert_eq!(facts.allocatable(), facts.capacity, "pods may have all of it");
        let System { kernel_version, os_image, machine_id, system_uuid, .. } = facts.system;
        assert_eq!([kernel_version, os_image, machine_id, system_uuid], ["6.18.1", "Debian", "abc", "0f"]);
        assert_eq!(machine.usage().memory_used_bytes, Some(2000 << 10));
        assert_eq!(machine.swap().as_deref(), Some("/swap"));
        let bare = Machine::at(place.path().join("nowhere")).facts(Some("n".to_owned()), None, place.path());
        assert_eq!((bare.for_pods.name.as_str(), bare.capacity.memory_bytes), ("n", 0));
    }
}
