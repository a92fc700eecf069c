//! The JSON of the API, borrowed from the buffer that it was received in.
//!
//! A heartbeat of a node costs one pass over its JSON and next to no allocation: strings without escapes stay in the buffer, unknown
//! fields are skipped.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::More;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow)]
    pub(super) object: RawNode<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawList<'a> {
    #[serde(borrow)]
    pub(super) metadata: RawMeta<'a>,
    #[serde(borrow)]
    pub(super) items: Vec<RawNode<'a>>,
}

/// A Node, or the Status that ends a watch: the type of the event says which.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawNode<'a> {
    #[serde(borrow)]
    pub(super) metadata: RawMeta<'a>,
    #[serde(borrow)]
    pub(super) spec: RawSpec<'a>,
    #[serde(borrow)]
    pub(super) status: Object<RawStatus<'a>>,
    pub(super) code: u16,
    #[serde(borrow)]
    pub(super) reason: Str<'a>,
    #[serde(borrow)]
    pub(super) message: Str<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RawMeta<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) uid: Str<'a>,
    #[serde(borrow)]
    pub(super) resource_version: Str<'a>,
    #[serde(borrow)]
    pub(super) creation_timestamp: Str<'a>,
    #[serde(borrow)]
    pub(super) labels: RawPairs<'a>,
    #[serde(borrow)]
    pub(super) annotations: RawPairs<'a>,
    #[serde(borrow, rename = "continue")]
    pub(super) next: Str<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawSpec<'a> {
    #[serde(borrow)]
    pub(super) taints: Items<RawTaint<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RawTaint<'a> {
    #[serde(borrow)]
    pub(super) key: Str<'a>,
    #[serde(borrow)]
    pub(super) value: Option<Str<'a>>,
    #[serde(borrow)]
    pub(super) effect: Str<'a>,
    #[serde(borrow)]
    pub(super) time_added: Option<Str<'a>>,
    #[serde(flatten)]
    pub(super) more: More,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RawStatus<'a> {
    #[serde(borrow)]
    pub(super) conditions: Items<RawCondition<'a>>,
    #[serde(borrow)]
    pub(super) node_info: RawNodeInfo<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawNodeInfo<'a> {
    #[serde(borrow, rename = "bootID")]
    pub(super) boot_id: Str<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RawCondition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow)]
    pub(super) status: Str<'a>,
    #[serde(borrow)]
    pub(super) reason: Str<'a>,
    #[serde(borrow)]
    pub(super) message: Str<'a>,
    #[serde(borrow)]
    pub(super) last_heartbeat_time: Str<'a>,
    #[serde(borrow)]
    pub(super) last_transition_time: Str<'a>,
}

/// A string, borrowed where it has no escapes. `null` is the empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Str<'a>(pub(super) Cow<'a, str>);

/// Labels or annotations.
#[derive(Debug, Default)]
pub(super) struct RawPairs<'a>(pub(super) Vec<(Str<'a>, Str<'a>)>);

/// A list that may be `null`.
#[derive(Debug)]
pub(super) struct Items<T>(pub(super) Vec<T>);

/// An object, or its default where there is something else.
#[derive(Debug, Default)]
pub(super) struct Object<T>(pub(super) T);

// === impl Str ===

impl Str<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::ops::Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Str<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Str<'de>, E> {
                Ok(Str::default())
            }
        }
        deserializer.deserialize_any(Text)
    }
}

// === impl RawPairs ===

impl<'de: 'a, 'a> Deserialize<'de> for RawPairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = RawPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawPairs<'de>, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or_default());
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(RawPairs(pairs))
            }

            fn visit_unit<E>(self) -> Result<RawPairs<'de>, E> {
                Ok(RawPairs::default())
            }
        }
        deserializer.deserialize_any(Map)
    }
}

// === impl Items ===

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Option::deserialize(deserializer)?.unwrap_or_default()))
    }
}

// === impl Object ===

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapOrElse<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for MapOrElse<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<Object<T>, E> {
                Ok(Object(T::default()))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Object<T>, E> {
                Ok(Object(T::default()))
            }
        }
        deserializer.deserialize_any(MapOrElse(PhantomData))
    }
}
