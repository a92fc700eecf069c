//! v1.Pod in, validated [`Pod`] out.
//!
//! This crate is where pods enter keelet. It is pure: no files, no clock, no network.
//!
//! ```text
//! bytes --tree::parse--> TreeNode YAML or JSON with line and column of everything, aliases expanded in a budget
//!       --normalise----> TreeNode repeated keys reported, onExit.exitCodes rewritten to exitCodes
//!       --tree::decode-> v1::Pod  the API's type; wrong types and unknown fields are noted, all of them, in one pass
//! v1::Pod --defaults---> v1::Pod  every default filled in, fields of switched-off feature gates dropped
//!         --validate---> Pod      every rule of the API checked, the model built on the way
//! ```
//!
//! Input: manifests ([`read_manifest`]), pods of an API server ([`Pod::from_api`]), other objects ([`read_object`]),
//! and the texts of feature gates ([`Features::resolve`]). Output: [`Pod`]s in which every default is resolved and
//! nothing has to be checked again, and [`Problem`]s that name file, line, field, value and what is allowed. Errors are
//! lists: a manifest with five mistakes yields five problems. [`Strictness`] says how much of the API's strictness
//! applies.
//!
//! Each rule has a module: probes are in `validate::probe`, restart policy and rules in `validate::rules`, hooks in
//! `validate::hook`, names in `names`, amounts in `quantity`. The crate has no state; everything here is a function.

mod defaults;
pub mod duration;
mod features;
mod from_api;
pub mod gate;
mod hash;
mod model;
mod names;
mod normalise;
mod object;
mod path;
mod problem;
mod quantity;
mod read;
mod requests;
mod review;
mod taint;
mod tree;
mod validate;

pub use self::{
    features::{AgentRestart, FeatureGateError, FeatureGateWarning, Features, Resolution, Switch},
    from_api::{InvalidCopy, TRUST, review_api_pod},
    model::*,
    object::{Object, TypeMeta, read_object},
    problem::{Kind, Origin, Problem, Report, Severity},
    quantity::Quantity,
    read::{MAX_MANIFEST_BYTES, parse_one, read_manifest},
    requests::{HostPort, Requests},
    review::Strictness,
    taint::{BadTaint, Effect, Taint},
    validate::{DIRECTORY_IMAGE, MANIFEST, impossible_volume, volume_types},
};
