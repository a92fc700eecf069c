//! What containers may know of this node.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::Path,
    thread,
};

use keelet_launch::{Cgroups, NodeFacts};

const CGROUPS: &str = "/sys/fs/cgroup";
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Asks this machine.
pub(crate) fn of_this_node(name: Option<String>, address: Option<IpAddr>, root: &Path) -> NodeFacts {
    let hostname = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_lowercase();
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let cgroups = cgroups(Path::new(CGROUPS));
    NodeFacts {
        name: name.unwrap_or_else(hostname),
        address: Some(address.unwrap_or_else(own_address).to_string()),
        resolv_conf: fs::read_to_string("/etc/resolv.conf").ok(),
        cpu_millis: i64::try_from(processors).unwrap_or(1) * 1000,
        memory_bytes: memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        storage_bytes: storage(root),
        huge_page_sizes: huge_page_sizes(Path::new(HUGE_PAGES)),
        swap_limits: limits_swap(Path::new(CGROUPS), cgroups),
        cgroups,
        seccomp_root: root.join("seccomp"),
        ..NodeFacts::default()
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

fn memory(meminfo: &str) -> i64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// The whole file system that this directory is on, or will be.
fn storage(root: &Path) -> i64 {
    let found = root.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok());
    found.map_or(0, |found| i64::try_from(found.f_blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX))
}

/// The kernel has a directory for each size: `hugepages-2048kB`.
fn huge_page_sizes(root: &Path) -> Vec<i64> {
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<i64>().ok();
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut sizes: Vec<_> =
        entries.filter_map(|entry| Some(size(entry.file_name().to_str()?)?.saturating_mul(1024))).collect();
    sizes.sort_unstable();
    sizes
}

#[cfg(test)]
mod tests {
    use std::fs;

    use keelet_launch::Cgroups;

    use super::{cgroups, huge_page_sizes, limits_swap, memory, storage};

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
        assert_eq!(huge_page_sizes(place.path()), [2 << 20, 1 << 30]);
        assert_eq!(huge_page_sizes(&place.path().join("none")), [] as [i64; 0]);
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
        assert_eq!(memory("MemTotal:       24579164 kB\nMemFree: 1 kB\n"), 24_579_164 * 1024);
        assert_eq!(memory("nonsense"), 0);
    }
}
