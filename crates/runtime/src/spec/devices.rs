//! Devices of the node that a container may use.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use keelet_cri::v1;
use oci_spec::runtime::{
    LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType,
};

use super::{Given, SpecError, builder};

/// What every container may use: null, zero, full, random, urandom, tty, console, ptmx and pseudo terminals.
const USUAL: [(i64, Option<i64>); 9] = [
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(1)),
    (5, Some(2)),
    (136, None),
];

/// Those that every container finds in `/dev`, whether it asks for them or not.
const EVERYWHERE: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/random", "/dev/urandom", "/dev/ptmx"];

/// Device files to be made in the container. Users of a pod's own cannot make any; see [`bound`].
pub(super) fn made(given: &Given<'_>, privileged: bool) -> Result<Vec<LinuxDevice>, SpecError> {
    if given.users.is_some() { Ok(Vec::new()) } else { devices(&given.config.devices, privileged) }
}

/// Devices of the node that are bound into the container, and where, because it cannot make its own.
pub(super) fn bound(given: &Given<'_>, privileged: bool) -> Result<Vec<(PathBuf, PathBuf)>, SpecError> {
    if given.users.is_none() {
        return Ok(Vec::new());
    }
    let mut places = places(&given.config.devices, privileged)?;
    places.retain(|(_, inside)| !EVERYWHERE.iter().any(|usual| inside == Path::new(usual)));
    Ok(places)
}

fn devices(asked: &[v1::Device], privileged: bool) -> Result<Vec<LinuxDevice>, SpecError> {
    let made = places(asked, privileged)?.into_iter().map(|(host, inside)| device(&host, &inside));
    // A device that the request does not name may have gone meanwhile.
    if privileged { Ok(made.flatten().collect()) } else { made.collect() }
}

/// Devices on the node, and where they are in the container.
fn places(asked: &[v1::Device], privileged: bool) -> Result<Vec<(PathBuf, PathBuf)>, SpecError> {
    if privileged {
        return Ok(below(Path::new("/dev")).into_iter().map(|path| (path.clone(), path)).collect());
    }
    let found = asked.iter().map(expand).collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// Which devices may be used: nothing but what is named. Making a device file is allowed, using it is what counts.
pub(super) fn rules(asked: &[v1::Device], privileged: bool) -> Result<Vec<LinuxDeviceCgroup>, SpecError> {
    let rule = |allow: bool, kind: LinuxDeviceType, major: Option<i64>, minor: Option<i64>, access: &str| {
        let mut rule =
            LinuxDeviceCgroupBuilder::default().allow(allow).typ(kind).access(access).build().map_err(builder)?;
        rule.set_major(major).set_minor(minor);
        Ok::<_, SpecError>(rule)
    };
    if privileged {
        return Ok(vec![rule(true, LinuxDeviceType::A, None, None, "rwm")?]);
    }
    let mut rules = vec![
        rule(false, LinuxDeviceType::A, None, None, "rwm")?,
        rule(true, LinuxDeviceType::C, None, None, "m")?,
        rule(true, LinuxDeviceType::B, None, None, "m")?,
    ];
    for (major, minor) in USUAL {
        rules.push(rule(true, LinuxDeviceType::C, Some(major), minor, "rwm")?);
    }
    for one in asked {
        let permissions = match one.permissions.as_str() {
            "" => "rwm",
            some if some.chars().all(|letter| "rwm".contains(letter)) => some,
            other => {
                return Err(SpecError(format!(
                    "device {}: permissions {other:?} are not of r, w and m",
                    one.host_path
                )));
            }
        };
        for (host, inside) in expand(one)? {
            let device = device(&host, &inside)?;
            rules.push(rule(true, device.typ(), Some(device.major()), Some(device.minor()), permissions)?);
        }
    }
    Ok(rules)
}

/// A directory stands for all devices in it.
fn expand(asked: &v1::Device) -> Result<Vec<(PathBuf, PathBuf)>, SpecError> {
    let host = fs::canonicalize(&asked.host_path)
        .map_err(|error| SpecError(format!("device {:?}: {error}", asked.host_path)))?;
    let inside = PathBuf::from(if asked.container_path.is_empty() { &asked.host_path } else { &asked.container_path });
    if !host.is_dir() {
        return Ok(vec![(host, inside)]);
    }
    Ok(below(&host)
        .into_iter()
        .map(|path| (path.clone(), inside.join(path.strip_prefix(&host).unwrap_or(&path))))
        .collect())
}

/// All devices in a directory and below.
fn below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            // These are made anew in every container.
            Ok(kind)
                if kind.is_dir() && !matches!(entry.file_name().to_str(), Some("pts" | "shm" | "fd" | "mqueue")) =>
            {
                found.extend(below(&entry.path()));
            }
            // Links are not followed: what they lead to is found itself, or made anew as well.
            Ok(kind) if (kind.is_char_device() || kind.is_block_device()) && entry.file_name() != "console" => {
                found.push(entry.path());
            }
            _ => {}
        }
    }
    found.sort();
    found
}

fn device(host: &Path, inside: &Path) -> Result<LinuxDevice, SpecError> {
    let found = fs::metadata(host).map_err(|error| SpecError(format!("device {}: {error}", host.display())))?;
    let kind = match found.file_type() {
        kind if kind.is_char_device() => LinuxDeviceType::C,
        kind if kind.is_block_device() => LinuxDeviceType::B,
        _ => return Err(SpecError(format!("device {}: it is not a device", host.display()))),
    };
    LinuxDeviceBuilder::default()
        .path(inside)
        .typ(kind)
        .major(i64::from(rustix::fs::major(found.rdev())))
        .minor(i64::from(rustix::fs::minor(found.rdev())))
        .file_mode(found.mode() & 0o7777)
        .uid(found.uid())
        .gid(found.gid())
        .build()
        .map_err(builder)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::{below, devices};

    /// A link such as `/dev/stdin` may well lead to a device.
    #[test]
    fn links_and_files_are_no_devices() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("file"), "").expect("a file");
        symlink("/dev/null", dir.path().join("link")).expect("a link");
        assert!(below(dir.path()).is_empty());
        let privileged = devices(&[], true).expect("devices");
        assert!(privileged.iter().any(|device| device.path() == Path::new("/dev/null")));
        assert!(privileged.iter().all(|device| !device.path().is_symlink()));
    }
}
