//! What a pod has if its author does not say otherwise.

use serde_json::{Map, Value, json};

use crate::{
    json::{default, list, object, text},
    typed::drop_zero,
};

/// Modes of files in volumes, 0644.
const FILE_MODE: i64 = 420;

/// Fills in the spec.
pub(super) fn fill(pod: &mut Value) {
    let spec = object(pod, "spec");
    if let (None, Some(alias)) = (spec.get("serviceAccountName"), spec.get("serviceAccount").cloned()) {
        spec.insert("serviceAccountName".to_owned(), alias);
    }
    if let Some(name) = spec.get("serviceAccountName").cloned() {
        spec.insert("serviceAccount".to_owned(), name);
    }
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "restartPolicy", "Always");
    default(spec, "securityContext", json!({}));
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "enableServiceLinks", true);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|grace| grace < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for group in ["containers", "initContainers", "ephemeralContainers"] {
        for each in spec.get_mut(group).and_then(Value::as_array_mut).into_iter().flatten() {
            container(each, on_host && group != "ephemeralContainers");
        }
    }
    for each in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        volume(each);
    }
    drop_zero(&mut pod["spec"], &["hostNetwork", "hostPID", "hostIPC"]);
}

fn container(container: &mut Value, on_host: bool) {
    let image = text(container, &["image"]).to_owned();
    object(container, "resources");
    let Some(map) = container.as_object_mut() else { return };
    let newest = !image.is_empty() && matches!(tag(&image), None | Some("latest"));
    default(map, "imagePullPolicy", if newest { "Always" } else { "IfNotPresent" });
    default(map, "terminationMessagePath", "/dev/termination-log");
    default(map, "terminationMessagePolicy", "File");
    for port in map.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let number = port["containerPort"].clone();
        if let Some(port) = port.as_object_mut() {
            default(port, "protocol", "TCP");
            if on_host {
                default(port, "hostPort", number);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = map.get_mut(probe).and_then(Value::as_object_mut) {
            for (key, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                if probe.get(key).and_then(Value::as_i64).is_none_or(|set| set == 0) {
                    probe.insert(key.to_owned(), value.into());
                }
            }
            if let Some(grpc) = probe.get_mut("grpc").and_then(Value::as_object_mut) {
                default(grpc, "service", "");
            }
            http(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        let found = map.get_mut("lifecycle").and_then(|lifecycle| lifecycle.get_mut(hook));
        if let Some(hook) = found.and_then(Value::as_object_mut) {
            http(hook);
        }
    }
    for variable in map.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        let found = variable.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef"));
        if let Some(field) = found.and_then(Value::as_object_mut) {
            default(field, "apiVersion", "v1");
        }
    }
    // Requests default to limits.
    let limits = map["resources"].get("limits").and_then(Value::as_object).cloned();
    if let Some(limits) = limits {
        let requests = object(&mut map["resources"], "requests");
        limits.into_iter().for_each(|(name, value)| default(requests, &name, value));
    }
}

fn http(handler: &mut Map<String, Value>) {
    if let Some(get) = handler.get_mut("httpGet").and_then(Value::as_object_mut) {
        default(get, "path", "/");
        default(get, "scheme", "HTTP");
    }
}

/// The tag of an image; a digest counts as one.
fn tag(image: &str) -> Option<&str> {
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once('@').map(|(_, digest)| digest).or_else(|| name.split_once(':').map(|(_, tag)| tag))
}

fn volume(volume: &mut Value) {
    let Some(map) = volume.as_object_mut() else { return };
    if map.len() == 1 {
        map.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = map.get_mut(source).and_then(Value::as_object_mut) {
            default(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(path) = map.get_mut("hostPath").and_then(Value::as_object_mut) {
        default(path, "type", "");
    }
    let sources = map.get_mut("projected").and_then(|projected| projected.get_mut("sources"));
    for source in sources.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(token) = source.get_mut("serviceAccountToken").and_then(Value::as_object_mut) {
            default(token, "expirationSeconds", 3600);
        }
    }
}

/// The quality of service class, from requests and limits of CPU and memory.
pub(super) fn quality(pod: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    for group in ["containers", "initContainers"] {
        for container in list(pod, &["spec", group]) {
            for resource in ["cpu", "memory"] {
                let value = |kind: &str| container["resources"].get(kind).and_then(|map| map.get(resource));
                let (request, limit) = (value("requests"), value("limits"));
                any |= request.is_some() || limit.is_some();
                all &= limit.is_some() && request == limit;
            }
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
