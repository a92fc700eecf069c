//! Records that are missing or unreadable although their sandbox or container was finished, written again from the other files.
//!
//! A server that is killed while it makes a sandbox leaves one without a record, and the next server removes it. That a container
//! was started in it is proof that it was finished: then its record was lost later, and it may run. Nothing of it is removed.
//!
//! | lost | recovered from |
//! | --- | --- |
//! | a sandbox's record | `sandbox.pb`, the shim's `pause.json`, the network's records |
//! | a container's record | `container.pb`, its `config.json`, its image |
//!
//! Where that is not enough, the sandbox counts as lost, with the reason, and its containers run until it is stopped. Without
//! `sandbox.pb` the runtime does not open: it could not say which pod runs.

use std::{collections::BTreeSet, fs, io, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use keelet_cri::v1::{self, NamespaceMode};
use keelet_linux::ProcessRef;
use keelet_shim::protocol::{self, CONFIG, CONTAINERS, PAUSE, STATE};
use oci_spec::runtime::Spec;
use tonic::Status;

use crate::{
    container::{Container, image_mounts_of, stop_signal},
    engine::Engine,
    records::{self, ContainerRecord, RECORD, SandboxRecord, User},
    sandbox::{Sandbox, cgroup_parent, internal, namespaces},
};

/// A process that no process is: there is no PID 0.
const NO_PROCESS: ProcessRef = ProcessRef { pid: 0, ticks: 0, boot: None };

/// Whether a container of this sandbox was started. What cannot be asked was.
fn has_started_containers(sandbox: &Path) -> bool {
    match fs::read_dir(sandbox.join(CONTAINERS)) {
        Ok(entries) => entries.into_iter().any(|entry| entry.map_or(true, |entry| was_started(&entry.path()))),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Whether this container was started: its shim has written its state.
pub(crate) fn was_started(container: &Path) -> bool {
    container.join(STATE).try_exists().unwrap_or(true)
}

/// When a file was written, in nanoseconds since 1970. Requests are written once.
fn written_at(path: &Path) -> i64 {
    fs::metadata(path).map_or(0, |meta| meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()))
}

/// The user that a container was started as.
fn user_in(config: &Path) -> Option<User> {
    let spec = Spec::load(config).ok()?;
    let user = spec.process().as_ref()?.user();
    Some(User { uid: user.uid(), gid: user.gid(), groups: user.additional_gids().clone().unwrap_or_default() })
}

// === impl Engine ===

impl Engine {
    /// The sandbox whose directory this is. An error without anything readable (`records::is_nothing`) means that it was never
    /// finished.
    pub(crate) async fn recorded_sandbox(&self, id: &str, dir: &Path) -> io::Result<Arc<Sandbox>> {
        let config = records::read_sandbox_config(dir)?;
        let (record, lost) = match records::read_sandbox_record(dir) {
            Err(error) if records::is_nothing(&error) && has_started_containers(dir) => {
                let (record, lost) = self.recover_sandbox(id, dir, &config).await;
                tracing::warn!(sandbox = id, %error, lost, "recovered lost record of sandbox");
                (record, lost)
            }
            record => (record?, None),
        };
        let sandbox = Sandbox::new(id.to_owned(), dir.to_owned(), config, record)?;
        if let Some(missing) = lost {
            sandbox.lose(missing);
        }
        Ok(Arc::new(sandbox))
    }

    /// The container whose directory this is, likewise.
    pub(crate) async fn recorded_container(&self, sandbox: &Sandbox, id: &str, dir: &Path) -> io::Result<Container> {
        let config = records::read_container_config(dir)?;
        let record = match records::read_container_record(dir) {
            Err(error) if records::is_nothing(&error) && was_started(dir) => {
                tracing::warn!(container = id, %error, "recovered lost record of container");
                self.recover_container(sandbox, id, dir, &config).await
            }
            record => record?,
        };
        Container::new(id.to_owned(), sandbox.id.clone(), dir.to_owned(), config, record)
    }

    /// The containers in a sandbox's directory of which nothing but the directory is known.
    pub(crate) fn unknown_containers(&self, sandbox: &Sandbox) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(sandbox.dir.join(CONTAINERS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let known: BTreeSet<_> =
            self.containers_of(&sandbox.id).into_iter().map(|container| container.id.clone()).collect();
        let mut unknown = Vec::new();
        for entry in entries {
            unknown.extend(entry?.file_name().into_string().ok().filter(|id| !known.contains(id)));
        }
        Ok(unknown)
    }

    /// Kills the containers of which nothing but the directory is known.
    pub(crate) async fn kill_unknown_containers(&self, sandbox: &Sandbox) -> io::Result<()> {
        let parent = cgroup_parent(&self.parts.settings.cgroup, &sandbox.id, &sandbox.config);
        for id in self.unknown_containers(sandbox)? {
            let cgroup = format!("{parent}/{id}");
            self.blocking(move |parts| parts.cgroups.kill(&cgroup)).await;
        }
        Ok(())
    }

    /// Removes the files of containers of which nothing but the directory is known.
    pub(crate) async fn remove_unknown_containers(&self, sandbox: &Sandbox) -> Result<(), Status> {
        let parent = cgroup_parent(&self.parts.settings.cgroup, &sandbox.id, &sandbox.config);
        let unknown = self.unknown_containers(sandbox);
        for id in unknown.map_err(|error| internal("the pod's containers", &error))? {
            self.unmount_images(|container| container == id).await;
            let cgroup = format!("{parent}/{id}");
            let removed = self.blocking(move |parts| {
                parts.cgroups.clear(&cgroup).map_err(|error| internal("the container's cgroup", &error))?;
                parts.images.remove_root(&id).map_err(|error| internal("the container's files", &error))
            });
            removed.await?;
        }
        Ok(())
    }

    /// Recovers the record of a sandbox, and writes it. What could not be found out makes the sandbox a lost one.
    async fn recover_sandbox(
        &self,
        id: &str,
        dir: &Path,
        config: &v1::PodSandboxConfig,
    ) -> (SandboxRecord, Option<String>) {
        let mut lost = None;
        let pause = protocol::read(&dir.join(PAUSE)).unwrap_or_else(|error| {
            lost = Some(format!("its {RECORD} is lost, and its {PAUSE} cannot be read: {error}"));
            NO_PROCESS
        });
        let mut ips = Vec::new();
        if namespaces(config).network != NamespaceMode::Node as i32 {
            match self.parts.network.addresses(id).await {
                Ok(found) if !found.is_empty() => ips = found.iter().map(ToString::to_string).collect(),
                Ok(_) => lost = lost.or(Some(format!("its {RECORD} is lost, and its addresses are unknown"))),
                Err(error) => lost = lost.or(Some(format!("its {RECORD} is lost, and so are its addresses: {error}"))),
            }
        }
        let created_at = written_at(&records::sandbox_request(dir));
        // One that was stopped has no process any more, and is not ready for that reason.
        let record = SandboxRecord { created_at, runtime_handler: String::new(), pause, ips, stopped: false };
        if lost.is_none() {
            rewrite(dir, &record);
        }
        (record, lost)
    }

    /// Recovers the record of a container that was started, and writes it.
    async fn recover_container(
        &self,
        sandbox: &Sandbox,
        id: &str,
        dir: &Path,
        config: &v1::ContainerConfig,
    ) -> ContainerRecord {
        let wanted = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        let name = wanted.clone();
        let image = self.blocking(move |parts| parts.images.find(&name)).await.ok().flatten();
        let record = ContainerRecord {
            created_at: written_at(&records::container_request(dir)),
            image_id: image.as_ref().map_or_else(|| wanted.clone(), |image| image.id.clone()),
            image_ref: image.as_ref().map_or_else(|| wanted.clone(), keelet_image::Image::pull_reference),
            stop_signal: stop_signal(config, &image.map(|image| image.config).unwrap_or_default()),
            user: user_in(&dir.join(CONFIG)).unwrap_or_default(),
            cgroup: format!("{}/{id}", cgroup_parent(&self.parts.settings.cgroup, &sandbox.id, &sandbox.config)),
            image_mounts: image_mounts_of(id, config),
            // Both matter until the start alone, and it was started.
            target: None,
            failed: None,
            given_up_at: None,
        };
        rewrite(dir, &record);
        record
    }
}

fn rewrite(dir: &Path, record: &impl serde::Serialize) {
    if let Err(error) = protocol::write(&dir.join(RECORD), record) {
        tracing::warn!(dir = %dir.display(), %error, "cannot write recovered record; the next start recovers it again");
    }
}
