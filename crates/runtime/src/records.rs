//! What the server writes down of a sandbox or a container, so that the next one knows.
//!
//! ```text
//! sandboxes/<id>/sandbox.pb                  the request, as it came
//! sandboxes/<id>/record.json                 what became of it
//! sandboxes/<id>/containers/<id>/container.pb, record.json
//!                               limits.pb    limits that were changed since
//!                               state.json   written by the shim
//! ```
//!
//! All of it lies on a file system that does not outlive a boot, as containers do not.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use keelet_cri::v1;
use keelet_linux::ProcessRef;
use keelet_shim::protocol;
use prost::Message;
use serde::{Deserialize, Serialize};

/// The server's own record, of a sandbox and of a container.
pub(crate) const RECORD: &str = "record.json";
const SANDBOX: &str = "sandbox.pb";
const CONTAINER: &str = "container.pb";
const LIMITS: &str = "limits.pb";

/// A sandbox. Without a record it was never finished, unless a container was started in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) created_at: i64,
    pub(crate) runtime_handler: String,
    /// The process that holds its namespaces.
    pub(crate) pause: ProcessRef,
    pub(crate) ips: Vec<String>,
    /// A caller has stopped it: its network is given back, or is about to be.
    pub(crate) stopped: bool,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) created_at: i64,
    /// The image's ID and the reference that pulls it again.
    pub(crate) image_id: String,
    pub(crate) image_ref: String,
    pub(crate) stop_signal: i32,
    pub(crate) user: User,
    /// Where its processes are.
    pub(crate) cgroup: String,
    /// Images mounted into it, by the key of the mount.
    pub(crate) image_mounts: Vec<String>,
    /// The process of another container whose processes it sees.
    #[serde(default)]
    pub(crate) target: Option<ProcessRef>,
    /// Why it could not be started, and when that was tried.
    pub(crate) failed: Option<(String, i64)>,
    /// When it was stopped with its exit status unknown.
    pub(crate) given_up_at: Option<i64>,
}

/// The user and groups that a container runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

pub(crate) fn write_sandbox_config(dir: &Path, config: &v1::PodSandboxConfig) -> io::Result<()> {
    fs::write(dir.join(SANDBOX), config.encode_to_vec())
}

pub(crate) fn read_sandbox_config(dir: &Path) -> io::Result<v1::PodSandboxConfig> {
    let path = sandbox_request(dir);
    let config: v1::PodSandboxConfig = decode(&path)?;
    // An empty file decodes too, and says nothing.
    if config.metadata.is_none() { Err(no_metadata(&path)) } else { Ok(config) }
}

pub(crate) fn read_sandbox_record(dir: &Path) -> io::Result<SandboxRecord> {
    protocol::read(&dir.join(RECORD))
}

/// The file with the request for a sandbox.
pub(crate) fn sandbox_request(dir: &Path) -> PathBuf {
    dir.join(SANDBOX)
}

/// Whether a directory has the request for a sandbox, which is there before its shim. What cannot be read just now is there.
pub(crate) fn is_sandbox(dir: &Path) -> bool {
    !matches!(read_sandbox_config(dir), Err(error) if is_nothing(&error))
}

pub(crate) fn write_container_config(dir: &Path, config: &v1::ContainerConfig) -> io::Result<()> {
    fs::write(dir.join(CONTAINER), config.encode_to_vec())
}

pub(crate) fn read_container_config(dir: &Path) -> io::Result<v1::ContainerConfig> {
    let path = container_request(dir);
    let config: v1::ContainerConfig = decode(&path)?;
    if config.metadata.is_none() { Err(no_metadata(&path)) } else { Ok(config) }
}

pub(crate) fn read_container_record(dir: &Path) -> io::Result<ContainerRecord> {
    protocol::read(&dir.join(RECORD))
}

/// The file with the request for a container.
pub(crate) fn container_request(dir: &Path) -> PathBuf {
    dir.join(CONTAINER)
}

/// Limits that were changed while the container ran.
pub(crate) fn write_limits(dir: &Path, limits: &v1::LinuxContainerResources) -> io::Result<()> {
    let new = dir.join("limits.new");
    fs::write(&new, limits.encode_to_vec())?;
    fs::rename(new, dir.join(LIMITS))
}

pub(crate) fn read_limits(dir: &Path) -> Option<v1::LinuxContainerResources> {
    decode(&dir.join(LIMITS)).ok()
}

/// Whether a file is missing or has nothing in it that could be used. Anything else that goes wrong says nothing about it.
pub(crate) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData)
}

fn no_metadata(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} names no pod or container", path.display()))
}

fn decode<T: Message + Default>(path: &Path) -> io::Result<T> {
    T::decode(fs::read(path)?.as_slice()).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{} cannot be used: {error}", path.display()))
    })
}
