//! Event streams of the runtime.
//!
//! A Go server sends the head of its response together with the first message, so a stream without events looks like a
//! call without a response. Subscribing must not wait for that. Once the runtime has answered another call and had a
//! moment to refuse, the subscription counts as accepted, and the head is awaited with the first event.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use prost::Message;
use tonic::{Response, Status, Streaming};

use crate::{
    containerd::{Envelope, TaskExit, TaskOom},
    error::Error,
    v1::ContainerEventResponse,
};

/// How long a runtime without the stream may take to refuse it, after it answered another call. Refusing needs no work,
/// so this is mostly scheduling.
pub(crate) const SETTLE: Duration = Duration::from_millis(250);

pub(crate) const EXIT_TOPIC: &str = "/tasks/exit";
pub(crate) const OOM_TOPIC: &str = "/tasks/oom";

/// CRI's container events.
#[derive(Debug)]
pub struct Events(pub(crate) Feed<ContainerEventResponse>);

/// containerd's own events about the tasks of its CRI containers and sandboxes.
#[derive(Debug)]
pub struct Exits(pub(crate) Feed<Envelope>);

/// Something that happened to the processes of a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// A process exited: the init process of the container if `exec_id` equals `container_id`, else that of an exec.
    Exited {
        /// The ID of the container or sandbox, as in CRI.
        container_id: String,
        /// The process within the container.
        exec_id: String,
        /// The PID on the node.
        pid: u32,
        /// The exit code; 128 plus the signal if a signal killed it.
        exit_status: u32,
    },
    /// The kernel killed a process because the container was out of memory.
    OutOfMemory {
        /// The ID of the container or sandbox, as in CRI.
        container_id: String,
    },
}

/// A stream whose response head may not have arrived yet.
pub(crate) struct Feed<T> {
    call: &'static str,
    endpoint: String,
    state: State<T>,
}

enum State<T> {
    /// The call was sent; no response has arrived yet.
    Opening(Opening<T>),
    Open(Box<Streaming<T>>),
    /// It ended or failed; nothing will follow.
    Closed,
}

/// The call that opens a stream.
pub(crate) type Opening<T> = Pin<Box<dyn Future<Output = Result<Response<Streaming<T>>, Status>> + Send>>;

// === impl Events ===

impl Events {
    /// The next event; `None` once the runtime has ended the stream. May be dropped without losing an event.
    ///
    /// A runtime that refuses late fails here with [`crate::ErrorKind::Unimplemented`].
    pub async fn next(&mut self) -> Result<Option<ContainerEventResponse>, Error> {
        self.0.next().await
    }
}

// === impl Exits ===

impl Exits {
    /// The next event; `None` once containerd has ended the stream. May be dropped without losing an event.
    ///
    /// A runtime that refuses late fails here with [`crate::ErrorKind::Unimplemented`].
    pub async fn next(&mut self) -> Result<Option<TaskEvent>, Error> {
        while let Some(envelope) = self.0.next().await? {
            // An event that cannot be decoded is skipped; the audit sees its effect.
            if let Some(event) = TaskEvent::read(&envelope) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

// === impl TaskEvent ===

impl TaskEvent {
    fn read(envelope: &Envelope) -> Option<Self> {
        let bytes = envelope.event.as_ref()?.value.as_slice();
        match envelope.topic.as_str() {
            EXIT_TOPIC => {
                let TaskExit { container_id, id, pid, exit_status, .. } = TaskExit::decode(bytes).ok()?;
                Some(Self::Exited { container_id, exec_id: id, pid, exit_status })
            }
            OOM_TOPIC => {
                let TaskOom { container_id } = TaskOom::decode(bytes).ok()?;
                Some(Self::OutOfMemory { container_id })
            }
            _ => None,
        }
    }
}

// === impl Feed ===

impl<T> Feed<T> {
    pub(crate) fn opening(call: &'static str, endpoint: &str, opening: Opening<T>) -> Self {
        Self { call, endpoint: endpoint.to_owned(), state: State::Opening(opening) }
    }

    /// Waits for the head of the response.
    pub(crate) async fn open(&mut self) -> Result<(), Error> {
        if let State::Opening(opening) = &mut self.state {
            match opening.await {
                Ok(answer) => self.state = State::Open(Box::new(answer.into_inner())),
                Err(status) => return Err(self.fail(&status)),
            }
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<T>, Error> {
        self.open().await?;
        let State::Open(stream) = &mut self.state else { return Ok(None) };
        match stream.message().await {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => {
                self.state = State::Closed;
                Ok(None)
            }
            Err(status) => Err(self.fail(&status)),
        }
    }

    fn fail(&mut self, status: &Status) -> Error {
        self.state = State::Closed;
        Error::answered(self.call, &self.endpoint, status)
    }
}

impl<T> fmt::Debug for Feed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Opening(_) => "opening",
            State::Open(_) => "open",
            State::Closed => "closed",
        };
        f.debug_struct("Feed").field("call", &self.call).field("state", &state).finish_non_exhaustive()
    }
}
