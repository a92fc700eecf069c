//! What containers do: when they end, how they take a stop signal, what their probes answer.
//!
//! A container without a script is healthy: it starts at once, runs until it is stopped, ends soon after SIGTERM, and
//! all its probes pass. Scripts bear on instances that begin after they were written, answers of probes at once.

use std::{collections::BTreeMap, fmt, time::Duration};

use keelet_pod::ProbeKind;

/// What one container does.
#[derive(Clone, Debug, Default)]
pub struct ContainerScript {
    /// How long `StartContainer` takes.
    pub slow_start: Duration,
    /// How it ends by itself; the first rule that applies to an instance decides.
    pub exits: Vec<ExitRule>,
    /// How it takes SIGTERM.
    pub on_term: OnTerm,
    /// What its probes answer, by the age of the container; the last entry whose age is reached counts.
    pub answers: BTreeMap<ProbeKind, Vec<(Duration, Answer)>>,
    /// What commands in it answer, by a text of the command. Probes are asked for in `answers` first.
    pub commands: Vec<(String, Answer)>,
    /// What pages answer that no probe asks for by itself, by path: where redirects lead, what hooks ask for.
    pub pages: Vec<(String, Answer)>,
    /// What it speaks on its ports, where that is not what its probes expect.
    pub speaks: Option<Wire>,
    /// What it leaves in its termination message file.
    pub message: String,
}

/// How an instance ends by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitRule {
    /// Its exit code.
    pub exit_code: i32,
    /// When, counted from its start or from the peer's end.
    pub after: Duration,
    /// Whose end brings it about; `None` if it is its own age.
    pub peer: Option<String>,
    /// Which instances it applies to.
    pub instances: Instances,
}

/// Which instances an exit rule applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instances {
    /// All of them.
    #[default]
    Every,
    /// So many more.
    Next(u32),
    /// The one with that restart count.
    Attempt(u32),
}

/// How a container takes SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTerm {
    /// It ends.
    Ends {
        /// How soon.
        after: Duration,
        /// With this code.
        exit_code: i32,
    },
    /// It does not care, and is killed at the end of the grace period.
    Ignores,
}

/// What a probe or a command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What.
    pub reply: Reply,
    /// How long it takes.
    pub after: Duration,
}

/// What a container replies to a probe, in the way of the handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// Status 200, exit code 0, an open port, SERVING.
    #[default]
    Pass,
    /// Status 500, exit code 1, a closed port, NOT_SERVING.
    Fail,
    /// This HTTP status. To other handlers it is a pass below 400 and a failure from there on.
    Status(u16),
    /// This exit code. To other handlers 0 is a pass and everything else a failure.
    ExitCode(i32),
    /// The connection is refused; a command cannot be started.
    Refuse,
    /// Status 302 to there. To other handlers it is a pass.
    Redirect(&'static str),
    /// Nothing, ever.
    Hang,
}

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 in cleartext.
    Http2,
    /// TLS. Not simulated: the connection is closed, as it is by a server that gets no TLS it could use.
    Tls,
}

/// How pulls of an image go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageScript {
    /// Whether it is on the node from the beginning.
    pub present: bool,
    /// How long a pull takes.
    pub takes: Duration,
    /// So many pulls fail first.
    pub failures: u32,
}

/// The scripts of all containers and images.
#[derive(Clone, Debug, Default)]
pub struct Scripts {
    /// By container name, or `pod/container`.
    containers: BTreeMap<String, ContainerScript>,
    /// By image name.
    images: BTreeMap<String, ImageScript>,
}

// === impl Scripts ===

impl Scripts {
    /// The script of a container: `name`, or `pod/name` where several pods have one of that name.
    pub fn container(&mut self, key: &str) -> &mut ContainerScript {
        self.containers.entry(key.to_owned()).or_default()
    }

    /// The script of an image.
    pub fn image(&mut self, image: &str) -> &mut ImageScript {
        self.images.entry(image.to_owned()).or_default()
    }

    /// The script that counts for a container of a pod.
    pub(crate) fn of(&mut self, pod: &str, container: &str) -> &mut ContainerScript {
        let full = format!("{pod}/{container}");
        let key = if self.containers.contains_key(&full) { full } else { container.to_owned() };
        self.containers.entry(key).or_default()
    }
}

// === impl ContainerScript ===

impl ContainerScript {
    /// How an instance that begins now will end by itself, if by its age.
    pub(crate) fn begin(&mut self, attempt: u32) -> Option<(Duration, i32)> {
        let rule = self.exits.iter_mut().find(|rule| rule.peer.is_none() && rule.applies(attempt))?;
        rule.instances.use_up();
        Some((rule.after, rule.exit_code))
    }

    /// How the present instance ends now that a peer has ended.
    pub(crate) fn peer_ended(&mut self, attempt: u32, peer: &str) -> Option<(Duration, i32)> {
        let bears = |rule: &&mut ExitRule| rule.peer.as_deref() == Some(peer) && rule.applies(attempt);
        let rule = self.exits.iter_mut().find(bears)?;
        rule.instances.use_up();
        Some((rule.after, rule.exit_code))
    }

    /// What a probe of one of these kinds answers at that age.
    pub(crate) fn answer(&self, kinds: &[ProbeKind], age: Duration) -> Option<Answer> {
        let scripted = kinds.iter().find_map(|kind| self.answers.get(kind))?;
        scripted.iter().rev().find(|(from, _)| *from <= age).map(|(_, answer)| *answer)
    }

    /// What a page answers.
    pub(crate) fn page(&self, path: &str) -> Option<Answer> {
        self.pages.iter().rev().find(|(own, _)| own == path).map(|(_, answer)| *answer)
    }

    /// What a command answers.
    pub(crate) fn command(&self, command: &str) -> Option<Answer> {
        self.commands.iter().find(|(text, _)| command.contains(text)).map(|(_, answer)| *answer)
    }
}

// === impl ExitRule ===

impl ExitRule {
    fn applies(&self, attempt: u32) -> bool {
        match self.instances {
            Instances::Every => true,
            Instances::Next(left) => left > 0,
            Instances::Attempt(number) => number == attempt,
        }
    }
}

// === impl Instances ===

impl Instances {
    fn use_up(&mut self) {
        if let Self::Next(left) = self {
            *left = left.saturating_sub(1);
        }
    }
}

// === impl OnTerm ===

impl Default for OnTerm {
    fn default() -> Self {
        Self::Ends { after: Duration::from_millis(50), exit_code: 143 }
    }
}

// === impl Answer ===

impl Default for Answer {
    fn default() -> Self {
        Self { reply: Reply::Pass, after: Duration::from_millis(2) }
    }
}

impl Answer {
    /// Says this, soon.
    pub fn new(reply: Reply) -> Self {
        Self { reply, ..Self::default() }
    }

    /// The same, after so long.
    pub fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::new(reply)
    }
}

// === impl Reply ===

impl Reply {
    /// Whether it lets a probe pass, if it comes in time.
    pub fn passes(self) -> bool {
        match self {
            Self::Pass => true,
            Self::Status(status) => (200..400).contains(&status),
            Self::ExitCode(code) => code == 0,
            // One that stays here is no answer yet.
            Self::Redirect(location) => !location.starts_with('/'),
            Self::Fail | Self::Refuse | Self::Hang => false,
        }
    }

    /// As an HTTP status.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Status(status) => status,
            Self::Redirect(_) => 302,
            other if other.passes() => 200,
            _ => 500,
        }
    }

    /// As an exit code.
    pub(crate) fn exit_code(self) -> i32 {
        match self {
            Self::ExitCode(code) => code,
            other => i32::from(!other.passes()),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Fail => f.write_str("fail"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::ExitCode(code) => write!(f, "exit {code}"),
            Self::Refuse => f.write_str("refused"),
            Self::Redirect(location) => write!(f, "go to {location}"),
            Self::Hang => f.write_str("nothing"),
        }
    }
}

// === impl ImageScript ===

impl Default for ImageScript {
    fn default() -> Self {
        Self { present: false, takes: Duration::from_millis(200), failures: 0 }
    }
}
