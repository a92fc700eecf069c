//! What each server gave out so far.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::requests::Step;

/// One server's side of the story.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By path, all versions of an object that were seen.
    objects: BTreeMap<String, Vec<Value>>,
    /// Where the last list goes on.
    token: String,
    /// Versions of the last lists.
    lists: Vec<String>,
}

// === impl Memory ===

impl Memory {
    /// Remembers what an answer shows.
    pub(crate) fn learn(&mut self, step: &Step, answer: &Value) {
        if answer["items"].is_array() {
            self.token = answer["metadata"]["continue"].as_str().unwrap_or("").to_owned();
            // Other lists may be older than the newest state, each by as much as its server likes.
            if !step.path.contains("resourceVersion") {
                self.lists.extend(answer["metadata"]["resourceVersion"].as_str().map(str::to_owned));
            }
            return;
        }
        let is_object = answer["metadata"]["uid"].is_string() && !step.is_dry();
        if is_object {
            self.objects.entry(step.object.clone()).or_default().push(answer.clone());
        }
    }

    /// An object as it was last seen, or before that.
    pub(crate) fn object(&self, path: &str, back: usize) -> Option<&Value> {
        let seen = self.objects.get(path)?;
        seen.len().checked_sub(back + 1).and_then(|index| seen.get(index)).or(seen.first())
    }

    /// Fills in `{uid}`, `{version}`, `{old}`, of the object at a path, and `{token}`, `{list}`, `{oldlist}`.
    pub(crate) fn fill_text(&self, text: &str) -> String {
        let list = |back: usize| {
            let index = self.lists.len().checked_sub(back + 1);
            index.and_then(|index| self.lists.get(index)).or(self.lists.first()).cloned().unwrap_or_default()
        };
        text.replace("{token}", &self.token).replace("{list}", &list(0)).replace("{oldlist}", &list(3))
    }

    /// The same, for values of an object.
    pub(crate) fn fill(&self, path: &str, value: &mut Value) {
        match value {
            Value::String(text) => {
                let of = |back: usize, key: &str| {
                    let object = self.object(path, back);
                    object.and_then(|object| object["metadata"][key].as_str()).unwrap_or("").to_owned()
                };
                let filled = match text.as_str() {
                    "{uid}" => of(0, "uid"),
                    "{version}" => of(0, "resourceVersion"),
                    "{old}" => of(2, "resourceVersion"),
                    _ => return,
                };
                *text = filled;
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.fill(path, item)),
            Value::Object(map) => map.values_mut().for_each(|value| self.fill(path, value)),
            _ => {}
        }
    }

    /// Forgets an object.
    pub(crate) fn forget(&mut self, path: &str) {
        self.objects.remove(path);
    }
}
