//! Volumes that the agent fills: config maps, secrets, the downward API, and projections of them.
//!
//! What is in them is put together by [`payload`] and written by [`atomic`], once before the pod starts and again
//! whenever it has changed. If a required object is missing or cannot be read, the volume keeps its files: a removal does not harm a pod
//! that runs, and a new run of the agent decides as the old one did. A key that was removed, or an optional object that was deleted, takes its
//! files with it.

mod atomic;
mod payload;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1;

pub(super) use self::payload::{ContentError, ContentSources};
use super::{
    PodPaths,
    volumes::{VolumeContext, VolumeError},
};

/// The link in a volume to what is in it.
const DATA: &str = "..data";

/// A volume that the agent fills.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    ConfigMap(&'a v1::ConfigMapVolumeSource),
    Secret(&'a v1::SecretVolumeSource),
    Downward(&'a v1::DownwardAPIVolumeSource),
    Projected(&'a v1::ProjectedVolumeSource),
}

/// Makes a volume and fills it. One that was filled before keeps what it has if it cannot be filled now.
pub(super) fn make(
    content: Content<'_>,
    name: &str,
    paths: &PodPaths,
    context: &VolumeContext<'_>,
) -> Result<PathBuf, VolumeError> {
    let path = place(content, name, paths);
    let payload = match payload::payload(content, &context.sources) {
        Ok(payload) => payload,
        Err(error) if is_filled(&path) => {
            tracing::warn!(volume = %path.display(), %error, "cannot update volume; it keeps its old content");
            return Ok(path);
        }
        Err(error) => return Err(error.into()),
    };
    context.make_room(&path, content.medium())?;
    write(&path, &payload, context)?;
    Ok(path)
}

/// Fills a volume with what should be in it by now. One that was never filled is left alone.
pub(super) fn refresh(
    content: Content<'_>,
    name: &str,
    paths: &PodPaths,
    context: &VolumeContext<'_>,
) -> Result<(), VolumeError> {
    let path = place(content, name, paths);
    if !is_filled(&path) {
        return Ok(());
    }
    write(&path, &payload::payload(content, &context.sources)?, context)
}

fn write(path: &Path, payload: &payload::Payload, context: &VolumeContext<'_>) -> Result<(), VolumeError> {
    let changed = atomic::write(path, payload, context.group)
        .map_err(|source| VolumeError::Write { path: path.to_owned(), source })?;
    if changed == atomic::Changed::Yes {
        tracing::debug!(volume = %path.display(), files = payload.len(), "volume content written");
    }
    Ok(())
}

fn place(content: Content<'_>, name: &str, paths: &PodPaths) -> PathBuf {
    paths.volumes_of(content.plugin()).join(name)
}

fn is_filled(path: &Path) -> bool {
    fs::symlink_metadata(path.join(DATA)).is_ok()
}

/// Where a part of such a volume is right now. What is mounted from there does not change with the volume.
pub(super) fn resolve(volume: &Path, part: &Path) -> Result<PathBuf, ResolveError> {
    let real =
        |path: &Path| fs::canonicalize(path).map_err(|source| ResolveError::LookUp { path: path.to_owned(), source });
    let (top, found) = (real(volume)?, real(&volume.join(part))?);
    if found.starts_with(&top) { Ok(found) } else { Err(ResolveError::LeavesVolume(part.to_owned())) }
}

/// A part of a volume that is not found in it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    #[error("{}: {source}", path.display())]
    LookUp { path: PathBuf, source: io::Error },
    #[error("{} leads out of the volume", .0.display())]
    LeavesVolume(PathBuf),
}

// === impl Content ===

impl<'a> Content<'a> {
    /// What the agent has to fill in a volume; none for volumes of other types.
    pub(super) fn of(volume: &'a v1::Volume) -> Option<Self> {
        if let Some(source) = &volume.config_map {
            return Some(Self::ConfigMap(source));
        }
        if let Some(source) = &volume.secret {
            return Some(Self::Secret(source));
        }
        if let Some(source) = &volume.downward_api {
            return Some(Self::Downward(source));
        }
        volume.projected.as_ref().map(Self::Projected)
    }

    /// What the kubelet calls the volume plugin, as a directory name.
    fn plugin(self) -> &'static str {
        match self {
            Self::ConfigMap(_) => "kubernetes.io~configmap",
            Self::Secret(_) => "kubernetes.io~secret",
            Self::Downward(_) => "kubernetes.io~downward-api",
            Self::Projected(_) => "kubernetes.io~projected",
        }
    }

    /// A secret never reaches a disk. What else is in memory is so as the kubelet has it.
    fn medium(self) -> Medium {
        match self {
            Self::ConfigMap(_) => Medium::Disk,
            Self::Secret(_) | Self::Downward(_) | Self::Projected(_) => Medium::Memory,
        }
    }
}

/// What a volume is kept on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    Memory,
}
