//! Writing scripts, a sentence at a time: `world.script("main").exits(88).after(secs(10)).once()`.

use std::{sync::Arc, time::Duration};

use keelet_pod::ProbeKind;

use crate::{
    script::{Answer, ContainerScript, ExitRule, ImageScript, Instances, OnTerm, Wire},
    sim::Sim,
};

/// The script of a container, being written.
#[derive(Debug)]
pub struct Script {
    sim: Arc<Sim>,
    key: String,
}

/// The script of an image, being written.
#[derive(Debug)]
pub struct Image {
    sim: Arc<Sim>,
    name: String,
}

// === impl Script ===

impl Script {
    pub(crate) fn new(sim: &Arc<Sim>, key: &str) -> Self {
        Self { sim: Arc::clone(sim), key: key.to_owned() }
    }

    fn edit(self, edit: impl FnOnce(&mut ContainerScript)) -> Self {
        edit(self.sim.lock().scripts.container(&self.key));
        self
    }

    fn last_exit(self, edit: impl FnOnce(&mut ExitRule)) -> Self {
        self.edit(|script| {
            if let Some(rule) = script.exits.last_mut() {
                edit(rule);
            }
        })
    }

    /// It ends by itself with this code: at once, in every instance, unless what follows says more.
    pub fn exits(self, exit_code: i32) -> Self {
        let rule = ExitRule { exit_code, after: Duration::ZERO, peer: None, instances: Instances::Every };
        self.edit(|script| script.exits.push(rule))
    }

    /// It does so this long after its start.
    pub fn after(self, after: Duration) -> Self {
        self.last_exit(|rule| rule.after = after)
    }

    /// It does so when another container of its pod ends.
    pub fn when_ends(self, peer: &str) -> Self {
        self.last_exit(|rule| rule.peer = Some(peer.to_owned()))
    }

    /// It does so in one instance only, the next one.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// It does so in so many instances, the next ones.
    pub fn times(self, times: u32) -> Self {
        self.last_exit(|rule| rule.instances = Instances::Next(times))
    }

    /// It does so in the instance with this restart count.
    pub fn on_attempt(self, attempt: u32) -> Self {
        self.last_exit(|rule| rule.instances = Instances::Attempt(attempt))
    }

    /// It never ends by itself any more.
    pub fn stays(self) -> Self {
        self.edit(|script| script.exits.clear())
    }

    /// `StartContainer` takes this long.
    pub fn starts_slowly(self, takes: Duration) -> Self {
        self.edit(|script| script.slow_start = takes)
    }

    /// It ends so after SIGTERM.
    pub fn ends_on_term(self, after: Duration, exit_code: i32) -> Self {
        self.edit(|script| script.on_term = OnTerm::Ends { after, exit_code })
    }

    /// It does not care for SIGTERM.
    pub fn ignores_term(self) -> Self {
        self.edit(|script| script.on_term = OnTerm::Ignores)
    }

    /// Its probe of that kind answers so, from now on.
    pub fn answers(self, kind: ProbeKind, answer: impl Into<Answer>) -> Self {
        let answer = answer.into();
        self.edit(|script| {
            script.answers.insert(kind, vec![(Duration::ZERO, answer)]);
        })
    }

    /// Its probe of that kind answers so from that age on, in every instance.
    pub fn answers_from(self, age: Duration, kind: ProbeKind, answer: impl Into<Answer>) -> Self {
        let answer = answer.into();
        self.edit(|script| {
            let answers = script.answers.entry(kind).or_default();
            answers.push((age, answer));
            answers.sort_by_key(|(age, _)| *age);
        })
    }

    /// Commands in it whose line contains the text answer so.
    pub fn command(self, text: &str, answer: impl Into<Answer>) -> Self {
        let answer = answer.into();
        self.edit(|script| script.commands.push((text.to_owned(), answer)))
    }

    /// A page of it that no probe asks for by itself answers so.
    pub fn page(self, path: &str, answer: impl Into<Answer>) -> Self {
        let answer = answer.into();
        self.edit(|script| script.pages.push((path.to_owned(), answer)))
    }

    /// It speaks this on its ports, whatever its probes expect.
    pub fn speaks(self, wire: Wire) -> Self {
        self.edit(|script| script.speaks = Some(wire))
    }

    /// It leaves this in its termination message file.
    pub fn says(self, message: &str) -> Self {
        self.edit(|script| message.clone_into(&mut script.message))
    }
}

// === impl Image ===

impl Image {
    pub(crate) fn new(sim: &Arc<Sim>, name: &str) -> Self {
        Self { sim: Arc::clone(sim), name: name.to_owned() }
    }

    fn edit(self, edit: impl FnOnce(&mut ImageScript)) -> Self {
        edit(self.sim.lock().scripts.image(&self.name));
        self
    }

    /// It is on the node from the beginning.
    pub fn is_present(self) -> Self {
        self.edit(|script| script.present = true)
    }

    /// A pull takes this long.
    pub fn takes(self, takes: Duration) -> Self {
        self.edit(|script| script.takes = takes)
    }

    /// So many pulls fail first.
    pub fn fails(self, times: u32) -> Self {
        self.edit(|script| script.failures = times)
    }
}
