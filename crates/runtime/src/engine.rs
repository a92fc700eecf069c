//! What the runtime knows, and how it finds it again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use futures::StreamExt;
use keelet_cri::{Runtime, Server};
use keelet_linux::cgroup::Mounts;
use keelet_shim::{
    protocol::CONTAINERS,
    running::{RunningShim, running_shims},
};
use tokio::task::{JoinHandle, JoinSet};
use tonic::Status;

use crate::{
    audit,
    container::{Container, container_of_mount},
    events::Events,
    files, keeper,
    pulls::{Pulling, Pulls},
    records, recover,
    remains::runs_in,
    sandbox::Sandbox,
    settings::{OciRuntimeError, Settings},
    shim::Launcher,
    stats::Counted,
    streams,
};

/// Shims that are asked at once what became of their pods. Each takes some open files while it answers.
const ASKED_AT_ONCE: usize = 16;

/// A shim that is asked to exit takes a moment, with its sandbox's directory gone already: 2 s on a busy machine.
const LEAVING: usize = 20;
const POLL_EVERY: Duration = Duration::from_millis(100);

/// The runtime. Cheap to clone; clones are the same one.
#[derive(Clone)]
pub struct Engine {
    pub(crate) parts: Arc<Parts>,
}

pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) images: keelet_image::Store,
    pub(crate) pulls: Pulls,
    pub(crate) network: keelet_net::Network,
    pub(crate) cgroups: Mounts,
    pub(crate) launcher: Launcher,
    /// The program that makes containers, if it is not libcontainer.
    pub(crate) oci_runtime: Option<PathBuf>,
    pub(crate) events: Events,
    pub(crate) counted: Counted,
    pub(crate) streams: streams::Server,
    tables: Mutex<Tables>,
    /// What runs as long as the runtime is open.
    _beside: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Tables {
    sandboxes: BTreeMap<String, Arc<Sandbox>>,
    containers: BTreeMap<String, Arc<Container>>,
}

/// Why the runtime cannot be used here.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It takes root: namespaces, mounts, cgroups.
    #[error("the embedded runtime has to run as root: it makes namespaces, mounts and cgroups")]
    NotRoot,
    /// The program that is to make containers cannot be used.
    #[error("the OCI runtime cannot be used: {0}")]
    OciRuntime(#[from] OciRuntimeError),
    /// A directory or file cannot be used.
    #[error("{what}: {error}")]
    Io {
        /// Which.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// Pods run whose records are gone. They may be on a file system that is not mounted, and nothing of them is touched.
    #[error(
        "{} pods run whose records are gone from {}: mount what belongs there, or end these pods with `keelet run --clean`; \
         nothing was changed (sandboxes {})",
        .sandboxes.len(), .dir.display(), .sandboxes.join(", ")
    )]
    RecordsGone {
        /// Where they were.
        dir: PathBuf,
        /// The sandboxes, by their IDs.
        sandboxes: Vec<String>,
    },
    /// The images cannot be used.
    #[error(transparent)]
    Images(#[from] keelet_image::Error),
    /// The network cannot be used.
    #[error(transparent)]
    Network(#[from] keelet_net::Error),
}

// === impl Engine ===

impl Engine {
    /// Opens the runtime, and recovers whatever an earlier one left. Has to be called inside a tokio runtime, which runs its
    /// tasks.
    pub async fn open(settings: Settings) -> Result<Self, OpenError> {
        if !rustix::process::geteuid().is_root() {
            return Err(OpenError::NotRoot);
        }
        let io = |what: String| move |error| OpenError::Io { what, error };
        // Before anything is made or removed: an empty directory does not mean that no pods run.
        let shims = shims_beside(&settings.sandboxes()).await?;
        for dir in settings.places() {
            make_private(&dir).map_err(io(dir.display().to_string()))?;
        }
        let owner = Some(settings.sandboxes());
        let options = keelet_image::Options { owner, in_use: runs_in, ..keelet_image::Options::default() };
        let network = keelet_net::Network::open(settings.network.clone())?;
        let mut beside = JoinSet::new();
        beside.spawn({
            let network = network.clone();
            async move { network.keep_rules().await }
        });
        let parts = Parts {
            images: keelet_image::Store::open_with(&settings.images, options)?,
            pulls: Pulls::default(),
            network,
            cgroups: Mounts::find().map_err(io("cgroups".to_owned()))?,
            launcher: Launcher::new(settings.executable.as_deref(), &settings.shim)
                .map_err(io("the runtime's own executable".to_owned()))?,
            oci_runtime: settings.oci_runtime.program()?,
            events: Events::new(),
            counted: Counted::default(),
            streams: streams::Server::default(),
            tables: Mutex::default(),
            _beside: beside,
            settings,
        };
        if let Some(error) = keelet_linux::oom::cannot_lower_score() {
            tracing::debug!(
                %error,
                "cannot lower oom_score_adj without CAP_SYS_RESOURCE: shims and containers keep a higher value than intended"
            );
        }
        let engine = Self { parts: Arc::new(parts) };
        engine.adopt(&shims).await?;
        audit::start(&engine).await;
        Ok(engine)
    }

    /// The runtime for an agent in this process.
    pub fn in_process(&self) -> Runtime {
        Runtime::in_process(self.clone(), self.clone())
    }

    /// The runtime as a service, for a socket.
    pub fn server(&self) -> Server {
        Server::new(self.clone(), self.clone())
    }

    /// The images.
    pub fn images(&self) -> &keelet_image::Store {
        &self.parts.images
    }

    /// The images that are being pulled, and how far each has come.
    pub fn pulling(&self) -> Vec<Pulling> {
        self.parts.pulls.now()
    }

    /// Everything that an earlier server left: sandboxes it finished are kept, others removed. What belongs to the shims of others
    /// is left alone, whatever our own directories say of it.
    async fn adopt(&self, shims: &[RunningShim]) -> Result<(), OpenError> {
        let (mut finished, mut unfinished) = (Vec::new(), Vec::new());
        for dir in subdirectories(&self.parts.settings.sandboxes())? {
            let id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match self.recorded_sandbox(&id, &dir).await {
                Ok(sandbox) => {
                    for dir in subdirectories(&dir.join(CONTAINERS))? {
                        self.adopt_container(&sandbox, dir).await?;
                    }
                    self.tables().sandboxes.insert(id, Arc::clone(&sandbox));
                    finished.push(sandbox);
                }
                Err(error) if !records::is_nothing(&error) => return Err(unknown(&dir)(error)),
                Err(error) => {
                    tracing::warn!(sandbox = id, %error, "removing unfinished sandbox");
                    unfinished.push((id, dir));
                }
            }
        }
        // One that does not answer holds up no other.
        let keeping = futures::stream::iter(finished);
        keeping.for_each_concurrent(ASKED_AT_ONCE, |sandbox| keeper::keep(self, sandbox)).await;
        let mut known: BTreeSet<_> = self.tables().containers.keys().cloned().collect();
        for sandbox in self.sandboxes() {
            known.extend(self.unknown_containers(&sandbox).map_err(unknown(&sandbox.dir))?);
        }
        self.unmount_images(|container| !known.contains(container)).await;
        for (id, dir) in unfinished {
            self.remove_unfinished(&id, &dir).await;
        }
        let mut live: BTreeSet<_> = self.tables().sandboxes.keys().cloned().collect();
        live.extend(
            shims.iter().filter(|shim| !shim.is_in(&self.parts.settings.sandboxes())).map(RunningShim::sandbox),
        );
        if let Err(error) = self.parts.network.sweep(&live).await {
            tracing::warn!(%error, "cannot remove networks of deleted sandboxes; the next start retries");
        }
        self.blocking(move |parts| files::sweep(&parts.settings, &live)).await;
        for key in self.parts.images.roots().unwrap_or_default().into_iter().filter(|key| !known.contains(key)) {
            let container = key.clone();
            if let Err(error) = self.blocking(move |parts| parts.images.remove_root(&key)).await {
                tracing::warn!(container, %error, "cannot remove root file system of deleted container; the next start retries");
            }
        }
        Ok(())
    }

    async fn adopt_container(&self, sandbox: &Arc<Sandbox>, dir: PathBuf) -> Result<(), OpenError> {
        let id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match self.recorded_container(sandbox, &id, &dir).await {
            Ok(container) => {
                self.tables().containers.insert(id, Arc::new(container));
            }
            Err(error) if !records::is_nothing(&error) => return Err(unknown(&dir)(error)),
            Err(error) if recover::was_started(&dir) => {
                tracing::error!(container = id, %error, "cannot recover container: its configuration is lost");
                sandbox.lose(format!("the request of its container {id} is lost: {error}"));
            }
            Err(error) => {
                tracing::warn!(container = id, %error, "removing unfinished container");
                self.unmount_images(|container| container == id).await;
                let key = id.clone();
                let _ = self.blocking(move |parts| parts.images.remove_root(&key)).await;
                let _ = fs::remove_dir_all(&dir);
            }
        }
        Ok(())
    }

    /// Takes the image volumes of containers away. Nothing else would once their container is forgotten, and as long as one is noted
    /// its layers stay.
    pub(crate) async fn unmount_images(&self, of: impl Fn(&str) -> bool) {
        let keys = self.parts.images.image_mounts().unwrap_or_default();
        for key in keys.into_iter().filter(|key| container_of_mount(key).is_some_and(&of)) {
            let mount = key.clone();
            if let Err(error) = self.blocking(move |parts| parts.images.unmount_image(&key)).await {
                tracing::warn!(mount, %error, "cannot unmount image volume of deleted container; the next start retries");
            }
        }
    }

    /// Runs something that waits for the disk or the kernel, off the threads that others need.
    pub(crate) async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Parts) -> T + Send + 'static) -> T {
        let parts = Arc::clone(&self.parts);
        outcome(tokio::task::spawn_blocking(move || work(&parts))).await
    }

    /// Works on to the end, also if the caller leaves meanwhile: what is half made would have no owner to remove it.
    pub(crate) async fn to_the_end<T, F>(&self, work: impl FnOnce(Self) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        outcome(tokio::spawn(work(self.clone()))).await
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.parts.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sandbox by its ID, or by as much of its start as only one has.
    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, Status> {
        let tables = self.tables();
        one(&tables.sandboxes, id).cloned().ok_or_else(|| Status::not_found(format!("sandbox {id:?} not found")))
    }

    /// A container, likewise.
    pub(crate) fn container(&self, id: &str) -> Result<Arc<Container>, Status> {
        let tables = self.tables();
        one(&tables.containers, id).cloned().ok_or_else(|| Status::not_found(format!("container {id:?} not found")))
    }

    pub(crate) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.tables().sandboxes.values().cloned().collect()
    }

    pub(crate) fn containers(&self) -> Vec<Arc<Container>> {
        self.tables().containers.values().cloned().collect()
    }

    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        self.tables().containers.values().filter(|container| container.sandbox == sandbox).cloned().collect()
    }

    pub(crate) fn add_sandbox(&self, sandbox: Arc<Sandbox>) {
        self.tables().sandboxes.insert(sandbox.id.clone(), sandbox);
    }

    pub(crate) fn add_container(&self, container: Arc<Container>) {
        self.tables().containers.insert(container.id.clone(), container);
    }

    pub(crate) fn forget_sandbox(&self, id: &str) {
        self.tables().sandboxes.remove(id);
    }

    pub(crate) fn forget_container(&self, id: &str) {
        self.tables().containers.remove(id);
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("settings", &self.parts.settings).finish_non_exhaustive()
    }
}

/// The shims that run on this machine, unless one of this directory has no records there.
async fn shims_beside(sandboxes: &Path) -> Result<Vec<RunningShim>, OpenError> {
    let unknown = |error| OpenError::Io { what: "the processes of this machine".to_owned(), error };
    let mut attempts = 0;
    loop {
        let dir = sandboxes.to_owned();
        let find = move || -> io::Result<(Vec<RunningShim>, Vec<String>)> {
            let shims = running_shims()?;
            let without = shims.iter().filter(|shim| shim.is_in(&dir) && !records::is_sandbox(&shim.dir));
            let sandboxes = without.map(RunningShim::sandbox).collect();
            Ok((shims, sandboxes))
        };
        let (shims, without) = outcome(tokio::task::spawn_blocking(find)).await.map_err(unknown)?;
        attempts += 1;
        if without.is_empty() {
            return Ok(shims);
        } else if attempts > LEAVING {
            return Err(OpenError::RecordsGone { dir: sandboxes.to_owned(), sandboxes: without });
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

fn one<'a, T>(table: &'a BTreeMap<String, T>, id: &str) -> Option<&'a T> {
    if id.is_empty() {
        return None;
    }
    table.get(id).or_else(|| {
        let mut found = table.range(id.to_owned()..).take_while(|(key, _)| key.starts_with(id));
        found.next().filter(|_| found.next().is_none()).map(|(_, value)| value)
    })
}

/// For root alone: requests have secrets in them, and images have programs that run as their owner.
pub(crate) fn make_private(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// The runtime reports and removes nothing on the strength of what it could not read: the pods keep running, and the next
/// server that opens them may have more luck.
fn unknown(dir: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let what = format!("what runs in {}", dir.display());
    move |error| OpenError::Io { what, error }
}

fn subdirectories(dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(unknown(dir)),
    }
}

/// The time in nanoseconds since 1970, as CRI writes it.
#[expect(clippy::disallowed_methods, reason = "the runtime is behind a door: it reports when things happened")]
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

async fn outcome<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(value) => value,
        // It panicked, and so do we; or the async runtime is being torn down and no task waits.
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await,
        },
    }
}

/// A new ID: 64 hexadecimal digits, as crictl and other tools expect.
pub(crate) fn new_id() -> Result<String, Status> {
    let mut bytes = [0_u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        let random = rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty());
        filled += random.map_err(|error| Status::internal(format!("cannot get random numbers: {error}")))?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{new_id, one};

    #[test]
    fn an_id_may_be_cut_short_while_it_is_clear() {
        let table: BTreeMap<_, _> = [("abc1".to_owned(), 1), ("abd2".to_owned(), 2), ("ab".to_owned(), 3)].into();
        assert_eq!(one(&table, "abc"), Some(&1));
        assert_eq!(one(&table, "abd2"), Some(&2));
        assert_eq!(one(&table, "ab"), Some(&3), "a whole one is clear");
        assert_eq!(one(&table, "a"), None);
        assert_eq!(one(&table, ""), None);
        assert_eq!(one(&table, "b"), None);
    }

    #[test]
    fn ids_are_64_digits_and_differ() {
        let (one, other) = (new_id().expect("an ID"), new_id().expect("an ID"));
        assert!(one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, other);
    }
}
