//! What keelet-pod promises, written from the behaviour document.

mod annotations;
mod api_server;
mod common;
mod containers;
mod features;
mod fixtures;
mod handlers;
mod hooks;
mod hostile;
mod manifests;
mod pods;
mod rules;
mod runtime_side;
mod volumes;
