//! Where the agent touches the world. Everything behind these traits can be simulated; nothing else is touched.

use std::{fmt, io, sync::Arc};

use futures::future::BoxFuture;
use keelet_cri::Runtime;
use keelet_host::Host;
use keelet_ledger::OsDisk;
use keelet_lifecycle::Moment;
use keelet_prober::{Dial, TcpDial};

use crate::{board::Observer, publish::Publisher, tasks::TokioTasks};

/// All doors of one agent.
#[derive(Clone, Debug)]
pub struct Doors<D> {
    /// The container runtime.
    pub runtime: Runtime,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Connections to probe targets.
    pub dial: Arc<dyn Dial>,
    /// Where the ledger is written.
    pub disk: D,
    /// Directories and files of pods on the node.
    pub host: Arc<dyn Host>,
    /// Where others see statuses and events; none on a node of its own.
    pub publisher: Option<Arc<dyn Publisher>>,
    /// Sees every change of the board.
    pub observer: Option<Arc<dyn Observer>>,
    /// Runs the agent's tasks.
    pub tasks: Arc<dyn Tasks>,
}

/// The time. Waiting is tokio's business, which a simulation pauses; what time it is, is asked here.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Moment;
}

/// Runs the agent's tasks, so that a simulation can stop them all between two steps.
pub trait Tasks: Send + Sync + fmt::Debug {
    /// Runs a task beside the others until it ends.
    fn spawn(&self, task: BoxFuture<'static, ()>);
    /// Runs something that may block on the disk, off the tasks' own threads. A simulation runs it in place.
    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()>;
}

// === impl Doors ===

impl Doors<OsDisk> {
    /// The doors of an agent on this machine, which no publisher serves. The error is that of a thread that cannot be started.
    pub fn on_this_machine(runtime: Runtime, clock: Arc<dyn Clock>, host: Arc<dyn Host>) -> io::Result<Self> {
        Ok(Self {
            runtime,
            clock,
            dial: Arc::new(TcpDial::default()),
            disk: OsDisk,
            host,
            publisher: None,
            observer: None,
            tasks: Arc::new(TokioTasks::start()?),
        })
    }
}
