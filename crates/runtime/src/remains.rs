//! What is left of pods whose server is gone for good: naming it, and ending it where no server can.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use keelet_linux::{cgroup::Mounts, private::private_directory};
use keelet_shim::running::{RunningShim, running_shims};

use crate::{files, records, settings::Settings};

/// Whether the records of a sandbox are in its directory. Without them no server can adopt it.
pub fn has_records(dir: &Path) -> bool {
    records::is_sandbox(dir)
}

/// Whether pods run whose sandboxes are or were in that directory. What cannot be asked runs.
pub fn runs_in(sandboxes: &Path) -> bool {
    running_shims().map_or(true, |shims| shims.iter().any(|shim| shim.is_in(sandboxes))) || has_processes(sandboxes)
}

/// Containers keep running without their shim.
fn has_processes(sandboxes: &Path) -> bool {
    let entries = fs::read_dir(sandboxes).into_iter().flatten().flatten();
    let cgroups: Vec<_> =
        entries.map(|entry| format!("{}/{}", Settings::CGROUP, entry.file_name().to_string_lossy())).collect();
    !cgroups.is_empty()
        && Mounts::find().map_or(true, |mounts| cgroups.iter().any(|cgroup| !mounts.processes(cgroup).is_empty()))
}

/// The pods that have a sandbox in that directory, each as namespace and name.
pub fn pods_in(sandboxes: &Path) -> Vec<String> {
    let entries = fs::read_dir(sandboxes).into_iter().flatten().flatten();
    let name = |dir: &Path| records::read_sandbox_config(dir).ok()?.metadata;
    let mut names: Vec<String> =
        entries.filter_map(|entry| name(&entry.path())).map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    names.sort();
    names.dedup();
    names
}

/// Ends pods whose records are gone, by what the kernel knows of them: processes, cgroups, mounts, interfaces. The bridge goes with
/// the last of them if it is named and nothing else is plugged in.
///
/// # Errors
///
/// The first failure; the others are still ended.
pub async fn end_without_records(shims: &[RunningShim], bridge: Option<&str>) -> io::Result<()> {
    let (network, records) = network_of(bridge)?;
    let cgroups = Mounts::find()?;
    let mut first = Ok(());
    for shim in shims {
        shim.kill();
        let sandbox = shim.sandbox();
        let cgroup = format!("{}/{sandbox}", Settings::CGROUP);
        let (cgroups, dir) = (cgroups.clone(), shim.dir.clone());
        let ended = tokio::task::spawn_blocking(move || {
            cgroups.clear(&cgroup)?;
            remove_files(&dir)
        });
        let detached = network.detach(&sandbox, None).await.map_err(io::Error::other);
        first = first.and(ended.await.map_err(io::Error::other)?).and(detached);
    }
    let _ = fs::remove_dir_all(records);
    first
}

/// Removes the directory of a sandbox, if there is still one. One that another user could have put there stays: its path may
/// lead anywhere by now.
fn remove_files(dir: &Path) -> io::Result<()> {
    match private_directory(dir) {
        Ok(Some(real)) if real == dir => {}
        Ok(_) => {
            let message = format!("{} stays: other users can write to a directory on its path", dir.display());
            return Err(io::Error::other(message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    files::unmount_shm(dir)?;
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A network with records for a moment, and their directory.
fn network_of(bridge: Option<&str>) -> io::Result<(keelet_net::Network, PathBuf)> {
    let records = env::temp_dir().join(format!("keelet-clean-{}", std::process::id()));
    let mut settings = keelet_net::Settings::new(&records);
    if let Some(bridge) = bridge {
        bridge.clone_into(&mut settings.bridge);
    }
    Ok((keelet_net::Network::open(settings).map_err(io::Error::other)?, records))
}

/// The bridges of this machine that carry the root directory of the agent, server or run that made them.
///
/// # Errors
///
/// When the kernel does not answer.
pub async fn owned_bridges() -> io::Result<Vec<keelet_net::OwnedBridge>> {
    keelet_net::Network::owned_bridges().await.map_err(io::Error::other)
}

/// Removes a bridge and its packet rules, unless a pod is plugged in. Whether it is gone.
///
/// # Errors
///
/// When the kernel refuses.
pub async fn remove_idle_bridge(bridge: &str) -> io::Result<bool> {
    let (network, records) = network_of(Some(bridge))?;
    let removed = network.remove_idle_bridge().await.map_err(io::Error::other);
    let _ = fs::remove_dir_all(records);
    removed
}
