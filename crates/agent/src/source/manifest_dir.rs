//! The task that watches a directory of manifests.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_pod::{Features, Pod, Severity, Strictness};
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::{Notify, watch},
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::{
    Content, Feed, Listing, Manifests, Source, SourceProblem,
    changes::{Change, Reported},
    scan::{self, Air, Identity, Scan, Stamps},
};
use crate::slot::Wanted;

/// From one scan to the next without a hint. What inotify does not report (a changed target of a link, another
/// directory under the same name, an overrun of its queue) is seen that much later.
const RESCAN: Duration = Duration::from_secs(20);

/// A directory that is not there cannot be watched; it is searched for.
const WAIT_FOR_DIRECTORY: Duration = Duration::from_secs(1);

/// How long nothing must have happened before files are read: longer than a writer pauses between two writes.
const QUIET: Duration = Duration::from_millis(100);

/// How long to wait for that.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A directory of manifests, one or more pods in each file.
#[derive(Debug)]
pub struct ManifestDir {
    directory: PathBuf,
    manifests: Manifests,
    rescan: Duration,
    /// Notified when something happened in the directory.
    hint: Arc<Notify>,
    watch: Option<Watch>,
    stamps: Stamps,
    told: Reported,
}

/// A directory of manifests as a source of an agent. What it lists is shown to others too.
#[derive(Debug)]
pub struct ManifestSource {
    /// The directory.
    pub directory: ManifestDir,
    /// Where every change of its listing goes, besides the agent.
    pub listings: watch::Sender<Arc<Listing>>,
}

/// A directory that is watched, for as long as this value exists.
#[derive(Debug)]
struct Watch {
    directory: Identity,
    _watcher: RecommendedWatcher,
}

/// When the next scan is due if there is no hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The directory was read.
    Later,
    /// There is no directory.
    ForDirectory,
    /// Some file is being written.
    ForFile,
}

// === impl ManifestSource ===

impl Source for ManifestSource {
    fn follow(self: Box<Self>, feed: Feed) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut listings = self.listings.subscribe();
            let forward = async {
                while listings.changed().await.is_ok() {
                    let listing = Arc::clone(&listings.borrow_and_update());
                    let wanted = listing.pods.iter().map(|(uid, pod)| (uid.clone(), Wanted::new(Arc::clone(pod))));
                    feed.set(wanted.collect(), listing.extent());
                }
            };
            tokio::join!(self.directory.run(self.listings), forward);
        })
    }
}

// === impl ManifestDir ===

impl ManifestDir {
    /// A directory that may or may not be there yet.
    pub fn new(directory: impl Into<PathBuf>, features: Features, strictness: Strictness) -> Self {
        let directory = directory.into();
        let manifests = Manifests::new(&directory, features, strictness);
        let hint = Arc::new(Notify::new());
        Self {
            directory,
            manifests,
            rescan: RESCAN,
            hint,
            watch: None,
            stamps: Stamps::new(),
            told: Reported::default(),
        }
    }

    /// Pods that run already, from an earlier agent: what a file says of one of them has to be what runs.
    pub fn beside(self, recovered: impl IntoIterator<Item = Arc<Pod>>) -> Self {
        let recovered: Vec<_> = recovered.into_iter().collect();
        Self { told: Reported::beside(&recovered), manifests: self.manifests.beside(recovered), ..self }
    }

    /// An earlier agent left more pods than those, and their copies cannot be read.
    pub fn with_lost_copies(self) -> Self {
        Self { manifests: self.manifests.with_lost_copies(), ..self }
    }

    /// How long to wait from one scan to the next without a hint.
    pub fn rescan_every(self, rescan: Duration) -> Self {
        Self { rescan, ..self }
    }

    /// Notified by others, it makes the source scan at once.
    pub fn hint(&self) -> Arc<Notify> {
        Arc::clone(&self.hint)
    }

    /// Watches the directory for as long as a receiver exists. Every change of the listing is sent.
    pub async fn run(mut self, listings: watch::Sender<Arc<Listing>>) {
        let mut air = Air::Quiet;
        loop {
            let next = self.scan(air).await;
            let listing = self.manifests.listing();
            self.told.update(&listing).iter().for_each(Change::log);
            publish(&listings, listing);
            tokio::select! {
                () = listings.closed() => return,
                waited = self.wait(next) => air = waited,
            }
        }
    }

    async fn scan(&mut self, air: Air) -> Next {
        match self.try_scan(air).await {
            Ok(scan) => {
                let busy = scan.files.iter().any(|(_, content)| *content == Content::Busy);
                self.stamps = scan.stamps;
                self.manifests.merge(scan.files);
                if busy { Next::ForFile } else { Next::Later }
            }
            Err(error) => {
                self.watch = None;
                self.manifests.lose(match error.kind() {
                    io::ErrorKind::NotFound => "it does not exist".to_owned(),
                    _ => error.to_string(),
                });
                Next::ForDirectory
            }
        }
    }

    async fn try_scan(&mut self, air: Air) -> io::Result<Scan> {
        // Watched before it is read, so that nothing that happens after is missed.
        self.watch().await?;
        let (directory, stamps) = (self.directory.clone(), std::mem::take(&mut self.stamps));
        let scan = spawn_blocking(move || scan::scan(&directory, &stamps, air)).await.map_err(io::Error::other)??;
        if self.watch.as_ref().is_some_and(|watch| watch.directory != scan.directory) {
            // Another one came in its place meanwhile: scan again.
            self.hint.notify_one();
        }
        Ok(scan)
    }

    /// Sees to it that the directory is watched which has the name now.
    async fn watch(&mut self) -> io::Result<()> {
        let path = self.directory.clone();
        let directory = spawn_blocking(move || scan::identify(&path)).await.map_err(io::Error::other)??;
        if self.watch.as_ref().is_some_and(|watch| watch.directory == directory) {
            return Ok(());
        }
        self.watch = None;
        let (path, hint) = (self.directory.clone(), Arc::clone(&self.hint));
        let watching = spawn_blocking(move || watch_directory(&path, hint)).await.map_err(io::Error::other)?;
        match watching {
            Ok(watcher) => self.watch = Some(Watch { directory, _watcher: watcher }),
            Err(error) => {
                let directory = self.directory.display();
                tracing::warn!(%directory, %error, every = ?self.rescan, "cannot watch the manifest directory; reading it periodically");
            }
        }
        Ok(())
    }

    /// Waits until it is time to scan again.
    async fn wait(&self, next: Next) -> Air {
        let longest = match next {
            Next::Later => self.rescan,
            Next::ForDirectory => WAIT_FOR_DIRECTORY,
            Next::ForFile => QUIET,
        };
        if timeout(longest, self.hint.notified()).await.is_err() {
            return match next {
                Next::Later => Air::Quiet,
                // The process that makes the directory fills it too, and a process that writes a file may not be done.
                Next::ForDirectory | Next::ForFile => Air::Busy,
            };
        }
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            match timeout(QUIET, self.hint.notified()).await {
                Err(_) => return Air::Quiet,
                Ok(()) if Instant::now() >= deadline => return Air::Busy,
                Ok(()) => {}
            }
        }
    }
}

/// Sends a listing if it is news, and logs what is new about it.
fn publish(listings: &watch::Sender<Arc<Listing>>, new: Listing) {
    let old = Arc::clone(&listings.borrow());
    if *old == new {
        return;
    }
    // `kind` is one of eight constant messages, so that a search finds all lines of a kind.
    for problem in new.problems.iter().filter(|problem| !old.problems.contains(problem)) {
        match problem.severity() {
            Severity::Error => tracing::error!(file = problem.file, %problem, "{}", problem.kind()),
            Severity::Warning => tracing::warn!(file = problem.file, %problem, "{}", problem.kind()),
        }
    }
    for SourceProblem { file, .. } in &old.problems {
        if !new.problems.iter().any(|problem| problem.file == *file) {
            tracing::info!(file, "manifest problem resolved");
        }
    }
    listings.send_replace(Arc::new(new));
}

fn watch_directory(directory: &Path, hint: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let tell = move |event: notify::Result<Event>| {
        // An error may stand for anything that happened.
        if event.as_ref().map_or(true, is_news) {
            hint.notify_one();
        }
    };
    let mut watcher = notify::recommended_watcher(tell)?;
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Whether something may have changed. A read of a file is no news: the reader is mostly the agent itself.
fn is_news(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, ModifyKind, RemoveKind};

    use super::*;

    /// A source, and how long it waits with that many hints, one every 50 ms.
    async fn waited(next: Next, hints: u32) -> (Air, Duration) {
        let source = ManifestDir::new("/nowhere", Features::default(), Strictness::Strict);
        let hint = Arc::clone(&source.hint);
        let hinting = async move {
            for _ in 0..hints {
                hint.notify_one();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            std::future::pending::<()>().await;
        };
        let start = Instant::now();
        tokio::select! {
            air = source.wait(next) => (air, start.elapsed()),
            () = hinting => unreachable!("hints never end"),
        }
    }

    /// In simulated time, in which nothing takes longer than it says.
    #[tokio::test(start_paused = true)]
    async fn files_are_read_when_the_directory_has_calmed_down_or_refuses_to() {
        // Timers have a resolution of a millisecond.
        let nearly = |waited: Duration, expected: u64| waited.abs_diff(Duration::from_millis(expected)) < QUIET / 4;
        for (next, hints, air, millis) in [
            (Next::Later, 0, Air::Quiet, 20_000),
            (Next::Later, 1, Air::Quiet, 100),
            (Next::Later, 5, Air::Quiet, 300),
            (Next::Later, 1000, Air::Busy, 1000),
            (Next::ForFile, 0, Air::Busy, 100),
            (Next::ForFile, 1, Air::Quiet, 100),
            (Next::ForDirectory, 0, Air::Busy, 1000),
        ] {
            let (found, time) = waited(next, hints).await;
            assert!(found == air && nearly(time, millis), "{next:?} with {hints} hints: {found:?} after {time:?}");
        }
    }

    #[tokio::test]
    async fn a_scan_of_an_unchanged_directory_is_no_news() {
        let directory = tempfile::tempdir().expect("a directory");
        let manifest =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: main, image: app}]}\n";
        std::fs::write(directory.path().join("a.yaml"), manifest).expect("a file");
        let mut source = ManifestDir::new(directory.path(), Features::default(), Strictness::Strict);
        let (sender, mut listings) = watch::channel(Arc::default());
        for scan in 0..5 {
            source.scan(Air::Quiet).await;
            publish(&sender, source.manifests.listing());
            assert_eq!(listings.has_changed().expect("open"), scan == 0, "scan {scan}: {:?}", listings.borrow());
            listings.mark_unchanged();
        }
        assert_eq!(listings.borrow().pods.len(), 1, "{:?}", listings.borrow());
    }

    /// Else every scan would cause the next one.
    #[test]
    fn reading_a_file_is_no_change() {
        for (kind, news) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), false),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), true),
            (EventKind::Create(CreateKind::File), true),
            (EventKind::Modify(ModifyKind::Any), true),
            (EventKind::Remove(RemoveKind::File), true),
            (EventKind::Other, true),
        ] {
            assert_eq!(is_news(&Event::new(kind)), news, "{kind:?}");
        }
    }
}
