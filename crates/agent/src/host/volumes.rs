//! Volumes: what a pod asks for, made or found on the node.

use std::{
    ffi::CString,
    fs::{self, DirBuilder, FileType, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1;
use keelet_pod::volume_types;
use rustix::mount::{MountFlags, mount};

use super::{NO_VOLUME, PodPaths, make_dirs, size};
use crate::doors::HostError;

/// Anybody in the pod may write, whatever user a container runs as.
const EMPTY_DIR_MODE: u32 = 0o777;

/// Makes or finds a volume, and tells where it is.
pub(super) fn make(volume: &v1::Volume, paths: &PodPaths) -> Result<PathBuf, HostError> {
    let made = match (&volume.empty_dir, &volume.host_path, volume_types(volume).first()) {
        (Some(source), ..) => empty_dir(source, &volume.name, paths),
        (None, Some(source), _) => host_path(source),
        // A volume that says nothing is an emptyDir, as the API defines it.
        (None, None, None) => empty_dir(&v1::EmptyDirVolumeSource::default(), &volume.name, paths),
        (None, None, Some(kind)) => {
            Err(format!("volumes of type {kind} are not supported by this agent; supported are emptyDir and hostPath"))
        }
    };
    made.map_err(|error| HostError {
        reason: NO_VOLUME,
        message: format!("MountVolume.SetUp failed for volume {:?} : {error}", volume.name),
    })
}

fn empty_dir(source: &v1::EmptyDirVolumeSource, name: &str, paths: &PodPaths) -> Result<PathBuf, String> {
    let path = paths.empty_dir(name);
    let failed = |error: io::Error| format!("cannot make {}: {error}", path.display());
    make_dirs(&paths.empty_dirs(), 0o750).map_err(failed)?;
    match source.medium.as_deref().unwrap_or_default() {
        "" => make_open_dir(&path).map_err(failed)?,
        "Memory" => {
            make_open_dir(&path).map_err(failed)?;
            if !is_mounted(&path).map_err(failed)? {
                mount_tmpfs(&path, source)
                    .map_err(|error| format!("cannot mount a tmpfs on {}: {error}", path.display()))?;
            }
        }
        medium => {
            return Err(format!("medium {medium:?} is not supported by this agent; supported are \"\" and \"Memory\""));
        }
    }
    Ok(path)
}

/// A directory for everybody. It gets its mode before it gets its name, so one that is in place is complete, and keeps
/// the mode that its pod may have given it since.
fn make_open_dir(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there and no directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // No volume has a name that starts so.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".new-{name}"));
    match DirBuilder::new().mode(0o700).create(&new) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::set_permissions(&new, Permissions::from_mode(EMPTY_DIR_MODE))?;
    fs::rename(&new, path)
}

/// Whether something is mounted there. Every tmpfs is a device of its own.
fn is_mounted(path: &Path) -> io::Result<bool> {
    let parent = path.parent().unwrap_or(path);
    Ok(fs::symlink_metadata(path)?.dev() != fs::symlink_metadata(parent)?.dev())
}

fn mount_tmpfs(path: &Path, source: &v1::EmptyDirVolumeSource) -> io::Result<()> {
    let mut options = format!("mode={EMPTY_DIR_MODE:o}");
    // No limit, or one of nothing: the kernel's own, half the memory of the node.
    if let Some(limit) = source.size_limit.as_ref().and_then(size::bytes).filter(|limit| *limit > 0) {
        options.push_str(&format!(",size={limit}"));
    }
    Ok(mount("tmpfs", path, "tmpfs", MountFlags::empty(), CString::new(options)?.as_c_str())?)
}

/// Checks that there is what the pod expects. Without a type nothing is checked, and the runtime makes a directory if
/// there is nothing.
fn host_path(source: &v1::HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    if !path.is_absolute() {
        return Err(format!("hostPath {} is not an absolute path", source.path));
    }
    let failed = |error: io::Error| format!("cannot make hostPath {}: {error}", source.path);
    let missing = || fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let kind = source.type_.as_deref().unwrap_or_default();
    match kind {
        "DirectoryOrCreate" if missing() => make_dirs(&path, 0o755).map_err(failed)?,
        "FileOrCreate" if missing() => {
            OpenOptions::new().append(true).create(true).mode(0o644).open(&path).map(drop).map_err(failed)?;
        }
        _ => {}
    }
    let (is_it, expected): (fn(&FileType) -> bool, _) = match kind {
        "" => return Ok(path),
        "DirectoryOrCreate" | "Directory" => (FileType::is_dir, "directory"),
        "FileOrCreate" | "File" => (FileType::is_file, "file"),
        "Socket" => (FileType::is_socket, "socket file"),
        "CharDevice" => (FileType::is_char_device, "character device"),
        "BlockDevice" => (FileType::is_block_device, "block device"),
        other => return Err(format!("{other} is an invalid volume type")),
    };
    let found = fs::metadata(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("hostPath type check failed: {} does not exist", source.path),
        _ => format!("hostPath type check failed: {}: {error}", source.path),
    })?;
    if is_it(&found.file_type()) {
        Ok(path)
    } else {
        let is = describe(found.file_type());
        Err(format!("hostPath type check failed: {} is not a {expected}, it is a {is}", source.path))
    }
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "directory",
        kind if kind.is_file() => "file",
        kind if kind.is_socket() => "socket file",
        kind if kind.is_char_device() => "character device",
        kind if kind.is_block_device() => "block device",
        _ => "pipe",
    }
}
