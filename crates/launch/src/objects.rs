//! Config maps and secrets: what a pod refers to, and what was found of it.

use std::{collections::BTreeMap, fmt, sync::Arc};

/// What kind of object it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A `ConfigMap`.
    ConfigMap,
    /// A `Secret`.
    Secret,
}

/// A value that a container asks for. The object is in the namespace of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// The name of the object.
    pub name: String,
    /// One key of it; without, all of them.
    pub key: Option<String>,
}

/// The values of an object, by key.
pub type Data = BTreeMap<String, Vec<u8>>;

/// Objects of one namespace, as far as they are there, and the variables of services. Its `Debug` shows no value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Objects {
    objects: BTreeMap<(ObjectKind, String), Arc<Data>>,
    services: Vec<(String, String)>,
}

// === impl ObjectKind ===

impl ObjectKind {
    /// As the API server writes it when there is none: `configmap "x" not found`.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }

    /// As a manifest writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

// === impl Objects ===

impl Objects {
    /// Takes in an object.
    pub fn insert(&mut self, kind: ObjectKind, name: &str, data: Arc<Data>) {
        self.objects.insert((kind, name.to_owned()), data);
    }

    /// Variables that tell where services are. Those of the container itself take precedence.
    pub fn set_services(&mut self, variables: Vec<(String, String)>) {
        self.services = variables;
    }

    pub(super) fn services(&self) -> &[(String, String)] {
        &self.services
    }

    /// The values of an object; `None` if it is not there.
    pub fn get(&self, kind: ObjectKind, name: &str) -> Option<&Data> {
        self.objects.get(&(kind, name.to_owned())).map(Arc::as_ref)
    }
}

impl fmt::Debug for Objects {
    /// Names, keys and sizes: values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_map();
        for ((kind, name), data) in &self.objects {
            let sizes: BTreeMap<&str, usize> = data.iter().map(|(key, value)| (key.as_str(), value.len())).collect();
            shown.entry(&format_args!("{} {name}", kind.resource()), &sizes);
        }
        shown.entry(&format_args!("services"), &self.services.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-31: what is printed of an object are its name, its keys and the sizes of its values.
    #[test]
    fn values_of_objects_are_not_printed() {
        let mut objects = Objects::default();
        let data = Data::from([("password".to_owned(), b"hush".to_vec())]);
        objects.insert(ObjectKind::Secret, "keys", Arc::new(data.clone()));
        objects.insert(ObjectKind::ConfigMap, "conf", Arc::new(data));
        objects.set_services(vec![("DB_SERVICE_HOST".to_owned(), "10.0.0.9".to_owned())]);
        let shown = format!("{objects:?}");
        assert_eq!(shown, "{configmap conf: {\"password\": 4}, secret keys: {\"password\": 4}, services: 1}");
    }
}
