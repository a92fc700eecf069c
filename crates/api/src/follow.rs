//! Following all objects of a kind: a list in pages, then a watch from there on, for ever.
//!
//! ```text
//! list page by page -> complete -> watch -> its time is over, or it broke: watch again from the last version
//!      ^                             '----> the version is too old (410), or what came cannot be read: list again
//!      '---------------------------------------------------------------------------------------------'
//! ```
//!
//! Where the objects are few, list and watch are one request: the watch begins with what there is ([`Objects::streams`]). An API server
//! that refuses that is asked for a list.
//!
//! A list that is not found says little: a proxy answers so, and an API server whose definition of the objects has moved on to another
//! version. Only a group that is not among those of `GET /apis` has no objects.
//!
//! What is known stays known while a list is made again. A page is read and given on before the next is asked for, so that a list of
//! 5,000 nodes takes no more memory than one page.

use std::{fmt, sync::Arc, time::Duration};

use serde::Deserialize;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, warn};

use crate::{
    Api, ApiError, LONG,
    watch::{BadJson, Page, Version, WatchEvent},
};

/// What reads the objects of a kind.
pub trait Objects: Send {
    /// An object.
    type Object: Send;
    /// Its name in metrics and logs.
    const RESOURCE: &'static str;

    /// The path of all of them.
    fn path(&self) -> &str;
    /// What selects some of them, as a part of a query; empty for all.
    fn selector(&self) -> &str {
        ""
    }
    /// Whether the watch begins with the objects that there are, instead of a list in pages.
    fn streams(&self) -> bool {
        false
    }
    /// Reads a page of a list.
    fn page(&mut self, json: &[u8]) -> Result<Page<Self::Object>, BadJson>;
    /// Reads a line of a watch.
    fn event(&mut self, json: &[u8]) -> Result<WatchEvent<Self::Object>, BadJson>;
    /// The version of an object.
    fn version(object: &Self::Object) -> &Version;
}

/// What there is to know of the objects of a kind.
#[derive(Debug)]
pub enum News<T> {
    /// A list begins.
    ListBegins,
    /// Objects of the list.
    Listed(Vec<T>),
    /// The list is complete.
    ListEnds,
    /// An object was created or changed.
    Changed(T),
    /// An object was deleted.
    Deleted(T),
    /// There is no such kind of object: the API server says so where it lists its groups.
    NoSuchKind,
    /// The objects cannot be listed, and whether there are any is not known: why. What was known of them may still be so.
    NotServed(String),
}

/// Objects on a page. A node has some 10 to 30 KiB of JSON, so a page has a few MiB at most.
const PAGE: usize = 100;

/// How long a watch is asked to last. Proxies on the way cut connections after some minutes.
const WATCH_SECONDS: u64 = 180;

/// A watch that says nothing for so long is dead: the API server sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(90);

/// After this long everything is listed again, for what a watch may have missed (CTRL-13).
const RELIST: Duration = Duration::from_secs(3600);

/// How often to look whether a kind of object exists now.
const LOOK_FOR_KIND: Duration = Duration::from_secs(60);

/// The shortest and the longest pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Sees how lists and watches end.
pub trait WatchObserver: Send + Sync {
    /// A watch of that kind of object has ended: `over`, `expired`, `broken` or `stopped`.
    fn watch_ended(&self, resource: &'static str, end: &'static str);

    /// The objects could not be listed, after so many failures in a row. They will be asked for again.
    fn list_failed(&self, resource: &'static str, failures: u32, error: &dyn fmt::Display) {
        log_list_failed(resource, failures, error);
    }
}

/// Logs that objects could not be listed. An outage of hours is no reason to fill the log.
pub fn log_list_failed(resource: &'static str, failures: u32, error: &dyn fmt::Display) {
    if failures.is_multiple_of(12) {
        warn!(resource, %error, "cannot list objects; retrying");
    } else {
        debug!(resource, %error, "cannot list objects");
    }
}

/// Follows all objects of a kind for as long as the news has a reader.
pub async fn follow<O: Objects>(
    api: Api,
    mut objects: O,
    news: mpsc::Sender<News<O::Object>>,
    watches: Arc<impl WatchObserver>,
) {
    let mut failures = 0_u32;
    let mut streams = objects.streams();
    loop {
        let listed = match streams {
            true => stream(&api, &mut objects, &news, &*watches).await,
            false => list(&api, &mut objects, &news).await,
        };
        match listed {
            Ok(Some(version)) => {
                failures = 0;
                if watch(&api, &mut objects, &news, version, &*watches).await.is_none() {
                    return;
                }
            }
            Ok(None) => return,
            Err(Trouble::Api(error)) if streams && is_refused_option(&error) => {
                debug!(resource = O::RESOURCE, %error, "the API server does not begin a watch with a list");
                streams = false;
                continue;
            }
            Err(Trouble::Api(error)) if error.is_not_found() => {
                let said = match has_group(&api, objects.path()).await {
                    Ok(false) => News::NoSuchKind,
                    Ok(true) => News::NotServed(format!("the API server has the group, and not {}", objects.path())),
                    Err(error) if is_denial(&error) => News::NotServed(format!("cannot list API groups: {error}")),
                    Err(error) => {
                        watches.list_failed(O::RESOURCE, failures, &error);
                        sleep(pause(failures)).await;
                        failures = failures.saturating_add(1);
                        continue;
                    }
                };
                debug!(resource = O::RESOURCE, ?error, "no such objects");
                if news.send(said).await.is_err() {
                    return;
                }
                sleep(LOOK_FOR_KIND).await;
                continue;
            }
            Err(error) => watches.list_failed(O::RESOURCE, failures, &error),
        }
        sleep(pause(failures)).await;
        failures = failures.saturating_add(1);
    }
}

/// Lists everything. The version to watch from, or none if nothing reads the news any more.
async fn list<O: Objects>(
    api: &Api,
    objects: &mut O,
    news: &mpsc::Sender<News<O::Object>>,
) -> Result<Option<Version>, Trouble> {
    let mut next: Option<String> = None;
    let mut begun = false;
    loop {
        let token = next.map(|token| format!("&continue={}", escaped(&token))).unwrap_or_default();
        let path = format!("{}?{}limit={PAGE}{token}", objects.path(), selector(objects));
        let page = objects.page(&api.get(&path, LONG).await?)?;
        if !begun && news.send(News::ListBegins).await.is_err() {
            return Ok(None);
        }
        begun = true;
        if news.send(News::Listed(page.items)).await.is_err() {
            return Ok(None);
        }
        next = page.next;
        if next.is_none() {
            let open = news.send(News::ListEnds).await.is_ok();
            return Ok(open.then_some(page.version));
        }
    }
}

/// Whether the API server has the group of these objects, by their path. Objects of the core, which has no group, do not exist where they
/// are not found.
///
/// A page of a proxy is an error, and no answer.
pub async fn has_group(api: &Api, path: &str) -> Result<bool, ApiError> {
    let Some(group) = path.strip_prefix("/apis/").and_then(|path| path.split('/').next()) else { return Ok(false) };
    let json = api.get("/apis", LONG).await?;
    match serde_json::from_slice::<Groups>(&json) {
        // Every API server has some.
        Ok(list) if list.kind == "APIGroupList" && !list.groups.is_empty() => {
            Ok(list.groups.iter().any(|found| found.name == group))
        }
        _ => Err(ApiError::NoAnswer("the answer to GET /apis is no list of API groups".to_owned())),
    }
}

/// An API server that forbids a request.
fn is_denial(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { code: 401 | 403, .. })
}

/// An API server that does not know an option of a request, or has it switched off.
fn is_refused_option(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { code: 400 | 422, .. })
}

/// Follows everything with one request: a watch that begins with what there is. The version to watch on from, or none if nothing reads
/// the news any more.
async fn stream<O: Objects>(
    api: &Api,
    objects: &mut O,
    news: &mpsc::Sender<News<O::Object>>,
    watches: &impl WatchObserver,
) -> Result<Option<Version>, Trouble> {
    let mut version = Version::default();
    let end = watch_once(api, objects, news, &mut version, Start::WithObjects).await;
    let complete = !version.as_str().is_empty();
    if complete {
        watches.watch_ended(O::RESOURCE, end.word());
    }
    match end {
        End::NoReader => Ok(None),
        // Whatever ended it, the next watch continues, or finds out.
        _ if complete => Ok(Some(version)),
        End::Broken(trouble) => Err(trouble),
        End::Over | End::Expired => Err(Trouble::Incomplete),
    }
}

/// Watches until everything has to be listed again; none if nothing reads the news any more.
async fn watch<O: Objects>(
    api: &Api,
    objects: &mut O,
    news: &mpsc::Sender<News<O::Object>>,
    mut version: Version,
    watches: &impl WatchObserver,
) -> Option<()> {
    let began = Instant::now();
    let mut failures = 0_u32;
    while began.elapsed() < RELIST {
        let before = version.clone();
        let end = watch_once(api, objects, news, &mut version, Start::FromVersion).await;
        // A watch that brought something was no failure, however it ended.
        failures = if version == before { failures } else { 0 };
        watches.watch_ended(O::RESOURCE, end.word());
        match end {
            End::NoReader => return None,
            End::Over => {
                failures = 0;
                continue;
            }
            End::Expired => return Some(()),
            End::Broken(error) => {
                debug!(resource = O::RESOURCE, %error, "watch ended");
                if matches!(error, Trouble::Json(_)) || failures > 10 {
                    return Some(());
                }
            }
        }
        sleep(pause(failures)).await;
        failures += 1;
    }
    Some(())
}

/// What a watch begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The first change after a version.
    FromVersion,
    /// The objects that there are.
    WithObjects,
}

/// How a watch ended.
enum End {
    /// Its time was over.
    Over,
    /// Its version is too old.
    Expired,
    /// It broke, or something came that cannot be read.
    Broken(Trouble),
    /// Nothing reads the news any more.
    NoReader,
}

/// The groups of an API server.
#[derive(Debug, Deserialize)]
struct Groups {
    kind: String,
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    name: String,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Json(#[from] BadJson),
    #[error("nothing came for {} s", SILENCE.as_secs())]
    Silence,
    #[error("the watch ended before it had sent all objects")]
    Incomplete,
}

async fn watch_once<O: Objects>(
    api: &Api,
    objects: &mut O,
    news: &mpsc::Sender<News<O::Object>>,
    version: &mut Version,
    start: Start,
) -> End {
    let from = match start {
        Start::FromVersion => format!("resourceVersion={}", escaped(version.as_str())),
        Start::WithObjects => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
    };
    let path = format!(
        "{}?{}watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&{from}",
        objects.path(),
        selector(objects),
    );
    let mut lines = match api.watch(&path).await {
        Ok(lines) => lines,
        Err(error) if error.is_expired() => return End::Expired,
        // The kind of object is gone: the list finds that out.
        Err(error) if error.is_not_found() && start == Start::FromVersion => return End::Expired,
        Err(error) => return End::Broken(error.into()),
    };
    // Until then what comes is a list, and no version to continue from.
    let mut complete = start == Start::FromVersion;
    if !complete && news.send(News::ListBegins).await.is_err() {
        return End::NoReader;
    }
    loop {
        let line = match timeout(SILENCE, lines.next()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return End::Over,
            Ok(Err(error)) => return End::Broken(error.into()),
            Err(_) => return End::Broken(Trouble::Silence),
        };
        let sent = match objects.event(&line) {
            Ok(WatchEvent::Changed(object)) if !complete => news.send(News::Listed(vec![object])).await,
            Ok(WatchEvent::Complete(seen)) if !complete => {
                complete = true;
                *version = seen;
                news.send(News::ListEnds).await
            }
            Ok(WatchEvent::Bookmark(_)) if !complete => continue,
            Ok(WatchEvent::Changed(object)) => {
                version.clone_from(O::version(&object));
                news.send(News::Changed(object)).await
            }
            Ok(WatchEvent::Deleted(object)) => {
                version.clone_from(O::version(&object));
                news.send(News::Deleted(object)).await
            }
            Ok(WatchEvent::Bookmark(seen) | WatchEvent::Complete(seen)) => {
                *version = seen;
                continue;
            }
            Ok(WatchEvent::Failed(failure)) if failure.code == 410 => return End::Expired,
            Ok(WatchEvent::Failed(failure)) => {
                let (code, reason, message) = (failure.code, failure.reason, failure.message);
                return End::Broken(ApiError::Refused { code, reason, message, retry_after: None }.into());
            }
            Err(error) => {
                warn!(resource = O::RESOURCE, %error, "cannot decode watch event; relisting");
                return End::Broken(error.into());
            }
        };
        if sent.is_err() {
            return End::NoReader;
        }
    }
}

/// The selector as the beginning of a query.
fn selector(objects: &impl Objects) -> String {
    let selector = objects.selector();
    if selector.is_empty() { String::new() } else { format!("{selector}&") }
}

fn pause(failures: u32) -> Duration {
    (PAUSE * 2_u32.pow(failures.min(10))).min(LONGEST_PAUSE)
}

/// A text as part of a query.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            escaped.push(byte.into());
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

// === impl End ===

impl End {
    fn word(&self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Expired => "expired",
            Self::Broken(_) => "broken",
            Self::NoReader => "stopped",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escaped("aZ0-_.~"), "aZ0-_.~");
        assert_eq!(escaped("a=b&c/d+e %"), "a%3Db%26c%2Fd%2Be%20%25");
    }

    #[test]
    fn pauses_grow_and_end() {
        let pauses = [0, 1, 2, 5, 6, 100].map(|failures| pause(failures).as_millis());
        assert_eq!(pauses, [100, 200, 400, 3200, 5000, 5000]);
    }
}
