//! From the API's pod to ours: every check there is, and the model built on the way.
//!
//! Each module takes a piece of the API's pod, tells the [`Review`] what is wrong with it, and returns the model's
//! piece. Where a piece cannot be made sense of it returns `None`, having said why.

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

pub use self::{annotations::MANIFEST, volume::volume_types};

use crate::{
    Features, Pod, defaults,
    names::Fault,
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

/// The value that a word stands for, by table.
fn choice<T: Copy>(review: &mut Review<'_>, path: &FieldPath, word: &str, table: &[(&str, T)]) -> Option<T> {
    let found = table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    if found.is_none() {
        let names: Vec<_> = table.iter().map(|(name, _)| *name).collect();
        review.object(path, unsupported(word, &names));
    }
    found
}

/// Whether a word, if given, is one of those allowed.
fn one_of(review: &mut Review<'_>, path: &FieldPath, word: Option<&str>, allowed: &[&str]) {
    if let Some(word) = word
        && !allowed.contains(&word)
    {
        review.object(path, unsupported(word, allowed));
    }
}

/// A name that has to be there and to follow a syntax.
fn name(review: &mut Review<'_>, path: &FieldPath, name: &str, syntax: fn(&str) -> Result<(), Fault>) {
    if name.is_empty() {
        review.object(path, required(""));
    } else if let Err(fault) = syntax(name) {
        review.object(path, invalid(quoted(name), fault));
    }
}

/// A text that has to be there.
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
    /// Whether the name is new; a repeated one is reported.
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
