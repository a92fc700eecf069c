//! Where the directories and files of a pod are. Pure.

use std::path::{Path, PathBuf};

use keelet_pod::Pod;

use super::NO_DIRECTORIES;
use crate::HostError;

/// What the kubelet calls the volume plugin, as a directory name.
const EMPTY_DIRS: &str = "kubernetes.io~empty-dir";

/// The longest file name there is.
const LONGEST_NAME: usize = 255;

/// The two directories that all pods of a node live in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
    logs: PathBuf,
}

/// Where the directories and files of one pod are. None of them lies outside of the layout's two directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPaths {
    dir: PathBuf,
    log_dir: PathBuf,
}

// === impl Layout ===

impl Layout {
    /// Where the kubelet has its logs, and log collectors look for them.
    pub const LOGS: &'static str = "/var/log/pods";

    /// Pods below one directory, their logs below another.
    pub fn new(root: impl Into<PathBuf>, logs: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), logs: logs.into() }
    }

    /// The directory with the logs of all pods.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// The paths of a pod. An error if one of its names is no file name: a UID or a name is untrusted input.
    pub fn pod(&self, pod: &Pod) -> Result<PodPaths, HostError> {
        let log_dir = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
        check("name of the pod's log directory", &log_dir)?;
        for container in pod.all_containers() {
            check("name of a container", &container.name)?;
        }
        for volume in pod.source.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            check("name of a volume", &volume.name)?;
        }
        Ok(PodPaths { dir: self.pod_dir(&pod.uid)?, log_dir: self.logs.join(log_dir) })
    }

    /// The directory with the directories of all pods.
    pub(super) fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// The directory of the pod with that UID.
    pub(super) fn pod_dir(&self, uid: &str) -> Result<PathBuf, HostError> {
        check("UID of the pod", uid)?;
        Ok(self.pods().join(uid))
    }
}

// === impl PodPaths ===

impl PodPaths {
    /// The pod's own directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory with the logs of all its containers.
    pub fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    /// The log of one instance of a container, below the log directory.
    pub fn container_log_file(container: &str, attempt: u32) -> String {
        format!("{container}/{attempt}.log")
    }

    /// The directory with the logs of a container.
    pub fn container_log_dir(&self, container: &str) -> PathBuf {
        self.log_dir.join(container)
    }

    /// The directory of a container.
    pub fn container_dir(&self, container: &str) -> PathBuf {
        self.dir.join("containers").join(container)
    }

    /// What is mounted at the `terminationMessagePath` of one instance of a container.
    pub fn termination_file(&self, container: &str, attempt: u32) -> PathBuf {
        self.container_dir(container).join(attempt.to_string())
    }

    /// What is mounted at `/etc/hosts` in every container.
    pub fn etc_hosts(&self) -> PathBuf {
        self.dir.join("etc-hosts")
    }

    /// The directory behind an `emptyDir` volume.
    pub fn empty_dir(&self, volume: &str) -> PathBuf {
        self.volumes_of(EMPTY_DIRS).join(volume)
    }

    /// The directory with the places that lead to parts of volumes.
    pub(super) fn sub_paths(&self) -> PathBuf {
        Self::sub_paths_in(&self.dir)
    }

    /// The same for a pod of which nothing but its directory is known.
    pub(super) fn sub_paths_in(pod: &Path) -> PathBuf {
        pod.join("volume-subpaths")
    }

    /// What leads to a part of a volume that a container mounts, by the number of the part.
    pub(super) fn sub_path(&self, volume: &str, container: &str, number: usize) -> PathBuf {
        self.sub_paths().join(volume).join(container).join(number.to_string())
    }

    /// The directory with all volumes of one plugin.
    pub(super) fn volumes_of(&self, plugin: &str) -> PathBuf {
        self.dir.join("volumes").join(plugin)
    }
}

/// Whether logs in a directory of that name are those of a pod. Neither namespaces nor names have underscores.
pub(super) fn is_log_dir_of(name: &str, uid: &str) -> bool {
    name.splitn(3, '_').nth(2) == Some(uid)
}

/// Whether it names something in its directory, and nothing else.
fn check(what: &str, name: &str) -> Result<(), HostError> {
    let problem = match name {
        "" => "is empty",
        "." | ".." => "leads elsewhere",
        _ if name.contains(['/', '\0']) => "has a character that no file name has",
        _ if name.len() > LONGEST_NAME => "is longer than a file name can be (255 bytes)",
        _ => return Ok(()),
    };
    Err(HostError::new(NO_DIRECTORIES, format_args!("the {what} {problem}: {name:?}")))
}

#[cfg(test)]
mod tests {
    use keelet_pod::parse_one;

    use super::*;

    fn pod(uid: &str) -> Pod {
        let manifest = "
apiVersion: v1
kind: Pod
metadata: { name: web, namespace: shop }
spec:
  containers: [{ name: main, image: nginx }]
";
        Pod { uid: uid.to_owned(), ..parse_one(manifest).unwrap() }
    }

    fn layout() -> Layout {
        Layout::new("/var/lib/keelet", Layout::LOGS)
    }

    #[test]
    fn the_layout_is_the_kubelets() {
        let paths = layout().pod(&pod("u-1")).unwrap();
        let shown = |path: PathBuf| path.display().to_string();
        assert_eq!(paths.dir(), Path::new("/var/lib/keelet/pods/u-1"));
        assert_eq!(paths.log_dir(), Path::new("/var/log/pods/shop_web_u-1"));
        assert_eq!(PodPaths::container_log_file("main", 3), "main/3.log");
        assert_eq!(shown(paths.container_log_dir("main")), "/var/log/pods/shop_web_u-1/main");
        assert_eq!(shown(paths.termination_file("main", 3)), "/var/lib/keelet/pods/u-1/containers/main/3");
        assert_eq!(shown(paths.etc_hosts()), "/var/lib/keelet/pods/u-1/etc-hosts");
        let volume = "/var/lib/keelet/pods/u-1/volumes/kubernetes.io~empty-dir/data";
        assert_eq!(shown(paths.empty_dir("data")), volume);
        let part = "/var/lib/keelet/pods/u-1/volume-subpaths/data/main/0";
        assert_eq!(shown(paths.sub_path("data", "main", 0)), part);
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for uid in ["", ".", "..", "../../etc", "a/b", "/", "a\0b", &"x".repeat(256)] {
            let error = layout().pod_dir(uid).unwrap_err();
            assert_eq!(error.reason, "FailedToMakePodDataDirectories");
            assert!(error.message.starts_with("the UID of the pod "), "{error}");
            assert!(layout().pod(&pod(uid)).is_err(), "{uid:?}");
        }
        let mut odd = pod("u");
        odd.containers[0].name = "..".to_owned();
        assert_eq!(layout().pod(&odd).unwrap_err().message, "the name of a container leads elsewhere: \"..\"");
    }

    #[test]
    fn logs_are_found_by_the_whole_uid() {
        assert!(is_log_dir_of("shop_web_u-1", "u-1"));
        assert!(is_log_dir_of("shop_web_u_1", "u_1"));
        for other in ["shop_web_u-11", "shop_web_x_u-1", "shop_u-1", "u-1", "", "shop_web_"] {
            assert!(!is_log_dir_of(other, "u-1"), "{other}");
        }
    }
}
