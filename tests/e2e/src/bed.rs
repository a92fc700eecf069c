//! The containerd that a test has for itself.

use std::{env, path::PathBuf, time::Duration};

use keelet_cri::{Runtime, v1};
use tokio::time::{Instant, sleep};

/// How long to wait for something that has to happen. Only a net: a healthy machine needs a fraction of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often to look.
const GLANCE: Duration = Duration::from_millis(50);

/// A containerd, and a directory to work in.
#[derive(Clone, Debug)]
pub struct Bed {
    /// The runtime.
    pub runtime: Runtime,
    /// An image with busybox, already there.
    pub image: String,
    /// An empty directory.
    pub directory: PathBuf,
}

// === impl Bed ===

impl Bed {
    /// The one that `make e2e` made for this test.
    pub fn here() -> Self {
        let runtime = Runtime::connect(&told("KEELET_E2E_ENDPOINT")).expect("a socket");
        Self { runtime, image: told("KEELET_E2E_IMAGE"), directory: told("KEELET_E2E_DIR").into() }
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

/// What `make e2e` said.
pub(crate) fn told(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: these tests are run by `make e2e`"))
}

/// Looks until there is something to see, and fails with what was seen last if that never happens.
pub async fn eventually<T, W: std::fmt::Display>(what: &str, mut look: impl AsyncFnMut() -> Result<T, W>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(seen) => return seen,
            Err(instead) => assert!(Instant::now() < until, "waited for {what}, but: {instead}"),
        }
        sleep(GLANCE).await;
    }
}
