//! Making sandboxes and containers.

use std::path::PathBuf;

use keelet_host::{HostError, InstanceFiles, InstanceOf, Volumes};
use keelet_launch::{self as launch, ConfigError, IdRange, Image, Objects, Placement};
use keelet_lifecycle::operation::OpResult;
use keelet_pod::Container;

use super::{Work, failed};

/// What there is on the node for a launch.
#[derive(Default)]
struct Prepared {
    volumes: Volumes,
    logs: PathBuf,
    files: InstanceFiles,
    objects: Objects,
    users: Option<IdRange>,
    recursive_read_only: bool,
}

// === impl Work ===

impl Work {
    pub(super) async fn create_sandbox(&self, attempt: u32) -> OpResult {
        let prepared = match self.prepare().await {
            Ok(prepared) => prepared,
            Err(error) => return failed(error.reason, error.message),
        };
        let config = match launch::sandbox_config(&self.placement(&prepared), attempt) {
            Ok(config) => config,
            Err(error) => return misfit(error),
        };
        if prepared.users.is_some()
            && let Err(error) = self.runtime_has_users().await
        {
            self.shared.metrics.pod_start_failed();
            return failed("CreatePodSandboxError", error.to_string());
        }
        if self.is_cancelled() {
            return OpResult::Cancelled;
        }
        match self.shared.runtime.run_pod_sandbox(config, self.handler()).await {
            Ok(_) => {
                self.shared.metrics.pod_started();
                OpResult::Done
            }
            Err(error) => {
                self.shared.metrics.pod_start_failed();
                failed("CreatePodSandboxError", error.to_string())
            }
        }
    }

    /// Creates and starts a container. An agent that dies in between leaves it created, for the next to start.
    pub(super) async fn launch(&self, name: &str, attempt: u32, sandbox: &str) -> OpResult {
        let Some(container) = self.pod.container(name) else { return OpResult::Cancelled };
        let prepared = match self.prepare_for(container, attempt).await {
            Ok(prepared) => prepared,
            Err(error) => return failed("CreateContainerConfigError", error.to_string()),
        };
        let runtime = &self.shared.runtime;
        let image = match runtime.image_status(&container.image).await {
            Ok(Some(image)) => image,
            Ok(None) => {
                let message = format!("image {:?} is no longer on the node", container.image);
                return failed("CreateContainerError", message);
            }
            Err(error) => return failed("ImageInspectError", error.to_string()),
        };
        let image = Image {
            id: image.id,
            name: container.image.clone(),
            uid: image.uid.map(|uid| uid.value),
            user: image.username,
        };
        let placement = Placement { target: self.target_of(name), ..self.placement(&prepared) };
        let config = launch::container_config(&placement, container, attempt, &image);
        let sandbox_config = launch::sandbox_config(&placement, self.sandbox_attempt);
        let (config, sandbox_config) = match (config, sandbox_config) {
            (Ok(config), Ok(sandbox_config)) => (config, sandbox_config),
            (Err(error), _) | (_, Err(error)) => return misfit(error),
        };
        if self.is_cancelled() {
            return OpResult::Cancelled;
        }
        match runtime.create_container(sandbox, config, sandbox_config).await {
            Ok(id) => {
                self.emit(Some(name), "Created", format!("Created container {name}"));
                if self.is_cancelled() { OpResult::Cancelled } else { self.start(&id).await }
            }
            Err(error) => failed("CreateContainerError", error.to_string()),
        }
    }

    pub(super) async fn start(&self, id: &str) -> OpResult {
        match self.shared.runtime.start_container(id).await {
            Ok(()) => OpResult::Done,
            Err(error) => failed("RunContainerError", error.to_string()),
        }
    }

    /// The container whose processes an ephemeral container asks to see.
    fn target_of(&self, ephemeral: &str) -> Option<&str> {
        let containers = self.pod.source.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
        let name = containers.filter(|c| c.name == ephemeral).find_map(|c| c.target_container_name.as_deref())?;
        self.running.get(name).map(String::as_str)
    }

    /// A runtime that knows nothing of users would give the pod the node's, root included.
    async fn runtime_has_users(&self) -> Result<(), UsersError> {
        let found = self.shared.runtime.handler_features(self.handler()).await?;
        if found.user_namespaces {
            return Ok(());
        }
        let runtime = self.shared.scheme().await.unwrap_or("container");
        Err(UsersError::NotOffered { runtime: runtime.to_owned() })
    }

    /// Which of the runtime's handlers the pod asks for; the usual one has no name. There are no RuntimeClass objects to look it
    /// up in, so a class is its handler.
    fn handler(&self) -> &str {
        self.pod.source.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref()).unwrap_or_default()
    }

    async fn prepare(&self) -> Result<Prepared, HostError> {
        let volumes = self.prepare_volumes().await?;
        let users = match launch::has_own_users(&self.pod) {
            true => Some(self.shared.host.user_range(&self.pod).await?),
            false => None,
        };
        Ok(Prepared { volumes, logs: self.shared.host.log_dir(&self.pod)?, users, ..Prepared::default() })
    }

    async fn prepare_for(&self, container: &Container, attempt: u32) -> Result<Prepared, PrepareError> {
        let mut prepared = self.prepare().await?;
        let wanted = launch::references(&self.pod, &container.name);
        prepared.objects = self.shared.host.objects(&self.pod, &wanted).await?;
        if launch::wants_recursive_read_only(&self.pod, container) {
            let features = self.shared.runtime.handler_features(self.handler()).await;
            prepared.recursive_read_only = features?.recursive_read_only_mounts;
        }
        let parts = launch::sub_paths(&self.placement(&prepared), container)?;
        let (pod, addresses) = (&self.pod, &self.addresses);
        let instance = InstanceOf { pod, container: &container.name, attempt, addresses, sub_paths: &parts };
        let files = self.shared.host.prepare_instance(instance).await?;
        Ok(Prepared { files, ..prepared })
    }

    fn placement<'a>(&'a self, prepared: &'a Prepared) -> Placement<'a> {
        Placement {
            pod: &self.pod,
            volumes: &prepared.volumes,
            parts: &prepared.files.parts,
            objects: &prepared.objects,
            logs: &prepared.logs,
            etc_hosts: prepared.files.etc_hosts.as_deref(),
            termination_file: prepared.files.termination.as_deref(),
            target: None,
            pod_ips: &self.addresses,
            users: prepared.users,
            recursive_read_only: prepared.recursive_read_only,
            node: self.shared.facts(),
        }
    }
}

/// Why a pod with users of its own is not started.
#[derive(Debug, thiserror::Error)]
enum UsersError {
    #[error(transparent)]
    Runtime(#[from] keelet_cri::Error),
    #[error("hostUsers: false: the {runtime} runtime on this node offers no user namespaces")]
    NotOffered { runtime: String },
}

/// Why a container does not get what it needs before it is created.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Runtime(#[from] keelet_cri::Error),
}

fn misfit(error: ConfigError) -> OpResult {
    failed(error.reason, error.message)
}
