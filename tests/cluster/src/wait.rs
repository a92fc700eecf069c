//! Waiting for a state of an object, by a watch.

use std::{fmt::Debug, ops::ControlFlow};

use keelet_hollow::follow::{Change, follow};
use kube::{Client, Resource, api::WatchParams, core::request::Request};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

/// Waits until the object is as it should be, and returns it. It may be created meanwhile.
///
/// # Panics
///
/// After a minute or two, with the last state of the object.
pub async fn until<K>(client: &Client, namespace: Option<&str>, name: &str, what: &str, is_so: impl Fn(&K) -> bool) -> K
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
{
    let mut last = None;
    let each = |change| match change {
        Change::Applied(object) if is_so(&object) => ControlFlow::Break(object),
        Change::Applied(object) => {
            last = Some(object);
            ControlFlow::Continue(())
        }
        Change::Deleted(_) => {
            last = None;
            ControlFlow::Continue(())
        }
        Change::Began | Change::Complete => ControlFlow::Continue(()),
    };
    let found = watch(client, namespace, name, each).await;
    found.unwrap_or_else(|why| panic!("waited for {name}: {what}, but {why}; the last state: {}", shown(last.as_ref())))
}

/// Waits until the object is deleted.
///
/// # Panics
///
/// After a minute or two.
pub async fn gone<K>(client: &Client, namespace: Option<&str>, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
{
    let mut last: Option<K> = None;
    let each = |change| match change {
        Change::Applied(object) => {
            last = Some(object);
            ControlFlow::Continue(())
        }
        Change::Began => {
            last = None;
            ControlFlow::Continue(())
        }
        Change::Complete if last.is_some() => ControlFlow::Continue(()),
        Change::Deleted(_) | Change::Complete => ControlFlow::Break(()),
    };
    let found = watch(client, namespace, name, each).await;
    found.unwrap_or_else(|why| {
        panic!("waited for the end of {name}, but {why}; the last state: {}", shown(last.as_ref()))
    });
}

async fn watch<K, T>(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
    each: impl FnMut(Change<K>) -> ControlFlow<T>,
) -> Result<T, String>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let request = Request::new(K::url_path(&(), namespace));
    let selected = WatchParams::default().fields(&format!("metadata.name={name}"));
    let patience = keelet_harness::patience();
    match timeout(patience, follow(client, &request, &selected, each)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(format!("the watch failed: {error}")),
        Err(_) => Err(format!("not within {patience:?}")),
    }
}

fn shown<K: Serialize>(object: Option<&K>) -> String {
    object.map_or_else(|| "none".to_owned(), |object| serde_json::to_string_pretty(object).unwrap_or_default())
}
