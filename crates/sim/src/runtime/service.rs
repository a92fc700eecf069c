//! The calls of CRI that the agent makes, one by one. What is not here answers Unimplemented.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::Stream;
use keelet_cri::v1::{self, image_service_server::ImageService, runtime_service_server::RuntimeService};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use super::{
    Answered, RUNTIME_NAME, SimRuntime,
    words::{image, image_id, name_of, selects},
};
use crate::{
    faults::CallKind,
    node::{Blueprint, Container, ContainerState, Sandbox},
    script::{Answer, Reply},
    sim::{State, Subscriber},
    targets,
    timeline::Attempt,
};

/// Events that may wait for one subscriber: more than any pod has, so only one that never reads loses any.
const EVENTS: usize = 1024;

type EventStream = Pin<Box<dyn Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send>>;

// === impl SimRuntime ===

#[tonic::async_trait]
impl RuntimeService for SimRuntime {
    async fn version(&self, request: Request<v1::VersionRequest>) -> Answered<v1::VersionResponse> {
        let version = request.into_inner().version;
        self.quick(CallKind::Version, "", move |_| {
            Ok(v1::VersionResponse {
                version,
                runtime_name: RUNTIME_NAME.to_owned(),
                runtime_version: "1".to_owned(),
                runtime_api_version: "v1".to_owned(),
            })
        })
        .await
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answered<v1::StatusResponse> {
        self.quick(CallKind::Version, "", |_| {
            let condition = |kind: &str| v1::RuntimeCondition {
                r#type: kind.to_owned(),
                status: true,
                ..v1::RuntimeCondition::default()
            };
            let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
            Ok(v1::StatusResponse { status: Some(v1::RuntimeStatus { conditions }), ..v1::StatusResponse::default() })
        })
        .await
    }

    async fn run_pod_sandbox(&self, request: Request<v1::RunPodSandboxRequest>) -> Answered<v1::RunPodSandboxResponse> {
        let config = request.into_inner().config.unwrap_or_default();
        let metadata = config.metadata.unwrap_or_default();
        let options = config.linux.and_then(|linux| linux.security_context?.namespace_options);
        let host_network = options.is_some_and(|options| options.network == v1::NamespaceMode::Node as i32);
        let subject = metadata.name.clone();
        let sandbox = Sandbox {
            id: String::new(),
            pod: metadata.uid,
            pod_name: metadata.name,
            namespace: metadata.namespace,
            attempt: metadata.attempt,
            ready: true,
            ip: String::new(),
            host_network,
            created_ns: 0,
            labels: config.labels,
            annotations: config.annotations,
            loss: None,
        };
        self.quick(CallKind::RunPodSandbox, &subject, move |state| {
            let same = |found: &&Sandbox| found.pod == sandbox.pod && found.attempt == sandbox.attempt;
            if let Some(found) = state.node.sandboxes.values().find(same) {
                return Err(Status::already_exists(format!("the name is taken by {}", found.id)));
            }
            Ok(v1::RunPodSandboxResponse { pod_sandbox_id: state.run_sandbox(sandbox) })
        })
        .await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answered<v1::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.quick(CallKind::StopPodSandbox, &id.clone(), move |state| {
            state.stop_sandbox(&id);
            Ok(v1::StopPodSandboxResponse {})
        })
        .await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answered<v1::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.quick(CallKind::RemovePodSandbox, &id.clone(), move |state| {
            state.remove_sandbox(&id);
            Ok(v1::RemovePodSandboxResponse {})
        })
        .await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answered<v1::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.quick(CallKind::PodSandboxStatus, &id.clone(), move |state| {
            let found = state.node.sandboxes.get(&id).ok_or_else(|| Status::not_found(format!("no sandbox {id}")))?;
            Ok(v1::PodSandboxStatusResponse { status: Some(found.status()), ..Default::default() })
        })
        .await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answered<v1::ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        self.quick(CallKind::ListPodSandbox, "", move |state| {
            let passes = |sandbox: &&Sandbox| {
                let status = sandbox.status();
                (filter.id.is_empty() || filter.id == sandbox.id)
                    && filter.state.is_none_or(|wanted| wanted.state == status.state)
                    && selects(&filter.label_selector, &sandbox.labels)
            };
            let items = state.node.sandboxes.values().filter(passes).map(Sandbox::listed).collect();
            Ok(v1::ListPodSandboxResponse { items })
        })
        .await
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answered<v1::CreateContainerResponse> {
        let request = request.into_inner();
        let config = request.config.unwrap_or_default();
        let metadata = config.metadata.unwrap_or_default();
        let subject = format!("{} attempt={} in {}", metadata.name, metadata.attempt, request.pod_sandbox_id);
        let blueprint = Blueprint {
            sandbox: request.pod_sandbox_id,
            name: metadata.name,
            attempt: metadata.attempt,
            image: config.image.map(|image| name_of(&image.image).to_owned()).unwrap_or_default(),
            labels: config.labels,
            annotations: config.annotations,
            mounts: config.mounts.into_iter().map(|mount| (mount.container_path, mount.host_path)).collect(),
        };
        self.quick(CallKind::CreateContainer, &subject, move |state| {
            if !state.node.has_image(&blueprint.image) {
                return Err(Status::not_found(format!("no image {}", blueprint.image)));
            }
            let taken = |found: &&Container| {
                found.instance.sandbox == blueprint.sandbox
                    && found.instance.name == blueprint.name
                    && found.instance.attempt == blueprint.attempt
            };
            if let Some(found) = state.node.containers.values().find(taken) {
                return Err(Status::already_exists(format!("the name is reserved for {}", found.instance.id)));
            }
            if !state.node.sandboxes.get(&blueprint.sandbox).is_some_and(|sandbox| sandbox.ready) {
                return Err(Status::not_found(format!("sandbox {} is not running", blueprint.sandbox)));
            }
            let made = state.create(blueprint);
            let container_id = made.ok_or_else(|| Status::not_found("the sandbox is gone"))?;
            Ok(v1::CreateContainerResponse { container_id })
        })
        .await
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Answered<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        let process = Arc::clone(&self.process);
        self.call(CallKind::StartContainer, &id.clone(), |sim| async move {
            let slow = {
                let mut state = sim.lock();
                let container = state.container(&id)?;
                let (pod, name) = (container.pod_name.clone(), container.instance.name.clone());
                state.scripts.of(&pod, &name).slow_start
            };
            if !slow.is_zero() {
                sleep(slow).await;
            }
            let mut state = sim.lock();
            let container = state.container(&id)?;
            if !matches!(container.state, ContainerState::Created) {
                return Err(Status::failed_precondition(format!("{id} was started before")));
            }
            let sandbox = container.instance.sandbox.clone();
            if !state.node.sandboxes.get(&sandbox).is_some_and(|sandbox| sandbox.ready) {
                return Err(Status::failed_precondition(format!("sandbox {sandbox} is not running")));
            }
            if state.gives_up_start(&process) {
                state.give_up_start(&id);
                return Err(Status::cancelled("the client is gone"));
            }
            state.start(&id);
            Ok(v1::StartContainerResponse {})
        })
        .await
    }

    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> Answered<v1::StopContainerResponse> {
        let request = request.into_inner();
        let id = request.container_id;
        let subject = format!("{id} grace={}", request.timeout);
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        self.call(CallKind::StopContainer, &subject, move |sim| async move {
            let ended = {
                let mut state = sim.lock();
                state.signal(&id, grace);
                state.node.containers.get(&id).filter(|container| container.is_running()).map(|c| c.ended.subscribe())
            };
            if let Some(ended) = ended {
                wait_for_end(ended).await;
            }
            Ok(v1::StopContainerResponse {})
        })
        .await
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answered<v1::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.quick(CallKind::RemoveContainer, &id.clone(), move |state| {
            state.remove(&id, true);
            Ok(v1::RemoveContainerResponse {})
        })
        .await
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answered<v1::ListContainersResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        self.quick(CallKind::ListContainers, "", move |state| {
            let passes = |container: &&Container| {
                let status = container.status();
                (filter.id.is_empty() || filter.id == container.instance.id)
                    && filter.state.is_none_or(|wanted| wanted.state == status.state)
                    && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == container.instance.sandbox)
                    && selects(&filter.label_selector, &container.labels)
            };
            let containers = state.node.containers.values().filter(passes).map(Container::listed).collect();
            Ok(v1::ListContainersResponse { containers })
        })
        .await
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answered<v1::ContainerStatusResponse> {
        let v1::ContainerStatusRequest { container_id: id, verbose } = request.into_inner();
        self.quick(CallKind::ContainerStatus, &id.clone(), move |state| {
            let container = state.container(&id)?;
            let pid = match container.state {
                ContainerState::Running { pid, .. } => pid,
                ContainerState::Created | ContainerState::Exited { .. } => 0,
            };
            let info = verbose.then(|| ("info".to_owned(), format!("{{\"pid\":{pid}}}")));
            Ok(v1::ContainerStatusResponse { status: Some(container.status()), info: info.into_iter().collect() })
        })
        .await
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answered<v1::ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        self.quick(CallKind::ReopenContainerLog, &id.clone(), move |state| {
            let name = state.container(&id)?.instance.name.clone();
            state.log_sizes.remove(&name);
            Ok(v1::ReopenContainerLogResponse {})
        })
        .await
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answered<v1::ExecSyncResponse> {
        let request = request.into_inner();
        let id = request.container_id;
        let subject = format!("{id} {}", request.cmd.join(" "));
        let timeout = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let sent = self.sim.lock().elapsed();
        self.call(CallKind::ExecSync, &subject, move |sim| async move {
            let (answer, ended) = sim.lock().exec(&id, &request.cmd, sent)?;
            let gone = || Status::not_found(format!("{id} ended while the command ran"));
            let patience = timeout.unwrap_or(Duration::MAX);
            let takes = if answer.reply == Reply::Hang { Duration::MAX } else { answer.after };
            tokio::select! {
                biased;
                () = wait_for_end(ended) => return Err(gone()),
                () = sleep(takes.min(patience)) => {}
            }
            if takes > patience {
                return Err(Status::deadline_exceeded(format!("timeout {patience:?} exceeded")));
            }
            if answer.reply == Reply::Refuse {
                return Err(Status::unknown("the command cannot be started"));
            }
            let said = answer.reply.to_string().into_bytes();
            Ok(v1::ExecSyncResponse { stdout: said, stderr: Vec::new(), exit_code: answer.reply.exit_code() })
        })
        .await
    }

    async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Answered<EventStream> {
        let process = Arc::clone(&self.process);
        self.quick(CallKind::GetContainerEvents, "", move |state| {
            if !state.tells_events {
                return Err(Status::unimplemented("this runtime tells no events"));
            }
            let (events, stream) = mpsc::channel(EVENTS);
            state.subscribers.push(Subscriber { process, events });
            Ok(Box::pin(ReceiverStream::new(stream)) as EventStream)
        })
        .await
    }
}

#[tonic::async_trait]
impl ImageService for SimRuntime {
    async fn list_images(&self, _: Request<v1::ListImagesRequest>) -> Answered<v1::ListImagesResponse> {
        self.quick(CallKind::ImageStatus, "", |state| {
            Ok(v1::ListImagesResponse { images: state.node.images().map(image).collect() })
        })
        .await
    }

    async fn image_status(&self, request: Request<v1::ImageStatusRequest>) -> Answered<v1::ImageStatusResponse> {
        let name = name_of(&request.into_inner().image.unwrap_or_default().image).to_owned();
        self.quick(CallKind::ImageStatus, &name.clone(), move |state| {
            let found = state.node.has_image(&name) || state.scripts.image(&name).present;
            if found {
                state.node.add_image(&name);
            }
            Ok(v1::ImageStatusResponse { image: found.then(|| image(&name)), ..Default::default() })
        })
        .await
    }

    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answered<v1::PullImageResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        self.call(CallKind::PullImage, &name.clone(), move |sim| async move {
            let takes = sim.lock().scripts.image(&name).takes;
            sleep(takes).await;
            let mut state = sim.lock();
            let script = state.scripts.image(&name);
            if script.failures > 0 {
                script.failures -= 1;
                return Err(Status::unknown(format!("the registry does not give {name} away")));
            }
            state.node.add_image(&name);
            Ok(v1::PullImageResponse { image_ref: image_id(&name) })
        })
        .await
    }
}

// === impl State ===

/// Commands.
impl State {
    /// What a command in a container answers that was sent then, and word of the container's end.
    fn exec(
        &mut self,
        id: &str,
        command: &[String],
        sent: Duration,
    ) -> Result<(Answer, watch::Receiver<bool>), Status> {
        let container = self.container(id)?;
        let (instance, pod_name) = (Arc::clone(&container.instance), container.pod_name.clone());
        let (age, runs, ended) = (container.age(), container.is_running(), container.ended.subscribe());
        let kinds = self.pods.get(&instance.pod).map(|pod| targets::by_command(pod, &instance.name, command));
        let kinds = kinds.unwrap_or_default();
        let line = command.join(" ");
        let script = self.scripts.of(&pod_name, &instance.name);
        let answer = script.answer(&kinds, age).or_else(|| script.command(&line)).unwrap_or_default();
        if !kinds.is_empty() {
            self.note_attempt(Attempt {
                pod: instance.pod.clone(),
                container: instance.name.clone(),
                instance: runs.then(|| Arc::clone(&instance)),
                kinds,
                question: format!("exec {line}"),
                sent,
                reply: answer.reply,
                latency: answer.after,
            });
        }
        if runs { Ok((answer, ended)) } else { Err(Status::failed_precondition(format!("{id} is not running"))) }
    }
}

async fn wait_for_end(mut ended: watch::Receiver<bool>) {
    // The sender goes away with the container; that is an end, too.
    let _ = ended.wait_for(|ended| *ended).await;
}
