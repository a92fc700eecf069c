//! Manifests as trees with the position of every value.
//!
//! Bytes come in, one [`TreeNode`] per document goes out ([`parse`]), with line and column of every value, with every
//! duplicate key, with aliases expanded within a budget. [`decode`] turns a node into an API type and notes every
//! misfit on the way instead of stopping at the first.

mod decode;
mod parse;
mod scalar;

use crate::path::{FieldPath, Segment};

pub(crate) use self::{
    decode::{Note, Notes, decode_field, suggestion},
    parse::parse,
    scalar::{Resolved, resolve},
};

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TreeNode {
    pub(crate) at: Position,
    pub(crate) value: Value,
}

/// Line and column, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Null: the same as an absent key.
    Null,
    /// Text without quotes, whose type the text itself decides.
    Plain(Box<str>),
    /// Text in quotes or in a block: always a string.
    Text(Box<str>),
    /// A list.
    List(Vec<TreeNode>),
    /// A map, in order, repeated keys kept.
    Map(Vec<MapEntry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MapEntry {
    pub(crate) key: Box<str>,
    pub(crate) at: Position,
    pub(crate) node: TreeNode,
}

// === impl TreeNode ===

impl TreeNode {
    /// The value under a key of this map. Of repeated keys the last one counts, as in JSON.
    pub(crate) fn get(&self, key: &str) -> Option<&TreeNode> {
        match &self.value {
            Value::Map(entries) => entries.iter().rev().find(|entry| &*entry.key == key).map(|entry| &entry.node),
            _ => None,
        }
    }

    /// The value under a key of this map, to change it.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut TreeNode> {
        match &mut self.value {
            Value::Map(entries) => {
                entries.iter_mut().rev().find(|entry| &*entry.key == key).map(|entry| &mut entry.node)
            }
            _ => None,
        }
    }

    /// The entries of this list, to change them.
    pub(crate) fn items_mut(&mut self) -> &mut [TreeNode] {
        match &mut self.value {
            Value::List(items) => items,
            _ => &mut [],
        }
    }

    /// The text of this scalar, if it is a string.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Plain(text) if resolve(text) == Resolved::Text => Some(text),
            _ => None,
        }
    }

    /// The position of the value at a path, or of the innermost existing value around it.
    pub(crate) fn position_of(&self, path: &FieldPath) -> Position {
        let (mut node, mut at) = (self, self.at);
        for segment in path.segments() {
            let found = match (segment, &node.value) {
                (Segment::Index(index), Value::List(items)) => items.get(*index).map(|item| (item, item.at)),
                (Segment::Field(name), Value::Map(entries)) => find(entries, name),
                (Segment::Key(name), Value::Map(entries)) => find(entries, name),
                _ => None,
            };
            let Some(found) = found else { break };
            (node, at) = found;
        }
        at
    }

    /// The type of this value, in a reader's words.
    pub(crate) fn describe(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Plain(text) => match resolve(text) {
                Resolved::Null => "null",
                Resolved::Bool(_) => "a boolean",
                Resolved::Int(_) | Resolved::Float(_) => "a number",
                Resolved::Text => "a string",
            },
        }
    }
}

/// The position at which to report a value. A multi-line value is reported at its key.
fn find<'a>(entries: &'a [MapEntry], name: &str) -> Option<(&'a TreeNode, Position)> {
    let entry = entries.iter().rev().find(|entry| &*entry.key == name)?;
    let at = match entry.node.value {
        Value::Plain(_) | Value::Text(_) => entry.node.at,
        Value::Null | Value::List(_) | Value::Map(_) => entry.at,
    };
    Some((&entry.node, at))
}
