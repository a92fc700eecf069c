//! Files that a sandbox has for its containers.

use std::{ffi::CString, fs, io, os::unix::fs::chown, path::Path};

use keelet_cri::v1;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::spec::{HOSTNAME, HOSTS, RESOLV_CONF, SHM};

/// As much as containerd gives.
const SHM_OPTIONS: &str = "mode=1777,size=65536k";

/// Writes the name, the hosts and the resolver of a pod. Agents that have a better `hosts` file mount it over ours.
pub(crate) fn write(dir: &Path, config: &v1::PodSandboxConfig, host_network: bool) -> io::Result<()> {
    let name = if config.hostname.is_empty() { node_name() } else { config.hostname.clone() };
    fs::write(dir.join(HOSTNAME), format!("{name}\n"))?;
    let hosts = match fs::read_to_string("/etc/hosts") {
        Ok(text) if host_network => text,
        _ => "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned(),
    };
    fs::write(dir.join(HOSTS), hosts)?;
    let resolver = match &config.dns_config {
        Some(dns) => resolv_conf(dns),
        None => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
    };
    fs::write(dir.join(RESOLV_CONF), resolver)
}

fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn resolv_conf(dns: &v1::DnsConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text.push_str(&format!("search {}\n", dns.searches.join(" ")));
    }
    for server in &dns.servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !dns.options.is_empty() {
        text.push_str(&format!("options {}\n", dns.options.join(" ")));
    }
    text
}

/// Gives these files to somebody: to a pod's root who is not the node's.
pub(crate) fn give(dir: &Path, (uid, gid): (u32, u32)) -> io::Result<()> {
    [HOSTNAME, HOSTS, RESOLV_CONF].iter().try_for_each(|name| chown(dir.join(name), Some(uid), Some(gid)))
}

/// The memory that containers of a pod share by name.
pub(crate) fn mount_shm(dir: &Path, (uid, gid): (u32, u32)) -> io::Result<()> {
    let path = dir.join(SHM);
    fs::create_dir_all(&path)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = CString::new(format!("{SHM_OPTIONS},uid={uid},gid={gid}")).unwrap_or_default();
    Ok(mount("shm", &path, "tmpfs", flags, options.as_c_str())?)
}

pub(crate) fn unmount_shm(dir: &Path) -> io::Result<()> {
    match unmount(dir.join(SHM), UnmountFlags::DETACH) {
        // Nothing is mounted, or there is nothing.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use keelet_cri::v1;

    use super::resolv_conf;

    #[test]
    fn a_resolver_is_written_as_the_manual_says() {
        let words = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        let dns = v1::DnsConfig {
            servers: words(&["10.0.0.10", "10.0.0.11"]),
            searches: words(&["default.svc.cluster.local", "cluster.local"]),
            options: words(&["ndots:5"]),
        };
        let expected = "search default.svc.cluster.local cluster.local\nnameserver 10.0.0.10\nnameserver 10.0.0.11\noptions ndots:5\n";
        assert_eq!(resolv_conf(&dns), expected);
        assert_eq!(resolv_conf(&v1::DnsConfig::default()), "");
    }
}
