//! The columns of each kind of thing. Pure.

use anyhow::Result;
use keelet_lifecycle::Wall;
use keelet_serve::api::{Container, Image};
use serde_json::Value;

use super::Kind;
use crate::view::{
    age,
    amount::size,
    pod::PodView,
    table::{Cell, Tint},
};

/// Which columns there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) namespace: bool,
    pub(super) wide: bool,
}

/// Characters of an ID that are enough for people.
const SHORT_ID: usize = 13;

pub(super) fn headers(kind: Kind, columns: Columns) -> Vec<&'static str> {
    let (usual, wide): (&[_], &[_]) = match kind {
        Kind::Pods => (&["NAME", "READY", "STATUS", "RESTARTS", "AGE"], &["IP", "NODE"]),
        Kind::Containers => (&["POD", "CONTAINER", "STATE", "ATTEMPT", "AGE", "ID"], &["IMAGE"]),
        Kind::Images => (&["IMAGE", "TAG", "IMAGE ID", "SIZE"], &["PINNED", "DIGEST"]),
        Kind::Node => (
            &["NAME", "STATUS", "CPU", "MEMORY", "AGE", "VERSION"],
            &["INTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"],
        ),
        Kind::Events => (&["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"], &["COUNT"]),
    };
    let namespace = columns.namespace && kind.is_namespaced();
    let wide = if columns.wide { wide } else { &[] };
    namespace.then_some("NAMESPACE").into_iter().chain(usual.iter().chain(wide).copied()).collect()
}

pub(super) fn row(kind: Kind, item: &Value, columns: Columns, now: Wall) -> Result<Vec<Cell>> {
    let (namespace, mut cells, wide) = match kind {
        Kind::Pods => pod(item, now)?,
        Kind::Containers => container(&serde_json::from_value(item.clone())?, now),
        Kind::Images => image(&serde_json::from_value(item.clone())?),
        Kind::Node => node(item, now),
        Kind::Events => event(item, now),
    };
    if columns.namespace && kind.is_namespaced() {
        cells.insert(0, namespace.into());
    }
    if columns.wide {
        cells.extend(wide);
    }
    Ok(cells)
}

/// `pod/web`.
pub(super) fn reference(kind: Kind, item: &Value) -> String {
    let name = match kind {
        Kind::Pods | Kind::Node | Kind::Events => item["metadata"]["name"].as_str(),
        Kind::Containers => item["name"].as_str(),
        Kind::Images => item["tags"][0].as_str().or(item["id"].as_str()),
    };
    format!("{}/{}", kind.one(), name.unwrap_or_default())
}

type Row = (String, Vec<Cell>, Vec<Cell>);

fn pod(item: &Value, now: Wall) -> Result<Row> {
    let pod = PodView::read(item.clone())?;
    let summary = pod.summary();
    let cells = vec![
        pod.name.clone().into(),
        format!("{}/{}", summary.ready, summary.total).into(),
        Cell::tinted(summary.status.clone(), summary.tint()),
        summary.restarts(now).into(),
        age::since(pod.created, now).into(),
    ];
    let wide = vec![or_none(pod.status.pod_ip.as_deref()), or_none(Some(&pod.node))];
    Ok((pod.namespace, cells, wide))
}

fn container(container: &Container, now: Wall) -> Row {
    let tint = match container.state.as_str() {
        "Running" => Tint::Good,
        "Exited" => Tint::Neutral,
        _ => Tint::Unsure,
    };
    let created = container.created_at.as_ref().and_then(|time| wall(&Value::from(time.as_str())));
    let cells = vec![
        or_none(Some(&container.pod)),
        container.name.clone().into(),
        Cell::tinted(container.state.clone(), tint),
        container.attempt.to_string().into(),
        age::since(created, now).into(),
        short(&container.id).into(),
    ];
    (container.namespace.clone(), cells, vec![or_none(Some(&container.image))])
}

fn image(image: &Image) -> Row {
    let digest = image.digests.first().and_then(|name| name.rsplit_once('@'));
    let (name, tag) = match image.tags.first() {
        // A colon before the last slash belongs to a port.
        Some(name) => match name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
            Some((name, tag)) => (name.to_owned(), tag.to_owned()),
            None => (name.clone(), "latest".to_owned()),
        },
        None => (digest.map_or("<none>", |(name, _)| name).to_owned(), "<none>".to_owned()),
    };
    let id = image.id.strip_prefix("sha256:").unwrap_or(&image.id);
    let cells = vec![name.into(), tag.into(), short(id).into(), size(image.size).into()];
    let wide = vec![if image.pinned { "yes" } else { "no" }.into(), or_none(digest.map(|(_, digest)| digest))];
    (String::new(), cells, wide)
}

fn node(item: &Value, now: Wall) -> Row {
    let status = &item["status"];
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let holds = |kind| conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True");
    let (ready, word) = (holds("Ready"), if holds("Ready") { "Ready" } else { "NotReady" });
    // Beside it, as kubectl writes what else there is to know.
    let (word, well) = match holds("DiskPressure") {
        true => (format!("{word},DiskPressure"), false),
        false => (word.to_owned(), ready),
    };
    let text = |value: &Value| or_none(value.as_str());
    let address = status["addresses"].as_array().and_then(|all| all.iter().find(|one| one["type"] == "InternalIP"));
    let cells = vec![
        text(&item["metadata"]["name"]),
        Cell::tinted(word, if well { Tint::Good } else { Tint::Bad }),
        text(&status["capacity"]["cpu"]),
        text(&status["capacity"]["memory"]),
        age::since(wall(&item["metadata"]["creationTimestamp"]), now).into(),
        text(&status["nodeInfo"]["kubeletVersion"]),
    ];
    let wide = vec![
        or_none(address.and_then(|address| address["address"].as_str())),
        text(&status["nodeInfo"]["osImage"]),
        text(&status["nodeInfo"]["kernelVersion"]),
        text(&status["nodeInfo"]["containerRuntimeVersion"]),
    ];
    (String::new(), cells, wide)
}

fn event(item: &Value, now: Wall) -> Row {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&item["type"]);
    let tint = if kind == "Warning" { Tint::Unsure } else { Tint::Neutral };
    let count = item["count"].as_u64().unwrap_or(1);
    let last = age::since(wall(&item["lastTimestamp"]), now);
    let seen = match count {
        0 | 1 => last,
        _ => format!("{last} (x{count} over {})", age::since(wall(&item["firstTimestamp"]), now)),
    };
    let object = &item["involvedObject"];
    let cells = vec![
        seen.into(),
        Cell::tinted(kind, tint),
        text(&item["reason"]).into(),
        format!("{}/{}", if object["kind"] == "Node" { "node" } else { "pod" }, text(&object["name"])).into(),
        text(&item["message"]).into(),
    ];
    (text(&object["namespace"]), cells, vec![count.to_string().into()])
}

/// A time of the API.
pub(crate) fn wall(value: &Value) -> Option<Wall> {
    serde_json::from_value(value.clone()).ok()
}

fn or_none(text: Option<&str>) -> Cell {
    text.filter(|text| !text.is_empty()).unwrap_or("<none>").into()
}

fn short(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{style::Style, view::table::Table};

    fn shown(kind: Kind, item: Value, columns: Columns) -> String {
        let now = wall(&json!("2026-01-01T00:10:00Z")).unwrap();
        let mut table = Table::new(headers(kind, columns));
        table.row(row(kind, &item, columns, now).unwrap());
        table.text(true, Style::Plain)
    }

    const ALL: Columns = Columns { namespace: true, wide: true };

    #[test]
    fn a_pod_has_kubectls_columns() {
        let pod = json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "u", "creationTimestamp": "2026-01-01T00:05:00Z" },
            "spec": { "containers": [{ "name": "main" }], "nodeName": "n1" },
            "status": { "phase": "Running", "podIP": "10.0.0.7", "conditions": [], "containerStatuses": [{
                "name": "main", "state": { "running": {} }, "ready": true, "restartCount": 2,
                "lastState": { "terminated": { "exitCode": 1, "finishedAt": "2026-01-01T00:09:30Z" } } }] },
        });
        assert_eq!(
            shown(Kind::Pods, pod.clone(), Columns::default()),
            "\
NAME   READY   STATUS    RESTARTS      AGE
web    1/1     Running   2 (30s ago)   5m
"
        );
        assert_eq!(
            shown(Kind::Pods, pod, ALL),
            "\
NAMESPACE   NAME   READY   STATUS    RESTARTS      AGE   IP         NODE
shop        web    1/1     Running   2 (30s ago)   5m    10.0.0.7   n1
"
        );
    }

    #[test]
    fn an_image_is_split_into_name_and_tag() {
        let image = |tags: &[&str], digests: &[&str]| json!({ "id": "sha256:0123456789abcdef", "tags": tags, "digests": digests, "size": 4_261_550, "pinned": true });
        assert_eq!(
            shown(Kind::Images, image(&["reg:5000/a/b:1"], &[]), Columns::default()),
            "\
IMAGE          TAG   IMAGE ID        SIZE
reg:5000/a/b   1     0123456789abc   4.26MB
"
        );
        let untagged = shown(Kind::Images, image(&[], &["docker.io/x@sha256:ff"]), ALL);
        assert!(
            untagged.contains("docker.io/x   <none>   0123456789abc   4.26MB   yes      sha256:ff\n"),
            "{untagged}"
        );
    }

    #[test]
    fn repeats_of_an_event_are_counted() {
        let event = json!({
            "type": "Warning", "reason": "BackOff", "message": "again\nand again", "count": 3,
            "firstTimestamp": "2026-01-01T00:05:00Z", "lastTimestamp": "2026-01-01T00:09:00Z",
            "involvedObject": { "name": "web", "namespace": "shop" },
        });
        assert_eq!(
            shown(Kind::Events, event, Columns::default()),
            "\
LAST SEEN          TYPE      REASON    OBJECT    MESSAGE
60s (x3 over 5m)   Warning   BackOff   pod/web   again and again
"
        );
    }
}
