//! Making and starting containers.

use std::{
    fs,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use keelet_cri::v1;
use keelet_linux::{ProcessRef, pidfd, userns};
use keelet_shim::protocol::{self, CONFIG, Request, START_OPTIONS, StartOptions, container_dir};
use tonic::Status;

use super::{Container, Phase, log_path, signals::stop_signal};
use crate::{
    engine::{Engine, new_id, now},
    records::{self, ContainerRecord, RECORD},
    sandbox::{Sandbox, cgroup_parent, failed, internal},
    security,
    shim::ShimError,
    spec::{self, Given},
    users,
};

// === impl Engine ===

impl Engine {
    pub(crate) async fn create_container(&self, sandbox: &str, config: v1::ContainerConfig) -> Result<String, Status> {
        let sandbox = self.sandbox(sandbox)?;
        // A caller that has left may remove the sandbox: that has to find this container, or this the sandbox stopped.
        let _lock = sandbox.lock.lock().await;
        if !sandbox.is_ready() {
            return Err(Status::failed_precondition(format!("sandbox {} is not ready", sandbox.id)));
        }
        let metadata =
            config.metadata.clone().ok_or_else(|| Status::invalid_argument("the container has no metadata"))?;
        let same = |other: &Container| other.config.metadata.as_ref() == Some(&metadata);
        if let Some(other) = self.containers_of(&sandbox.id).into_iter().find(|other| same(other)) {
            return Err(Status::already_exists(format!(
                "container {} is already attempt {} of {:?}",
                other.id, metadata.attempt, metadata.name
            )));
        }
        check(&config)?;
        users::check(self.users(&sandbox.config)?, &config)?;
        let id = new_id()?;
        let (dir, mounts) = (container_dir(&sandbox.dir, &id), config.mounts.len());
        let made = {
            let (engine, sandbox, id, dir) = (self.clone(), Arc::clone(&sandbox), id.clone(), dir.clone());
            let target = self.target(&config)?;
            self.blocking(move |_| engine.make_container(&sandbox, id, dir, config, target)).await
        };
        match made {
            Ok(container) => {
                self.add_container(Arc::new(container));
                self.emit(&sandbox, &id, v1::ContainerEventType::ContainerCreatedEvent);
                Ok(id)
            }
            Err(status) => {
                self.blocking(move |parts| {
                    for number in 0..mounts {
                        let _ = parts.images.unmount_image(&image_mount(&id, number));
                    }
                    let _ = parts.images.remove_root(&id);
                    let _ = fs::remove_dir_all(&dir);
                })
                .await;
                Err(status)
            }
        }
    }

    /// The process of the container whose processes this one asks to see.
    fn target(&self, config: &v1::ContainerConfig) -> Result<Option<ProcessRef>, Status> {
        let options =
            config.linux.as_ref().and_then(|linux| linux.security_context.as_ref()?.namespace_options.as_ref());
        match options.filter(|options| options.pid == v1::NamespaceMode::Target as i32) {
            Some(options) => Ok(self.container(&options.target_id)?.process()),
            None => Ok(None),
        }
    }

    fn make_container(
        &self,
        sandbox: &Sandbox,
        id: String,
        dir: PathBuf,
        config: v1::ContainerConfig,
        target: Option<ProcessRef>,
    ) -> Result<Container, Status> {
        let images = &self.parts.images;
        let wanted = config.image.as_ref().map(|image| image.image.as_str()).unwrap_or_default();
        let image = self.parts.find_image(wanted)?;
        let image = image.ok_or_else(|| Status::not_found(format!("image {wanted:?} not found on this node")))?;
        fs::create_dir_all(&dir).map_err(|error| internal("the container's directory", &error))?;
        let users = users::of(&sandbox.config)?;
        let namespace = users.map(|_| users::namespace(sandbox)).transpose()?;
        let open = namespace.as_ref().map(|users| |path: &Path| userns::mapped(path, users.as_fd()));
        let owners = open.as_ref().map(|open| -> keelet_image::Owners<'_> { open });
        let rootfs =
            images.make_root_for(&id, &image, owners).map_err(|error| internal("the container's files", &error))?;
        let security = security::of(&config, &image, &rootfs)?;
        users::check_ids(users, &security.user)?;
        let cgroup = format!("{}/{id}", cgroup_parent(&self.parts.settings.cgroup, &sandbox.id, &sandbox.config));
        let (image_mounts, places) = self.mount_images(&id, &dir, &config, owners)?;
        make_missing_directories(&config)?;
        let spec = spec::container(&Given {
            config: &config,
            sandbox_config: &sandbox.config,
            sandbox_dir: &sandbox.dir,
            pause: sandbox.pause_pid(),
            target: target.map(|process| process.pid),
            rootfs,
            cgroup: &cgroup,
            image: &image.config,
            user: &security.user,
            home: &security.home,
            capabilities: security.capabilities,
            seccomp: security.seccomp,
            image_mounts: places,
            cgroups: &self.parts.cgroups,
            users,
        });
        let spec = spec.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let write = |what: &str, result: std::io::Result<()>| result.map_err(|error| internal(what, &error));
        spec.save(dir.join(CONFIG)).map_err(|error| internal("the container's configuration", &error))?;
        let options = StartOptions {
            log: log_path(&config, &sandbox.config),
            stdin: config.stdin,
            runc: self.parts.oci_runtime.clone(),
        };
        write("the start options of the container", protocol::write(&dir.join(START_OPTIONS), &options))?;
        write("the container's request", records::write_container_config(&dir, &config))?;
        let record = ContainerRecord {
            created_at: now(),
            image_id: image.id.clone(),
            image_ref: image.pull_reference(),
            stop_signal: stop_signal(&config, &image.config),
            user: security.user,
            cgroup,
            image_mounts,
            target,
            failed: None,
            given_up_at: None,
        };
        // From here on it is one.
        write("the container's record", protocol::write(&dir.join(RECORD), &record))?;
        let container = Container::new(id, sandbox.id.clone(), dir, config, record);
        container.map_err(|error| internal("the container's state", &error))
    }

    /// Images that a container mounts like volumes: the keys of the mounts, and where they are.
    fn mount_images(
        &self,
        id: &str,
        dir: &Path,
        config: &v1::ContainerConfig,
        owners: Option<keelet_image::Owners<'_>>,
    ) -> Result<(Vec<String>, Vec<PathBuf>), Status> {
        let (mut keys, mut places) = (Vec::new(), Vec::new());
        for (number, mount) in config.mounts.iter().enumerate() {
            let Some(wanted) = &mount.image else { continue };
            let found = self.parts.find_image(&wanted.image)?;
            let image = found.ok_or_else(|| {
                Status::not_found(format!("image {:?} of an image volume not found on this node", wanted.image))
            })?;
            let (key, place) = (image_mount(id, number), dir.join(format!("image-{number}")));
            fs::create_dir_all(&place).map_err(|error| internal("image volume", &error))?;
            let mounted = self.parts.images.mount_image_for(&key, &image, &place, owners);
            mounted.map_err(|error| internal("image volume", &error))?;
            keys.push(key);
            let inside = security::below(&place, &mount.image_sub_path)
                .map_err(|error| internal(&format!("image volume, sub path {:?}", mount.image_sub_path), &error))?;
            places.push(inside);
        }
        Ok((keys, places))
    }

    pub(crate) async fn start_container(&self, id: &str) -> Result<(), Status> {
        let container = self.container(id)?;
        let _lock = container.lock.lock().await;
        let sandbox = self.sandbox(&container.sandbox)?;
        let is = |what: &str| Err(Status::failed_precondition(format!("container {} {what}", container.id)));
        // Read before the phase: all other code locks the record first, and the phase stays locked for the whole match.
        let failed_before = container.record().failed.is_some();
        match &*container.phase() {
            _ if failed_before => return is("failed to start and cannot be started again"),
            Phase::Created => {}
            Phase::Running(_) => return is("is already running"),
            Phase::Ended { .. } => return is("has exited and cannot be started again"),
        }
        if !sandbox.is_ready() {
            return is("is in a sandbox that is not ready");
        }
        // The configuration has the target's PID alone, which may have been reused since, even by a process of the node.
        let target = container.record().target.map(pidfd::open).transpose();
        let target = target.map_err(|error| internal("cannot open a pidfd of the target container", &error))?;
        if target.is_some_and(|handle| handle.is_none_or(pidfd::has_exited)) {
            return is("shares the PID namespace of a container that has exited");
        }
        let started = sandbox.shim().run(&Request::Start { id: container.id.clone() }).await;
        match started {
            Ok(_) => {
                self.refresh(&container);
                Ok(())
            }
            Err(ShimError::Refused(message)) => {
                // An earlier server may have asked for this start and been killed before the shim could answer.
                self.refresh(&container);
                if !matches!(&*container.phase(), Phase::Created) {
                    return Ok(());
                }
                let record = {
                    let mut record = container.record();
                    record.failed = Some((message.clone(), now()));
                    record.clone()
                };
                let _ = protocol::write(&container.dir.join(RECORD), &record);
                container.ended.send_replace(true);
                self.emit(&sandbox, &container.id, v1::ContainerEventType::ContainerStoppedEvent);
                Err(Status::unknown(format!("failed to start container {:?}: {message}", container.id)))
            }
            Err(error) => Err(failed(&error)),
        }
    }
}

/// The key of an image that a container mounts, by the number of the mount.
fn image_mount(id: &str, number: usize) -> String {
    format!("{id}-{number}")
}

/// The keys of all images that a container mounts.
pub(crate) fn image_mounts_of(id: &str, config: &v1::ContainerConfig) -> Vec<String> {
    let images = config.mounts.iter().enumerate().filter(|(_, mount)| mount.image.is_some());
    images.map(|(number, _)| image_mount(id, number)).collect()
}

/// The container that such a key was made for.
pub(crate) fn container_of_mount(key: &str) -> Option<&str> {
    key.rsplit_once('-').map(|(id, _)| id)
}

/// What cannot be passed on is refused before anything is made.
fn check(config: &v1::ContainerConfig) -> Result<(), Status> {
    use std::path::Component;
    let wrong = |what: String| Err(Status::invalid_argument(what));
    if !Path::new(&config.log_path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return wrong(format!("log_path {:?} leads out of the pod's log directory", config.log_path));
    }
    // By its place: its text may come from a secret.
    if let Some(place) = config.command.iter().chain(&config.args).position(|word| word.contains('\0')) {
        return wrong(format!("argument {place} of the command contains a NUL byte"));
    }
    for v1::KeyValue { key, value } in &config.envs {
        if key.is_empty() || key.contains(['\0', '=']) {
            return wrong(format!("{key:?} is not a valid name of an environment variable"));
        }
        if value.contains(&0) {
            return wrong(format!("environment variable {key} contains a NUL byte"));
        }
    }
    Ok(())
}

/// Directories of the node that a container mounts and that are not there are made, as containerd does.
fn make_missing_directories(config: &v1::ContainerConfig) -> Result<(), Status> {
    for mount in config.mounts.iter().filter(|mount| mount.image.is_none()) {
        let path = Path::new(&mount.host_path);
        if let Err(error) = path.symlink_metadata()
            && error.kind() == std::io::ErrorKind::NotFound
        {
            fs::create_dir_all(path).map_err(|error| internal(&format!("cannot make {}", path.display()), &error))?;
        }
    }
    Ok(())
}
