//! The connection to an API server, on a thread of its own: what an API server sends, however large, is never read on the thread that
//! plans pods.

use std::{io, path::PathBuf, sync::Arc};

use keelet_agent::{
    Agent, Feed,
    clock::{ClockError, OsClock},
    doors::Clock,
    publish::Publisher,
};
use keelet_api::{Api, ConnectError, connect};
use keelet_cluster::{Carried, Cluster, ClusterPublisher, Settings};
use keelet_host::ObjectStore;
use keelet_pod::Features;
use tokio::sync::oneshot;

use crate::{
    https::{HttpsThread, ServedNode},
    thread::OwnThread,
};

/// The thread of the connection. It ends when this is dropped; pods keep running.
#[derive(Debug)]
pub struct ClusterThread {
    publisher: ClusterPublisher,
    carried: Carried,
    api: Api,
    begin: std::sync::Mutex<Option<oneshot::Sender<Begin>>>,
    thread: OwnThread,
}

/// What the connection needs of a running agent.
type Begin = (Feed, Arc<ServedNode>);

/// Why an agent cannot join a cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It is not known what time it is.
    #[error("cannot read the clock")]
    Clock(#[from] ClockError),
    /// There is no thread for the connection.
    #[error("cannot start the thread of the connection to the API server")]
    Thread(#[source] io::Error),
}

// === impl ClusterThread ===

impl ClusterThread {
    /// Starts the thread. A kubeconfig that cannot be used is an error at once; an API server that does not answer is none.
    /// What pods refer to is remembered in `memory` until the machine is rebooted.
    pub async fn start(
        kubeconfig: PathBuf,
        settings: Settings,
        features: Features,
        memory: PathBuf,
    ) -> Result<Self, JoinError> {
        let publisher = ClusterPublisher::new(features);
        let (begin, begun) = oneshot::channel::<Begin>();
        let (report, connected) = oneshot::channel();
        let clock: Arc<OsClock> = Arc::new(OsClock::new()?);
        let carried = Carried::new(memory, Arc::clone(&clock) as Arc<dyn Clock>);
        let (of_thread, carried_there) = (publisher.clone(), carried.clone());
        let work = move || async move {
            let client = match connect(&kubeconfig).await {
                Ok(client) => client,
                Err(error) => return drop(report.send(Err(error.into()))),
            };
            let api = Api::new(client);
            let cluster = Cluster::new(api.clone(), clock, settings, &of_thread, carried_there);
            let _ = report.send(Ok(api));
            if let Ok((feed, node)) = begun.await {
                cluster.run(feed, node).await;
            }
        };
        let thread = OwnThread::start("cluster", work).map_err(JoinError::Thread)?;
        let ended = || JoinError::Thread(io::Error::other("the thread has ended"));
        let api = connected.await.unwrap_or_else(|_| Err(ended()))?;
        Ok(Self { publisher, carried, api, begin: Some(begin).into(), thread })
    }

    /// Resolves if the thread ends although it was not stopped: by a panic.
    pub async fn ended(&self) {
        self.thread.ended().await;
    }

    /// Where the agent's statuses and events go.
    pub fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.publisher.clone())
    }

    /// Where pods of the API server find what they refer to.
    pub fn carried(&self) -> Arc<dyn ObjectStore> {
        Arc::new(self.carried.clone())
    }

    /// The API server. Its requests are made on the thread of the connection, whichever thread asks for them.
    pub(crate) fn api(&self) -> Api {
        self.api.clone()
    }

    /// Connects a running agent: pods come to it from now on, and its node is registered, with the port of its HTTPS server.
    pub fn begin(&self, feed: Feed, agent: Arc<Agent>, https: Option<&HttpsThread>) {
        let begin = self.begin.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(begin) = begin {
            let node = ServedNode { agent, listening: https.map(HttpsThread::listening) };
            let _ = begin.send((feed, Arc::new(node)));
        }
    }
}
