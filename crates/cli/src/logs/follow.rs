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
    logs::{Course, LogRequest, Which, exists, read},
};
use tokio::sync::watch;

use crate::{absence::Absence, ask, output, view::pod::PodView};

/// What a container wrote, in pieces of whole lines.
pub(super) type Log = BoxStream<'static, Result<Bytes>>;

/// Notifies the readers of a pod's logs whether there will be more.
struct Courses {
    client: Client,
    /// The stream that reports when something has changed.
    changes: String,
    pod_uid: String,
    /// Where to ask for each container, and the reader to notify.
    containers: Vec<(String, watch::Sender<Course>)>,
    absence: Absence,
}

/// Which life of a container is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
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
    life: Life,
    wish: &LogRequest,
) -> Result<Option<Log>> {
    let files: LogFiles = client.get(&path_of_files(pod, container)).await?;
    if !files.anchor.is_here() || files.pod_uid != pod.uid {
        return Ok(None);
    }
    // One that waits to be started again has had no newer life than its last one.
    let state = pod.status.container(container).map(|status| &status.state);
    let which = match life {
        Life::Previous if !matches!(state, Some(ContainerState::Waiting(_))) => Which::BeforeNewest,
        Life::Previous | Life::Present => Which::Newest,
    };
    let request = LogRequest { directory: files.directory, which, follow: false, ..wish.clone() };
    if !exists(&request)? {
        return Ok(None);
    }
    Ok(Some(read(request, || Course::Closed).map(|piece| piece.map_err(Into::into)).boxed()))
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
    wish: &LogRequest,
) -> Result<Option<Vec<Log>>> {
    let mut courses = Courses {
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
        let (sender, course) = watch::channel(courses.course(&files));
        courses.containers.push((path, sender));
        let request = LogRequest { directory: files.directory, follow: true, ..wish.clone() };
        logs.push(read(request, move || *course.borrow()).map(|piece| piece.map_err(Into::into)).boxed());
    }
    tokio::spawn(courses.keep());
    Ok(Some(logs))
}

// === impl Courses ===

impl Courses {
    fn course(&self, files: &LogFiles) -> Course {
        // Another pod of that name is another pod.
        if files.open && files.pod_uid == self.pod_uid { Course::Open } else { Course::Closed }
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
        for (_, course) in &self.containers {
            course.send_replace(Course::Closed);
        }
    }

    /// Asks whenever something has changed. Ends when all logs are complete; fails when the agent goes away.
    async fn ask_one_agent(&self) -> Result<(), ClientError> {
        let mut changes = self.client.stream(&self.changes).await?;
        loop {
            let mut open = false;
            for (path, course) in &self.containers {
                let now = match self.client.get(path).await {
                    Ok(files) => self.course(&files),
                    Err(ClientError::Refused(why)) if why.code < 500 => Course::Closed,
                    Err(error) => return Err(error),
                };
                course.send_replace(now);
                open |= now == Course::Open;
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
