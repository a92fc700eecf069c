//! Finding a CNI configuration: the first usable file, in the order of their names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// A network as its plugins are told about it.
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
    /// All that the file says about it.
    pub(crate) config: Map<String, Value>,
}

/// What a directory has.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// Nothing that looks like a configuration.
    Absent,
    /// One that can be used, and what is wrong with those before it.
    Usable { file: PathBuf, list: NetworkList, problems: Vec<String> },
    /// Only such that cannot be used. Somebody wants CNI, so the bridge would be wrong.
    Broken(Vec<String>),
}

/// The versions that are spoken here, newest last.
const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Looks for a configuration. Reads anew each time: files change under a running agent.
pub(crate) fn find(dir: &Path) -> Found {
    let mut files: Vec<PathBuf> = match fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_candidate(path)).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Absent,
        Err(error) => return Found::Broken(vec![format!("cannot list {}: {error}", dir.display())]),
    };
    files.sort();
    let mut problems = Vec::new();
    for file in files {
        match load(&file) {
            Ok(list) => return Found::Usable { file, list, problems },
            Err(problem) => problems.push(format!("{}: {problem}", file.display())),
        }
    }
    if problems.is_empty() { Found::Absent } else { Found::Broken(problems) }
}

fn is_candidate(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("conflist" | "conf" | "json")) && !path.is_dir()
}

fn load(file: &Path) -> Result<NetworkList, String> {
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    parse(&bytes, file.extension().is_some_and(|ending| ending == "conflist"))
}

/// A file's content, which is a list if it says so itself or by its name.
pub(crate) fn parse(bytes: &[u8], named_list: bool) -> Result<NetworkList, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    let is_list = value.get("plugins").is_some() || named_list;
    if is_list { parse_list(&value) } else { parse_single(value) }
}

/// A list from a file, or from the books.
pub(crate) fn parse_list(value: &Value) -> Result<NetworkList, String> {
    let fields = value.as_object().ok_or("must be an object")?;
    let entries = fields.get("plugins").and_then(Value::as_array).ok_or("plugins: must be an array")?;
    if entries.is_empty() {
        return Err("plugins: must have at least one plugin".to_owned());
    }
    let mut plugins = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let config = entry.as_object().ok_or_else(|| format!("plugins[{index}]: must be an object"))?;
        plugins.push(plugin(config).map_err(|problem| format!("plugins[{index}].{problem}"))?);
    }
    Ok(NetworkList { name: network_name(fields)?, version: version(fields)?, plugins })
}

/// A file with one plugin is a list of one.
fn parse_single(value: Value) -> Result<NetworkList, String> {
    let fields = value.as_object().ok_or("must be an object")?;
    Ok(NetworkList { name: network_name(fields)?, version: version(fields)?, plugins: vec![plugin(fields)?] })
}

fn network_name(fields: &Map<String, Value>) -> Result<String, String> {
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    match name.bytes().next() {
        Some(first) if first.is_ascii_alphanumeric() && name.bytes().all(allowed) => Ok(name.to_owned()),
        _ => Err(format!("name: {name:?}: must be letters, digits, '_', '.' or '-', and begin with a letter or digit")),
    }
}

/// The one version, or the newest that both sides know.
fn version(fields: &Map<String, Value>) -> Result<String, String> {
    let mut offered = Vec::new();
    match fields.get("cniVersion") {
        None => {}
        Some(Value::String(version)) => offered.push(version.as_str()),
        Some(other) => return Err(format!("cniVersion: {other}: must be a string")),
    }
    match fields.get("cniVersions") {
        None => {}
        Some(Value::Array(versions)) => offered.extend(versions.iter().filter_map(Value::as_str)),
        Some(other) => return Err(format!("cniVersions: {other}: must be an array")),
    }
    if offered.is_empty() {
        // What the first version of the specification says.
        offered.push("0.1.0");
    }
    let known = VERSIONS.iter().rev().find(|known| offered.contains(known));
    known
        .map(|known| (*known).to_owned())
        .ok_or_else(|| format!("cniVersion: {}: must be one of {}", offered.join(", "), VERSIONS.join(", ")))
}

fn plugin(config: &Map<String, Value>) -> Result<Plugin, String> {
    let kind = config.get("type").and_then(Value::as_str).unwrap_or_default();
    // The name of a program, not a path to one.
    if kind.is_empty() || kind.contains(['/', '\0']) || kind.starts_with('.') {
        return Err(format!("type: {kind:?}: must be the name of a plugin"));
    }
    if config.get("capabilities").is_some_and(|capabilities| !capabilities.is_object()) {
        return Err("capabilities: must be an object".to_owned());
    }
    Ok(Plugin { kind: kind.to_owned(), config: config.clone() })
}

// === impl NetworkList ===

impl NetworkList {
    /// For the books.
    pub(crate) fn to_value(&self) -> Value {
        let plugins: Vec<Value> = self.plugins.iter().map(|plugin| Value::Object(plugin.config.clone())).collect();
        serde_json::json!({ "cniVersion": self.version, "name": self.name, "plugins": plugins })
    }

    /// Whether its plugins are told about a thing at run time.
    pub(crate) fn asks_for(&self, capability: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.asks_for(capability))
    }

    /// Whether the version has a command.
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

    /// What is written to its input.
    pub(crate) fn input(&self, list: &NetworkList, capabilities: &Value, before: &Value) -> Value {
        let mut input = self.config.clone();
        input.remove("capabilities");
        input.insert("cniVersion".to_owned(), list.version.clone().into());
        input.insert("name".to_owned(), list.name.clone().into());
        let told: Map<String, Value> = match capabilities {
            Value::Object(all) => all
                .iter()
                .filter(|(name, _)| self.asks_for(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            _ => Map::new(),
        };
        if !told.is_empty() {
            input.insert("runtimeConfig".to_owned(), told.into());
        }
        if !before.is_null() {
            input.insert("prevResult".to_owned(), before.clone());
        }
        Value::Object(input)
    }
}
