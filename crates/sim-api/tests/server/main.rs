//! The simulated server by tables: what it answers to which client.

mod access;
mod custom;
mod deleting;
mod faults;
mod kube_client;
mod nodes;
mod pods;
mod processes;
mod properties;
mod reading;
mod watching;
mod writing;

use std::{future::Future, time::Duration};

use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use keelet_sim_api::{Connection, Identity, Key, SimApi};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tower::ServiceExt;

/// Runs a test in simulated time, on one thread.
fn simulate<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap_or_else(|error| panic!("{error}")).block_on(test)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn node(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "automountServiceAccountToken": false, "containers": [{ "name": "main", "image": "web:1" }] },
    })
}

fn node_key(name: &str) -> Key {
    Key { resource: "nodes".into(), namespace: String::new(), name: name.to_owned() }
}

/// Creates something and returns it; it must work.
fn create(api: &SimApi, path: &str, object: &Value) -> Value {
    let (code, created) = api.act("POST", path, object);
    assert_eq!(code, 201, "{created}");
    created
}

/// A request over a connection, faults and all: the status code and the body.
async fn ask(client: &Connection, method: &str, uri: &str, body: &Value) -> Result<(u16, Value), String> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let kind = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
    let request =
        Request::builder().method(method).uri(uri).header("content-type", kind).body(Full::<bytes::Bytes>::from(body));
    let request = request.map_err(|error| error.to_string())?;
    let response = client.clone().oneshot(request).await.map_err(|error| error.to_string())?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((code, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

/// A watch: its lines, one at a time.
struct Lines {
    stream: futures::stream::BoxStream<'static, Result<bytes::Bytes, keelet_sim_api::ConnectionError>>,
    rest: String,
}

async fn watch(client: &Connection, uri: &str) -> Lines {
    let request = Request::builder().uri(uri).body(Full::<bytes::Bytes>::default());
    let request = request.unwrap_or_else(|error| panic!("{error}"));
    let response = client.clone().oneshot(request).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(response.status(), 200);
    Lines { stream: response.into_body().into_data_stream().boxed(), rest: String::new() }
}

impl Lines {
    /// The next event; `None` at the end, or when the connection breaks.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.rest.split_once('\n') {
                let event = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
                self.rest = rest.to_owned();
                return Some(event);
            }
            let bytes = self.stream.next().await?.ok()?;
            self.rest.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    /// The next event in short: `ADDED n1 5`.
    async fn short(&mut self) -> String {
        self.next().await.map_or_else(|| "end".to_owned(), |event| short(&event))
    }

    /// The next events in short.
    async fn shorts(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.short().await);
        }
        events
    }
}

fn short(event: &Value) -> String {
    let (kind, object) = (event["type"].as_str().unwrap_or("?"), &event["object"]);
    if kind == "ERROR" {
        return format!("ERROR {}", object["code"]);
    }
    let meta = |key: &str| object["metadata"][key].as_str().unwrap_or("").to_owned();
    format!("{kind} {} {}", meta("name"), meta("resourceVersion")).replace("  ", " ")
}

fn admin(api: &SimApi) -> Connection {
    api.connect("admin", Identity::admin())
}
