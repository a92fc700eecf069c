//! Files that a sandbox has for its containers.

use std::{
    collections::BTreeSet,
    ffi::CString,
    fs, io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
};

use keelet_cri::v1;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::{
    settings::Settings,
    spec::{HOSTNAME, HOSTS, RESOLV_CONF, SHM},
};

/// As much as containerd gives.
const SHM_OPTIONS: &str = "mode=1777,size=65536k";

/// Writes the name, the hosts and the resolver of a pod to a place of their own, and links them from the sandbox's directory.
/// Agents that have a better `hosts` file mount it over ours.
pub(crate) fn write(dir: &Path, place: &Path, config: &v1::PodSandboxConfig, host_network: bool) -> io::Result<()> {
    fs::create_dir_all(place)?;
    let name = if config.hostname.is_empty() { node_name() } else { config.hostname.clone() };
    let hosts = match fs::read_to_string("/etc/hosts") {
        Ok(text) if host_network => text,
        _ => "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned(),
    };
    let resolver = match &config.dns_config {
        Some(dns) => resolv_conf(dns),
        None => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
    };
    for (file, text) in [(HOSTNAME, format!("{name}\n")), (HOSTS, hosts), (RESOLV_CONF, resolver)] {
        let path = place.join(file);
        fs::write(&path, text)?;
        // Readable by every user in the pod, whatever umask the server was started with.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        symlink(path, dir.join(file))?;
    }
    Ok(())
}

/// Removes the files of pods that are no more: those that went with an earlier boot.
pub(crate) fn sweep(settings: &Settings, live: &BTreeSet<String>) {
    let entries = fs::read_dir(settings.pod_files()).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| !entry.file_name().to_str().is_some_and(|id| live.contains(id))) {
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(dir = %entry.path().display(), %error, "cannot remove files of deleted sandbox; the next start retries");
        }
    }
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

/// Gives these files to another owner: to a pod's root that is not the node's.
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
