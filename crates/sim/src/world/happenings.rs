//! What happens on the node.

use std::time::Duration;

use keelet_host::Space;
use keelet_pod::ProbeKind;
use tokio::time::Instant;

use super::World;
use crate::{
    faults::{DiskMood, Faults},
    node::{Loss, Remains},
    script::Answer,
    scripting::{Image, Script},
    timeline::{ExitCause, Happening},
};

// === impl World ===

impl World {
    /// The script of a container: `name`, or `pod/name` where several pods have one of that name.
    pub fn script(&self, container: &str) -> Script {
        Script::new(&self.sim, container)
    }

    /// The script of an image.
    pub fn image(&self, image: &str) -> Image {
        Image::new(&self.sim, image)
    }

    /// From now on this probe answers so.
    pub fn answer(&mut self, container: &str, kind: ProbeKind, answer: impl Into<Answer>) -> &mut Self {
        self.script(container).answers(kind, answer);
        self
    }

    /// A container ends, now; nothing happens if it does not run.
    pub fn exit(&mut self, container: &str, exit_code: i32) -> &mut Self {
        if let Some(id) = self.running(container) {
            self.inside(|state| state.exit(&id, exit_code, ExitCause::Own));
        }
        self
    }

    /// The runtime loses a container, with all it knows of it.
    pub fn lose(&mut self, container: &str) -> &mut Self {
        if let Some(id) = self.container_runs(container).last().map(|run| run.instance.id.clone()) {
            self.inside(|state| state.remove(&id, false));
        }
        self
    }

    /// A pod's sandbox breaks down, with all that runs in it.
    pub fn break_sandbox(&mut self, pod: &str) -> &mut Self {
        let uid = self.uid(pod);
        self.inside(|state| {
            state.note(Happening::Note(format!("the sandbox of {uid} breaks down")));
            if let Some(id) = state.node.sandbox(&uid).map(str::to_owned) {
                state.stop_sandbox(&id);
            }
        });
        self
    }

    /// Another program removes a part of a pod's sandbox, and the runtime notices it so much later.
    pub fn damage_sandbox(&mut self, pod: &str, loss: Loss, noticed_after: Duration) -> &mut Self {
        let uid = self.uid(pod);
        self.inside(|state| {
            if let Some(id) = state.node.sandbox(&uid).map(str::to_owned) {
                state.lose_of_sandbox(&id, loss, noticed_after);
            }
        });
        self
    }

    /// Changes what goes wrong from now on.
    pub fn faults(&mut self, change: impl FnOnce(&mut Faults)) -> &mut Self {
        self.inside(|state| {
            change(&mut state.faults);
            state.catch_up();
            state.note(Happening::Note("faults change".to_owned()));
        });
        self
    }

    /// Only the directories are left of a pod that neither a source of pods nor the runtime knows.
    pub fn leave_directories(&mut self, uid: &str) -> &mut Self {
        self.inside(|state| state.leftovers.insert(uid.to_owned()));
        self
    }

    /// The log of a container has grown to this size.
    pub fn log_grows(&mut self, container: &str, bytes: u64) -> &mut Self {
        self.inside(|state| state.log_sizes.insert(container.to_owned(), Some(bytes)));
        self
    }

    /// So much of the node's disk is left, in percent.
    pub fn disk_has_left(&mut self, percent: u64) -> &mut Self {
        let space = Space { capacity: 1000, available: percent * 10, inodes: 1000, inodes_free: 1000 };
        self.inside(|state| state.space = Some(space));
        self
    }

    /// Changes the mood of the disk.
    pub fn disk(&mut self, mood: DiskMood) -> &mut Self {
        self.faults(|faults| faults.disk = mood)
    }

    /// Nothing goes wrong any more.
    pub fn calm(&mut self) -> &mut Self {
        self.inside(|state| {
            if !state.faults.is_quiet() || state.runtime_is_away() {
                state.note(Happening::Note("faults end".to_owned()));
            }
            state.faults = Faults::default();
            state.catch_up();
            state.runtime_away = None;
            state.calm.send_modify(|times| *times += 1);
        });
        self
    }

    /// The runtime restarts: containers keep running, but it cannot be reached for so long.
    pub fn restart_runtime(&mut self, down: Duration) -> &mut Self {
        self.inside(|state| {
            state.note(Happening::Note(format!("the runtime is away for {down:?}")));
            state.runtime_away = Some(Instant::now() + down);
            state.subscribers.clear();
        });
        self
    }

    /// The node loses power and boots anew. The agent is dead; a test that wants one starts it.
    pub fn reboot(&mut self, remains: Remains) -> &mut Self {
        self.kill_agent();
        self.inside(|state| {
            state.note(Happening::Reboot);
            state.subscribers.clear();
            state.go_down(remains);
            state.medium.reboot();
            state.boot_anew();
        });
        self
    }

    /// Sets the wall clock, forward or back.
    pub fn set_wall(&mut self, by_ms: i64) -> &mut Self {
        self.inside(|state| state.set_wall(by_ms));
        self
    }
}
