//! The page about a pod. Pure.

use std::fmt::Write;

use keelet_lifecycle::{Wall, status::Truth};
use serde_json::Value;

use super::container;
use crate::{
    style::Style,
    view::{
        age,
        pod::{PodView, condition_name, conditions},
        table::Table,
    },
};

/// Where values begin.
const COLUMN: usize = 18;

/// Text with a margin, in which every line is written.
pub(super) struct Sheet(pub(super) String);

// === impl Sheet ===

impl Sheet {
    /// `Name:   value`, with values in one column.
    pub(super) fn field(&mut self, margin: usize, name: &str, value: &str) {
        let name = format!("{}{name}:", " ".repeat(margin));
        let value = value.trim_end();
        let _ = match value.is_empty() {
            true => writeln!(self.0, "{name}"),
            false => writeln!(self.0, "{name:COLUMN$}{value}"),
        };
    }

    /// A field whose value has several lines, each in the column.
    pub(super) fn list(&mut self, margin: usize, name: &str, values: &[String]) {
        let Some((first, rest)) = values.split_first() else { return self.field(margin, name, "<none>") };
        self.field(margin, name, first);
        for value in rest {
            let _ = writeln!(self.0, "{:COLUMN$}{value}", "");
        }
    }

    pub(super) fn line(&mut self, margin: usize, text: &str) {
        let _ = writeln!(self.0, "{}{}", " ".repeat(margin), text.trim_end());
    }
}

/// All about a pod.
pub(super) fn page(pod: &PodView, gone: Option<&str>, events: &[Value], now: Wall) -> String {
    let mut sheet = Sheet(String::new());
    head(pod, gone, &mut sheet);
    for (title, list) in [
        ("Init Containers", "initContainers"),
        ("Containers", "containers"),
        ("Ephemeral Containers", "ephemeralContainers"),
    ] {
        let specs = pod.specs(list);
        if !specs.is_empty() {
            sheet.line(0, &format!("{title}:"));
            specs.iter().for_each(|spec| container::describe(spec, pod, &mut sheet));
        }
    }
    sheet.line(0, "Conditions:");
    let mut table = Table::new(["Type", "Status", "Since", "Reason", "Message"]);
    for condition in conditions(&pod.status) {
        table.row(vec![
            condition_name(&condition.kind).into(),
            match condition.status {
                Truth::True => "True",
                Truth::False => "False",
                Truth::Unknown => "Unknown",
            }
            .into(),
            age::since(condition.last_transition_time, now).into(),
            condition.reason.clone().unwrap_or_default().into(),
            condition.message.clone().unwrap_or_default().into(),
        ]);
    }
    table.text(true, Style::Plain).lines().for_each(|line| sheet.line(2, line));
    volumes(pod, &mut sheet);
    sheet.field(0, "QoS Class", text(&pod.value["status"]["qosClass"]));
    happenings(events, now, &mut sheet);
    sheet.0
}

fn head(pod: &PodView, gone: Option<&str>, sheet: &mut Sheet) {
    let (spec, status) = (&pod.value["spec"], &pod.value["status"]);
    sheet.field(0, "Name", &pod.name);
    sheet.field(0, "Namespace", &pod.namespace);
    sheet.field(0, "UID", &pod.uid);
    let address = text(&status["hostIP"]);
    sheet.field(0, "Node", &if address.is_empty() { pod.node.clone() } else { format!("{}/{address}", pod.node) });
    sheet.field(0, "Start Time", &pod.status.start_time.map(|time| time.to_string()).unwrap_or_default());
    if let Some(gone) = gone {
        sheet.field(0, "Gone Since", gone);
    }
    sheet.list(0, "Labels", &pairs(&pod.value["metadata"]["labels"], "="));
    sheet.list(0, "Annotations", &pairs(&pod.value["metadata"]["annotations"], ": "));
    match pod.leaving {
        true => {
            sheet.field(
                0,
                "Status",
                &format!("Terminating (until {})", text(&pod.value["metadata"]["deletionTimestamp"])),
            );
        }
        false => sheet.field(0, "Status", &format!("{:?}", pod.status.phase)),
    }
    for (name, value) in [("Reason", &pod.status.reason), ("Message", &pod.status.message)] {
        if let Some(value) = value {
            sheet.field(0, name, value);
        }
    }
    let addresses: Vec<String> = pod.status.pod_ips.iter().map(|address| address.ip.clone()).collect();
    sheet.list(0, "IPs", &addresses);
    sheet.field(0, "Restart Policy", text(&spec["restartPolicy"]));
}

fn volumes(pod: &PodView, sheet: &mut Sheet) {
    let volumes = pod.specs("volumes");
    if volumes.is_empty() {
        return sheet.field(0, "Volumes", "<none>");
    }
    sheet.line(0, "Volumes:");
    for volume in volumes {
        let (kind, details) = source(volume, &["name"]).unwrap_or(("emptyDir", &Value::Null));
        let name = text(&volume["name"]);
        sheet.line(2, &format!("{name}: {kind} {}", of(details)));
        for part in details["sources"].as_array().into_iter().flatten() {
            if let Some((kind, details)) = source(part, &[]) {
                sheet.line(4, &format!("{kind} {}", of(details)));
            }
        }
    }
}

/// The kind of a volume, or of a part of a projected one, and what is said of it.
fn source<'a>(volume: &'a Value, besides: &[&str]) -> Option<(&'a str, &'a Value)> {
    let fields = volume.as_object()?;
    fields.iter().find(|(key, _)| !besides.contains(&key.as_str())).map(|(kind, details)| (kind.as_str(), details))
}

/// What a volume is made from: a path, an object, an image.
fn of(details: &Value) -> String {
    let named = ["path", "name", "secretName", "claimName", "driver", "reference"];
    let name = named.into_iter().find_map(|field| details[field].as_str()).unwrap_or_default();
    let optional = if details["optional"] == true { " (optional)" } else { "" };
    format!("{name}{optional}")
}

fn happenings(events: &[Value], now: Wall, sheet: &mut Sheet) {
    if events.is_empty() {
        return sheet.field(0, "Events", "<none>");
    }
    sheet.line(0, "Events:");
    let mut table = Table::new(["Type", "Reason", "Age", "Message"]);
    for event in events {
        let time = |field: &str| age::since(serde_json::from_value(event[field].clone()).ok(), now);
        let count = event["count"].as_u64().unwrap_or(1);
        let age = match count {
            0 | 1 => time("lastTimestamp"),
            _ => format!("{} (x{count} over {})", time("lastTimestamp"), time("firstTimestamp")),
        };
        table.row(vec![
            text(&event["type"]).into(),
            text(&event["reason"]).into(),
            age.into(),
            text(&event["message"]).into(),
        ]);
    }
    table.text(true, Style::Plain).lines().for_each(|line| sheet.line(2, line));
}

fn pairs(map: &Value, between: &str) -> Vec<String> {
    let pair = |(key, value): (&String, &Value)| format!("{key}{between}{}", text(value));
    map.as_object().into_iter().flatten().map(pair).collect()
}

/// A string, or nothing.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_described_in_kubectls_layout() {
        let pod = PodView::read(json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "u-1", "labels": { "a": "1", "b": "2" } },
            "spec": {
                "nodeName": "n1", "restartPolicy": "Always",
                "containers": [{
                    "name": "main", "image": "app:1", "command": ["sh", "-c", "one\ntwo"],
                    "ports": [{ "containerPort": 80, "protocol": "TCP" }],
                    "env": [{ "name": "A", "value": "1" }, { "name": "B", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
                            { "name": "C", "valueFrom": { "configMapKeyRef": { "name": "conf", "key": "k" } } },
                            { "name": "D", "valueFrom": { "secretKeyRef": { "name": "pass", "key": "p", "optional": true } } }],
                    "envFrom": [{ "configMapRef": { "name": "conf" } }, { "prefix": "S_", "secretRef": { "name": "pass" } }],
                    "resources": { "limits": { "cpu": "1" } },
                    "readinessProbe": { "httpGet": { "port": 80, "path": "/", "scheme": "HTTP" }, "periodSeconds": 5,
                                        "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3 },
                    "volumeMounts": [{ "name": "data", "mountPath": "/data", "readOnly": true, "subPath": "x" }],
                }],
                "volumes": [{ "name": "data", "hostPath": { "path": "/srv" } },
                            { "name": "conf", "configMap": { "name": "conf", "defaultMode": 420 } },
                            { "name": "pass", "secret": { "secretName": "pass", "optional": true } },
                            { "name": "all", "projected": { "sources": [{ "secret": { "name": "pass" } }, { "downwardAPI": {} }] } },
                            { "name": "tmp", "emptyDir": {} }],
            },
            "status": {
                "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "hostIP": "10.0.0.1", "qosClass": "Burstable",
                "podIP": "10.1.0.7", "podIPs": [{ "ip": "10.1.0.7" }],
                "conditions": [{ "type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "unready: [main]",
                                 "lastTransitionTime": "2026-01-01T00:04:00Z" }],
                "containerStatuses": [{
                    "name": "main", "ready": false, "started": true, "restartCount": 2, "image": "app:1", "imageID": "sha256:1",
                    "containerID": "containerd://abc",
                    "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 20 s" } },
                    "lastState": { "terminated": { "exitCode": 3, "reason": "Error", "message": "oh\nno\n", "finishedAt": "2026-01-01T00:04:00Z" } },
                }],
            },
        }))
        .unwrap();
        let event = json!({
            "type": "Warning", "reason": "BackOff", "message": "again", "count": 2,
            "firstTimestamp": "2026-01-01T00:04:00Z", "lastTimestamp": "2026-01-01T00:04:30Z",
        });
        let now = serde_json::from_value(json!("2026-01-01T00:05:00Z")).unwrap();
        let expected = "\
Name:             web
Namespace:        shop
UID:              u-1
Node:             n1/10.0.0.1
Start Time:       2026-01-01T00:00:00Z
Labels:           a=1
                  b=2
Annotations:      <none>
Status:           Running
IPs:              10.1.0.7
Restart Policy:   Always
Containers:
  main:
    Container ID: containerd://abc
    Image:        app:1
    Image ID:     sha256:1
    Ports:        80/TCP
    Command:
      sh
      -c
      one
      two
    State:        Waiting
      Reason:     CrashLoopBackOff
      Message:    back-off 20 s
    Last State:   Terminated
      Reason:     Error
      Message:    oh
                  no
      Exit Code:  3
      Finished:   2026-01-01T00:04:00Z
    Ready:        False
    Started:      True
    Restarts:     2
    Limits:       cpu=1
    Readiness:    http-get http://:80/ delay=0s timeout=1s period=5s #success=1 #failure=3
    Env From:     conf ConfigMap
                  pass Secret with prefix 'S_'
    Environment:  A=1
                  B=(status.podIP)
                  C=<set to the key 'k' of config map 'conf'>
                  D=<set to the key 'p' of secret 'pass'> (optional)
    Mounts:       /data from data, path x (ro)
Conditions:
  Type    Status   Since   Reason               Message
  Ready   False    60s     ContainersNotReady   unready: [main]
Volumes:
  data: hostPath /srv
  conf: configMap conf
  pass: secret pass (optional)
  all: projected
    secret pass
    downwardAPI
  tmp: emptyDir
QoS Class:        Burstable
Events:
  Type      Reason    Age                 Message
  Warning   BackOff   30s (x2 over 60s)   again
";
        assert_eq!(page(&pod, None, &[event], now), expected);
        let gone = page(&pod, Some("2026-01-01T00:00:00Z"), &[], now);
        assert!(gone.contains("\nGone Since:       2026-01-01T00:00:00Z\n"), "{gone}");
    }
}
