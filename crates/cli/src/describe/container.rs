//! The part of the page about one container. Pure.

use keelet_lifecycle::status::{ContainerState, ContainerStatus, Terminated};
use serde_json::Value;

use super::page::{Sheet, text};
use crate::view::pod::PodView;

/// Margins of a container's name, its fields, and what belongs to one of them.
const NAME: usize = 2;
const FIELD: usize = 4;
const DETAIL: usize = 6;

pub(super) fn describe(spec: &Value, pod: &PodView, sheet: &mut Sheet) {
    let name = text(&spec["name"]);
    let status = pod.status.container(name);
    sheet.line(NAME, &format!("{name}:"));
    if let Some(id) = status.and_then(|status| status.container_id.as_deref()) {
        sheet.field(FIELD, "Container ID", id);
    }
    sheet.field(FIELD, "Image", text(&spec["image"]));
    if let Some(status) = status.filter(|status| !status.image_id.is_empty()) {
        sheet.field(FIELD, "Image ID", &status.image_id);
    }
    let ports = each(&spec["ports"], port);
    if !ports.is_empty() {
        sheet.field(FIELD, "Ports", &ports.join(", "));
    }
    for (title, field) in [("Command", "command"), ("Args", "args")] {
        let words = each(&spec[field], |word| Some(text(word).to_owned()));
        if !words.is_empty() {
            sheet.line(FIELD, &format!("{title}:"));
            words.iter().flat_map(|word| word.lines()).for_each(|line| sheet.line(DETAIL, line));
        }
    }
    if let Some(status) = status {
        states(status, sheet);
    }
    for (title, field) in [("Limits", "limits"), ("Requests", "requests")] {
        let amounts = spec["resources"][field].as_object();
        let amounts: Vec<String> =
            amounts.into_iter().flatten().map(|(name, amount)| format!("{name}={}", text(amount))).collect();
        if !amounts.is_empty() {
            sheet.list(FIELD, title, &amounts);
        }
    }
    for (title, field) in [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")]
    {
        if spec[field].is_object() {
            sheet.field(FIELD, title, &probe(&spec[field]));
        }
    }
    let whole = each(&spec["envFrom"], variables);
    if !whole.is_empty() {
        sheet.list(FIELD, "Env From", &whole);
    }
    sheet.list(FIELD, "Environment", &each(&spec["env"], variable));
    sheet.list(FIELD, "Mounts", &each(&spec["volumeMounts"], mount));
}

fn states(status: &ContainerStatus, sheet: &mut Sheet) {
    match &status.state {
        ContainerState::Running(running) => {
            sheet.field(FIELD, "State", "Running");
            sheet.field(DETAIL, "Started", &running.started_at.to_string());
        }
        ContainerState::Waiting(waiting) => {
            sheet.field(FIELD, "State", "Waiting");
            detail(sheet, "Reason", &waiting.reason);
            detail(sheet, "Message", &waiting.message);
        }
        ContainerState::Terminated(ended) => end(sheet, "State", ended),
    }
    if let Some(ended) = &status.last_state.terminated {
        end(sheet, "Last State", ended);
    }
    let truth = |holds: bool| if holds { "True" } else { "False" };
    sheet.field(FIELD, "Ready", truth(status.ready));
    if let Some(started) = status.started {
        sheet.field(FIELD, "Started", truth(started));
    }
    sheet.field(FIELD, "Restarts", &status.restart_count.to_string());
}

fn end(sheet: &mut Sheet, title: &str, ended: &Terminated) {
    sheet.field(FIELD, title, "Terminated");
    detail(sheet, "Reason", &ended.reason);
    detail(sheet, "Message", &ended.message);
    sheet.field(DETAIL, "Exit Code", &ended.exit_code.to_string());
    for (name, time) in [("Started", ended.started_at), ("Finished", ended.finished_at)] {
        if let Some(time) = time {
            sheet.field(DETAIL, name, &time.to_string());
        }
    }
}

fn detail(sheet: &mut Sheet, name: &str, value: &str) {
    let lines: Vec<String> = value.lines().map(str::to_owned).collect();
    if !lines.is_empty() {
        sheet.list(DETAIL, name, &lines);
    }
}

fn each(list: &Value, show: impl Fn(&Value) -> Option<String>) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(show).collect()
}

fn port(port: &Value) -> Option<String> {
    let number = port["containerPort"].as_u64()?;
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    let host = port["hostPort"].as_u64().filter(|host| *host != 0);
    Some(match host {
        Some(host) => format!("{number}/{protocol} (host {host})"),
        None => format!("{number}/{protocol}"),
    })
}

fn variable(variable: &Value) -> Option<String> {
    let name = variable["name"].as_str()?;
    Some(match (variable["value"].as_str(), &variable["valueFrom"]) {
        (Some(value), _) => format!("{name}={value}"),
        (None, from) if from.is_object() => format!("{name}={}", source(from)),
        (None, _) => format!("{name}="),
    })
}

/// Where a variable has its value from; never the value itself.
fn source(from: &Value) -> String {
    for (field, what) in [("configMapKeyRef", "config map"), ("secretKeyRef", "secret")] {
        let key = &from[field];
        if key.is_object() {
            let optional = key["optional"] == true;
            let optional = if optional { " (optional)" } else { "" };
            return format!("<set to the key '{}' of {what} '{}'>{optional}", text(&key["key"]), text(&key["name"]));
        }
    }
    let field = from["fieldRef"]["fieldPath"].as_str().or(from["resourceFieldRef"]["resource"].as_str());
    match (field, &from["fileKeyRef"]) {
        (Some(field), _) => format!("({field})"),
        (None, file) if file.is_object() => {
            format!("<set to the key '{}' of file '{}'>", text(&file["key"]), text(&file["path"]))
        }
        (None, _) => "(from elsewhere)".to_owned(),
    }
}

/// All keys of an object as variables.
fn variables(from: &Value) -> Option<String> {
    let (kind, source) = [("ConfigMap", "configMapRef"), ("Secret", "secretRef")]
        .into_iter()
        .map(|(kind, field)| (kind, &from[field]))
        .find(|(_, source)| source.is_object())?;
    let prefix = from["prefix"].as_str().filter(|prefix| !prefix.is_empty());
    let prefix = prefix.map(|prefix| format!(" with prefix '{prefix}'")).unwrap_or_default();
    let optional = if source["optional"] == true { " (optional)" } else { "" };
    Some(format!("{} {kind}{prefix}{optional}", text(&source["name"])))
}

fn mount(mount: &Value) -> Option<String> {
    let part = mount["subPath"].as_str().filter(|part| !part.is_empty()).map(|part| format!(", path {part}"));
    let mode = if mount["readOnly"] == true { "ro" } else { "rw" };
    Some(format!("{} from {}{} ({mode})", mount["mountPath"].as_str()?, text(&mount["name"]), part.unwrap_or_default()))
}

/// `http-get http://:80/ delay=0s timeout=1s period=10s #success=1 #failure=3`
fn probe(probe: &Value) -> String {
    let port = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let handler = if let Some(http) = probe.get("httpGet").filter(|http| http.is_object()) {
        let scheme = http["scheme"].as_str().unwrap_or("HTTP").to_ascii_lowercase();
        format!("http-get {scheme}://{}:{}{}", text(&http["host"]), port(&http["port"]), text(&http["path"]))
    } else if let Some(tcp) = probe.get("tcpSocket").filter(|tcp| tcp.is_object()) {
        format!("tcp-socket {}:{}", text(&tcp["host"]), port(&tcp["port"]))
    } else if let Some(grpc) = probe.get("grpc").filter(|grpc| grpc.is_object()) {
        format!("grpc :{} {}", port(&grpc["port"]), text(&grpc["service"])).trim_end().to_owned()
    } else {
        let command = each(&probe["exec"]["command"], |word| Some(text(word).replace('\n', " ")));
        format!("exec [{}]", command.join(" "))
    };
    let number = |field: &str, usual: u64| probe[field].as_u64().unwrap_or(usual);
    format!(
        "{handler} delay={}s timeout={}s period={}s #success={} #failure={}",
        number("initialDelaySeconds", 0),
        number("timeoutSeconds", 1),
        number("periodSeconds", 10),
        number("successThreshold", 1),
        number("failureThreshold", 3),
    )
}
