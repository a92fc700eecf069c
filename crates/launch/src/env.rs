//! The environment of a container: variables in the order of the manifest, references resolved.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::core::v1;
use keelet_pod::Pod;

use super::objects::{ObjectKind, Reference};
use super::{ConfigError, Placement, container, downward, expand::expand};

/// The kernel takes no longer text, as a variable or an argument: MAX_ARG_STRLEN, less the zero at its end.
const LONGEST: usize = 128 * 1024 - 1;

/// The kernel takes no more of all variables and arguments together: three quarters of its default stack.
const MOST: usize = 6 * 1024 * 1024;

/// Variables and their values, each name once.
#[derive(Clone, Default)]
pub(super) struct Environment {
    variables: Vec<(String, String)>,
    /// Where each name is.
    places: BTreeMap<String, usize>,
    /// The length of all names and values.
    bytes: usize,
}

/// More than the kernel takes. Values of config maps and secrets are multiplied by references to them, so this is found while they are put
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooLong {
    #[error("is longer than {LONGEST} bytes, which the kernel does not take")]
    One,
    #[error("makes the environment longer than {MOST} bytes, which the kernel does not take")]
    All,
}

// === impl Environment ===

impl Environment {
    /// All variables, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.places.get(name).map(|place| self.variables[*place].1.as_str())
    }

    /// Replaces references to variables; those to unknown ones stay.
    pub(super) fn expand(&self, text: &str) -> Result<String, TooLong> {
        let value_of = |name: &str| self.get(name).map_or_else(|| format!("$({name})"), str::to_owned);
        expand(text, LONGEST, value_of).ok_or(TooLong::One)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), TooLong> {
        if name.len() + "=".len() + value.len() > LONGEST {
            return Err(TooLong::One);
        }
        self.bytes += value.len();
        match self.places.get(name) {
            Some(place) => {
                let old = std::mem::replace(&mut self.variables[*place].1, value);
                self.bytes -= old.len();
            }
            None => {
                self.bytes += name.len();
                self.places.insert(name.to_owned(), self.variables.len());
                self.variables.push((name.to_owned(), value));
            }
        }
        if self.bytes > MOST { Err(TooLong::All) } else { Ok(()) }
    }
}

/// The environment of a container. A value refers to variables before it; a later variable of the same name replaces
/// the earlier one.
pub(super) fn environment(placement: &Placement<'_>, raw: &v1::Container) -> Result<Environment, ConfigError> {
    let refuse = |variable: &str, why: TooLong| {
        ConfigError::container(format!("environment variable {variable:?} of container {:?} {why}", raw.name))
    };
    let mut environment = Environment::default();
    for (name, value) in placement.objects.services() {
        environment.set(name, value.clone()).map_err(|why| refuse(name, why))?;
    }
    for source in raw.env_from.iter().flatten() {
        add_whole_object(&mut environment, placement, source)?;
    }
    for variable in raw.env.iter().flatten() {
        let value = match (variable.value.as_deref().unwrap_or_default(), &variable.value_from) {
            ("", Some(source)) => from_source(placement, raw, &variable.name, source)?,
            (text, _) => Some(environment.expand(text).map_err(|why| refuse(&variable.name, why))?),
        };
        if let Some(value) = value {
            environment.set(&variable.name, value).map_err(|why| refuse(&variable.name, why))?;
        }
    }
    Ok(environment)
}

/// The objects that the variables of a container come from.
pub fn references(pod: &Pod, container: &str) -> Vec<Reference> {
    let Some(raw) = container::in_spec(pod, container) else { return Vec::new() };
    let mut found = Vec::new();
    for source in raw.env_from.iter().flatten() {
        found.extend(whole_object(source).map(|(kind, name, _)| Reference { kind, name: name.to_owned(), key: None }));
    }
    for source in raw.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        let key = key_of_object(source);
        found.extend(key.map(|Key { kind, name, key, .. }| Reference {
            kind,
            name: name.to_owned(),
            key: Some(key.to_owned()),
        }));
    }
    found
}

/// One key of an object.
struct Key<'a> {
    kind: ObjectKind,
    name: &'a str,
    key: &'a str,
    optional: bool,
}

fn key_of_object(source: &v1::EnvVarSource) -> Option<Key<'_>> {
    if let Some(reference) = &source.config_map_key_ref {
        let optional = reference.optional == Some(true);
        return Some(Key { kind: ObjectKind::ConfigMap, name: &reference.name, key: &reference.key, optional });
    }
    let reference = source.secret_key_ref.as_ref()?;
    let optional = reference.optional == Some(true);
    Some(Key { kind: ObjectKind::Secret, name: &reference.name, key: &reference.key, optional })
}

/// The object of an `envFrom`, and whether it may be absent.
fn whole_object(source: &v1::EnvFromSource) -> Option<(ObjectKind, &str, bool)> {
    if let Some(reference) = &source.config_map_ref {
        return Some((ObjectKind::ConfigMap, &reference.name, reference.optional == Some(true)));
    }
    let reference = source.secret_ref.as_ref()?;
    Some((ObjectKind::Secret, &reference.name, reference.optional == Some(true)))
}

/// `envFrom`: every key of an object is a variable.
fn add_whole_object(
    environment: &mut Environment,
    placement: &Placement<'_>,
    source: &v1::EnvFromSource,
) -> Result<(), ConfigError> {
    let Some((kind, name, optional)) = whole_object(source) else { return Ok(()) };
    let Some(data) = placement.objects.get(kind, name) else {
        return if optional { Ok(()) } else { Err(ConfigError::container(not_found(kind, name))) };
    };
    let prefix = source.prefix.as_deref().unwrap_or_default();
    for (key, value) in data {
        match (kind, text(placement, kind, name, key, value)) {
            (_, Ok(value)) => environment.set(&format!("{prefix}{key}"), value).map_err(|why| {
                ConfigError::container(format!(
                    "key {key} of {} {name:?}, as an environment variable, {why}",
                    kind.name()
                ))
            })?,
            // Only the text of a config map makes variables.
            (ObjectKind::ConfigMap, Err(_)) => {}
            (ObjectKind::Secret, Err(error)) => return Err(error),
        }
    }
    Ok(())
}

/// The value from elsewhere; none if it may be absent and is.
fn from_source(
    placement: &Placement<'_>,
    raw: &v1::Container,
    variable: &str,
    source: &v1::EnvVarSource,
) -> Result<Option<String>, ConfigError> {
    let refuse = |why: &dyn fmt::Display| {
        ConfigError::container(format!("environment variable {variable:?} of container {:?} {why}", raw.name))
    };
    if let Some(reference) = &source.field_ref {
        return downward::field(placement, &reference.field_path).map(Some).map_err(|why| refuse(&why));
    }
    if let Some(reference) = &source.resource_field_ref {
        return downward::resource(placement, raw, reference).map(Some).map_err(|why| refuse(&why));
    }
    if let Some(reference) = &source.file_key_ref {
        let what = format!("key {:?} of file {:?}", reference.key, reference.path);
        return Err(refuse(&format_args!("needs {what}: values from files are not available on this node yet")));
    }
    let Some(Key { kind, name, key, optional }) = key_of_object(source) else { return Ok(Some(String::new())) };
    let Some(data) = placement.objects.get(kind, name) else {
        return if optional { Ok(None) } else { Err(ConfigError::container(not_found(kind, name))) };
    };
    match data.get(key) {
        Some(value) => text(placement, kind, name, key, value).map(Some),
        None if optional => Ok(None),
        None => {
            let namespace = &placement.pod.namespace;
            Err(ConfigError::container(format!("couldn't find key {key} in {} {namespace}/{name}", kind.name())))
        }
    }
}

fn not_found(kind: ObjectKind, name: &str) -> String {
    format!("{} {name:?} not found", kind.resource())
}

/// A value as a variable. Runtimes take text alone.
fn text(
    placement: &Placement<'_>,
    kind: ObjectKind,
    name: &str,
    key: &str,
    value: &[u8],
) -> Result<String, ConfigError> {
    String::from_utf8(value.to_vec()).map_err(|_| {
        let namespace = &placement.pod.namespace;
        ConfigError::container(format!(
            "key {key} in {} {namespace}/{name} is not UTF-8 text, so it cannot be an environment variable",
            kind.name()
        ))
    })
}
