//! From the API's pod to the model's: all checks, and the construction of the model.
//!
//! Each module takes a part of the API's pod, reports what is wrong with it to the [`Review`], and returns the model's
//! part. It returns `None` for a part without a sensible reading, after reporting why.

mod annotations;
mod container;
mod env;
mod hook;
mod metadata;
mod pod;
mod port;
mod probe;
mod resources;
mod rules;
mod security;
mod trust;
mod volume;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1;

pub(crate) use self::probe::node_probe;
pub use self::{
    annotations::MANIFEST,
    trust::DIRECTORY_IMAGE,
    volume::{impossible_volume, volume_types},
};

use crate::{
    Features, Pod, defaults,
    names::InvalidName,
    path::FieldPath,
    problem::{duplicate, invalid, quoted, required, unsupported},
    review::Review,
};

/// Fills in the defaults, checks everything, and builds the pod if nothing is wrong with it.
pub(crate) fn pod(mut raw: v1::Pod, features: &Features, review: &mut Review<'_>) -> Option<Pod> {
    defaults::apply(&mut raw, features, review);
    let pod = pod::build(raw, features, review)?;
    review.report.errors.is_empty().then_some(pod)
}

/// Looks up the value for a word in a table.
fn choice<T: Copy>(review: &mut Review<'_>, path: &FieldPath, word: &str, table: &[(&str, T)]) -> Option<T> {
    let found = table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    if found.is_none() {
        let names: Vec<_> = table.iter().map(|(name, _)| *name).collect();
        review.object(path, unsupported(word, &names));
    }
    found
}

/// Checks that a word, if given, is one of the allowed ones.
fn one_of(review: &mut Review<'_>, path: &FieldPath, word: Option<&str>, allowed: &[&str]) {
    if let Some(word) = word
        && !allowed.contains(&word)
    {
        review.object(path, unsupported(word, allowed));
    }
}

/// A required name with a syntax.
fn name(review: &mut Review<'_>, path: &FieldPath, name: &str, syntax: fn(&str) -> Result<(), InvalidName>) {
    if name.is_empty() {
        review.object(path, required(""));
    } else if let Err(why) = syntax(name) {
        review.object(path, invalid(quoted(name), why));
    }
}

/// A required text.
fn present(review: &mut Review<'_>, path: &FieldPath, text: &str) {
    if text.is_empty() {
        review.object(path, required(""));
    }
}

/// A number within bounds.
fn within(review: &mut Review<'_>, path: &FieldPath, number: i64, least: i64, most: i64) -> bool {
    let fits = (least..=most).contains(&number);
    if !fits {
        review.object(path, invalid(number, format!("must be between {least} and {most}, inclusive")));
    }
    fits
}

/// Names that may occur once.
#[derive(Default)]
struct Unique(BTreeSet<String>);

impl Unique {
    /// Whether the name is new. A repeated name is reported.
    fn claim(&mut self, review: &mut Review<'_>, path: &FieldPath, name: &str) -> bool {
        let new = name.is_empty() || self.0.insert(name.to_owned());
        if !new {
            review.refuse(path, duplicate(quoted(name)));
        }
        new
    }

    fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}
