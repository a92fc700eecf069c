//! Volumes: what a pod asks for, made or found on the node.

use std::{
    ffi::CString,
    fs::{self, DirBuilder, FileType, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1;
use keelet_launch::memory_limit;
use keelet_pod::{Quantity, volume_types};
use rustix::mount::{MountFlags, mount};

use super::{
    NO_VOLUME, PodPaths,
    contents::{self, Content, ContentError, ContentSources, Medium},
    make_dirs,
};
use crate::HostError;

/// Every process in the pod may write, whatever user a container runs as.
const ROOM_MODE: u32 = 0o777;
/// What is made in it belongs to the volume's group.
const GROUPS_OWN: u32 = 0o2000;

/// What volumes of one pod are made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct VolumeContext<'a> {
    /// Where contents come from.
    pub(super) sources: ContentSources<'a>,
    /// The group that volumes belong to: the pod's `fsGroup`.
    pub(super) group: Option<u32>,
}

/// Makes or finds a volume, and returns where it is.
pub(super) fn make(volume: &v1::Volume, paths: &PodPaths, context: &VolumeContext<'_>) -> Result<PathBuf, HostError> {
    let made = match (&volume.empty_dir, &volume.host_path, Content::of(volume), volume_types(volume).first()) {
        (Some(source), ..) => empty_dir(source, &volume.name, paths, context),
        (None, Some(source), ..) => host_path(source).map_err(VolumeError::from),
        (None, None, Some(content), _) => contents::make(content, &volume.name, paths, context),
        // A volume that says nothing is an emptyDir, as the API defines it.
        (None, None, None, None) => empty_dir(&v1::EmptyDirVolumeSource::default(), &volume.name, paths, context),
        (None, None, None, Some(kind)) => Err(VolumeError::UnsupportedType((*kind).to_owned())),
    };
    made.map_err(|error| not_made(volume, &error))
}

/// A volume that cannot be made or filled.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    #[error(
        "volumes of type {0} are not supported by this agent; supported are configMap, downwardAPI, emptyDir, hostPath, \
         projected and secret"
    )]
    UnsupportedType(String),
    #[error("medium {0:?} is not supported by this agent; supported are \"\" and \"Memory\"")]
    UnsupportedMedium(String),
    #[error("cannot make {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot mount a tmpfs on {}: {source}", path.display())]
    Tmpfs { path: PathBuf, source: io::Error },
    #[error("cannot write to {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    #[error(transparent)]
    Content(#[from] ContentError),
}

/// A place of the node that is not what the pod expects.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostPathError {
    #[error("hostPath {0} is not an absolute path")]
    Relative(String),
    #[error("{0} is an invalid volume type")]
    UnknownType(String),
    #[error("cannot make hostPath {path}: {source}")]
    Make { path: String, source: io::Error },
    #[error("hostPath type check failed: {0} does not exist")]
    Missing(String),
    #[error("hostPath type check failed: {path}: {source}")]
    Inspect { path: String, source: io::Error },
    #[error("hostPath type check failed: {path} is not a {expected}, it is a {found}")]
    OtherType { path: String, expected: &'static str, found: &'static str },
}

/// Fills a volume anew, if it is one that the agent fills.
pub(super) fn refresh(volume: &v1::Volume, paths: &PodPaths, context: &VolumeContext<'_>) -> Result<(), HostError> {
    let Some(content) = Content::of(volume) else { return Ok(()) };
    contents::refresh(content, &volume.name, paths, context).map_err(|error| not_made(volume, &error))
}

fn not_made(volume: &v1::Volume, error: &VolumeError) -> HostError {
    HostError::new(NO_VOLUME, format_args!("MountVolume.SetUp failed for volume {:?} : {error}", volume.name))
}

fn empty_dir(
    source: &v1::EmptyDirVolumeSource,
    name: &str,
    paths: &PodPaths,
    context: &VolumeContext<'_>,
) -> Result<PathBuf, VolumeError> {
    let path = paths.empty_dir(name);
    // As in the kubelet, no more than the pod may use at all: what is in the volume counts as memory of the pod. No limit, or
    // one of nothing: the kernel's own, half the memory of the node.
    let asked = source.size_limit.as_ref().and_then(|limit| Quantity::parse(&limit.0));
    let asked = asked.and_then(|limit| u64::try_from(limit.units()).ok()).filter(|limit| *limit > 0);
    let limit = asked.into_iter().chain(memory_limit(context.sources.pod)).min();
    match source.medium.as_deref().unwrap_or_default() {
        "" => context.make_room(&path, Medium::Disk)?,
        "Memory" => {
            let options = limit.map(|limit| format!(",size={limit}")).unwrap_or_default();
            context.make_tmpfs(&path, &[&options])?;
        }
        medium => return Err(VolumeError::UnsupportedMedium(medium.to_owned())),
    }
    Ok(path)
}

// === impl VolumeContext ===

impl VolumeContext<'_> {
    /// Makes a directory that all users of the pod may write to, unless it is there.
    pub(super) fn make_room(&self, path: &Path, medium: Medium) -> Result<(), VolumeError> {
        match medium {
            Medium::Disk => self.make_dir(path),
            // Nothing of it is to reach a swap device. Kernels before 6.3 do not know the option.
            Medium::Memory => self.make_tmpfs(path, &[",noswap", ""]),
        }
    }

    fn make_dir(&self, path: &Path) -> Result<(), VolumeError> {
        let above = path.parent().unwrap_or(path);
        make_dirs(above, 0o750)
            .and_then(|()| make_open_dir(path, self.mode(), self.group))
            .map_err(|source| VolumeError::Directory { path: path.to_owned(), source })
    }

    /// The same in memory, with the first of these options that the kernel takes.
    fn make_tmpfs(&self, path: &Path, options: &[&str]) -> Result<(), VolumeError> {
        self.make_dir(path)?;
        if is_mounted(path).map_err(|source| VolumeError::Directory { path: path.to_owned(), source })? {
            return Ok(());
        }
        let mut tried = Ok(());
        for options in options {
            let group = self.group.map(|group| format!(",gid={group}")).unwrap_or_default();
            tried = mount_tmpfs(path, format!("mode={:o}{group}{options}", self.mode()));
            if tried.is_ok() {
                break;
            }
        }
        tried.map_err(|source| VolumeError::Tmpfs { path: path.to_owned(), source })
    }

    fn mode(&self) -> u32 {
        if self.group.is_some() { ROOM_MODE | GROUPS_OWN } else { ROOM_MODE }
    }
}

/// A directory that all users may write to. It gets its mode before it gets its name, so one that is in place is complete, and keeps
/// the mode that its pod may have given it since.
fn make_open_dir(path: &Path, mode: u32, group: Option<u32>) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "exists and is not a directory")),
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
    if group.is_some() {
        chown(&new, None, group)?;
    }
    fs::set_permissions(&new, Permissions::from_mode(mode))?;
    fs::rename(&new, path)
}

/// Whether something is mounted there. Every tmpfs is a device of its own.
fn is_mounted(path: &Path) -> io::Result<bool> {
    let parent = path.parent().unwrap_or(path);
    Ok(fs::symlink_metadata(path)?.dev() != fs::symlink_metadata(parent)?.dev())
}

/// How the kernel tells a tmpfs.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A tmpfs for root alone, unless one is mounted there.
pub(super) fn private_tmpfs(path: &Path) -> io::Result<()> {
    if is_mounted(path)? {
        let is_tmpfs = rustix::fs::statfs(path)?.f_type == TMPFS;
        return if is_tmpfs {
            Ok(())
        } else {
            Err(io::Error::other("a file system other than tmpfs is mounted there"))
        };
    }
    mount_tmpfs(path, "mode=700,noswap".to_owned()).or_else(|_| mount_tmpfs(path, "mode=700".to_owned()))
}

fn mount_tmpfs(path: &Path, options: String) -> io::Result<()> {
    Ok(mount("tmpfs", path, "tmpfs", MountFlags::empty(), CString::new(options)?.as_c_str())?)
}

/// Checks that there is what the pod expects. Without a type nothing is checked, and the runtime makes a directory if
/// there is nothing.
fn host_path(source: &v1::HostPathVolumeSource) -> Result<PathBuf, HostPathError> {
    let (path, text) = (PathBuf::from(&source.path), || source.path.clone());
    if !path.is_absolute() {
        return Err(HostPathError::Relative(text()));
    }
    let failed = |error: io::Error| HostPathError::Make { path: text(), source: error };
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
        other => return Err(HostPathError::UnknownType(other.to_owned())),
    };
    let found = fs::metadata(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => HostPathError::Missing(text()),
        _ => HostPathError::Inspect { path: text(), source: error },
    })?;
    if is_it(&found.file_type()) {
        Ok(path)
    } else {
        Err(HostPathError::OtherType { path: text(), expected, found: describe(found.file_type()) })
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
