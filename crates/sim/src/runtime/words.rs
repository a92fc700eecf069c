//! What the runtime says of sandboxes, containers and images.

use std::collections::BTreeMap;

use keelet_cri::v1;

use crate::node::{Container, ContainerState, Sandbox};

/// What the ID of an image has before its name.
const DIGEST: &str = "sha256:";

type Labels = BTreeMap<String, String>;

impl Sandbox {
    fn metadata(&self) -> v1::PodSandboxMetadata {
        v1::PodSandboxMetadata {
            name: self.pod_name.clone(),
            uid: self.pod.clone(),
            namespace: self.namespace.clone(),
            attempt: self.attempt,
        }
    }

    fn state(&self) -> i32 {
        let ready = v1::PodSandboxState::SandboxReady;
        if self.ready { ready.into() } else { v1::PodSandboxState::SandboxNotready.into() }
    }

    pub(super) fn status(&self) -> v1::PodSandboxStatus {
        let network = if self.host_network { v1::NamespaceMode::Node } else { v1::NamespaceMode::Pod };
        let options = v1::NamespaceOption { network: network.into(), ..Default::default() };
        let namespaces = v1::Namespace { options: Some(options) };
        v1::PodSandboxStatus {
            id: self.id.clone(),
            metadata: Some(self.metadata()),
            state: self.state(),
            created_at: self.created_ns,
            network: Some(v1::PodSandboxNetworkStatus { ip: self.ip.clone(), additional_ips: Vec::new() }),
            linux: Some(v1::LinuxPodSandboxStatus { namespaces: Some(namespaces) }),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            runtime_handler: String::new(),
        }
    }

    pub(super) fn listed(&self) -> v1::PodSandbox {
        v1::PodSandbox {
            id: self.id.clone(),
            metadata: Some(self.metadata()),
            state: self.state(),
            created_at: self.created_ns,
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            runtime_handler: String::new(),
        }
    }
}

impl Container {
    fn metadata(&self) -> v1::ContainerMetadata {
        v1::ContainerMetadata { name: self.instance.name.clone(), attempt: self.instance.attempt }
    }

    fn image_spec(&self) -> v1::ImageSpec {
        v1::ImageSpec { image: self.image.clone(), ..v1::ImageSpec::default() }
    }

    pub(super) fn status(&self) -> v1::ContainerStatus {
        let (state, started_at, finished_at, exit_code, reason) = match self.state {
            ContainerState::Created => (v1::ContainerState::ContainerCreated, 0, 0, 0, ""),
            ContainerState::Running { started_ns, .. } => (v1::ContainerState::ContainerRunning, started_ns, 0, 0, ""),
            ContainerState::Exited { started_ns, finished_ns, exit_code, reason } => {
                (v1::ContainerState::ContainerExited, started_ns, finished_ns, exit_code, reason)
            }
        };
        v1::ContainerStatus {
            id: self.instance.id.clone(),
            metadata: Some(self.metadata()),
            state: state.into(),
            created_at: self.created_ns,
            started_at,
            finished_at,
            exit_code,
            image: Some(self.image_spec()),
            image_ref: image_id(&self.image),
            reason: reason.to_owned(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            image_id: image_id(&self.image),
            ..v1::ContainerStatus::default()
        }
    }

    pub(super) fn listed(&self) -> v1::Container {
        v1::Container {
            id: self.instance.id.clone(),
            pod_sandbox_id: self.instance.sandbox.clone(),
            metadata: Some(self.metadata()),
            image: Some(self.image_spec()),
            image_ref: image_id(&self.image),
            state: self.status().state,
            created_at: self.created_ns,
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            image_id: image_id(&self.image),
        }
    }
}

pub(super) fn image(name: &str) -> v1::Image {
    v1::Image { id: image_id(name), repo_tags: vec![name.to_owned()], size: 1 << 20, ..v1::Image::default() }
}

pub(super) fn image_id(name: &str) -> String {
    format!("{DIGEST}{name}")
}

/// The name of an image that is given by name or by ID.
pub(super) fn name_of(image: &str) -> &str {
    image.strip_prefix(DIGEST).unwrap_or(image)
}

pub(super) fn selects(wanted: &Labels, labels: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}
