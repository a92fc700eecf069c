//! Manifests: bytes in, a [`Report`] out.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1;

use crate::{
    Features, Pod,
    normalise::normalise,
    path::FieldPath,
    problem::{
        Detail, Kind, MAX_PROBLEMS, Origin, Report, duplicate, invalid_type, quoted, required, syntax, unknown_field,
        unsupported,
    },
    review::{Review, Strictness},
    tree::{Note, Notes, Position, TreeNode, Value, decode_field, parse, suggestion},
    validate,
};

/// The largest manifest that is read: the API server's own limit on a request.
pub const MAX_MANIFEST_BYTES: usize = 3 << 20;

/// Pods that one manifest may hold. Each costs some 10 KB once decoded.
const MAX_PODS: usize = 1000;

/// Objects (maps) that one pod may consist of. The widest API type, a volume, takes up 3 KB however little of it is
/// written down: this many are 60 MB.
const MAX_OBJECTS: usize = 20_000;

/// The fields of a pod itself.
const POD_FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// Reads every pod of a manifest: YAML or JSON, one document or several, pods or lists of them.
pub fn read_manifest(bytes: &[u8], origin: &Origin, strictness: Strictness, features: &Features) -> Report {
    let mut reader = Reader { origin, strictness, features, report: Report::default(), seen: BTreeSet::new() };
    match text(bytes) {
        Ok(text) => reader.documents(text),
        Err((at, message)) => reader.unreadable(None, at, message),
    }
    reader.report
}

/// The one pod of a manifest, strictly read, with every feature at its default. For tests and small tools.
pub fn parse_one(manifest: &str) -> Result<Pod, Report> {
    let mut report =
        read_manifest(manifest.as_bytes(), &Origin::file("pod.yaml"), Strictness::Strict, &Features::default());
    match (report.is_ok(), report.pods.len()) {
        (true, 1) => Ok(report.pods.remove(0)),
        _ => Err(report),
    }
}

/// The state of reading a manifest.
struct Reader<'a> {
    origin: &'a Origin,
    strictness: Strictness,
    features: &'a Features,
    report: Report,
    /// Namespace and name of every pod.
    seen: BTreeSet<(String, String)>,
}

// === impl Reader ===

impl Reader<'_> {
    fn documents(&mut self, text: &str) {
        let documents = parse(text);
        if documents.is_empty() {
            self.unreadable(None, None, "holds no pod: the file has no document".to_owned());
        }
        for document in documents {
            match document.root {
                Ok(root) => self.object(root, Some(document.number)),
                Err(unreadable) => self.unreadable(Some(document.number), Some(unreadable.at), unreadable.message),
            }
        }
    }

    /// A document: a pod or a list of pods.
    fn object(&mut self, root: TreeNode, number: Option<usize>) {
        match root.get("kind").and_then(TreeNode::as_str) {
            Some("List" | "PodList") => self.list(root, number),
            _ => self.pod(root, number, FieldPath::root(), Typing::Stated),
        }
    }

    fn list(&mut self, mut root: TreeNode, number: Option<usize>) {
        // Pods of a PodList may omit apiVersion and kind.
        let typing = match root.get("kind").and_then(TreeNode::as_str) {
            Some("PodList") => Typing::Implied,
            _ => Typing::Stated,
        };
        let mut review = Review::new(self.origin, number, FieldPath::root(), self.strictness);
        normalise(&mut root, &mut review);
        review.tree = Some(&root);
        api_version(&root, typing, &mut review);
        unknown_fields(&root, &["apiVersion", "kind", "metadata", "items"], &mut review);
        let path = FieldPath::root().field("items");
        match root.get("items").map(|items| &items.value) {
            None | Some(Value::List(_) | Value::Null) => {}
            Some(_) => review.refuse(&path, invalid_type("", "must be a list of pods")),
        }
        self.report.absorb(review.report);
        if let Some(items) = root.get_mut("items") {
            for (index, item) in items.items_mut().iter_mut().enumerate() {
                let item = std::mem::replace(item, TreeNode { at: item.at, value: Value::Null });
                self.pod(item, number, path.index(index), typing);
            }
        }
    }

    fn pod(&mut self, mut root: TreeNode, number: Option<usize>, base: FieldPath, typing: Typing) {
        let mut review = Review::new(self.origin, number, base, self.strictness);
        let here = FieldPath::root();
        if self.report.pods.len() >= MAX_PODS {
            // One error for all pods beyond the limit.
            if self.report.errors.last().is_none_or(|last| last.kind != Kind::TooMany) {
                review.refuse_at(&here, root.at, too_much(format!("a manifest may hold at most {MAX_PODS} pods")));
                self.report.absorb(review.report);
            }
            return;
        }
        if !matches!(root.value, Value::Map(_)) {
            let message = format!(
                "must be a pod, that is a map with apiVersion, kind, metadata and spec; is {}",
                root.describe()
            );
            review.refuse_at(&here, root.at, syntax(message));
            return self.report.absorb(review.report);
        }
        let objects = count_objects(&root);
        if objects > MAX_OBJECTS {
            let message = format!("a pod may consist of at most {MAX_OBJECTS} objects, this one has {objects}");
            review.refuse_at(&here, root.at, too_much(message));
            return self.report.absorb(review.report);
        }
        normalise(&mut root, &mut review);
        review.tree = Some(&root);
        if !kind(&root, typing, &mut review) {
            return self.report.absorb(review.report);
        }
        api_version(&root, typing, &mut review);
        review.pod = name_of(&root);
        let pod = decode(&root, &mut review);
        let pod = validate::pod(pod, self.features, &mut review);
        if let Some(pod) = pod {
            if self.seen.insert((pod.namespace.clone(), pod.name.clone())) {
                review.report.pods.push(pod);
            } else {
                let detail = duplicate(quoted(&format!("{}/{}", pod.namespace, pod.name)));
                review.refuse(&here.field("metadata").field("name"), detail);
            }
        }
        review.report.sort();
        self.report.absorb(review.report);
    }

    fn unreadable(&mut self, document: Option<usize>, at: Option<Position>, message: String) {
        let mut review = Review::new(self.origin, document, FieldPath::root(), self.strictness);
        match at {
            Some(at) => review.refuse_at(&FieldPath::root(), at, syntax(message)),
            None => review.refuse(&FieldPath::root(), syntax(message)),
        }
        self.report.absorb(review.report);
    }
}

/// Whether an object must have a kind and a version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Typing {
    Stated,
    Implied,
}

/// Checks that the document is a pod.
fn kind(root: &TreeNode, typing: Typing, review: &mut Review<'_>) -> bool {
    let path = FieldPath::root().field("kind");
    match root.get("kind") {
        None if typing == Typing::Implied => true,
        None => {
            review.refuse(&path, required("must be \"Pod\", \"List\" or \"PodList\""));
            false
        }
        Some(node) => match node.as_str() {
            Some("Pod") => true,
            Some(kind) => {
                let mut detail = unsupported(kind, &["Pod", "List", "PodList"]);
                detail
                    .message
                    .push_str("; a node runs pods only; workload controllers (Deployment, Job, ...) need a cluster");
                review.refuse(&path, detail);
                false
            }
            None => {
                review.refuse(&path, invalid_type(node.describe(), "must be a string"));
                false
            }
        },
    }
}

fn api_version(root: &TreeNode, typing: Typing, review: &mut Review<'_>) {
    let path = FieldPath::root().field("apiVersion");
    match root.get("apiVersion").map(|node| (node, node.as_str())) {
        Some((_, Some("v1"))) => {}
        Some((_, Some(version))) => review.refuse(&path, unsupported(version, &["v1"])),
        Some((node, None)) => review.refuse(&path, invalid_type(node.describe(), "must be the string \"v1\"")),
        None if typing == Typing::Implied => {}
        None => review.refuse(&path, required("must be \"v1\"")),
    }
}

/// The typed pod; values of the wrong type are reported.
fn decode(root: &TreeNode, review: &mut Review<'_>) -> v1::Pod {
    unknown_fields(root, &POD_FIELDS, review);
    let here = FieldPath::root();
    let mut notes = Notes::default();
    let mut pod = v1::Pod::default();
    if let Some(node) = root.get("metadata") {
        pod.metadata = decode_field(node, &here.field("metadata"), &mut notes);
    }
    if let Some(node) = root.get("spec") {
        pod.spec = decode_field(node, &here.field("spec"), &mut notes);
    }
    if let Some(node) = root.get("status") {
        pod.status = decode_field(node, &here.field("status"), &mut notes);
    }
    review.leave_out(notes.left_out);
    for Note { path, at, detail } in notes.kept {
        match detail.kind {
            Kind::UnknownField => review.surplus(&path, at, detail),
            _ => review.object_at(&path, at, detail),
        }
    }
    pod
}

fn unknown_fields(root: &TreeNode, fields: &[&str], review: &mut Review<'_>) {
    let Value::Map(entries) = &root.value else { return };
    let unknown: Vec<_> = entries.iter().filter(|entry| !fields.contains(&&*entry.key)).collect();
    review.leave_out(unknown.len().saturating_sub(MAX_PROBLEMS));
    for entry in unknown.into_iter().take(MAX_PROBLEMS) {
        let path = FieldPath::root().field(entry.key.to_string());
        review.surplus(&path, entry.at, unknown_field(suggestion(&entry.key, fields)));
    }
}

/// `namespace/name`, as far as known before validation.
fn name_of(root: &TreeNode) -> Option<String> {
    let metadata = root.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    let namespace = metadata.get("namespace").and_then(TreeNode::as_str).unwrap_or("default");
    Some(format!("{namespace}/{name}"))
}

fn too_much(message: String) -> Detail {
    Detail { kind: Kind::TooMany, value: None, message }
}

fn count_objects(node: &TreeNode) -> usize {
    match &node.value {
        Value::Map(entries) => 1 + entries.iter().map(|entry| count_objects(&entry.node)).sum::<usize>(),
        // A null in a list of objects is an object once decoded.
        Value::List(items) => {
            items.iter().map(|item| count_objects(item).max(usize::from(item.value == Value::Null))).sum()
        }
        Value::Null | Value::Plain(_) | Value::Text(_) => 0,
    }
}

/// The text of a file: UTF-8, with or without a byte order mark, free of control characters.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, (Option<Position>, String)> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err((None, format!("larger than {} MiB, the limit for a manifest", MAX_MANIFEST_BYTES >> 20)));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err((None, "is UTF-16 by its byte order mark; save it as UTF-8".to_owned()));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        let message = format!("not UTF-8: invalid byte 0x{:02x} at offset {offset}", bytes[offset]);
        (Some(position(&bytes[..offset])), message)
    })?;
    let forbidden = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0c | 0x0e..=0x1f | 0x7f);
    if let Some(offset) = bytes.iter().position(forbidden) {
        let message = match bytes[offset] {
            0 => format!("NUL byte at offset {offset}: this is not a text file"),
            byte => format!("control character 0x{byte:02x} at offset {offset}; escape it in a quoted string"),
        };
        return Err((Some(position(&bytes[..offset])), message));
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Line and column behind a prefix of a file.
fn position(before: &[u8]) -> Position {
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: count(line), column: count(column) }
}
