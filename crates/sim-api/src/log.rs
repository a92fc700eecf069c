//! What happened: every request and every stored change, in order, so that checkers can count.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{request::Verb, store::Key};

/// Something that happened.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// Since the beginning.
    pub at: Duration,
    /// The client, by the name under which it was made.
    pub client: Arc<str>,
    /// What it was.
    pub what: Happening,
}

/// The kinds of things that happen.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A request, when it was decided what becomes of it.
    Request(Request),
    /// A stored change. It follows the request that it is due to.
    Write(Write),
    /// A watch ended.
    WatchEnded {
        /// What it watched.
        resource: Arc<str>,
        /// Why.
        why: &'static str,
    },
    /// Something that a test or a simulation wants to have in the log.
    Note(String),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The user of the request.
    pub user: Arc<str>,
    /// What for; nothing for paths that are not of a resource.
    pub verb: Option<Verb>,
    /// `nodes`, `pods/status`, or the path.
    pub resource: String,
    /// Empty for resources of the whole cluster.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
    /// The status code of the answer; none if the request never reached the server.
    pub code: Option<u16>,
    /// What a fault did to it; empty if none did.
    pub fault: String,
}

/// A stored change.
#[derive(Clone, Debug)]
pub struct Write {
    /// The revision that it got.
    pub revision: u64,
    /// The user of the request.
    pub user: Arc<str>,
    /// By which verb.
    pub verb: Verb,
    /// The object.
    pub key: Key,
    /// What was stored before.
    pub before: Option<Arc<Value>>,
    /// What is stored now.
    pub after: Option<Arc<Value>>,
}

/// All that happened.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: Vec<LogEntry>,
}

// === impl Log ===

impl Log {
    pub(crate) fn push(&mut self, entry: LogEntry) {
        self.entries.push(entry);
    }

    /// Puts an entry before those that are there from a place on.
    pub(crate) fn insert(&mut self, place: usize, entry: LogEntry) {
        self.entries.insert(place, entry);
    }

    /// Everything.
    pub fn entries(&self) -> &[LogEntry] {
        &self.entries
    }

    /// All stored changes.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            Happening::Write(write) => Some(write),
            _ => None,
        })
    }

    /// All requests, with the clients that sent them.
    pub fn requests(&self) -> impl Iterator<Item = (&str, &Request)> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            Happening::Request(request) => Some((&*entry.client, request)),
            _ => None,
        })
    }
}

/// One line for each thing that happened.
impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

// === impl LogEntry ===

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.3}s {}: ", self.at.as_secs_f64(), self.client)?;
        match &self.what {
            Happening::Request(request) => write!(f, "{request}"),
            Happening::Write(write) => write!(f, "{write}"),
            Happening::WatchEnded { resource, why } => write!(f, "watch of {resource} ended: {why}"),
            Happening::Note(text) => f.write_str(text),
        }
    }
}

// === impl Request ===

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb.map_or("GET", Verb::as_str);
        write!(f, "{verb} {}", self.resource)?;
        for part in [&self.namespace, &self.name] {
            if !part.is_empty() {
                write!(f, " {part}")?;
            }
        }
        if let Some(code) = self.code {
            write!(f, " -> {code}")?;
        }
        if !self.fault.is_empty() {
            write!(f, " ({})", self.fault)?;
        }
        Ok(())
    }
}

// === impl Write ===

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4} {} by {}", self.revision, self.key, self.verb)?;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => difference(f, "", before, after),
            (None, Some(after)) => write!(f, ": {after}"),
            (_, None) => f.write_str(": deleted"),
        }
    }
}

/// What changed, by path.
fn difference(f: &mut fmt::Formatter<'_>, path: &str, before: &Value, after: &Value) -> fmt::Result {
    if before == after || path == ".metadata.resourceVersion" {
        return Ok(());
    }
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        return write!(f, " {path}: {before} -> {after}");
    };
    for (key, value) in new {
        difference(f, &format!("{path}.{key}"), old.get(key).unwrap_or(&Value::Null), value)?;
    }
    for (key, value) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
        difference(f, &format!("{path}.{key}"), value, &Value::Null)?;
    }
    Ok(())
}
