//! Tests of explanations and timelines. [`stage`] is where their pods live.

mod stage;

mod check;
mod timeline;
mod why;
