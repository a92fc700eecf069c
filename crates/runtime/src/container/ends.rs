//! How containers end, and how the runtime learns and reports it.

use std::{io, sync::Arc};

use keelet_cri::v1::ContainerEventType;
use keelet_shim::protocol::{self, Exit, STATE, State};

use super::{Container, Phase};
use crate::engine::{Engine, now};

// === impl Container ===

impl Container {
    /// Records that it has ended. Whether that is new.
    fn end(&self, exit: Exit) -> bool {
        let mut phase = self.phase();
        let Phase::Running(running) = &*phase else { return false };
        *phase = Phase::Ended { started_at: running.started_at, exit };
        drop(phase);
        self.ended.send_replace(true);
        true
    }
}

// === impl Engine ===

impl Engine {
    /// Reads what the shim wrote of a container.
    pub(crate) fn refresh(&self, container: &Arc<Container>) {
        let _emitting = container.emitting();
        // Said already, and there is another time.
        let _ = self.read_state_of(container);
    }

    fn read_state_of(&self, container: &Container) -> io::Result<()> {
        let news = container.read_state().inspect_err(|error| {
            tracing::warn!(container = container.id, %error, "cannot read container state");
        })?;
        for kind in news {
            self.emit_of(container, kind);
        }
        Ok(())
    }

    /// Its shim says how it ended. That is written down as well, unless there was no room for it.
    pub(crate) fn ended(&self, container: &Arc<Container>, exit: Exit) {
        let _emitting = container.emitting();
        // What cannot be read the shim has just said.
        let _ = self.read_state_of(container);
        if container.end(exit) {
            self.emit_of(container, ContainerEventType::ContainerStoppedEvent);
        }
    }

    /// Its shim is gone or knows nothing of it, and it ended with its exit status unknown. An error if nothing can be
    /// said of it now: then what is written of it stays as it is.
    pub(crate) fn lost(&self, container: &Arc<Container>) -> io::Result<()> {
        // The old shim may have had the time to write it down.
        {
            let _emitting = container.emitting();
            self.read_state_of(container)?;
        }
        let exit = Exit { code: None, at: now(), oom: false };
        let state = {
            let Phase::Running(running) = &*container.phase() else { return Ok(()) };
            State { process: running.process, started_at: running.started_at, exit: Some(exit) }
        };
        if let Err(error) = protocol::write(&container.dir.join(STATE), &state) {
            tracing::warn!(container = container.id, %error, "cannot record that the exit status of a container is unknown");
        }
        self.ended(container, exit);
        Ok(())
    }

    /// It is gone, and so is everything of it.
    pub(super) fn removed(&self, container: &Container) {
        let _emitting = container.emitting();
        self.emit_of(container, ContainerEventType::ContainerDeletedEvent);
    }

    fn emit_of(&self, container: &Container, kind: ContainerEventType) {
        if let Ok(sandbox) = self.sandbox(&container.sandbox) {
            self.emit(&sandbox, &container.id, kind);
        }
    }
}
