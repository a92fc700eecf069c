//! Where the runtime keeps what, and how it is called.

use std::path::{Path, PathBuf};

/// The runtime's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What stays: images, root file systems of containers.
    pub root: PathBuf,
    /// What goes with the boot: sandboxes, containers, sockets.
    pub state: PathBuf,
    /// How images are pulled: mirrors, credentials.
    pub pull: keelet_image::PullOptions,
    /// Pod networks.
    pub network: keelet_net::Settings,
    /// The program that shims run from; none is the one that runs.
    pub executable: Option<PathBuf>,
    /// Arguments that make a shim of that program; the directory of the sandbox follows them.
    pub shim: Vec<String>,
    /// The cgroup that takes in those pods whose place is left to the runtime.
    pub cgroup: String,
}

// === impl Settings ===

impl Settings {
    /// The usual settings below these two directories.
    pub fn new(root: &Path, state: &Path) -> Self {
        let mut pull = keelet_image::PullOptions::default();
        pull.docker_config = keelet_image::docker_config_path();
        Self {
            root: root.to_owned(),
            state: state.to_owned(),
            pull,
            network: keelet_net::Settings::new(root.join("network")),
            executable: None,
            shim: vec!["shim".to_owned()],
            cgroup: "/keelet".to_owned(),
        }
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.state.join("sandboxes")
    }
}
