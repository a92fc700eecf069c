//! What containers may know of this node.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::Path,
    thread,
};

use keelet_agent::{Cgroups, NodeFacts};

/// Asks this machine.
pub(crate) fn of_this_node(name: Option<String>, address: Option<IpAddr>, root: &Path) -> NodeFacts {
    let hostname = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_lowercase();
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    NodeFacts {
        name: name.unwrap_or_else(hostname),
        address: Some(address.unwrap_or_else(own_address).to_string()),
        resolv_conf: fs::read_to_string("/etc/resolv.conf").ok(),
        cpu_millis: i64::try_from(processors).unwrap_or(1) * 1000,
        memory_bytes: memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        cgroups: if unified { Cgroups::V2 } else { Cgroups::V1 },
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

fn memory(meminfo: &str) -> i64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::memory;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(memory("MemTotal:       24579164 kB\nMemFree: 1 kB\n"), 24_579_164 * 1024);
        assert_eq!(memory("nonsense"), 0);
    }
}
