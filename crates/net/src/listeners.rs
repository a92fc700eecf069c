//! Processes of the node that listen on a requested host port.
//!
//! Packets to a forwarded port never reach a process of the node, so such a process would silently lose its clients. Listening sockets are
//! read from the kernel's tables in `/proc`; the process of a socket, for the error, from the descriptors of all processes.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::{PortMapping, Protocol};

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listener {
    /// Its port as a mapping, to be compared with requested ones.
    held: PortMapping,
    inode: u64,
}

/// States of sockets in the tables: TCP's LISTEN, and what UDP has until it is connected.
const LISTEN: &str = "0A";
const UNCONNECTED: &str = "07";

/// The first of the ports that a process of the node listens on, and that process.
pub(crate) fn first_conflict<'a>(
    wanted: impl IntoIterator<Item = &'a PortMapping>,
    families: [bool; 2],
) -> Option<(&'a PortMapping, String)> {
    let mut wanted = wanted.into_iter().peekable();
    wanted.peek()?;
    let listeners = all(families);
    wanted.find_map(|port| {
        let found = listeners.iter().find(|listener| listener.held.conflicts_with(port))?;
        Some((port, process_of(found.inode).unwrap_or_else(|| "an unknown process".to_owned())))
    })
}

/// All listening sockets of this thread's network namespace, on addresses of these families: IPv4, IPv6.
fn all([v4, v6]: [bool; 2]) -> Vec<Listener> {
    let tables = [("tcp", Protocol::Tcp), ("tcp6", Protocol::Tcp), ("udp", Protocol::Udp), ("udp6", Protocol::Udp)];
    let of_table = |(name, protocol): &(&str, Protocol)| {
        // A kernel without IPv6 has no table for it.
        let table = fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        parse(&table, *protocol)
    };
    let reaches = |listener: &Listener| match listener.held.host_ip {
        Some(IpAddr::V4(_)) => v4,
        Some(IpAddr::V6(_)) => v6,
        None => true,
    };
    tables.iter().flat_map(of_table).filter(reaches).collect()
}

fn parse(table: &str, protocol: Protocol) -> Vec<Listener> {
    let waiting = match protocol {
        Protocol::Tcp => LISTEN,
        Protocol::Udp | Protocol::Sctp => UNCONNECTED,
    };
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        if *fields.get(3)? != waiting {
            return None;
        }
        let host_port = u16::from_str_radix(port, 16).ok()?;
        let inode = fields.get(9)?.parse().ok()?;
        let host_ip = match parse_address(address)? {
            // It usually accepts IPv4 as well.
            IpAddr::V6(ip) if ip.is_unspecified() => None,
            ip => Some(ip),
        };
        Some(Listener { held: PortMapping { protocol, container_port: host_port, host_port, host_ip }, inode })
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

/// An address in the format of the tables: words of four bytes, each in native byte order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |index: usize| u32::from_str_radix(text.get(index * 8..index * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// The process of a socket: `nginx (PID 12)`.
fn process_of(inode: u64) -> Option<String> {
    let link = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids {
        let process = Path::new("/proc").join(pid.to_string());
        // The process may have exited, or this one may not read its descriptors.
        let Ok(descriptors) = fs::read_dir(process.join("fd")) else { continue };
        let has_it = |path: &Path| fs::read_link(path).is_ok_and(|target| target.as_os_str() == link.as_str());
        if descriptors.flatten().any(|descriptor| has_it(&descriptor.path())) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            return Some(format!("{} (PID {pid})", name.trim()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_the_kernel_are_parsed() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 0100007F:1F91 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1
   2: nonsense
";
        let found = parse(table, Protocol::Tcp);
        let [listener] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((listener.held.host_port, listener.inode), (8080, 4711));
        if cfg!(target_endian = "little") {
            assert_eq!(listener.held.host_ip, Some(IpAddr::from([127, 0, 0, 1])));
        }
    }

    #[test]
    fn addresses_of_both_families_are_parsed() {
        if cfg!(target_endian = "big") {
            return;
        }
        for (text, expected) in [
            ("00000000", Some("0.0.0.0")),
            ("00000000000000000000000000000000", Some("::")),
            ("00000000000000000000000001000000", Some("::1")),
            ("0000000000000000FFFF00000100007F", Some("127.0.0.1")),
            ("0", None),
            ("zzzzzzzz", None),
        ] {
            assert_eq!(parse_address(text), expected.map(|ip| ip.parse().unwrap()), "{text}");
        }
    }
}
