//! What runs that were killed have left: pods that go on without an agent, a bridge, a directory.
//!
//! They are found by the shims of their pods, which carry their directory in their arguments, by the directories of runs, and by the
//! bridges of pods, which carry the root directory in their alias: a named directory whose pods have all ended is found
//! by its bridge only. Whatever an agent, a server or a run that is alive has locked is theirs. An agent that was
//! stopped comes back to its pods, so they are not left over either, unless their records are gone: then no agent can
//! ever adopt them.
//!
//! A directory for temporary files is shared with other users, who can make a directory that looks like that of a run and write what
//! they like into its record. So a record is acted upon only where no other user could have written it, and only if it names the
//! directory that it is in.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::future::try_join_all;
use keelet_cri::{Runtime, v1};
use keelet_host::{RemoveError, remove_directory};
use keelet_launch::labels::POD_TERMINATION_GRACE;
use keelet_linux::private::private_directory;
use keelet_runtime::{Engine, OpenError, OwnedBridge, end_without_records, has_records, pods_in, runs_in};
use keelet_shim::running::{RunningShim, running_shims};

use crate::{
    claim::{self, Claim, ClaimError, Extra, Holder, Record},
    embedded::settings_in,
    paths::Paths,
    run::PREFIX,
};

/// How long a container may take to stop if it has no annotation: the API's default.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// What one run has left.
#[derive(Debug)]
pub struct Leftover {
    state_dir: PathBuf,
    /// What is known of it; none if its records are gone.
    record: Option<Record>,
    shims: Vec<RunningShim>,
}

/// Why something that a run has left stays.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// A pod without records cannot be ended.
    #[error(transparent)]
    WithoutRecords(#[from] io::Error),
    /// Its directories cannot be had.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Its runtime cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A pod cannot be stopped or removed.
    #[error(transparent)]
    Pod(#[from] keelet_cri::Error),
    /// The directory cannot be removed.
    #[error(transparent)]
    Directory(#[from] RemoveError),
    /// Its records may be another user's.
    #[error(
        "other users can write to {}, or to a directory above it, so its records are not trusted; make it root's alone \
         (chown root, chmod go-w) and try again", .0.display()
    )]
    NotPrivate(PathBuf),
    /// Its record is of another place.
    #[error("the record in {} is that of a run in {}", .found.display(), .recorded.display())]
    OfAnotherPlace {
        /// Where it was found.
        found: PathBuf,
        /// The root directory that it names.
        recorded: PathBuf,
    },
}

/// What runs that were killed have left. The error is that of listing the machine's processes.
pub fn find(bridges: &[OwnedBridge]) -> io::Result<Vec<Leftover>> {
    let mut by_state: BTreeMap<PathBuf, Vec<RunningShim>> = BTreeMap::new();
    for shim in running_shims()? {
        // STATE/runtime/sandboxes/ID
        if let Some(state_dir) = shim.dir.ancestors().nth(3).map(claim::real) {
            by_state.entry(state_dir).or_default().push(shim);
        }
    }
    // Those of which nothing runs any more.
    for state_dir in temporary_runs(&env::temp_dir()) {
        by_state.entry(state_dir).or_default();
    }
    for record in bridges.iter().filter_map(|bridge| claim::read(&bridge.owner)) {
        by_state.entry(claim::real(&record.state_dir)).or_default();
    }
    let leftovers =
        by_state.into_iter().map(|(state_dir, shims)| Leftover { record: claim::read(&state_dir), state_dir, shims });
    Ok(leftovers.filter(Leftover::is_unowned).collect())
}

/// The state directories of runs in a directory for temporary files. Without a record one may have just begun. What other users have
/// made there, or could have changed, is none.
fn temporary_runs(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let runs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let state_dirs = runs.filter_map(|entry| private_directory(&Paths::of_run(&entry.path()).state_dir).ok()?);
    state_dirs.filter(|state_dir| claim::read(state_dir).is_some()).collect()
}

// === impl Leftover ===

impl Leftover {
    /// Whether no process has its directory, and no agent or server will come back to it.
    fn is_unowned(&self) -> bool {
        match &self.record {
            _ if claim::is_held(&self.state_dir) => false,
            Some(record) => record.holder == Holder::Run,
            // Records of pods that an older keelet may have made.
            None => !self.shims.iter().any(|shim| has_records(&shim.dir)),
        }
    }

    /// Whether pods of it run.
    pub fn runs(&self) -> bool {
        runs_in(&claim::sandboxes(&self.state_dir))
    }

    /// The directory by which a person knows it.
    pub fn place(&self) -> &Path {
        self.record.as_ref().map_or(&self.state_dir, |record| &record.root_dir)
    }

    /// The pods of it, by names where they have records.
    pub fn pods(&self) -> Vec<String> {
        let known = pods_in(&claim::sandboxes(&self.state_dir));
        let nameless = self.shims.iter().filter(|shim| !has_records(&shim.dir));
        let nameless = nameless.map(|shim| format!("sandbox {:.12}, whose records are gone", shim.sandbox()));
        known.into_iter().chain(nameless).collect()
    }

    /// Checks that no other user can have written the record, and that it is of the directory that it is in: what follows from it is
    /// done as root.
    fn trusted(&self) -> Result<Option<&Record>, LeftoverError> {
        let Some(record) = &self.record else { return Ok(None) };
        let is_private = private_directory(&self.state_dir)?.is_some_and(|real| real == self.state_dir);
        if !is_private {
            return Err(LeftoverError::NotPrivate(self.state_dir.clone()));
        }
        // A run has its state directory in its root directory.
        if record.state_dir != self.state_dir || Paths::of_run(&record.root_dir).state_dir != self.state_dir {
            let (found, recorded) = (self.state_dir.clone(), record.root_dir.clone());
            return Err(LeftoverError::OfAnotherPlace { found, recorded });
        }
        Ok(Some(record))
    }

    /// Stops its pods, with their grace periods, and removes them; and its directory if it was to go with the run.
    pub async fn remove(&self) -> Result<(), LeftoverError> {
        let record = self.trusted()?;
        let bridge = match record {
            Some(record) => record.bridge.clone(),
            None => self.state_dir.parent().and_then(claim::own_bridge),
        };
        let nameless: Vec<_> = self.shims.iter().filter(|shim| !has_records(&shim.dir)).cloned().collect();
        if !nameless.is_empty() {
            end_without_records(&nameless, bridge.as_deref()).await?;
        }
        let Some(Record { root_dir, images, temporary, .. }) = record.cloned() else { return Ok(()) };
        let paths = Paths { root_dir: root_dir.clone(), state_dir: self.state_dir.clone() };
        // No run may begin to use it meanwhile.
        let claim = Claim::take(&paths, Holder::Run, Extra { images: images.clone(), temporary }).await?;
        let mut settings = settings_in(&paths, bridge.as_deref());
        settings.images = images.unwrap_or(settings.images);
        let engine = Engine::open(settings).await?;
        remove_all(&engine.in_process()).await?;
        drop((engine, claim));
        if temporary {
            remove_directory(&root_dir)?;
        }
        Ok(())
    }
}

/// Stops every pod of a runtime as an agent would, and removes it.
async fn remove_all(runtime: &Runtime) -> Result<(), keelet_cri::Error> {
    let containers = runtime.list_containers(None).await?;
    let running = containers.iter().filter(|one| one.state == v1::ContainerState::ContainerRunning as i32);
    let grace =
        |one: &v1::Container| one.annotations.get(POD_TERMINATION_GRACE).and_then(|seconds| seconds.parse().ok());
    let stops =
        running.map(|one| runtime.stop_container(&one.id, grace(one).map_or(DEFAULT_GRACE, Duration::from_secs)));
    try_join_all(stops).await?;
    for sandbox in runtime.list_pod_sandbox(None).await? {
        runtime.stop_pod_sandbox(&sandbox.id).await?;
        runtime.remove_pod_sandbox(&sandbox.id).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{PermissionsExt, chown, symlink},
    };

    use super::*;

    /// What a run in this directory would have left, after it has ended.
    fn record(root_dir: &Path) -> Record {
        Record {
            id: "id".to_owned(),
            holder: Holder::Run,
            pid: 1,
            boot_id: "boot".to_owned(),
            root_dir: root_dir.to_owned(),
            state_dir: root_dir.join("run"),
            bridge: None,
            images: None,
            temporary: true,
        }
    }

    /// A directory for temporary files, and a directory in it with that record.
    fn place(name: &str, record: impl FnOnce(&Path) -> Record) -> (tempfile::TempDir, PathBuf) {
        let temporary = tempfile::tempdir().unwrap();
        fs::set_permissions(temporary.path(), Permissions::from_mode(0o1777)).unwrap();
        let root = claim::real(temporary.path()).join(name);
        fs::create_dir_all(root.join("run")).unwrap();
        let text = serde_json::to_vec(&record(&root)).unwrap();
        fs::write(root.join("run/owner.json"), text).unwrap();
        (temporary, root)
    }

    fn leftover(state_dir: &Path) -> Leftover {
        Leftover { record: claim::read(state_dir), state_dir: state_dir.to_owned(), shims: Vec::new() }
    }

    /// DIR-8: the one that was left by this user is found, whatever it is called on the way.
    #[test]
    fn runs_are_found_in_the_directory_for_temporary_files() {
        let (temporary, root) = place("keelet-run-a", record);
        fs::create_dir_all(temporary.path().join("keelet-run-new/run")).unwrap();
        fs::create_dir_all(temporary.path().join("other/run")).unwrap();
        fs::copy(root.join("run/owner.json"), temporary.path().join("other/run/owner.json")).unwrap();
        assert_eq!(temporary_runs(temporary.path()), [root.join("run")]);
        assert!(leftover(&root.join("run")).trusted().unwrap().is_some());
    }

    /// DIR-10: a user with write access to a directory for temporary files could otherwise name any directory of the node to be removed.
    #[test]
    fn what_another_user_could_have_written_is_not_believed() {
        if !rustix::process::geteuid().is_root() {
            keelet_report::skipped("files of another user need root");
            return;
        }
        let (temporary, root) = place("keelet-run-a", record);
        let found = || temporary_runs(temporary.path());
        for below in ["", "run"] {
            let path = root.join(below);
            chown(&path, Some(65534), None).unwrap();
            assert_eq!(found(), [""; 0].map(PathBuf::from), "{below:?} of another user");
            let said = leftover(&root.join("run")).trusted().unwrap_err().to_string();
            assert!(said.starts_with(&format!("other users can write to {}", root.join("run").display())), "{said}");
            chown(&path, Some(0), None).unwrap();
            for mode in [0o775, 0o757] {
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                assert_eq!(found(), [""; 0].map(PathBuf::from), "{below:?} with mode {mode:o}");
            }
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(found(), [root.join("run")], "as it was");
        fs::set_permissions(temporary.path(), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(found(), [""; 0].map(PathBuf::from), "any user can replace what is in it");
    }

    /// DIR-10: a record that was copied or moved with its directory is no reason to do something to the directory that it names.
    #[tokio::test]
    async fn a_record_of_another_place_is_not_acted_upon() {
        let victim = tempfile::tempdir().unwrap();
        fs::write(victim.path().join("precious"), "").unwrap();
        let other = claim::real(victim.path());
        let forge: [fn(&Path, &Path) -> Record; 3] = [
            |_, other| record(other),
            |here, other| Record { state_dir: here.join("run"), ..record(other) },
            |here, other| Record { root_dir: other.to_owned(), ..record(here) },
        ];
        for (number, forge) in forge.into_iter().enumerate() {
            let (temporary, root) = place("keelet-run-a", |here| forge(here, &other));
            let [state_dir] = &temporary_runs(temporary.path())[..] else { panic!("not found: {number}") };
            let said = leftover(state_dir).remove().await.unwrap_err().to_string();
            let expected = format!("the record in {} is that of a run in {}", state_dir.display(), other.display());
            assert_eq!(said, expected, "{number}");
            assert!(victim.path().join("precious").exists() && root.exists(), "{number}");
        }
        // A link in place of the state directory leads to that of another run: it is found as that one.
        let (temporary, root) = place("keelet-run-a", record);
        fs::create_dir(temporary.path().join("keelet-run-b")).unwrap();
        symlink(root.join("run"), temporary.path().join("keelet-run-b/run")).unwrap();
        let mut found = temporary_runs(temporary.path());
        found.dedup();
        assert_eq!(found, [root.join("run")]);
    }
}
