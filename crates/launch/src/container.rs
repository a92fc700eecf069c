//! What a runtime is asked for when a container is made.

use std::borrow::Cow;

use k8s_openapi::api::core::v1 as api;
use keelet_cri::v1;
use keelet_pod::{Container, Pod};

use super::{
    ConfigError, Image, Placement,
    env::{self, Environment},
    marks, mounts, resources, security,
};

/// A container of the pod; `attempt` is its restart count.
pub fn container_config(
    placement: &Placement<'_>,
    container: &Container,
    attempt: u32,
    image: &Image,
) -> Result<v1::ContainerConfig, ConfigError> {
    let raw = &*required(placement, container)?;
    let environment = env::environment(placement, raw)?;
    let too_long = |why| ConfigError::container(format!("an argument of container {:?} {why}", raw.name));
    let words = |words: Option<&Vec<String>>| -> Result<Vec<String>, ConfigError> {
        words.into_iter().flatten().map(|word| environment.expand(word).map_err(too_long)).collect()
    };
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: container.name.clone(), attempt }),
        image: Some(v1::ImageSpec {
            image: image.id.clone(),
            user_specified_image: image.name.clone(),
            ..v1::ImageSpec::default()
        }),
        command: words(raw.command.as_ref())?,
        args: words(raw.args.as_ref())?,
        working_dir: raw.working_dir.clone().unwrap_or_default(),
        envs: variables(&environment),
        mounts: mounts::mounts(placement, raw, &environment)?,
        labels: marks::container_labels(placement.pod, container),
        annotations: marks::container_annotations(placement.pod, container, raw, attempt),
        log_path: format!("{}/{attempt}.log", container.name),
        stdin: raw.stdin.unwrap_or_default(),
        stdin_once: raw.stdin_once.unwrap_or_default(),
        tty: raw.tty.unwrap_or_default(),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources::container(placement, raw)),
            security_context: Some(security::container(placement, raw, image)?),
        }),
        stop_signal: stop_signal(raw)?.into(),
        ..v1::ContainerConfig::default()
    })
}

/// The container in the API's form, of whatever kind it is.
pub(super) fn in_api_form<'a>(placement: &Placement<'a>, name: &str) -> Option<Cow<'a, api::Container>> {
    in_spec(placement.pod, name)
}

/// The same for a pod that is not placed yet.
pub(super) fn in_spec<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, api::Container>> {
    let spec = pod.source.spec.as_ref()?;
    let mut lasting = spec.init_containers.iter().flatten().chain(&spec.containers);
    if let Some(container) = lasting.find(|container| container.name == name) {
        return Some(Cow::Borrowed(container));
    }
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    ephemeral.find(|container| container.name == name).map(|container| Cow::Owned(as_container(container)))
}

/// The same of a container that has to be there.
pub(super) fn required<'a>(
    placement: &Placement<'a>,
    container: &Container,
) -> Result<Cow<'a, api::Container>, ConfigError> {
    in_api_form(placement, &container.name)
        .ok_or_else(|| ConfigError::container(format!("the pod has no container {:?} any more", container.name)))
}

/// What an ephemeral container has in common with the others. Ports, probes, hooks and resources it may not have.
fn as_container(ephemeral: &api::EphemeralContainer) -> api::Container {
    let it = ephemeral.clone();
    api::Container {
        name: it.name,
        image: it.image,
        command: it.command,
        args: it.args,
        working_dir: it.working_dir,
        env: it.env,
        env_from: it.env_from,
        security_context: it.security_context,
        stdin: it.stdin,
        stdin_once: it.stdin_once,
        tty: it.tty,
        termination_message_path: it.termination_message_path,
        termination_message_policy: it.termination_message_policy,
        volume_mounts: it.volume_mounts,
        volume_devices: it.volume_devices,
        ..api::Container::default()
    }
}

fn variables(environment: &Environment) -> Vec<v1::KeyValue> {
    let pairs = environment.iter();
    pairs.map(|(name, value)| v1::KeyValue { key: name.to_owned(), value: value.as_bytes().to_vec() }).collect()
}

/// `SIGRTMIN+1` is called `SIGNAL_SIGRTMINPLUS1` on the wire.
fn stop_signal(raw: &api::Container) -> Result<v1::Signal, ConfigError> {
    let Some(name) = raw.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_ref()) else {
        return Ok(v1::Signal::RuntimeDefault);
    };
    let wire = format!("SIGNAL_{}", name.replace('+', "PLUS").replace('-', "MINUS"));
    v1::Signal::from_str_name(&wire).ok_or_else(|| {
        ConfigError::container(format!("lifecycle.stopSignal of container {:?}: there is no signal {name}", raw.name))
    })
}
