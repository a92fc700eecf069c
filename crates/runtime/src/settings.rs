//! Where the runtime keeps what, and how it is called.

use std::path::{Path, PathBuf};

/// Who makes containers.
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
    /// How many processes and threads a pod in there may have; none for as many as the node can.
    pub pids_limit: Option<u32>,
    /// Who makes containers.
    pub oci_runtime: OciRuntime,
}

// === impl OciRuntime ===

impl std::str::FromStr for OciRuntime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "libcontainer" => Ok(Self::Libcontainer),
            "runc" => Ok(Self::Runc),
            path if path.starts_with('/') => Ok(Self::Program(path.into())),
            other => Err(format!("{other:?} is not \"libcontainer\", \"runc\" or the path of a program")),
        }
    }
}

impl OciRuntime {
    /// The program; none for what is built in, an error if it is not there.
    pub(crate) fn program(&self) -> Result<Option<PathBuf>, String> {
        const PLACES: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        let runs = |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
        match self {
            Self::Libcontainer => Ok(None),
            Self::Runc => match PLACES.iter().map(|place| Path::new(place).join("runc")).find(runs) {
                Some(path) => Ok(Some(path)),
                None => Err(format!("runc is not in any of {}", PLACES.join(", "))),
            },
            Self::Program(path) if runs(path) => Ok(Some(path.clone())),
            Self::Program(path) => Err(format!("{} is not a program that can be run", path.display())),
        }
    }
}

// === impl Settings ===

impl Settings {
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
            shim: vec!["shim".to_owned()],
            cgroup: "/keelet".to_owned(),
            pids_limit: None,
            oci_runtime: OciRuntime::default(),
        }
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.state.join("sandboxes")
    }

    /// Files of pods that their containers may write to. What goes with the boot is in memory, and no pod's to fill.
    pub(crate) fn pod_files(&self) -> PathBuf {
        self.root.join("sandboxes")
    }
}

#[cfg(test)]
mod tests {
    use super::OciRuntime;

    #[test]
    fn who_makes_containers_is_named_precisely() {
        assert_eq!("runc".parse(), Ok(OciRuntime::Runc));
        assert_eq!("/opt/crun".parse(), Ok(OciRuntime::Program("/opt/crun".into())));
        assert!("crun".parse::<OciRuntime>().expect_err("not a path").contains("\"crun\""));
        let missing = OciRuntime::Program("/no/such/runc".into()).program();
        assert_eq!(missing, Err("/no/such/runc is not a program that can be run".to_owned()));
        assert_eq!(OciRuntime::Libcontainer.program(), Ok(None));
    }
}
