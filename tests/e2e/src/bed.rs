//! The private containerd of a test.

use std::{env, path::PathBuf};

use keelet_cri::{Runtime, v1};
use keelet_harness::{Node, Place, Runs};

/// A containerd, and a directory to work in.
#[derive(Clone, Debug)]
pub struct Bed {
    /// The runtime.
    pub runtime: Runtime,
    /// An image with busybox, already imported.
    pub image: String,
    /// An empty directory.
    pub directory: PathBuf,
}

// === impl Bed ===

impl Bed {
    /// The one that `make e2e` started for this test.
    pub fn here() -> Self {
        let runtime = Runtime::connect(&setting("KEELET_E2E_ENDPOINT")).expect("a socket");
        Self { runtime, image: setting("KEELET_E2E_IMAGE"), directory: setting("KEELET_E2E_DIR").into() }
    }

    /// A node on it, without manifests and without an agent.
    pub fn node(&self) -> Node {
        Node::new(Place {
            directory: self.directory.clone(),
            binary: setting("KEELET_E2E_AGENT").into(),
            image: self.image.clone(),
            runtime: Runs::On(self.runtime.clone()),
        })
    }

    /// A container that runs a script of the shell.
    pub fn script(&self, name: &str, script: &str) -> v1::ContainerConfig {
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: self.image.clone(), ..Default::default() }),
            command: ["sh", "-c", script].map(String::from).to_vec(),
            log_path: format!("{name}.log"),
            ..Default::default()
        }
    }
}

/// A setting that `make e2e` passes in the environment.
fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: these tests are run by `make e2e`"))
}
