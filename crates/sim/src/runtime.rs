//! The container runtime: CRI v1 over the simulated node.
//!
//! A call travels to the node, takes effect there, and its answer travels back. From the moment it is sent it belongs
//! to the world: whether the agent still waits for it, has given up, or is dead makes no difference to what it does.

mod service;
mod words;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use keelet_cri::v1;
use tokio::{sync::oneshot, time::sleep};
use tonic::{Response, Status};

use crate::{
    faults::{CallKind, Fate},
    node::{Container, Notice, Sandbox},
    process::{AgentProcess, InFlight, Permit},
    sim::{Sim, State},
    timeline::{Happening, InstanceRef},
};

/// The runtime's name, and so the scheme of container IDs.
pub(crate) const RUNTIME_NAME: &str = "sim";

/// A call and its answer take so long together.
const TRIP: Duration = Duration::from_millis(4);

/// An old view is up to this much late.
const STALE: Duration = Duration::from_secs(3);

/// The runtime as one run of the agent sees it.
#[derive(Clone)]
pub(crate) struct SimRuntime {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: Arc<AgentProcess>,
}

/// What a call has to say of itself.
struct Call {
    kind: CallKind,
    subject: String,
}

type Answered<T> = Result<Response<T>, Status>;

// === impl SimRuntime ===

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimRuntime of run {}", self.process.number)
    }
}

impl SimRuntime {
    /// A call that is over as soon as it arrives.
    async fn quick<T: Send + 'static>(
        &self,
        kind: CallKind,
        subject: &str,
        act: impl FnOnce(&mut State) -> Result<T, Status> + Send + 'static,
    ) -> Answered<T> {
        self.call(kind, subject, |sim| async move { act(&mut sim.lock()) }).await
    }

    /// A call that takes its time at the node.
    async fn call<T, F>(
        &self,
        kind: CallKind,
        subject: &str,
        act: impl FnOnce(Arc<Sim>) -> F + Send + 'static,
    ) -> Answered<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send,
    {
        let permit = match (self.process.is_over(), kind.is_effect()) {
            (true, _) => Permit::Dead,
            (false, true) => self.process.effect(),
            (false, false) => Permit::Go,
        };
        self.sim.announce(&self.process);
        if permit == Permit::Dead {
            return std::future::pending().await;
        }
        let call = Call { kind, subject: subject.to_owned() };
        let (fate, slow) = self.sim.lock().draw_fate(kind, subject);
        let (send, receive) = oneshot::channel();
        let (sim, process) = (Arc::clone(&self.sim), Arc::clone(&self.process));
        drop(tokio::spawn(async move {
            let answer = travel(&sim, &process, permit, &call, fate, slow, act).await;
            // The caller may have stopped waiting.
            let _ = send.send(answer);
        }));
        match receive.await {
            Ok(answer) if !self.process.is_over() => answer.map(Response::new),
            _ => std::future::pending().await,
        }
    }
}

/// The way of a call to the node and back.
async fn travel<T, F>(
    sim: &Arc<Sim>,
    process: &AgentProcess,
    permit: Permit,
    call: &Call,
    fate: Fate,
    slow: Duration,
    act: impl FnOnce(Arc<Sim>) -> F,
) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    // What hangs is broken off when the faults end, also if they end while it is still being carried out.
    let mut calm = sim.lock().calm.subscribe();
    let late = fate == Fate::Stale;
    if !late {
        sleep(TRIP / 2 + slow).await;
    }
    if process.is_over() && !call.kind.is_effect() {
        // The agent that asked is dead, and nothing would change.
        return Err(Status::cancelled("the client is gone"));
    }
    let fate = if permit == Permit::Last { Fate::Applied } else { sim.lock().fate_at_arrival(process, fate) };
    sim.lock().note_call(call, fate);
    let answer = if fate.is_applied() { Some(act(Arc::clone(sim)).await) } else { None };
    let wait = if late { TRIP + slow + sim.lock().random.millis(STALE) } else { TRIP / 2 };
    sleep(wait).await;
    let broken = || Err(Status::unavailable("the connection broke"));
    match fate {
        Fate::Applied | Fate::Stale => answer.unwrap_or_else(broken),
        Fate::AnswerLost | Fate::Lost => broken(),
        Fate::Failed => Err(Status::unknown("the runtime does not feel like it")),
        Fate::Hangs | Fate::HangsApplied => {
            let _ = calm.changed().await;
            broken()
        }
    }
}

// === impl State ===

/// Calls and events.
impl State {
    fn draw_fate(&mut self, kind: CallKind, subject: &str) -> (Fate, Duration) {
        if self.runtime_is_away() {
            return (Fate::Lost, Duration::ZERO);
        }
        let Self { faults, random, .. } = self;
        faults.fate(kind, subject, random)
    }

    /// A call on its way when the agent died, or the runtime went away, may never arrive.
    fn fate_at_arrival(&mut self, process: &AgentProcess, fate: Fate) -> Fate {
        if self.runtime_is_away() {
            return Fate::Lost;
        }
        if !process.is_over() {
            return fate;
        }
        let arrives = match process.in_flight() {
            InFlight::Applied | InFlight::GivenUp => true,
            InFlight::Lost => false,
            InFlight::ByChance => self.random.chance(500),
        };
        if arrives { fate } else { Fate::Lost }
    }

    /// Whether the runtime gives up a start that is under way, because its caller does not wait for it any more.
    fn gives_up_start(&mut self, process: &AgentProcess) -> bool {
        process.is_over()
            && match process.in_flight() {
                InFlight::Applied | InFlight::Lost => false,
                InFlight::GivenUp => true,
                InFlight::ByChance => self.random.chance(300),
            }
    }

    fn note_call(&mut self, call: &Call, fate: Fate) {
        if call.kind.is_effect() || fate != Fate::Applied {
            self.note(Happening::Call { kind: call.kind, subject: call.subject.clone(), fate });
        }
    }

    /// Emits an event to the subscribers.
    pub(crate) fn emit(&mut self, instance: &InstanceRef, notice: Notice) {
        let odds = self.faults.events;
        if self.runtime_is_away() || self.random.chance(odds.lost) {
            return;
        }
        let times = if self.random.chance(odds.doubled) { 2 } else { 1 };
        let event = self.event(instance, notice);
        for _ in 0..times {
            let late = self.random.millis(odds.late) + TRIP / 2;
            let event = event.clone();
            self.later(late, move |state| state.send(&event));
        }
    }

    fn send(&mut self, event: &v1::ContainerEventResponse) {
        self.subscribers.retain(|subscriber| !subscriber.events.is_closed() && !subscriber.process.is_over());
        for subscriber in &self.subscribers {
            // A subscriber that does not read loses events, as with any runtime.
            let _ = subscriber.events.try_send(Ok(event.clone()));
        }
    }

    fn event(&self, instance: &InstanceRef, notice: Notice) -> v1::ContainerEventResponse {
        let kind = match notice {
            Notice::Created => v1::ContainerEventType::ContainerCreatedEvent,
            Notice::Started => v1::ContainerEventType::ContainerStartedEvent,
            Notice::Stopped => v1::ContainerEventType::ContainerStoppedEvent,
            Notice::Deleted => v1::ContainerEventType::ContainerDeletedEvent,
        };
        let in_sandbox = |container: &&Container| container.instance.sandbox == instance.sandbox;
        v1::ContainerEventResponse {
            container_id: instance.id.clone(),
            container_event_type: kind.into(),
            created_at: self.wall_ns(),
            pod_sandbox_status: self.node.sandboxes.get(&instance.sandbox).map(Sandbox::status),
            containers_statuses: self.node.containers.values().filter(in_sandbox).map(Container::status).collect(),
        }
    }

    fn container(&self, id: &str) -> Result<&Container, Status> {
        self.node.containers.get(id).ok_or_else(|| Status::not_found(format!("no container {id}")))
    }
}
