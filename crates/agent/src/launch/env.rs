//! The environment of a container: variables in the order of the manifest, references resolved.

use k8s_openapi::api::core::v1;

use super::{ConfigError, Placement, downward, expand::expand};

/// Why values from the cluster are refused.
const NO_CLUSTER_VALUES: &str = "config maps and secrets are not available on this node yet";

/// Variables and their values, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Environment(Vec<(String, String)>);

// === impl Environment ===

impl Environment {
    /// All variables, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Replaces references to variables; those to unknown ones stay.
    pub(super) fn expand(&self, text: &str) -> String {
        expand(text, |name| self.get(name).map_or_else(|| format!("$({name})"), str::to_owned))
    }

    fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

/// The environment of a container. A value refers to variables before it; a later variable of the same name replaces
/// the earlier one.
pub(super) fn environment(placement: &Placement<'_>, raw: &v1::Container) -> Result<Environment, ConfigError> {
    for source in raw.env_from.iter().flatten() {
        whole_object(source, &raw.name)?;
    }
    let mut environment = Environment::default();
    for variable in raw.env.iter().flatten() {
        let value = match (variable.value.as_deref().unwrap_or_default(), &variable.value_from) {
            ("", Some(source)) => from_source(placement, raw, &variable.name, source)?,
            (text, _) => Some(environment.expand(text)),
        };
        if let Some(value) = value {
            environment.set(&variable.name, value);
        }
    }
    Ok(environment)
}

/// `envFrom`: an object that may be absent is.
fn whole_object(source: &v1::EnvFromSource, container: &str) -> Result<(), ConfigError> {
    let (kind, name, optional) = if let Some(reference) = &source.config_map_ref {
        ("config map", &reference.name, reference.optional)
    } else if let Some(reference) = &source.secret_ref {
        ("secret", &reference.name, reference.optional)
    } else {
        return Ok(());
    };
    if optional == Some(true) {
        return Ok(());
    }
    Err(ConfigError::container(format!(
        "envFrom of container {container:?} needs {kind} {name:?}: {NO_CLUSTER_VALUES}"
    )))
}

/// The value from elsewhere; none if it may be absent and is.
fn from_source(
    placement: &Placement<'_>,
    raw: &v1::Container,
    variable: &str,
    source: &v1::EnvVarSource,
) -> Result<Option<String>, ConfigError> {
    let refuse = |why: String| {
        ConfigError::container(format!("environment variable {variable:?} of container {:?} {why}", raw.name))
    };
    if let Some(reference) = &source.field_ref {
        return downward::field(placement, &reference.field_path).map(Some).map_err(refuse);
    }
    if let Some(reference) = &source.resource_field_ref {
        return downward::resource(placement, raw, reference).map(Some).map_err(refuse);
    }
    let (what, optional) = if let Some(reference) = &source.config_map_key_ref {
        (format!("key {:?} of config map {:?}", reference.key, reference.name), reference.optional)
    } else if let Some(reference) = &source.secret_key_ref {
        (format!("key {:?} of secret {:?}", reference.key, reference.name), reference.optional)
    } else if let Some(reference) = &source.file_key_ref {
        let what = format!("key {:?} of file {:?}", reference.key, reference.path);
        return Err(refuse(format!("needs {what}: values from files are not available on this node yet")));
    } else {
        return Ok(Some(String::new()));
    };
    if optional == Some(true) {
        return Ok(None);
    }
    Err(refuse(format!("needs {what}: {NO_CLUSTER_VALUES}")))
}
