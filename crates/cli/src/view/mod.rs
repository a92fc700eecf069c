//! How things are shown, by kubectl's conventions: ages, tables, YAML, and what a pod does in one word. Pure.

pub(crate) mod age;
pub(crate) mod amount;
pub(crate) mod pod;
pub(crate) mod table;
pub(crate) mod yaml;
