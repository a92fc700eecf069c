//! From a tree to an API type. Values of the wrong type are noted; decoding continues.
//!
//! Every type of the API has a neutral value (a missing field is its default), so a value of the wrong type is noted,
//! the neutral value takes its place, and the decoding goes on: one pass finds every mistake, and each note knows its
//! line. Fields that the API does not have are noted as well.

use std::cell::RefCell;

use k8s_openapi::jiff::Timestamp;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use crate::{
    path::{FieldPath, Segment},
    problem::{Detail, MAX_PROBLEMS, invalid_type, quoted, shortened, unknown_field},
};

use super::{MapEntry, Position, Resolved, TreeNode, Value, resolve};

/// A value of the wrong type, or an unknown field.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) path: FieldPath,
    pub(crate) at: Position,
    pub(crate) detail: Detail,
}

/// All misfits, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) kept: Vec<Note>,
    pub(crate) left_out: usize,
}

/// A node on its way into a type.
#[derive(Clone, Copy)]
struct Decoder<'n, 'p> {
    node: &'n TreeNode,
    trail: &'p Trail<'p>,
    notes: &'p RefCell<Notes>,
    /// Where the value's key stands, and the names it could have been instead.
    key: Option<Position>,
    siblings: &'static [&'static str],
}

/// The way from the root to a node, on the stack.
enum Trail<'p> {
    Root(&'p FieldPath),
    Field(&'p Trail<'p>, &'p str),
    Key(&'p Trail<'p>, &'p str),
    Index(&'p Trail<'p>, usize),
}

/// A misfit for which no neutral value exists.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fatal(String);

/// The entries of a map, one after the other.
struct Entries<'n, 'p> {
    entries: std::slice::Iter<'n, MapEntry>,
    pending: Option<&'n MapEntry>,
    around: Decoder<'n, 'p>,
    /// The fields of the type, none for free-form maps.
    fields: Option<&'static [&'static str]>,
}

/// The entries of a list, one after the other.
struct Items<'n, 'p> {
    items: std::iter::Enumerate<std::slice::Iter<'n, TreeNode>>,
    around: Decoder<'n, 'p>,
}

/// Decodes the value under a field, and notes what does not fit.
pub(crate) fn decode_field<T: de::DeserializeOwned + Default>(
    node: &TreeNode,
    path: &FieldPath,
    notes: &mut Notes,
) -> T {
    let cell = RefCell::new(std::mem::take(notes));
    let trail = Trail::Root(path);
    let decoder = Decoder { node, trail: &trail, notes: &cell, key: None, siblings: &[] };
    let value = T::deserialize(decoder).unwrap_or_else(|Fatal(message)| {
        decoder.note(|| invalid_type("", message));
        T::default()
    });
    *notes = cell.into_inner();
    value
}

// === impl Decoder ===

impl<'n, 'p> Decoder<'n, 'p> {
    fn note(self, detail: impl FnOnce() -> Detail) {
        // A multi-line value is reported at the position of its key.
        let at = match self.node.value {
            Value::Plain(_) | Value::Text(_) => self.node.at,
            Value::Null | Value::List(_) | Value::Map(_) => self.key.unwrap_or(self.node.at),
        };
        self.note_at(at, detail);
    }

    /// Builds the detail only if there is room for it.
    fn note_at(self, at: Position, detail: impl FnOnce() -> Detail) {
        let mut notes = self.notes.borrow_mut();
        if notes.kept.len() < MAX_PROBLEMS {
            notes.kept.push(Note { path: self.trail.path(), at, detail: detail() });
        } else {
            notes.left_out += 1;
        }
    }

    /// Notes a value of the wrong type.
    fn misfit(self, wanted: &str) {
        self.note(|| misfit(self.node, wanted));
    }

    /// The whole number here. `80.0` is one too, as in JSON.
    fn integer(self, wanted: &str, least: i64, most: i64) -> i64 {
        let value = match &self.node.value {
            Value::Null => return 0,
            Value::Plain(text) => match resolve(text) {
                Resolved::Int(value) => i64::try_from(value).ok(),
                Resolved::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(value as i64),
                _ => {
                    self.misfit(wanted);
                    return 0;
                }
            },
            _ => {
                self.misfit(wanted);
                return 0;
            }
        };
        match value.filter(|value| (least..=most).contains(value)) {
            Some(value) => value,
            None => {
                self.misfit(&format!("an integer from {least} to {most}"));
                0
            }
        }
    }

    fn entries(self, fields: Option<&'static [&'static str]>) -> Entries<'n, 'p> {
        let entries = match &self.node.value {
            Value::Map(entries) => entries.iter(),
            Value::Null => [].iter(),
            _ => {
                self.misfit("a map");
                [].iter()
            }
        };
        Entries { entries, pending: None, around: self, fields }
    }

    /// A number is as good as a string where amounts are meant.
    fn quantity(self) -> String {
        match &self.node.value {
            Value::Text(text) => text.to_string(),
            Value::Plain(text) => match resolve(text) {
                Resolved::Bool(_) => {
                    self.misfit("a quantity such as 500m, 2 or 1Gi");
                    "0".to_owned()
                }
                Resolved::Int(value) => value.to_string(),
                Resolved::Float(value) => value.to_string(),
                Resolved::Null | Resolved::Text => text.to_string(),
            },
            _ => {
                self.misfit("a quantity such as 500m, 2 or 1Gi");
                "0".to_owned()
            }
        }
    }

    fn time(self) -> String {
        match &self.node.value {
            Value::Plain(text) | Value::Text(text) if text.parse::<Timestamp>().is_ok() => text.to_string(),
            _ => {
                self.misfit("a time such as 2006-01-02T15:04:05Z");
                "1970-01-01T00:00:00Z".to_owned()
            }
        }
    }
}

impl<'de, 'n, 'p> Deserializer<'de> for Decoder<'n, 'p> {
    type Error = Fatal;

    /// Only `IntOrString` asks for whatever there is.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        match &self.node.value {
            Value::Text(text) => visitor.visit_str(text),
            Value::Plain(text) if resolve(text) == Resolved::Text => visitor.visit_str(text),
            _ => visitor.visit_i64(self.integer("an integer or a string", i32::MIN.into(), i32::MAX.into())),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        let value = match &self.node.value {
            Value::Null => false,
            Value::Plain(text) if let Resolved::Bool(value) = resolve(text) => value,
            _ => {
                self.misfit("true or false");
                false
            }
        };
        visitor.visit_bool(value)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        visitor.visit_i64(self.integer("an integer", i32::MIN.into(), i32::MAX.into()))
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        visitor.visit_i64(self.integer("an integer", i64::MIN, i64::MAX))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        match &self.node.value {
            Value::Text(text) => visitor.visit_str(text),
            Value::Plain(text) if resolve(text) == Resolved::Text => visitor.visit_str(text),
            Value::Null => visitor.visit_str(""),
            _ => {
                self.misfit("a string");
                visitor.visit_str("")
            }
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Fatal> {
        match name {
            "Quantity" => visitor.visit_newtype_struct(self.quantity().into_deserializer()),
            "Time" | "MicroTime" => visitor.visit_newtype_struct(self.time().into_deserializer()),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        let items = match &self.node.value {
            Value::List(items) => items.iter(),
            Value::Null => [].iter(),
            _ => {
                self.misfit("a list");
                [].iter()
            }
        };
        visitor.visit_seq(Items { items: items.enumerate(), around: self })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        visitor.visit_map(self.entries(None))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fatal> {
        visitor.visit_map(self.entries(Some(fields)))
    }

    /// A type asks so for the value of a field that it does not have.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fatal> {
        let name = match self.trail {
            Trail::Field(_, name) => name,
            _ => "",
        };
        self.note_at(self.key.unwrap_or(self.node.at), || unknown_field(suggestion(name, self.siblings)));
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
    }
}

// === impl Entries ===

impl<'de, 'n, 'p> MapAccess<'de> for Entries<'n, 'p> {
    type Error = Fatal;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fatal> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        self.pending = Some(entry);
        seed.deserialize(entry.key.as_ref().into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fatal> {
        let Some(entry) = self.pending.take() else { return Err(de::Error::custom("a value without a key")) };
        let trail = match self.fields {
            Some(_) => Trail::Field(self.around.trail, &entry.key),
            None => Trail::Key(self.around.trail, &entry.key),
        };
        seed.deserialize(Decoder {
            node: &entry.node,
            trail: &trail,
            notes: self.around.notes,
            key: Some(entry.at),
            siblings: self.fields.unwrap_or_default(),
        })
    }
}

// === impl Items ===

impl<'de, 'n, 'p> SeqAccess<'de> for Items<'n, 'p> {
    type Error = Fatal;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fatal> {
        let Some((index, node)) = self.items.next() else { return Ok(None) };
        let trail = Trail::Index(self.around.trail, index);
        let decoder = Decoder { node, trail: &trail, notes: self.around.notes, key: None, siblings: &[] };
        seed.deserialize(decoder).map(Some)
    }
}

// === impl Trail ===

impl Trail<'_> {
    fn path(&self) -> FieldPath {
        match self {
            Self::Root(path) => (*path).clone(),
            Self::Field(parent, name) => parent.path().field((*name).to_owned()),
            Self::Key(parent, name) => parent.path().key(name),
            Self::Index(parent, index) => parent.path().with(Segment::Index(*index)),
        }
    }
}

// === impl Fatal ===

impl de::Error for Fatal {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// A value of the wrong type, and how to make it the right one.
fn misfit(node: &TreeNode, wanted: &str) -> Detail {
    let (shown, advice) = match &node.value {
        Value::Plain(text) if wanted == "a string" => {
            (Some(text.to_string()), format!("; put it in quotes: {}", quoted(text)))
        }
        Value::Plain(text) => (Some(text.to_string()), String::new()),
        Value::Text(text) => match resolve(text) {
            Resolved::Int(_) | Resolved::Bool(_) => (Some(quoted(text)), "; remove the quotes".to_owned()),
            _ => (Some(quoted(text)), String::new()),
        },
        Value::Null | Value::List(_) | Value::Map(_) => (None, String::new()),
    };
    let mut detail = invalid_type("", format!("must be {wanted}, is {}{advice}", node.describe()));
    detail.value = shown.as_deref().map(shortened);
    detail
}

/// What a misspelled field may have been meant to be.
pub(crate) fn suggestion(name: &str, fields: &[&str]) -> String {
    let best = fields.iter().map(|field| (distance(name, field), field)).min();
    match best {
        Some((distance, field)) if distance <= 1 + name.len() / 5 => format!("did you mean {field:?}?"),
        _ => String::new(),
    }
}

/// How many letters have to be changed, added or dropped, upper and lower case being the same.
fn distance(left: &str, right: &str) -> usize {
    // Much of the work for a name that cannot be near is saved.
    if left.len().abs_diff(right.len()) > 8 {
        return usize::MAX;
    }
    strsim::levenshtein(&left.to_ascii_lowercase(), &right.to_ascii_lowercase())
}
