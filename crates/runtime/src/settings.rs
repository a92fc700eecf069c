//! Where the runtime keeps what, and how it is called.

use std::{
    fs,
    path::{Path, PathBuf},
};

use keelet_linux::cgroup::Mounts;

/// The OCI runtime that makes containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OciRuntime {
    /// libcontainer, which is built in.
    #[default]
    Libcontainer,
    /// The `runc` program, from where programs usually are.
    Runc,
    /// A program at this path that is called as `runc` is.
    Program(PathBuf),
}

/// How many processes and threads a pod may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PidsLimit {
    /// A small part of what the node can have, so that a fork bomb leaves enough for all others.
    #[default]
    Usual,
    /// No more than these.
    AtMost(u32),
    /// As many as the node can.
    Unlimited,
}

/// The usual limit on a node that can have many more: what OpenShift's nodes have, and more than servers with a thread for each
/// connection use.
const USUAL_PIDS: u32 = 4096;
/// What one pod may have of all that the node can: a few bombs at a time must not stop it.
const PART_OF_NODE: u32 = 8;
/// A pod of a few small programs runs even on a node that can have next to nothing.
const FEWEST_PIDS: u32 = 64;

/// Whether a directory of the node may be an image, `rootfs:/path`. A caller that may name one can read it all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RootfsImages {
    /// No caller may.
    #[default]
    Refused,
    /// Every caller may, because callers look after it themselves, or the operator has declared them trusted.
    Allowed,
}

/// The runtime's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What stays.
    pub root: PathBuf,
    /// Images, and root file systems of containers. Several runtimes may share one.
    pub images: PathBuf,
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
    /// How many processes and threads a pod in there may have.
    pub pids_limit: PidsLimit,
    /// The OCI runtime that makes containers.
    pub oci_runtime: OciRuntime,
    /// Whether a directory of the node may be an image.
    pub rootfs_images: RootfsImages,
}

/// The usual limit on a node that can have so many.
fn usual(node: Option<u32>) -> u32 {
    node.map_or(USUAL_PIDS, |node| (node / PART_OF_NODE).clamp(FEWEST_PIDS, USUAL_PIDS))
}

/// Where runc is looked for.
const PLACES: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// An OCI runtime that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OciRuntimeError {
    /// Neither a known name nor a path.
    #[error("{0:?} is not \"libcontainer\", \"runc\" or the path of a program")]
    Unknown(String),
    /// There is no runc on this node.
    #[error("runc is not in any of {}", PLACES.join(", "))]
    NoRunc,
    /// The path does not lead to a program.
    #[error("{} is not a program that can be run", .0.display())]
    NotExecutable(PathBuf),
}

// === impl OciRuntime ===

impl std::str::FromStr for OciRuntime {
    type Err = OciRuntimeError;

    fn from_str(text: &str) -> Result<Self, OciRuntimeError> {
        match text {
            "libcontainer" => Ok(Self::Libcontainer),
            "runc" => Ok(Self::Runc),
            path if path.starts_with('/') => Ok(Self::Program(path.into())),
            other => Err(OciRuntimeError::Unknown(other.to_owned())),
        }
    }
}

impl OciRuntime {
    /// The program; none for what is built in, an error if it is not there.
    pub(crate) fn program(&self) -> Result<Option<PathBuf>, OciRuntimeError> {
        let runs = |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
        match self {
            Self::Libcontainer => Ok(None),
            Self::Runc => match PLACES.iter().map(|place| Path::new(place).join("runc")).find(runs) {
                Some(path) => Ok(Some(path)),
                None => Err(OciRuntimeError::NoRunc),
            },
            Self::Program(path) if runs(path) => Ok(Some(path.clone())),
            Self::Program(path) => Err(OciRuntimeError::NotExecutable(path.clone())),
        }
    }
}

// === impl PidsLimit ===

impl PidsLimit {
    /// The limit on this node; none for as many as it can have. A node without such limits has none unless one was asked for.
    pub(crate) fn on(self, cgroups: &Mounts) -> Option<u32> {
        match self {
            Self::Unlimited => None,
            Self::AtMost(most) => Some(most),
            Self::Usual if !cgroups.has("pids") => None,
            Self::Usual => {
                let kernels = |name: &str| {
                    let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok()?;
                    text.trim().parse().ok()
                };
                Some(usual(["pid_max", "threads-max"].into_iter().filter_map(kernels).min()))
            }
        }
    }
}

// === impl Settings ===

impl Settings {
    /// The cgroup that takes in pods, unless another one is set.
    pub(crate) const CGROUP: &str = "/keelet";

    /// The usual settings below these two directories.
    pub fn new(root: &Path, state: &Path) -> Self {
        let mut pull = keelet_image::PullOptions::default();
        pull.docker_config = keelet_image::docker_config_path();
        Self {
            root: root.to_owned(),
            images: root.join("images"),
            state: state.to_owned(),
            pull,
            network: keelet_net::Settings::new(root.join("network")),
            executable: None,
            shim: vec![keelet_shim::running::ARGUMENT.to_owned()],
            cgroup: Self::CGROUP.to_owned(),
            pids_limit: PidsLimit::Usual,
            oci_runtime: OciRuntime::default(),
            rootfs_images: RootfsImages::default(),
        }
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.state.join(keelet_shim::running::SANDBOXES)
    }

    /// All directories that the runtime makes for root alone.
    pub(crate) fn places(&self) -> [PathBuf; 4] {
        [self.root.clone(), self.images.clone(), self.sandboxes(), self.pod_files()]
    }

    /// Files of pods that their containers may write to. What goes with the boot is in memory, and no pod's to fill.
    pub(crate) fn pod_files(&self) -> PathBuf {
        self.root.join("sandboxes")
    }
}

#[cfg(test)]
mod tests {
    use keelet_linux::cgroup::Mounts;

    use super::{OciRuntime, OciRuntimeError, PidsLimit, usual};

    #[test]
    fn a_pod_has_a_part_of_the_processes_that_a_node_can_have() {
        assert_eq!(usual(Some(4_194_304)), 4096);
        assert_eq!(usual(Some(32_768)), 4096);
        assert_eq!(usual(Some(7_700)), 962, "a small machine");
        assert_eq!(usual(Some(300)), 64, "enough for a pod to start");
        assert_eq!(usual(None), 4096);
        let without = Mounts::V1([("cpu".to_owned(), "/sys/fs/cgroup/cpu".into())].into());
        assert_eq!(PidsLimit::Usual.on(&without), None, "a node that cannot limit them");
        assert_eq!(PidsLimit::AtMost(7).on(&without), Some(7), "what was asked for is not left out in silence");
        let with = Mounts::V1([("pids".to_owned(), "/sys/fs/cgroup/pids".into())].into());
        assert!(PidsLimit::Usual.on(&with).is_some_and(|limit| (64..=4096).contains(&limit)));
        assert_eq!(PidsLimit::Unlimited.on(&with), None);
    }

    #[test]
    fn the_oci_runtime_is_named_precisely() {
        assert_eq!("runc".parse(), Ok(OciRuntime::Runc));
        assert_eq!("/opt/crun".parse(), Ok(OciRuntime::Program("/opt/crun".into())));
        assert!("crun".parse::<OciRuntime>().expect_err("not a path").to_string().contains("\"crun\""));
        let missing = OciRuntime::Program("/no/such/runc".into()).program();
        assert_eq!(missing, Err(OciRuntimeError::NotExecutable("/no/such/runc".into())));
        assert_eq!(OciRuntime::Libcontainer.program(), Ok(None));
    }
}
