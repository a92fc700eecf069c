//! A watch that begins with everything there is, and begins again when it breaks.

use std::{ops::ControlFlow, time::Duration};

use futures::TryStreamExt as _;
use kube::{
    Client,
    api::WatchParams,
    core::{WatchEvent, request::Request},
};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

/// The pause before a broken watch begins again. An API server that restarts is away for seconds.
const PAUSE: Duration = Duration::from_millis(100);

/// Marks the bookmark after the objects that were there when the watch began.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What a watch reports.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The watch begins, also once more after it broke: every object that is there follows.
    Began,
    /// An object was created or changed, or was there when the watch began.
    Applied(K),
    /// An object was deleted.
    Deleted(K),
    /// Every object that was there when the watch began has been reported.
    Complete,
}

/// Reports the objects and their changes until `each` breaks. A connection that breaks is made again, for as long as it takes: a caller
/// a caller that cannot wait for ever sets a timeout.
///
/// # Errors
///
/// If the API server refuses to answer the request: another attempt would not help.
pub async fn follow<K, T>(
    client: &Client,
    request: &Request,
    selected: &WatchParams,
    mut each: impl FnMut(Change<K>) -> ControlFlow<T>,
) -> Result<T, kube::Error>
where
    K: Clone + DeserializeOwned,
{
    let selected = WatchParams { bookmarks: true, send_initial_events: true, ..selected.clone() };
    loop {
        if let ControlFlow::Break(done) = each(Change::Began) {
            return Ok(done);
        }
        match once(client, request, &selected, &mut each).await {
            Ok(ControlFlow::Break(done)) => return Ok(done),
            Ok(ControlFlow::Continue(())) => {}
            Err(error) if is_refused(&error) => return Err(error),
            Err(error) => tracing::debug!(%error, "watch broke"),
        }
        sleep(PAUSE).await;
    }
}

async fn once<K, T>(
    client: &Client,
    request: &Request,
    selected: &WatchParams,
    each: &mut impl FnMut(Change<K>) -> ControlFlow<T>,
) -> Result<ControlFlow<T>, kube::Error>
where
    K: Clone + DeserializeOwned,
{
    let watch = request.watch(selected, "").map_err(kube::Error::BuildRequest)?;
    let mut events = std::pin::pin!(client.request_events::<K>(watch).await?);
    while let Some(event) = events.try_next().await? {
        let change = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Applied(object),
            WatchEvent::Deleted(object) => Change::Deleted(object),
            WatchEvent::Bookmark(mark) if mark.metadata.annotations.contains_key(INITIAL_EVENTS_END) => {
                Change::Complete
            }
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        };
        if let ControlFlow::Break(done) = each(change) {
            return Ok(ControlFlow::Break(done));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Whether the API server understood the request and will not answer it.
fn is_refused(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => [400, 401, 403, 404, 405, 422].contains(&status.code),
        kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => true,
        _ => false,
    }
}
