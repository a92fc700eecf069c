//! The HTTPS server of a node of a cluster, on a thread of its own: handshakes, logs and sessions of clients on the network never use the
//! thread that plans pods.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{DaemonEndpoint, Node, NodeDaemonEndpoints};
use keelet_agent::Agent;
use keelet_api::Api;
use keelet_cluster::NodeView;
use keelet_https::{Certificates, Guard, Listening, ReviewSettings, Reviews, TlsError, TlsSettings};
use keelet_serve::{KubeletApi, KubeletSettings, Local};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    time::sleep,
};

use crate::thread::OwnThread;

/// What the server is started with.
#[derive(Clone, Debug)]
pub struct HttpsSettings {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its certificate, and the authority of its clients.
    pub tls: TlsSettings,
    /// How the API server is asked about clients.
    pub reviews: ReviewSettings,
    /// What it serves.
    pub kubelet: KubeletSettings,
}

/// The thread of the server. It ends when this is dropped.
#[derive(Debug)]
pub struct HttpsThread {
    listening: Listening,
    thread: OwnThread,
}

/// Why the server does not listen yet.
#[derive(Debug, thiserror::Error)]
enum NotListening {
    #[error(transparent)]
    Certificates(#[from] TlsError),
    #[error("cannot listen on {address}: {error}{}", kubelet(error))]
    Address { address: SocketAddr, error: io::Error },
}

/// The node as the agent sees it, with the port of its HTTPS server.
#[derive(Debug)]
pub(crate) struct ServedNode {
    pub(crate) agent: Arc<Agent>,
    pub(crate) listening: Option<Listening>,
}

/// A port that is taken may be free later, and a certificate that is missing may be written later.
const AGAIN: Duration = Duration::from_secs(10);

// === impl HttpsThread ===

impl HttpsThread {
    /// Starts the thread, and returns once the server listens or has logged why it does not. It tries again: pods come first.
    pub(crate) async fn start(settings: HttpsSettings, api: Api, local: Arc<Local>) -> io::Result<Self> {
        let listening = Listening::default();
        let (tried, first_try) = oneshot::channel::<()>();
        let of_thread = listening.clone();
        let work = move || async move { run(settings, api, local, tried, &of_thread).await };
        let thread = OwnThread::start("https", work)?;
        let _ = first_try.await;
        Ok(Self { listening, thread })
    }

    /// Resolves if the thread ends although it was not stopped: by a panic.
    pub async fn ended(&self) {
        self.thread.ended().await;
    }

    /// Where it listens, for the Node object.
    pub(crate) fn listening(&self) -> Listening {
        self.listening.clone()
    }
}

/// The usual reason for an address that is taken.
fn kubelet(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AddrInUse { "; is a kubelet running?" } else { "" }
}

async fn listen(address: SocketAddr, tls: TlsSettings) -> Result<(TcpListener, Certificates), NotListening> {
    let certificates = Certificates::load(tls)?;
    let listener = TcpListener::bind(address).await.map_err(|error| NotListening::Address { address, error })?;
    Ok((listener, certificates))
}

async fn run(settings: HttpsSettings, api: Api, local: Arc<Local>, tried: oneshot::Sender<()>, listening: &Listening) {
    let HttpsSettings { address, tls, reviews, kubelet } = settings;
    let mut tried = Some(tried);
    let mut told = String::new();
    let node = local.agent.facts().for_pods.name.clone();
    let (listener, certificates) = loop {
        match listen(address, tls.clone()).await {
            Ok(ready) => break ready,
            Err(error) => {
                let error = error.to_string();
                if error != told {
                    tracing::warn!(
                        error,
                        "cannot start HTTPS server: kubectl logs, exec, attach and port-forward fail until it starts; retrying"
                    );
                    told = error;
                }
            }
        }
        tried.take().map(|tried| tried.send(()));
        sleep(AGAIN).await;
    };
    tracing::info!(%address, "serving the kubelet's API over HTTPS");
    let guard = Guard::new(certificates, Reviews::new(api, node, reviews), KubeletApi::new(local, kubelet));
    let serving = keelet_https::serve(listener, Arc::new(guard), listening);
    tokio::pin!(serving);
    // Polled once, it listens.
    tokio::select! {
        biased;
        () = &mut serving => return,
        () = std::future::ready(()) => {}
    }
    tried.take().map(|tried| tried.send(()));
    serving.await;
}

// === impl ServedNode ===

impl NodeView for ServedNode {
    fn node(&self) -> Node {
        let mut node = self.agent.node();
        let port = self.listening.as_ref().and_then(Listening::port).map_or(0, i32::from);
        // Always named: a patch without it would leave the port of an earlier agent.
        let endpoints = NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port }) };
        node.status.get_or_insert_default().daemon_endpoints = Some(endpoints);
        node
    }

    fn is_observed(&self) -> bool {
        self.agent.node_is_observed()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.agent.node_changes()
    }

    fn retired(&self) -> Vec<String> {
        self.agent.retired_conditions()
    }
}
