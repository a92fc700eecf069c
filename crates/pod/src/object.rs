//! Objects other than pods: config maps, secrets, the node's own configuration. Bytes in, a typed object out.
//!
//! They are read like manifests: every mistake in one pass, each with its line. Unknown fields are warnings here,
//! because only the caller knows which of them matter.

use k8s_openapi::api::core::v1;
use serde::de::DeserializeOwned;

use crate::{
    Probe,
    normalise::drop_repeated_keys,
    path::FieldPath,
    problem::{Detail, Kind, Origin, Problem, required, syntax, unsupported},
    read::text,
    review::{Review, Strictness},
    tree::{Note, Notes, Position, TreeNode, Value, decode_field, parse},
    validate::node_probe,
};

/// The API version and kind that an object must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeMeta {
    /// `v1`, `kubelet.config.k8s.io/v1beta1`, ...
    pub api_version: &'static str,
    /// `ConfigMap`, `Secret`, ...
    pub kind: &'static str,
}

/// An object, and the problems in it.
#[derive(Clone, Debug)]
pub struct Object<T> {
    /// The object. A field that could not be read has its default.
    pub value: T,
    /// Why the object should not be used.
    pub errors: Vec<Problem>,
    /// Unknown and repeated fields.
    pub warnings: Vec<Problem>,
    origin: Origin,
    tree: Option<TreeNode>,
}

/// Reads the one object of a file: YAML or JSON.
pub fn read_object<T: DeserializeOwned + Default>(bytes: &[u8], origin: &Origin, expected: TypeMeta) -> Object<T> {
    let mut object =
        Object { value: T::default(), errors: Vec::new(), warnings: Vec::new(), origin: origin.clone(), tree: None };
    let mut root = match root(bytes) {
        Ok(root) => root,
        Err((at, message)) => {
            let mut review = Review::new(origin, None, FieldPath::root(), Strictness::Lenient);
            match at {
                Some(at) => review.refuse_at(&FieldPath::root(), at, syntax(message)),
                None => review.refuse(&FieldPath::root(), syntax(message)),
            }
            object.errors = review.report.errors;
            return object;
        }
    };
    let mut review = Review::new(origin, None, FieldPath::root(), Strictness::Lenient);
    drop_repeated_keys(&mut root, &FieldPath::root(), &mut review);
    for (field, wanted) in [("apiVersion", expected.api_version), ("kind", expected.kind)] {
        let path = FieldPath::root().field(field);
        let found = root.get(field);
        let at = root.position_of(&path);
        match found.map(|node| node.as_str().unwrap_or(node.describe())) {
            Some(word) if word == wanted => {}
            Some(word) => review.refuse_at(&path, at, unsupported(word, &[wanted])),
            None => review.refuse_at(&path, at, required(format!("must be {wanted:?}"))),
        }
    }
    if review.report.errors.is_empty() {
        let mut notes = Notes::default();
        object.value = decode_field(&root, &FieldPath::root(), &mut notes);
        for Note { path, at, detail } in notes.kept {
            match detail.kind {
                Kind::UnknownField => review.surplus(&path, at, detail),
                _ => review.refuse_at(&path, at, detail),
            }
        }
    }
    review.report.sort();
    object.errors = review.report.errors;
    object.warnings = review.report.warnings;
    object.tree = Some(root);
    object
}

/// The one document of a file: a map.
fn root(bytes: &[u8]) -> Result<TreeNode, (Option<Position>, String)> {
    let mut documents = parse(text(bytes)?);
    let document = match documents.len() {
        0 => return Err((None, "the file is empty".to_owned())),
        1 => documents.remove(0),
        number => return Err((None, format!("holds {number} documents; one object is expected"))),
    };
    let root = document.root.map_err(|unreadable| (Some(unreadable.at), unreadable.message))?;
    match root.value {
        Value::Map(_) => Ok(root),
        _ => Err((Some(root.at), format!("must be a map with apiVersion and kind; is {}", root.describe()))),
    }
}

/// The path of a field as people write it: `a.b[0].c`.
fn path_of(field: &str) -> FieldPath {
    let mut path = FieldPath::root();
    for part in field.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse().ok()),
            None => (part, None),
        };
        path = path.field(name.to_owned());
        path = index.map_or_else(|| path.clone(), |index| path.index(index));
    }
    path
}

// === impl Object ===

impl<T> Object<T> {
    /// Adds an error about the value of a field, such as `crashLoopBackOff.maxContainerRestartPeriod`, with its line.
    pub fn refuse(&mut self, field: &str, value: &str, message: impl Into<String>) {
        let detail = Detail { kind: Kind::Invalid, value: Some(value.to_owned()), message: message.into() };
        let path = path_of(field);
        let mut review = Review::new(&self.origin, None, FieldPath::root(), Strictness::Lenient);
        review.tree = self.tree.as_ref();
        review.refuse(&path, detail);
        let new = review.report.errors;
        self.errors.extend(new);
    }

    /// Checks the probe of a component of the node, at a field such as `nodeReadinessProbes[0].probe`, by the rules for readiness probes of
    /// containers; those of its numbers that are missing have the usual values. What is wrong with it becomes an error of the object.
    pub fn node_probe(&mut self, field: &str, raw: &v1::Probe) -> Option<Probe> {
        let mut review = Review::new(&self.origin, None, FieldPath::root(), Strictness::Strict);
        review.tree = self.tree.as_ref();
        let probe = node_probe(raw, &path_of(field), &mut review);
        let (errors, warnings) = (review.report.errors, review.report.warnings);
        let is_sound = errors.is_empty();
        self.errors.extend(errors);
        self.warnings.extend(warnings);
        probe.filter(|_| is_sound)
    }

    /// Whether the file sets the field, to any value. For fields of the object itself only.
    pub fn gives(&self, field: &str) -> bool {
        self.tree.as_ref().and_then(|tree| tree.get(field)).is_some_and(|node| node.value != Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;

    const CONFIG_MAP: TypeMeta = TypeMeta { api_version: "v1", kind: "ConfigMap" };
    const SECRET: TypeMeta = TypeMeta { api_version: "v1", kind: "Secret" };

    fn read<T: DeserializeOwned + Default>(text: &str, expected: TypeMeta) -> Object<T> {
        read_object(text.as_bytes(), &Origin::file("o.yaml"), expected)
    }

    #[test]
    fn an_object_is_read_with_all_its_data() {
        let map: Object<ConfigMap> = read(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata:\n  a: '1'\n  b: |\n    x\nbinaryData: {c: AP8=}\n",
            CONFIG_MAP,
        );
        assert!(map.errors.is_empty() && map.warnings.is_empty(), "{:?} {:?}", map.errors, map.warnings);
        assert_eq!(map.value.data.unwrap()["b"], "x\n");
        assert_eq!(map.value.binary_data.unwrap()["c"].0, [0, 255]);
        let secret: Object<Secret> =
            read("{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"stringData\": {\"k\": \"v\"}}", SECRET);
        assert_eq!(secret.value.string_data.unwrap()["k"], "v");
    }

    #[test]
    fn mistakes_are_reported_with_their_lines() {
        let cases = [
            ("", "o.yaml: Unreadable: the file is empty"),
            ("[]", "o.yaml:1:1: Unreadable: must be a map with apiVersion and kind; is a list"),
            (
                "apiVersion: v1\nkind: Secret\n",
                "o.yaml:2:7: kind: Unsupported value: \"Secret\": supported values: \"ConfigMap\"",
            ),
            ("kind: ConfigMap\n", "o.yaml:1:1: apiVersion: Required value: must be \"v1\""),
            (
                "apiVersion: v1\nkind: ConfigMap\ndata:\n  port: 80\n",
                "o.yaml:4:9: data[port]: Invalid type: 80: must be a string, is a number; put it in quotes: \"80\"",
            ),
            ("a: 1\n---\nb: 2\n", "o.yaml: Unreadable: holds 2 documents; one object is expected"),
        ];
        for (text, message) in cases {
            let object: Object<ConfigMap> = read(text, CONFIG_MAP);
            let errors: Vec<_> = object.errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, [message], "{text}");
        }
        let broken: Object<Secret> = read("apiVersion: v1\nkind: Secret\ndata: {k: '%%'}\n", SECRET);
        assert_eq!(broken.errors.len(), 1, "{:?}", broken.errors);
    }

    #[test]
    fn unknown_and_repeated_fields_are_warnings() {
        let object: Object<ConfigMap> =
            read("apiVersion: v1\nkind: ConfigMap\ndate: {}\ndata: {a: b}\ndata: {c: d}\n", CONFIG_MAP);
        let warnings: Vec<_> = object.warnings.iter().map(|warning| (warning.line, warning.kind)).collect();
        assert_eq!(warnings, [(Some(3), Kind::UnknownField), (Some(5), Kind::Duplicate)]);
        assert!(object.errors.is_empty() && object.gives("data") && !object.gives("binaryData"));
    }

    #[test]
    fn a_value_can_be_refused_later() {
        let mut object: Object<ConfigMap> = read("apiVersion: v1\nkind: ConfigMap\ndata:\n  a: b\n", CONFIG_MAP);
        object.refuse("data.a", "b", "must be c");
        assert_eq!(object.errors[0].to_string(), "o.yaml:4:6: data.a: Invalid value: b: must be c");
    }
}
