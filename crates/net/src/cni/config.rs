//! Finding a CNI configuration: the first usable file, in the order of their names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::{CniConfigError, CniFileError};

/// A network configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NetworkList {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) plugins: Vec<Plugin>,
}

/// One plugin of a network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plugin {
    /// The name of its program.
    pub(crate) kind: String,
    /// Its whole configuration.
    pub(crate) config: Map<String, Value>,
}

/// What a directory contains.
#[derive(Debug)]
pub(crate) enum Found {
    /// No configuration.
    Absent,
    /// A usable configuration, and the invalid files before it.
    Usable { file: PathBuf, list: NetworkList, problems: Vec<CniFileError> },
    /// Only invalid files. The administrator wants CNI, so the bridge would be wrong.
    Broken(Vec<CniFileError>),
}

/// The supported versions of the specification, newest last.
const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Looks for a configuration. Reads the files each time, because they change under a running agent.
pub(crate) fn find(dir: &Path) -> Found {
    let mut files: Vec<PathBuf> = match fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_candidate(path)).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Absent,
        Err(error) => {
            return Found::Broken(vec![CniFileError { path: dir.to_owned(), source: CniConfigError::Read(error) }]);
        }
    };
    files.sort();
    let mut problems = Vec::new();
    for file in files {
        match load(&file) {
            Ok(list) => return Found::Usable { file, list, problems },
            Err(source) => problems.push(CniFileError { path: file, source }),
        }
    }
    if problems.is_empty() { Found::Absent } else { Found::Broken(problems) }
}

fn is_candidate(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("conflist" | "conf" | "json")) && !path.is_dir()
}

fn load(file: &Path) -> Result<NetworkList, CniConfigError> {
    let bytes = fs::read(file).map_err(CniConfigError::Read)?;
    parse(&bytes, file.extension().is_some_and(|ending| ending == "conflist"))
}

/// Parses a file, which is a list if it has plugins or the extension of a list.
pub(crate) fn parse(bytes: &[u8], named_list: bool) -> Result<NetworkList, CniConfigError> {
    let value: Value = serde_json::from_slice(bytes).map_err(CniConfigError::Json)?;
    let is_list = value.get("plugins").is_some() || named_list;
    if is_list { parse_list(&value) } else { parse_single(value) }
}

/// Parses a list from a file or from a stored record.
pub(crate) fn parse_list(value: &Value) -> Result<NetworkList, CniConfigError> {
    let fields = value.as_object().ok_or(CniConfigError::NotAnObject)?;
    let invalid = |expected: &str| CniConfigError::field("plugins", None, expected);
    let entries = fields.get("plugins").and_then(Value::as_array).ok_or_else(|| invalid("an array"))?;
    if entries.is_empty() {
        return Err(invalid("an array with at least one plugin"));
    }
    let mut plugins = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let parsed = entry.as_object().ok_or(CniConfigError::NotAnObject).and_then(plugin);
        plugins.push(parsed.map_err(|error| error.within(&format!("plugins[{index}]")))?);
    }
    Ok(NetworkList { name: network_name(fields)?, version: version(fields)?, plugins })
}

/// A file with one plugin is a list of one.
fn parse_single(value: Value) -> Result<NetworkList, CniConfigError> {
    let fields = value.as_object().ok_or(CniConfigError::NotAnObject)?;
    Ok(NetworkList { name: network_name(fields)?, version: version(fields)?, plugins: vec![plugin(fields)?] })
}

fn network_name(fields: &Map<String, Value>) -> Result<String, CniConfigError> {
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    match name.bytes().next() {
        Some(first) if first.is_ascii_alphanumeric() && name.bytes().all(allowed) => Ok(name.to_owned()),
        _ => {
            let expected = "letters, digits, '_', '.' or '-', and begin with a letter or digit";
            Err(CniConfigError::field("name", Some(format!("{name:?}")), expected))
        }
    }
}

/// The newest version that is both configured and supported.
fn version(fields: &Map<String, Value>) -> Result<String, CniConfigError> {
    let mut offered = Vec::new();
    match fields.get("cniVersion") {
        None => {}
        Some(Value::String(version)) => offered.push(version.as_str()),
        Some(other) => return Err(CniConfigError::field("cniVersion", Some(other.to_string()), "a string")),
    }
    match fields.get("cniVersions") {
        None => {}
        Some(Value::Array(versions)) => offered.extend(versions.iter().filter_map(Value::as_str)),
        Some(other) => return Err(CniConfigError::field("cniVersions", Some(other.to_string()), "an array")),
    }
    if offered.is_empty() {
        // The first version of the specification has no version field.
        offered.push("0.1.0");
    }
    let known = VERSIONS.iter().rev().find(|known| offered.contains(known));
    known.map(|known| (*known).to_owned()).ok_or_else(|| {
        CniConfigError::field("cniVersion", Some(offered.join(", ")), format!("one of {}", VERSIONS.join(", ")))
    })
}

fn plugin(config: &Map<String, Value>) -> Result<Plugin, CniConfigError> {
    let kind = config.get("type").and_then(Value::as_str).unwrap_or_default();
    // The name of a program, not a path to one.
    if kind.is_empty() || kind.contains(['/', '\0']) || kind.starts_with('.') {
        return Err(CniConfigError::field("type", Some(format!("{kind:?}")), "the name of a plugin"));
    }
    if config.get("capabilities").is_some_and(|capabilities| !capabilities.is_object()) {
        return Err(CniConfigError::field("capabilities", None, "an object"));
    }
    Ok(Plugin { kind: kind.to_owned(), config: config.clone() })
}

// === impl NetworkList ===

impl NetworkList {
    /// For the record of a sandbox.
    pub(crate) fn to_value(&self) -> Value {
        let plugins: Vec<Value> = self.plugins.iter().map(|plugin| Value::Object(plugin.config.clone())).collect();
        serde_json::json!({ "cniVersion": self.version, "name": self.name, "plugins": plugins })
    }

    /// Whether one of its plugins has a capability.
    pub(crate) fn asks_for(&self, capability: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.asks_for(capability))
    }

    /// Whether its version is this one or a later one.
    pub(crate) fn at_least(&self, version: &str) -> bool {
        let place = |wanted: &str| VERSIONS.iter().position(|known| *known == wanted);
        place(&self.version) >= place(version)
    }
}

// === impl Plugin ===

impl Plugin {
    pub(crate) fn asks_for(&self, capability: &str) -> bool {
        self.config.get("capabilities").and_then(|asked| asked.get(capability)) == Some(&Value::Bool(true))
    }

    /// The JSON for its standard input.
    pub(crate) fn input(&self, list: &NetworkList, capabilities: &Value, previous: &Value) -> Value {
        let mut input = self.config.clone();
        input.remove("capabilities");
        input.insert("cniVersion".to_owned(), list.version.clone().into());
        input.insert("name".to_owned(), list.name.clone().into());
        let requested: Map<String, Value> = match capabilities {
            Value::Object(all) => all
                .iter()
                .filter(|(name, _)| self.asks_for(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            _ => Map::new(),
        };
        if !requested.is_empty() {
            input.insert("runtimeConfig".to_owned(), requested.into());
        }
        if !previous.is_null() {
            input.insert("prevResult".to_owned(), previous.clone());
        }
        Value::Object(input)
    }
}
