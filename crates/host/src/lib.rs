//! Directories and files of pods on the node, laid out as the kubelet lays them out.
//!
//! ```text
//! <root>/pods/<uid>/etc-hosts
//! <root>/pods/<uid>/userns                                        which IDs of the node its users are
//! <root>/pods/<uid>/containers/<container>/<attempt>              termination message
//! <root>/pods/<uid>/volumes/kubernetes.io~empty-dir/<volume>/     a directory, or a tmpfs
//! <root>/pods/<uid>/volumes/kubernetes.io~configmap/<volume>/     the same for volumes that the agent fills
//! <root>/pods/<uid>/volume-subpaths/<volume>/<container>/<number> a mount of a part of a volume
//! <logs>/<namespace>_<name>_<uid>/<container>/<attempt>.log       written by the runtime
//! ```
//!
//! [`PodPaths`] says where things are. [`OsHost`] makes, reads and removes them, off the threads of the agent's tasks. It
//! holds no state: everything is found in place, by an agent that was restarted as well.
//!
//! Volumes are room for the pod (`emptyDir`), places of the node (`hostPath`), or filled by the agent (`configMap`,
//! `secret`, `downwardAPI`, `projected`). A volume of any other kind is reported to the pod, which waits.

mod contents;
mod disk_permits;
mod door;
mod filler;
mod hosts;
mod logs;
mod objects;
mod paths;
mod process;
mod removal;
mod sub_paths;
mod tail;
mod users;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use keelet_launch::{IdRange, NodeFacts, Objects, Reference, SubPath, Writer, has_contents};
use keelet_lifecycle::restart::count_from_logs;
use keelet_linux::beneath::Directory;
use keelet_pod::Pod;
use rustix::fs::OFlags;

use self::{disk_permits::DiskPermits, filler::Filler};
pub use self::{
    door::{Ended, Host, HostError, InstanceFiles, InstanceOf, LogFile, Space, Volumes},
    objects::{ByOrigin, LocalObjects, NoObjects, ObjectError, ObjectName, ObjectStore},
    paths::{Layout, PodPaths},
    removal::{EntryError, EntryProblem, RemoveError},
};

/// The reason of an error with a pod's own directories.
const NO_DIRECTORIES: &str = "FailedToMakePodDataDirectories";
/// The reason of an error with a volume.
const NO_VOLUME: &str = "FailedMount";
/// The reason of an error with a config map or a secret that variables come from.
const NO_OBJECT: &str = "CreateContainerConfigError";
/// The reason of an error with a log.
const NO_LOG: &str = "FailedLogRotation";
/// The reason of an error while a pod's directories are removed.
const NOT_REMOVED: &str = "FailedCleanUp";

/// Bytes of the termination messages of all containers of a pod (STAT-11): they are part of its status.
const ALL_MESSAGES_BYTES: usize = 12 * 1024;

/// The node's own file system and processes.
#[derive(Clone, Debug)]
pub struct OsHost {
    layout: Layout,
    permits: DiskPermits,
    objects: Arc<dyn ObjectStore>,
    facts: Arc<NodeFacts>,
    /// Held while a volume is filled: launches of a pod and the regular refresh may do so at the same time.
    filling: Arc<Mutex<()>>,
    /// Held while a pod gets IDs for its users: two must not find the same ones free.
    giving_ids: Arc<Mutex<()>>,
}

// === impl OsHost ===

impl OsHost {
    /// A host with pods in these directories.
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            permits: DiskPermits::default(),
            objects: Arc::new(NoObjects),
            facts: Arc::default(),
            filling: Arc::default(),
            giving_ids: Arc::default(),
        }
    }

    /// The same with config maps and secrets.
    pub fn with_objects(self, objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, ..self }
    }

    /// The same, and the volumes of pods may contain these facts about the node.
    pub fn with_facts(self, facts: NodeFacts) -> Self {
        Self { facts: Arc::new(facts), ..self }
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The end of what a container wrote, as its termination message where the pod asks for that: at most 80 lines and
    /// 2048 bytes.
    pub fn log_tail<'a>(&'a self, pod: &'a Pod, container: &'a str, attempt: u32) -> BoxFuture<'a, String> {
        let paths = self.layout.pod(pod);
        let container = container.to_owned();
        self.permits.run(move || {
            let Ok(paths) = paths else { return String::new() };
            let path = paths.log_dir().join(PodPaths::container_log_file(&container, attempt));
            tail::read_end(&path, tail::LOG_WINDOW).map(|end| tail::log_message(&end)).unwrap_or_default()
        })
    }
}

impl OsHost {
    fn log_path(&self, log: &LogFile) -> Result<PathBuf, HostError> {
        let paths = self.layout.pod(&log.pod)?;
        Ok(paths.log_dir().join(PodPaths::container_log_file(&log.container, log.attempt)))
    }

    fn with_log(
        &self,
        log: &LogFile,
        stamp: &str,
        work: impl FnOnce(&Path, &str) -> io::Result<()> + Send + 'static,
    ) -> BoxFuture<'static, Result<(), HostError>> {
        let (path, stamp) = (self.log_path(log), stamp.to_owned());
        self.permits.run(move || {
            let path = path?;
            work(&path, &stamp).map_err(|error| no_log(&path, &error))
        })
    }
}

impl Host for OsHost {
    fn prepare<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<Volumes, HostError>> {
        let paths = self.layout.pod(pod);
        let containers: Vec<_> = pod.all_containers().map(|container| container.name.clone()).collect();
        let filler = Filler::of(self, pod);
        let make = move || {
            let paths = paths?;
            for container in containers {
                make_container_dirs(&paths, &container)?;
            }
            filler.each(|volume, ground| Ok((volume.name.clone(), volumes::make(volume, &paths, ground)?)))
        };
        Box::pin(async move {
            if has_contents(pod) {
                self.objects.settled(pod).await;
            }
            self.permits.run(make).await
        })
    }

    fn refresh<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<(), HostError>> {
        let paths = self.layout.pod(pod);
        let filler = Filler::of(self, pod);
        self.permits.run(move || {
            let paths = paths?;
            // One that cannot be filled does not keep the others from it.
            let filled: Vec<_> = filler.each(|volume, ground| Ok(volumes::refresh(volume, &paths, ground)))?;
            filled.into_iter().collect()
        })
    }

    fn objects<'a>(&'a self, pod: &'a Pod, wanted: &'a [Reference]) -> BoxFuture<'a, Result<Objects, HostError>> {
        let (store, pod, wanted) = (Arc::clone(&self.objects), pod.clone(), wanted.to_vec());
        Box::pin(async move {
            if wanted.is_empty() && !self.objects.has_services(&pod) {
                return Ok(Objects::default());
            }
            self.objects.settled(&pod).await;
            let find = move || {
                let mut objects = Objects::default();
                objects.set_services(store.services(&pod).map_err(|error| HostError::new(NO_OBJECT, error))?);
                for Reference { kind, name, .. } in wanted {
                    let found = store.find(&pod, kind, &name);
                    if let Some(data) = found.map_err(|error| HostError::new(NO_OBJECT, error))? {
                        objects.insert(kind, &name, Arc::new(data));
                    }
                }
                Ok(objects)
            };
            self.permits.run(find).await
        })
    }

    fn contents_changed(&self) -> BoxFuture<'_, ()> {
        self.objects.changed()
    }

    fn user_range<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<IdRange, HostError>> {
        let (paths, pods, giving) = (self.layout.pod(pod), self.layout.pods(), Arc::clone(&self.giving_ids));
        self.permits.run(move || {
            let _giving = giving.lock().unwrap_or_else(PoisonError::into_inner);
            users::range(&pods, paths?.dir(), Path::new("/etc"))
        })
    }

    fn log_dir(&self, pod: &Pod) -> Result<PathBuf, HostError> {
        Ok(self.layout.pod(pod)?.log_dir().to_owned())
    }

    fn prepare_instance<'a>(&'a self, instance: InstanceOf<'a>) -> BoxFuture<'a, Result<InstanceFiles, HostError>> {
        let paths = self.layout.pod(instance.pod);
        let (container, attempt, addresses) =
            (instance.container.to_owned(), instance.attempt, instance.addresses.to_vec());
        let (source, host_network) = (instance.pod.source.clone(), instance.pod.host_network);
        let parts = instance.sub_paths.to_vec();
        self.permits.run(move || {
            let paths = paths?;
            let parts = make_parts(&paths, &container, &parts)?;
            make_container_dirs(&paths, &container)?;
            // A node without such a file has nothing to pass on.
            let nodes = host_network.then(|| fs::read_to_string("/etc/hosts").unwrap_or_default());
            let hosts = hosts::hosts_file(&source, &addresses, nodes.as_deref());
            let (termination, etc_hosts) = (paths.termination_file(&container, attempt), paths.etc_hosts());
            // Every process of the container may write the termination message, whatever user it runs as.
            for (path, text, mode) in [(&termination, "", 0o666), (&etc_hosts, hosts.as_str(), 0o644)] {
                write_file(path, text.as_bytes(), mode).map_err(|error| no_directory(path, &error))?;
            }
            Ok(InstanceFiles { termination: Some(termination), etc_hosts: Some(etc_hosts), parts })
        })
    }

    fn log_counts<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, BTreeMap<String, u32>> {
        let paths = self.layout.pod(pod);
        let containers: Vec<_> = pod.all_containers().map(|container| container.name.clone()).collect();
        self.permits.run(move || {
            let Ok(paths) = paths else { return BTreeMap::new() };
            let counted = containers.into_iter().map(|container| {
                // Without a directory there was no instance.
                let directory = Directory::open(&paths.container_log_dir(&container));
                let names = directory.and_then(|directory| directory.names()).unwrap_or_default();
                let count = count_from_logs(names.iter().map(String::as_str));
                (container, count)
            });
            counted.collect()
        })
    }

    fn termination_message<'a>(&'a self, pod: &'a Pod, instance: Ended<'a>) -> BoxFuture<'a, String> {
        let Ended { container, attempt, exit_code } = instance;
        let path = self.layout.pod(pod).map(|paths| paths.termination_file(container, attempt));
        let most = tail::MESSAGE_BYTES.min(ALL_MESSAGES_BYTES / pod.all_containers().count().max(1));
        Box::pin(async move {
            let said = self.permits.run(move || {
                let Ok(path) = path else { return String::new() };
                match tail::read_end(&path, most) {
                    Ok(end) => tail::message(&end),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                    Err(error) => format!("Error on reading termination log {}: {error}", path.display()),
                }
            });
            let said = said.await;
            if said.is_empty() && exit_code != 0 && falls_back_to_log(pod, container) {
                let log = self.log_tail(pod, container, attempt).await;
                return log[log.ceil_char_boundary(log.len().saturating_sub(most))..].to_owned();
            }
            said
        })
    }

    fn log_sizes<'a>(&'a self, logs: &'a [LogFile]) -> BoxFuture<'a, Vec<Option<u64>>> {
        // One that has no path has no size, and nothing to rotate.
        let paths: Vec<_> = logs.iter().map(|log| self.log_path(log).ok()).collect();
        self.permits.run(move || paths.iter().map(|path| path.as_deref().map_or(Some(0), logs::size)).collect())
    }

    fn rotate_log<'a>(
        &'a self,
        log: &'a LogFile,
        max_files: u32,
        stamp: &'a str,
    ) -> BoxFuture<'a, Result<(), HostError>> {
        self.with_log(log, stamp, move |path, stamp| logs::rotate(path, max_files, stamp))
    }

    fn unrotate_log<'a>(&'a self, log: &'a LogFile, stamp: &'a str) -> BoxFuture<'a, Result<(), HostError>> {
        self.with_log(log, stamp, logs::unrotate)
    }

    fn drop_old_logs<'a>(&'a self, pod: &'a Pod, keep: u32) -> BoxFuture<'a, Result<(), HostError>> {
        let paths = self.layout.pod(pod);
        let containers: Vec<_> = pod.all_containers().map(|container| container.name.clone()).collect();
        self.permits.run(move || {
            let paths = paths?;
            containers.iter().try_for_each(|container| {
                let (logs, messages) = (paths.container_log_dir(container), paths.container_dir(container));
                logs::drop_old(&logs, keep, logs::attempt_of_log).map_err(|error| no_log(&logs, &error))?;
                logs::drop_old(&messages, keep, logs::attempt_of_message).map_err(|error| no_log(&messages, &error))
            })
        })
    }

    fn space<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<Space>> {
        let path = path.to_owned();
        self.permits.run(move || {
            let found = rustix::fs::statvfs(&path).ok()?;
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            Some(Space {
                capacity: bytes(found.f_blocks),
                available: bytes(found.f_bavail),
                inodes: found.f_files,
                inodes_free: found.f_favail,
            })
        })
    }

    fn pods_with_directories(&self) -> BoxFuture<'_, BTreeSet<String>> {
        // Logs alone prove nothing: another agent on this node may have its own in the same place.
        let pods = self.layout.pods();
        self.permits.run(move || names_in(&pods).unwrap_or_default().into_iter().collect())
    }

    fn process_end(&self, pid: u32) -> Option<BoxFuture<'static, ()>> {
        process::end(pid)
    }

    fn clean_up<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), HostError>> {
        let layout = self.layout.clone();
        let uid = uid.to_owned();
        self.permits.run(move || {
            let pod = layout.pod_dir(&uid)?;
            sub_paths::release_pod(&pod).map_err(|error| HostError::new(NOT_REMOVED, error))?;
            let logs = names_in(layout.logs()).unwrap_or_default();
            let of_pod = logs.into_iter().filter(|name| paths::is_log_dir_of(name, &uid));
            // The pod's own goes last: as long as it is there, an agent will come back for the rest.
            let directories: Vec<_> = of_pod.map(|name| layout.logs().join(name)).chain([pod]).collect();
            let failed: Vec<_> = directories.iter().flat_map(|directory| removal::remove(directory).err()).collect();
            match failed.as_slice() {
                [] => Ok(()),
                failed => Err(HostError::new(NOT_REMOVED, removal::listed(failed, "; "))),
            }
        })
    }
}

/// Removes a directory that pods had files in. What is mounted in it is unmounted and never emptied; what cannot be
/// removed stays, and the error reports it.
pub fn remove_directory(path: &Path) -> Result<(), RemoveError> {
    removal::remove(path)
}

/// Mounts a tmpfs for root alone on a directory, unless something is mounted there. Nothing in it reaches a swap device, where the kernel
/// offers that (6.3 and later).
pub fn mount_private_tmpfs(path: &Path) -> io::Result<()> {
    volumes::private_tmpfs(path)
}

/// Whether a container that fails without a message is to be quoted from its log.
fn falls_back_to_log(pod: &Pod, container: &str) -> bool {
    let Some(spec) = &pod.source.spec else { return false };
    let policy = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .find(|raw| raw.name == container)
        .and_then(|raw| raw.termination_message_policy.as_deref());
    policy == Some("FallbackToLogsOnError")
}

/// Sees to it that parts of volumes are there, and returns where each is, by where it was asked for.
fn make_parts(paths: &PodPaths, container: &str, parts: &[SubPath]) -> Result<BTreeMap<PathBuf, PathBuf>, HostError> {
    // What an earlier start was given, by this agent or by another one.
    sub_paths::release_container(paths, container).map_err(|error| HostError::new(NO_VOLUME, error))?;
    let made = parts.iter().enumerate().map(|(number, part)| {
        let place = paths.sub_path(&part.name, container, number);
        Ok((part.volume.join(&part.path), make_part(part, place)?))
    });
    made.collect()
}

/// Sees to it that a part of a volume is there, and returns where it is or what leads to it.
fn make_part(part: &SubPath, place: PathBuf) -> Result<PathBuf, HostError> {
    let SubPath { volume, path, writer, .. } = part;
    let unusable = |error: &dyn fmt::Display| {
        HostError::new(NO_VOLUME, format_args!("cannot use {} in {}: {error}", path.display(), volume.display()))
    };
    match writer {
        Writer::Pod => {
            let bound = sub_paths::find(volume, path).and_then(|found| sub_paths::bind(&found, &place));
            bound.map(|()| place).map_err(|error| unusable(&error))
        }
        Writer::Agent => contents::resolve(volume, path).map_err(|error| unusable(&error)),
    }
}

fn make_container_dirs(paths: &PodPaths, container: &str) -> Result<(), HostError> {
    let (own, logs) = (paths.container_dir(container), paths.container_log_dir(container));
    make_dirs(&own, 0o750).map_err(|error| no_directory(&own, &error))?;
    // Every user of the node may read logs, and a pod with a volume there may have put links.
    Directory::make(&logs).map_err(|error| no_directory(&logs, &error))?;
    Ok(())
}

/// Makes a directory and the missing ones above it.
fn make_dirs(directory: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(directory)
}

/// Makes a file, or empties the one in place, which containers may have mounted.
fn write_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(path)?;
    // The process's own mask has no say in it.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)
}

fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn no_log(path: &Path, error: &io::Error) -> HostError {
    HostError::new(NO_LOG, format_args!("{}: {error}", path.display()))
}

fn no_directory(path: &Path, error: &io::Error) -> HostError {
    HostError::new(NO_DIRECTORIES, format_args!("cannot make {}: {error}", path.display()))
}

#[cfg(test)]
mod content_tests;
#[cfg(test)]
mod tests;
