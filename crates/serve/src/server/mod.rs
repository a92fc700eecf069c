//! The server: an agent's pods, its runtime and its logs, over HTTP.
//!
//! | file | what |
//! | --- | --- |
//! | `listen`, `patient` | sockets: which clients may connect, how many at once, for how long they may sit still |
//! | `pods`, `events`, `node` | objects in the shape of the Kubernetes API |
//! | `change` | what is new, for clients that watch |
//! | `runtime` | containers, images, usage |
//! | `pull` | fetching an image, and reporting how far it has come |
//! | `log` | logs |
//! | `session` | commands in containers, forwarded ports |
//! | `kubelet` | the kubelet's API, for a server that has authenticated and authorized its clients |
//!
//! Handlers read and answer; whatever they change, they ask the agent or the runtime for.

mod change;
mod events;
mod failure;
mod kubelet;
mod listen;
mod log;
mod node;
mod patient;
mod pods;
mod pull;
mod runtime;
mod session;

use std::{collections::BTreeMap, fmt, io, pin::Pin, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{Method, StatusCode, Uri, header::CONTENT_TYPE},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use futures::future::BoxFuture;
use keelet_agent::{
    Agent,
    board::{Board, Published},
    metrics,
    source::Listing,
};
use keelet_cri::Runtime;
use keelet_host::Layout;
use keelet_launch::NodeFacts;
use keelet_lifecycle::Moment;
use tokio::{io::AsyncRead, sync::watch};

use self::failure::{Refusal, not_found};
pub use self::kubelet::{
    Action, Area, BadPath, ContainerRef, Debugging, KubeletApi, KubeletSettings, Numbers, PodRef, SessionHold,
};
pub use self::listen::{BindError, Listener, serve_loopback};
pub use self::log::log_state;
pub use self::patient::{Patience, Patient};
use crate::api::Pulling;

/// What the API speaks of.
#[derive(Clone, Debug)]
pub struct Local {
    /// The agent.
    pub agent: Arc<Agent>,
    /// Where logs are.
    pub layout: Layout,
    /// Which pods are desired.
    pub desired: Arc<dyn DesiredPods>,
    /// What a runtime in this process can do with images that CRI has no word for.
    pub images: Option<Arc<dyn Images>>,
}

/// The pods that should exist on this node.
pub trait DesiredPods: Send + Sync + fmt::Debug {
    /// Deletes a pod. The error says why that is not for the API to do, and what to do instead.
    fn delete(&self, pod: &Published) -> Result<(), DeleteError>;

    /// Namespaces and names of all of them; none if that is not known yet.
    fn wanted(&self) -> Option<Vec<(String, String)>>;
}

/// Why a pod is not deleted over the API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    /// Its manifest is gone, and the pod is on its way out.
    #[error("pod {pod} is already terminating: its manifest was removed")]
    Leaving {
        /// Namespace and name.
        pod: String,
    },
    /// An API server has the pod.
    #[error("pod {pod} comes from the API server: delete it there, with kubectl delete pod")]
    FromApiServer {
        /// Namespace and name.
        pod: String,
    },
    /// No source has named the pod yet.
    #[error(
        "pod {pod} is from an earlier agent; it is deleted once its manifest is removed, or replaced once it can be read"
    )]
    LeftByEarlierAgent {
        /// Namespace and name.
        pod: String,
    },
    /// A manifest has the pod, and the agent would start it again.
    #[error("{}", remove_from(pod, file, *others))]
    FromManifest {
        /// Namespace and name.
        pod: String,
        /// The manifest.
        file: String,
        /// How many other pods it has.
        others: usize,
    },
}

fn remove_from(pod: &str, file: &str, others: usize) -> String {
    match others {
        0 => format!("pod {pod} comes from {file}: remove that file to delete the pod"),
        1 => format!("pod {pod} comes from {file}, and another pod too: take it out of that file to delete it"),
        _ => format!("pod {pod} comes from {file}, with {others} others: take it out of that file to delete it"),
    }
}

/// An archive that could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The pipe to the image store cannot be made.
    #[error("cannot make a pipe for the archive: {0}")]
    Pipe(#[source] io::Error),
    /// The client sent less than the archive.
    #[error("the archive did not arrive: {0}")]
    Receive(#[source] io::Error),
    /// The image store does not take it.
    #[error(transparent)]
    Store(Box<dyn std::error::Error + Send + Sync>),
}

/// Images of a runtime, beyond what CRI has words for.
pub trait Images: Send + Sync + fmt::Debug {
    /// Reads an archive (an OCI layout or what `docker save` writes) to its end. Names of the images, or what is wrong.
    fn import<'a>(&'a self, archive: Archive<'a>) -> BoxFuture<'a, Result<Vec<String>, ImportError>>;

    /// The images that are being pulled, and how far each has come.
    fn pulling(&self) -> Vec<Pulling>;
}

/// An archive as it comes over the socket.
pub type Archive<'a> = Pin<Box<dyn AsyncRead + Send + 'a>>;

/// Bytes of a request that are read, but of an archive. Nothing that is sent here has more than some hundred.
const LARGEST_REQUEST: usize = 64 << 10;

/// All of the API, for the socket.
pub(crate) fn router(local: Arc<Local>) -> Router {
    let of_pods = Router::new()
        .route("/v1/pods", get(pods::list))
        .route("/v1/pods/{namespace}/{name}", get(pods::one).delete(pods::delete))
        .route("/v1/pods/{namespace}/{name}/restart", post(pods::restart))
        .route("/v1/pods/{namespace}/{name}/exec", post(session::exec))
        .route("/v1/pods/{namespace}/{name}/portforward", post(session::port_forward))
        .route("/v1/pods/{namespace}/{name}/log", get(log::log))
        .route("/v1/pods/{namespace}/{name}/log/files", get(log::files))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&local), once_recovered));
    Router::new()
        .merge(of_pods)
        .route("/v1/events", get(events::list))
        .route("/v1/gone", get(pods::gone))
        .route("/v1/node", get(node::node))
        .route("/v1/stats", get(node::stats))
        .route("/v1/containers", get(runtime::containers))
        .route("/v1/images", get(runtime::images))
        .route("/v1/images/pull", post(pull::pull))
        .route("/v1/images/import", post(runtime::import).layer(DefaultBodyLimit::disable()))
        .route("/v1/images/{*image}", delete(runtime::remove_image))
        .merge(open_routes())
        .fallback(nowhere)
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::max(LARGEST_REQUEST))
        .with_state(local)
}

/// How long after its start an agent may recover pods before it is asked what it has so far.
const TAKING_UP: Duration = Duration::from_secs(5);

/// How often to check whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A new agent has no status of its pods for a moment. A client that asks about pods then waits rather than gets the
/// answer that there are none: a pod does not vanish because an agent was restarted.
async fn once_recovered(State(local): State<Arc<Local>>, request: Request, next: Next) -> Response {
    while local.now().since(&local.agent.started()) < TAKING_UP && !local.has_recovered() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    next.run(request).await
}

/// A loop that has not turned for so long hangs.
const PULSE_TAKES: Duration = Duration::from_secs(5);

/// What any process on the node may ask.
pub(crate) fn open_router(local: Arc<Local>) -> Router {
    open_routes().fallback(nowhere).with_state(local)
}

fn open_routes() -> Router<Arc<Local>> {
    Router::new().route("/healthz", get(health)).route("/metrics", get(numbers))
}

/// Whether the loop that owns all pods makes progress.
async fn health(State(local): State<Arc<Local>>) -> Result<&'static str, (StatusCode, &'static str)> {
    health_of(&local).await
}

async fn health_of(local: &Local) -> Result<&'static str, (StatusCode, &'static str)> {
    let turned = tokio::time::timeout(PULSE_TAKES, local.agent.pulse()).await;
    turned.map(|()| "ok").map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "the agent's main loop is blocked"))
}

async fn numbers(State(local): State<Arc<Local>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], local.agent.metrics())
}

async fn nowhere(uri: Uri) -> Refusal {
    not_found(format!("path {} not found; docs/local-api.md lists the paths", uri.path()))
}

async fn other_method(method: Method, uri: Uri) -> Refusal {
    Refusal::new(405, "MethodNotAllowed", format!("method {method} not allowed on {}", uri.path()))
}

// === impl Local ===

impl Local {
    fn runtime(&self) -> &Runtime {
        self.agent.runtime()
    }

    fn now(&self) -> Moment {
        self.agent.now()
    }

    /// What pods may know of the node.
    fn facts(&self) -> &NodeFacts {
        &self.agent.facts().for_pods
    }

    /// The newest statuses and events.
    fn board(&self) -> &Arc<Board> {
        self.agent.board()
    }

    /// The pods, by namespace and name. Of two of one name, the one that is not on its way out.
    fn pods(&self) -> BTreeMap<(String, String), Arc<Published>> {
        let mut pods: BTreeMap<(String, String), Arc<Published>> = BTreeMap::new();
        for published in self.board().statuses().into_values() {
            let key = (published.pod.namespace.clone(), published.pod.name.clone());
            match pods.get(&key) {
                Some(other) if other.leaving.is_none() => {}
                _ => drop(pods.insert(key, published)),
            }
        }
        pods
    }

    /// Whether every pod that is wanted has a status.
    fn has_recovered(&self) -> bool {
        let pods = self.pods();
        self.desired.wanted().is_some_and(|wanted| wanted.iter().all(|name| pods.contains_key(name)))
    }

    fn pod(&self, namespace: &str, name: &str) -> Result<Arc<Published>, Refusal> {
        let missing = || not_found(format!("pod {name:?} not found in namespace {namespace:?}"));
        self.pods().remove(&(namespace.to_owned(), name.to_owned())).ok_or_else(missing)
    }
}

// === Sources ===

/// A directory of manifests: what is in it runs, so a pod is deleted by taking its manifest away.
impl DesiredPods for watch::Receiver<Arc<Listing>> {
    fn wanted(&self) -> Option<Vec<(String, String)>> {
        let listing = self.borrow();
        // Before the first scan there is nothing at all, not even a problem.
        let looked = listing.complete || !listing.pods.is_empty() || !listing.problems.is_empty();
        looked.then(|| listing.pods.values().map(|pod| (pod.namespace.clone(), pod.name.clone())).collect())
    }

    fn delete(&self, pod: &Published) -> Result<(), DeleteError> {
        let listing = self.borrow();
        let name = format!("{}/{}", pod.pod.namespace, pod.pod.name);
        let Some(file) = listing.files.get(&pod.pod.uid) else {
            if pod.pod.trust == keelet_pod::Trust::Cluster {
                return Err(DeleteError::FromApiServer { pod: name });
            }
            return Err(match pod.leaving {
                Some(_) => DeleteError::Leaving { pod: name },
                None => DeleteError::LeftByEarlierAgent { pod: name },
            });
        };
        let others = listing.files.iter().filter(|(uid, other)| *other == file && **uid != pod.pod.uid).count();
        Err(DeleteError::FromManifest { pod: name, file: file.clone(), others })
    }
}
