//! The watches of objects, one for each, for as long as a pod refers to it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{
    StreamExt,
    future::{AbortHandle, Either, abortable, select},
    stream::FuturesUnordered,
};
use k8s_openapi::api::core::v1;
use keelet_api::{
    Api, BadJson, News, Objects, Page, Version, WatchEvent, WatchObserver, escaped, follow, read_event, read_page,
};
use keelet_launch::{Data, ObjectKind};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::{
    Carried,
    objects::{Follow, ObjectKey, Seen},
};

/// One object by its name.
struct Named {
    path: String,
    selector: String,
}

/// An object as it came.
struct Object {
    version: Version,
    object: Value,
}

/// What hears of an object that cannot be listed.
struct Watcher {
    carried: Carried,
    key: ObjectKey,
}

/// The values of an object.
struct Values {
    data: Data,
    immutable: bool,
}

/// Why an answer is not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("it answered with {0}")]
    Another(String),
    /// What is wrong with it is not said: that might be a value.
    #[error("its answer is not such an object")]
    Malformed,
}

// === impl Carried ===

impl Carried {
    /// Gets what pods refer to, for as long as it is polled.
    pub(crate) async fn run(&self, api: &Api) {
        futures::join!(self.follow_objects(api), self.request_tokens(api), self.follow_services(api));
    }

    async fn follow_objects(&self, api: &Api) {
        let mut watches = FuturesUnordered::new();
        let mut open: BTreeMap<Follow, AbortHandle> = BTreeMap::new();
        loop {
            let wanted = self.lock().objects.followed();
            open.retain(|follow, handle| {
                let kept = wanted.contains(follow);
                if !kept {
                    handle.abort();
                }
                kept
            });
            for follow in wanted {
                open.entry(follow).or_insert_with_key(|follow| {
                    let (watch, handle) = abortable(self.follow_object(api.clone(), follow.key.clone()));
                    watches.push(watch);
                    handle
                });
            }
            tokio::select! {
                biased;
                Some(_) = watches.next(), if !watches.is_empty() => {}
                () = self.0.work.notified() => {}
            }
        }
    }

    async fn follow_object(&self, api: Api, key: ObjectKey) {
        self.recall(&key);
        // The reader takes a lock and no more: what comes waits for nothing.
        let (news, mut heard) = mpsc::channel(1);
        let named = Named {
            path: format!("/api/v1/namespaces/{}/{}", key.namespace, key.resource()),
            selector: format!("fieldSelector={}", escaped(&format!("metadata.name={}", key.name))),
        };
        let watcher = Arc::new(Watcher { carried: self.clone(), key: key.clone() });
        let following = std::pin::pin!(follow(api, named, news, watcher));
        let hearing = std::pin::pin!(async {
            let mut listed = false;
            while let Some(news) = heard.recv().await {
                match news {
                    News::ListBegins => listed = false,
                    News::Listed(objects) => {
                        for object in objects {
                            listed = true;
                            self.take(&key, object.object);
                        }
                    }
                    News::Changed(object) => self.take(&key, object.object),
                    News::ListEnds if !listed => self.learn(&key, Seen::Missing, false),
                    News::ListEnds => {}
                    News::Deleted(object) => match key.check(&object.object) {
                        Ok(()) => self.learn(&key, Seen::Missing, false),
                        Err(error) => self.refuse(&key, &error),
                    },
                    News::NoSuchKind | News::NotServed(_) => {
                        self.learn(&key, Seen::NotYet("it has no such kind of object".to_owned()), false);
                    }
                }
                if self.lock().objects.is_immutable(&key) {
                    return;
                }
            }
        });
        if let Either::Right(_) = select(following, hearing).await {
            debug!(object = %key.shown(), "the object is immutable: it is not watched any more");
        }
    }

    /// An object as it is now.
    fn take(&self, key: &ObjectKey, object: Value) {
        match key.values(object) {
            Ok(Values { data, immutable }) => self.learn(key, Seen::Found(Arc::new(data)), immutable),
            Err(error) => self.refuse(key, &error),
        }
    }

    fn refuse(&self, key: &ObjectKey, error: &Unusable) {
        warn!(object = %key.shown(), %error, "refusing an answer of the API server");
        self.learn(key, Seen::NotYet(error.to_string()), false);
    }
}

// === impl ObjectKey ===

impl ObjectKey {
    /// Without its values: fit for a log.
    fn shown(&self) -> String {
        format!("{} {}/{}", self.kind.resource(), self.namespace, self.name)
    }

    /// An answer is about this object, or it is refused: a value of another object would reach a pod that may not have it.
    fn check(&self, object: &Value) -> Result<(), Unusable> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        if (namespace, name) == (&self.namespace, &self.name) {
            return Ok(());
        }
        Err(Unusable::Another(format!("{} {namespace}/{name}", self.kind.resource())))
    }

    fn values(&self, object: Value) -> Result<Values, Unusable> {
        self.check(&object)?;
        Ok(match self.kind {
            ObjectKind::ConfigMap => {
                let map: v1::ConfigMap = serde_json::from_value(object).map_err(|_| Unusable::Malformed)?;
                let texts = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
                let bytes = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
                Values { data: texts.chain(bytes).collect(), immutable: map.immutable == Some(true) }
            }
            ObjectKind::Secret => {
                let secret: v1::Secret = serde_json::from_value(object).map_err(|_| Unusable::Malformed)?;
                let data = secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0)).collect();
                Values { data, immutable: secret.immutable == Some(true) }
            }
        })
    }
}

// === impl Named ===

impl Objects for Named {
    type Object = Object;
    const RESOURCE: &'static str = "objects of pods";

    fn path(&self) -> &str {
        &self.path
    }

    fn selector(&self) -> &str {
        &self.selector
    }

    fn streams(&self) -> bool {
        true
    }

    fn page(&mut self, json: &[u8]) -> Result<Page<Object>, BadJson> {
        read_page(json, |object| Ok(Object { version: Version::of(&object), object }))
    }

    fn event(&mut self, json: &[u8]) -> Result<WatchEvent<Object>, BadJson> {
        read_event(json, |object| Ok(Object { version: Version::of(&object), object }))
    }

    fn version(object: &Object) -> &Version {
        &object.version
    }
}

// === impl Watcher ===

impl WatchObserver for Watcher {
    fn watch_ended(&self, _: &'static str, _: &'static str) {}

    /// The pod reports it. Of dozens of objects in an outage of hours nothing else has to be said.
    fn list_failed(&self, _: &'static str, failures: u32, error: &dyn fmt::Display) {
        let object = self.key.shown();
        if failures == 1 {
            info!(object, %error, "cannot read an object that a pod refers to; retrying");
        } else {
            debug!(object, %error, "cannot read an object that a pod refers to");
        }
        self.carried.learn(&self.key, Seen::NotYet(error.to_string()), false);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// CLU-31: what is wrong with an answer is said without a value of it.
    #[test]
    fn an_answer_about_another_object_is_refused() {
        let key = ObjectKey::new(ObjectKind::Secret, "shop", "keys").expect("a name");
        let secret = |namespace: &str, name: &str, data: Value| json!({"metadata": {"namespace": namespace, "name": name}, "data": data});
        let good = key.values(secret("shop", "keys", json!({"k": "djE="}))).map(|values| values.data);
        assert_eq!(good.expect("its values"), Data::from([("k".to_owned(), b"v1".to_vec())]));
        for (answer, words) in [
            (secret("shop", "other", json!({"k": "djE="})), "it answered with secret shop/other"),
            (secret("home", "keys", json!({"k": "djE="})), "it answered with secret home/keys"),
            (json!({"data": {"k": "djE="}}), "it answered with secret /"),
            (secret("shop", "keys", json!({"k": "v1 in the clear"})), "its answer is not such an object"),
            (secret("shop", "keys", json!("v1")), "its answer is not such an object"),
        ] {
            assert_eq!(key.values(answer).map(|_| ()).expect_err("refused").to_string(), words);
        }
    }

    /// CLU-31: text and bytes of a config map are both values.
    #[test]
    fn values_of_a_config_map_are_text_and_bytes() {
        let key = ObjectKey::new(ObjectKind::ConfigMap, "shop", "conf").expect("a name");
        let object = json!({"metadata": {"namespace": "shop", "name": "conf"}, "data": {"a": "1"}, "binaryData": {"b": "/w=="}, "immutable": true});
        let values = key.values(object).unwrap_or_else(|error| panic!("{error}"));
        let expected = Data::from([("a".to_owned(), b"1".to_vec()), ("b".to_owned(), vec![255])]);
        assert_eq!((values.data, values.immutable), (expected, true));
    }
}
