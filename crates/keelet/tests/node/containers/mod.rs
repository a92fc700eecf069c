//! Init containers, sidecars, hooks and the end of pods.

mod init;
mod order;
mod policies;
mod sidecars;
mod termination;

use keelet_harness::{Actor, manifest};

/// A pod of these init containers and these regular ones.
fn pod(name: &str, fields: &str, init: &[Actor], regular: &[Actor]) -> String {
    let list = |actors: &[Actor]| actors.iter().map(|actor| format!("\n{actor}")).collect::<String>();
    let init = if init.is_empty() { String::new() } else { format!("initContainers:{}\n", list(init)) };
    manifest(name, &format!("{fields}\n{init}containers:{}", list(regular)))
}

/// A sidecar.
fn sidecar(name: &str) -> Actor {
    Actor::new(name).with("restartPolicy: Always")
}
