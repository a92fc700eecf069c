//! What a container sees of file systems.

use std::path::{Component, Path, PathBuf};

use keelet_cri::v1::{self, MountPropagation, NamespaceMode};
use keelet_linux::{
    cgroup::{CONTROLLERS, Mounts},
    userns::IdRange,
};
use oci_spec::runtime::{Mount, MountBuilder};

use super::{Given, SpecError, builder, devices, mapping};

/// Files and directories that a sandbox has for its containers.
pub(crate) const HOSTNAME: &str = "hostname";
pub(crate) const HOSTS: &str = "hosts";
pub(crate) const RESOLV_CONF: &str = "resolv.conf";
pub(crate) const SHM: &str = "shm";

pub(super) fn mounts(given: &Given<'_>, security: &v1::LinuxContainerSecurityContext) -> Result<Vec<Mount>, SpecError> {
    let writable = if security.privileged { "rw" } else { "ro" };
    let mut mounts = vec![
        special("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"])?,
        special("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"])?,
        special(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        )?,
        special("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"])?,
        special("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", writable])?,
    ];
    mounts.extend(cgroups(given, writable)?);
    let asked =
        |path: &str| given.config.mounts.iter().any(|mount| Path::new(&mount.container_path) == Path::new(path));
    let mode = if security.readonly_rootfs { "ro" } else { "rw" };
    for (inside, file) in [("/etc/hostname", HOSTNAME), ("/etc/hosts", HOSTS), ("/etc/resolv.conf", RESOLV_CONF)] {
        if !asked(inside) {
            mounts.push(bind(&given.sandbox_dir.join(file), inside, &["rbind", "rprivate", mode])?);
        }
    }
    if !asked("/dev/shm") {
        let host_ipc = given.shared().ipc == NamespaceMode::Node as i32;
        let source = if host_ipc { PathBuf::from("/dev/shm") } else { given.sandbox_dir.join(SHM) };
        mounts.push(bind(&source, "/dev/shm", &["rbind", "rprivate", "rw"])?);
    }
    for (host, inside) in devices::bound(given, security.privileged)? {
        mounts.push(bind(&host, &inside.to_string_lossy(), &["bind", "rprivate", "nosuid", "noexec", "rw"])?);
    }
    let mut images = given.image_mounts.iter();
    let mut wanted = Vec::new();
    for mount in &given.config.mounts {
        let source = match &mount.image {
            Some(_) => images.next().cloned().ok_or_else(|| SpecError("an image to mount is missing".to_owned()))?,
            None => PathBuf::from(&mount.host_path),
        };
        wanted.push(volume(mount, source)?);
    }
    // One below another comes after it.
    wanted.sort_by_key(|mount| mount.destination().components().count());
    // What is asked for takes the place of what is usual.
    mounts.retain(|usual| !wanted.iter().any(|mount| mount.destination() == usual.destination()));
    mounts.extend(wanted);
    Ok(mounts)
}

/// What a container sees of its cgroups. Those of the first generation are bound one by one: libcontainer would look them up by a
/// PID that means another process, or none, where processes are shared in a pod.
fn cgroups(given: &Given<'_>, writable: &str) -> Result<Vec<Mount>, SpecError> {
    const PLACE: &str = "/sys/fs/cgroup";
    let Mounts::V1(controllers) = given.cgroups else {
        let options = ["nosuid", "noexec", "nodev", "relatime", writable];
        return Ok(vec![special(PLACE, "cgroup", "cgroup", &options)?]);
    };
    let mut mounts = vec![special(PLACE, "tmpfs", "tmpfs", &["nosuid", "noexec", "nodev", "mode=755", "size=64k"])?];
    for name in controllers.keys().filter(|name| CONTROLLERS.contains(&name.as_str())) {
        let Some(source) = given.cgroups.directory(name, given.cgroup) else { continue };
        let options = ["bind", "rprivate", "nosuid", "noexec", "nodev", "relatime", writable];
        mounts.push(bind(&source, &format!("{PLACE}/{name}"), &options)?);
    }
    Ok(mounts)
}

fn volume(mount: &v1::Mount, source: PathBuf) -> Result<Mount, SpecError> {
    let path = &mount.container_path;
    if !path.starts_with('/') {
        return Err(SpecError(format!("mount {path:?}: the path in the container has to start with a slash")));
    }
    // Through links it may still lead there: that is seen when it is mounted.
    let mut inside = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => inside.push(name),
            Component::ParentDir => drop(inside.pop()),
            _ => {}
        }
    }
    if inside.as_os_str().is_empty() {
        return Err(SpecError(format!("mount {path:?}: nothing can be mounted on the root directory")));
    }
    let mut options = vec!["rbind"];
    options.push(match MountPropagation::try_from(mount.propagation) {
        Ok(MountPropagation::PropagationHostToContainer) => "rslave",
        Ok(MountPropagation::PropagationBidirectional) => "rshared",
        _ => "rprivate",
    });
    match (mount.readonly || mount.image.is_some(), mount.recursive_read_only) {
        (true, true) if mount.propagation == MountPropagation::PropagationPrivate as i32 => options.push("rro"),
        (_, true) => {
            return Err(SpecError(format!(
                "mount {path:?}: recursively read-only needs readonly and private propagation"
            )));
        }
        (true, false) => options.push("ro"),
        (false, false) => options.push("rw"),
    }
    options.extend(mount.mount_options.iter().map(String::as_str));
    let mut bound = bind(&source, path, &options)?;
    // The layers of an image are translated themselves, and those of its pod are the only IDs there can be.
    if let ([uids], [gids], None) = (&*mount.uid_mappings, &*mount.gid_mappings, &mount.image) {
        let range = |one: &v1::IdMapping| IdRange { first: one.host_id, length: one.length };
        bound.set_uid_mappings(Some(mapping(range(uids))?)).set_gid_mappings(Some(mapping(range(gids))?));
    }
    Ok(bound)
}

/// The propagation of the container's root, which must not cut off what a volume passes on. It means all that is below, and
/// libcontainer knows it by the word without an r.
pub(super) fn root_propagation(mounts: &[v1::Mount]) -> Option<&'static str> {
    let has = |propagation: MountPropagation| mounts.iter().any(|mount| mount.propagation == propagation as i32);
    if has(MountPropagation::PropagationBidirectional) {
        Some("shared")
    } else if has(MountPropagation::PropagationHostToContainer) {
        Some("slave")
    } else {
        None
    }
}

fn special(destination: &str, kind: &str, source: &str, options: &[&str]) -> Result<Mount, SpecError> {
    let options = options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>();
    MountBuilder::default().destination(destination).typ(kind).source(source).options(options).build().map_err(builder)
}

fn bind(source: &Path, destination: &str, options: &[&str]) -> Result<Mount, SpecError> {
    let options = options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>();
    MountBuilder::default()
        .destination(destination)
        .typ("bind")
        .source(source)
        .options(options)
        .build()
        .map_err(builder)
}

#[cfg(test)]
mod tests {
    use keelet_cri::v1::{self, MountPropagation};

    use super::{root_propagation, volume};

    fn mount(path: &str) -> v1::Mount {
        v1::Mount { container_path: path.to_owned(), host_path: "/data".to_owned(), ..v1::Mount::default() }
    }

    #[test]
    fn volumes_are_bound_with_what_is_below_them() {
        let options =
            |mount: &v1::Mount| volume(mount, "/data".into()).expect("a mount").options().clone().expect("options");
        assert_eq!(options(&mount("/a")), ["rbind", "rprivate", "rw"]);
        assert_eq!(options(&v1::Mount { readonly: true, ..mount("/a") }), ["rbind", "rprivate", "ro"]);
        let propagation = MountPropagation::PropagationBidirectional.into();
        assert_eq!(options(&v1::Mount { propagation, ..mount("/a") }), ["rbind", "rshared", "rw"]);
        let recursive = v1::Mount { readonly: true, recursive_read_only: true, ..mount("/a") };
        assert_eq!(options(&recursive), ["rbind", "rprivate", "rro"]);
        assert!(volume(&v1::Mount { readonly: false, ..recursive }, "/data".into()).is_err());
        assert!(volume(&mount("a"), "/data".into()).expect_err("relative").0.contains("\"a\""));
        for root in ["/", "//", "/.", "/a/..", "/../a/../.."] {
            let why = volume(&mount(root), "/data".into()).expect_err(root).0;
            assert_eq!(why, format!("mount {root:?}: nothing can be mounted on the root directory"));
        }
    }

    #[test]
    fn the_root_passes_on_what_a_volume_passes_on() {
        let with = |propagation: MountPropagation| v1::Mount { propagation: propagation.into(), ..mount("/a") };
        assert_eq!(root_propagation(&[mount("/a")]), None);
        assert_eq!(root_propagation(&[mount("/a"), with(MountPropagation::PropagationHostToContainer)]), Some("slave"));
        let both =
            [with(MountPropagation::PropagationHostToContainer), with(MountPropagation::PropagationBidirectional)];
        assert_eq!(root_propagation(&both), Some("shared"));
    }
}
