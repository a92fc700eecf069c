//! Reading logs past the agent that was asked for them.
//!
//! The log of a container is a file of this machine, and the container runtime writes it, not the agent. So it is read
//! from there: nothing is lost or printed twice when the agent is killed, no reader waits for the next agent, and a
//! slow reader (`| less`) is never disconnected. The agent is asked only where the files are, and whether there will be
//! more.

use anyhow::Result;
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use keelet_lifecycle::status::ContainerState;
use keelet_serve::{
    Client, ClientError,
    api::LogFiles,
    escaped,
    logs::{LogRequest, LogState, Which, exists, read},
};
use tokio::sync::watch;

use crate::{absence::Absence, ask, output, view::pod::PodView};

/// What a container wrote, in pieces of whole lines.
pub(super) type Log = BoxStream<'static, Result<Bytes>>;

/// Notifies the readers of a pod's logs whether there will be more.
struct LogStates {
    client: Client,
    /// The stream that reports when something has changed.
    changes: String,
    pod_uid: String,
    /// Where to ask for each container, and the reader to notify.
    containers: Vec<(String, watch::Sender<LogState>)>,
    absence: Absence,
}

/// Which instance of a container is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instance {
    /// The present one, or the last.
    Present,
    /// The one before it.
    Previous,
}

/// What a container has written so far, from its files; none if the agent sees other files than we do, or there is no log:
/// then the agent says why.
pub(super) async fn so_far(
    client: &Client,
    pod: &PodView,
    container: &str,
    instance: Instance,
    wanted: &LogRequest,
) -> Result<Option<Log>> {
    let files: LogFiles = client.get(&path_of_files(pod, container)).await?;
    if !files.anchor.is_here() || files.pod_uid != pod.uid {
        return Ok(None);
    }
    // One that waits to be started again has had no newer instance than its last one.
    let state = pod.status.container(container).map(|status| &status.state);
    let which = match instance {
        Instance::Previous if !matches!(state, Some(ContainerState::Waiting(_))) => Which::BeforeNewest,
        Instance::Previous | Instance::Present => Which::Newest,
    };
    let request = LogRequest { directory: files.directory, which, follow: false, ..wanted.clone() };
    if !exists(&request)? {
        return Ok(None);
    }
    Ok(Some(read(request, || LogState::Closed).map(|piece| piece.map_err(Into::into)).boxed()))
}

fn path_of_files(pod: &PodView, container: &str) -> String {
    format!("{}/log/files?container={}", ask::path_of(pod), escaped(container))
}

/// The logs of these containers, from their files; none if the agent sees other files than we do. Has to be called inside
/// a tokio runtime, which watches over them.
pub(super) async fn logs(
    client: &Client,
    pod: &PodView,
    containers: &[String],
    wanted: &LogRequest,
) -> Result<Option<Vec<Log>>> {
    let mut states = LogStates {
        client: client.clone(),
        changes: format!("/v1/pods?watch=true&namespace={}", escaped(&pod.namespace)),
        pod_uid: pod.uid.clone(),
        containers: Vec::new(),
        absence: Absence::new(client, "the log goes on without it"),
    };
    let mut logs = Vec::new();
    for container in containers {
        let path = path_of_files(pod, container);
        let files: LogFiles = client.get(&path).await?;
        if !files.anchor.is_here() {
            return Ok(None);
        }
        let (sender, log_state) = watch::channel(states.log_state(&files));
        states.containers.push((path, sender));
        let request = LogRequest { directory: files.directory, follow: true, ..wanted.clone() };
        logs.push(read(request, move || *log_state.borrow()).map(|piece| piece.map_err(Into::into)).boxed());
    }
    tokio::spawn(states.keep());
    Ok(Some(logs))
}

// === impl LogStates ===

impl LogStates {
    fn log_state(&self, files: &LogFiles) -> LogState {
        // Another pod of that name is another pod.
        if files.open && files.pod_uid == self.pod_uid { LogState::Open } else { LogState::Closed }
    }

    /// Asks one agent after the other until all logs are complete.
    async fn keep(self) {
        while let Err(error) = self.ask_one_agent().await {
            let waited = if error.is_away() { self.absence.wait().await } else { Err(error.into()) };
            if let Err(error) = waited {
                output::error(&format!("{error:#}"));
                break;
            }
        }
        for (_, log_state) in &self.containers {
            log_state.send_replace(LogState::Closed);
        }
    }

    /// Asks whenever something has changed. Ends when all logs are complete; fails when the agent goes away.
    async fn ask_one_agent(&self) -> Result<(), ClientError> {
        let mut changes = self.client.stream(&self.changes).await?;
        loop {
            let mut open = false;
            for (path, log_state) in &self.containers {
                let now = match self.client.get(path).await {
                    Ok(files) => self.log_state(&files),
                    Err(ClientError::Refused(why)) if why.code < 500 => LogState::Closed,
                    Err(error) => return Err(error),
                };
                log_state.send_replace(now);
                open |= now == LogState::Open;
            }
            self.absence.is_over();
            if !open {
                return Ok(());
            }
            match changes.next().await {
                Some(changed) => drop(changed?),
                // An agent that stops ends what it was asked for; the next one is asked anew.
                None => changes = self.client.stream(&self.changes).await?,
            }
        }
    }
}
