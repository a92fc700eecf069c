//! Services of the cluster, as far as containers have variables of them: a list that is streamed, then a watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use keelet_api::{Api, BadJson, News, Objects, Page, Version, WatchEvent, WatchObserver, follow, log_list_failed};
use keelet_api::{read_event, read_page};
use keelet_launch::{Service, ServicePort, is_linked};
use serde_json::Value;
use tokio::sync::mpsc;

use super::Carried;

/// The services of the cluster that have an address.
#[derive(Debug, Default)]
pub(super) struct Services {
    known: BTreeMap<(String, String), Service>,
    listing: Listing,
    /// What the API server said last, if it was no list.
    pub(super) why: String,
}

/// How far the first list, or a later one, is.
#[derive(Debug, Default)]
enum Listing {
    #[default]
    NotYet,
    /// Everything is known.
    Complete,
    /// Everything is listed again; these have come so far.
    Again(BTreeSet<(String, String)>),
}

/// A service as it came: without an address it has no variables.
pub(super) struct Found {
    version: Version,
    key: (String, String),
    service: Option<Service>,
}

struct AllServices;

struct ServiceWatcher(Carried);

/// News that wait for their reader, which only ever takes a lock.
const NEWS: usize = 64;

// === impl Carried ===

impl Carried {
    /// Follows services from the first pod on, for as long as it is polled.
    pub(super) async fn follow_services(&self, api: &Api) {
        while self.lock().namespaces.is_empty() {
            self.0.service_work.notified().await;
        }
        let (news, mut heard) = mpsc::channel(NEWS);
        let following = follow(api.clone(), AllServices, news, Arc::new(ServiceWatcher(self.clone())));
        let hearing = async {
            while let Some(news) = heard.recv().await {
                let mut state = self.lock();
                let touched = state.services.hear(news);
                let complete = state.services.are_complete();
                drop(state);
                if complete {
                    self.remember_services(&touched);
                    self.0.more.send_replace(());
                }
            }
        };
        futures::join!(following, hearing);
    }

    /// Remembers the services that pods of these namespaces see.
    pub(super) fn remember_services(&self, touched: &Touched) {
        let state = self.lock();
        if !state.services.are_complete() {
            return;
        }
        let mut seen: Vec<(String, Vec<Service>)> = Vec::new();
        for namespace in state.namespaces.iter().filter(|namespace| touched.touches(namespace)) {
            let services = state.services.seen_from(namespace).into_iter().cloned().collect();
            seen.push((namespace.clone(), services));
        }
        drop(state);
        for (namespace, services) in seen {
            self.0.memory.remember_services(&namespace, &services);
        }
    }
}

/// The namespaces whose pods see another service now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    All,
    One(String),
    None,
}

// === impl Touched ===

impl Touched {
    fn touches(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == namespace,
            Self::None => false,
        }
    }

    /// The API server's service is seen from everywhere.
    fn by(key: &(String, String)) -> Self {
        if key.0 == "default" { Self::All } else { Self::One(key.0.clone()) }
    }
}

// === impl Services ===

impl Services {
    pub(super) fn are_complete(&self) -> bool {
        !matches!(self.listing, Listing::NotYet)
    }

    /// Everything that pods of a namespace may have variables of.
    pub(super) fn seen_from(&self, namespace: &str) -> Vec<&Service> {
        self.known.values().filter(|service| is_linked(service, namespace, true)).collect()
    }

    fn hear(&mut self, news: News<Found>) -> Touched {
        match news {
            News::ListBegins if self.are_complete() => self.listing = Listing::Again(BTreeSet::new()),
            News::ListBegins | News::NoSuchKind | News::NotServed(_) => {}
            News::Listed(found) => found.into_iter().for_each(|found| self.take(found)),
            News::ListEnds => {
                if let Listing::Again(seen) = &self.listing {
                    self.known.retain(|key, _| seen.contains(key));
                }
                self.listing = Listing::Complete;
                return Touched::All;
            }
            News::Changed(found) => {
                let touched = Touched::by(&found.key);
                self.take(found);
                return touched;
            }
            News::Deleted(found) => {
                self.known.remove(&found.key);
                return Touched::by(&found.key);
            }
        }
        Touched::None
    }

    fn take(&mut self, found: Found) {
        if let Listing::Again(seen) = &mut self.listing {
            seen.insert(found.key.clone());
        }
        match found.service {
            Some(service) => self.known.insert(found.key, service),
            None => self.known.remove(&found.key),
        };
    }
}

// === impl Found ===

impl Found {
    fn new(object: &Value) -> Result<Self, BadJson> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        if namespace.is_empty() || name.is_empty() {
            return Err(BadJson::Nameless("service", "a name"));
        }
        let ports = object.pointer("/spec/ports").and_then(Value::as_array);
        let port = |port: &Value| ServicePort {
            name: port["name"].as_str().unwrap_or_default().to_owned(),
            port: port["port"].as_i64().and_then(|port| i32::try_from(port).ok()).unwrap_or_default(),
            protocol: port["protocol"].as_str().unwrap_or("TCP").to_owned(),
        };
        let ip = Some(text("/spec/clusterIP")).filter(|ip| !ip.is_empty() && ip != "None");
        let service = ip.map(|ip| Service {
            namespace: namespace.clone(),
            name: name.clone(),
            ip,
            ports: ports.into_iter().flatten().map(port).collect(),
        });
        Ok(Self { version: Version::of(object), key: (namespace, name), service })
    }
}

// === impl AllServices ===

impl Objects for AllServices {
    type Object = Found;
    const RESOURCE: &'static str = "services";

    fn path(&self) -> &str {
        "/api/v1/services"
    }

    fn streams(&self) -> bool {
        true
    }

    fn page(&mut self, json: &[u8]) -> Result<Page<Found>, BadJson> {
        read_page(json, |object| Found::new(&object))
    }

    fn event(&mut self, json: &[u8]) -> Result<WatchEvent<Found>, BadJson> {
        read_event(json, |object| Found::new(&object))
    }

    fn version(found: &Found) -> &Version {
        &found.version
    }
}

// === impl ServiceWatcher ===

impl WatchObserver for ServiceWatcher {
    fn watch_ended(&self, _: &'static str, _: &'static str) {}

    fn list_failed(&self, resource: &'static str, failures: u32, error: &dyn fmt::Display) {
        log_list_failed(resource, failures, error);
        self.0.lock().services.why = error.to_string();
        self.0.0.more.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(namespace: &str, name: &str, ip: Value) -> Found {
        let spec = json!({"clusterIP": ip, "ports": [{"port": 80, "name": "http"}]});
        let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
        Found::new(&object).unwrap_or_else(|error| panic!("{error}"))
    }

    fn seen(services: &Services, namespace: &str) -> Vec<String> {
        services.seen_from(namespace).iter().map(|service| format!("{} {}", service.name, service.ip)).collect()
    }

    /// CLU-29: headless services have no variables; a list that is made again takes away what is gone, and nothing before its end.
    #[test]
    fn services_are_known_once_the_list_is_complete() {
        let mut services = Services::default();
        services.hear(News::ListBegins);
        services.hear(News::Listed(vec![
            found("default", "kubernetes", json!("10.0.0.1")),
            found("shop", "web", json!("10.0.0.2")),
            found("shop", "headless", json!("None")),
            found("shop", "external", Value::Null),
            found("home", "web", json!("10.0.0.3")),
        ]));
        assert!(!services.are_complete());
        assert_eq!(services.hear(News::ListEnds), Touched::All);
        assert!(services.are_complete());
        assert_eq!(seen(&services, "shop"), ["kubernetes 10.0.0.1", "web 10.0.0.2"]);
        assert_eq!(services.seen_from("shop")[1].ports[0].protocol, "TCP");
        let changed = services.hear(News::Changed(found("shop", "web", json!("10.0.0.9"))));
        assert_eq!(changed, Touched::One("shop".to_owned()));
        assert_eq!(seen(&services, "shop"), ["kubernetes 10.0.0.1", "web 10.0.0.9"]);
        services.hear(News::ListBegins);
        services.hear(News::Listed(vec![found("default", "kubernetes", json!("10.0.0.1"))]));
        assert_eq!(seen(&services, "shop").len(), 2, "the list is under way");
        services.hear(News::ListEnds);
        assert_eq!(seen(&services, "shop"), ["kubernetes 10.0.0.1"]);
        assert_eq!(services.hear(News::Deleted(found("default", "kubernetes", json!("10.0.0.1")))), Touched::All);
        assert!(seen(&services, "shop").is_empty());
    }
}
