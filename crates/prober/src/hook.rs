//! Lifecycle hooks: the handlers of probes, with other notions of success.

use std::time::Duration;

use keelet_pod::{Hook, HttpGet, PortError, Scheme};
use tokio::time::{Instant, sleep};

use crate::{
    attempt::{NoAddress, Prober, Target},
    door::ExecError,
    exec,
    http::Unanswered,
    text,
};

/// How long a hook waits for the node to have again what it lacked: long enough for an attempt or a connection to end.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A hook that did what it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookDone {
    /// HTTPS was asked for, and plain HTTP was what worked: what to say in the event `LifecycleHTTPFallback`.
    pub http_fallback: Option<String>,
}

/// A hook that failed. Nothing in the text comes from the hook itself: what it prints may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// Its command ended with another exit code than zero.
    #[error("command exited with code {0}")]
    Exited(i32),
    /// Its command could not be started.
    #[error("command not run: {0}")]
    NotRun(String),
    /// The runtime did not answer; nobody knows whether the command ran.
    #[error("the runtime did not answer: {0}")]
    RuntimeAway(String),
    /// Its request was not answered.
    #[error("{0}")]
    NoAnswer(String),
    /// Its port is unknown.
    #[error(transparent)]
    Port(#[from] PortError),
    /// It names no host, and the pod has no address.
    #[error(transparent)]
    NoAddress(#[from] NoAddress),
    /// The node lacked something that it takes to ask (descriptors, memory, ports) for as long as the hook had time.
    #[error("not begun: {0}")]
    Exhausted(String),
    /// It took longer than it may.
    #[error("hook timed out after {}", text::limit(*.0))]
    TimedOut(Duration),
    /// The API accepts it; nobody can run it.
    #[error("a tcpSocket hook cannot be run")]
    TcpSocket,
}

// === impl Prober ===

impl Prober {
    /// Runs a hook to its end, or to the end of its time. It waits for no turn: there are no more hooks than containers
    /// that start or stop. What the agent lacks is not the hook's failure, so such a hook is begun again until its time is
    /// over. Dropping the future cancels it.
    pub async fn hook(
        &self,
        hook: &Hook,
        target: Target<'_>,
        timeout: Option<Duration>,
    ) -> Result<HookDone, HookError> {
        let begun = Instant::now();
        let mut left = timeout;
        loop {
            match self.try_hook(hook, target, left).await {
                Err(HookError::Exhausted(_)) if left.is_none_or(|left| left > AGAIN_AFTER) => {
                    sleep(AGAIN_AFTER).await;
                    left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
                }
                // All of its time, not what was left of it at last.
                Err(HookError::TimedOut(_)) => return Err(HookError::TimedOut(timeout.unwrap_or(exec::UNLIMITED))),
                done => return done,
            }
        }
    }

    async fn try_hook(
        &self,
        hook: &Hook,
        target: Target<'_>,
        timeout: Option<Duration>,
    ) -> Result<HookDone, HookError> {
        match hook {
            Hook::Exec { command } => self.exec_hook(command, target, timeout).await,
            Hook::HttpGet(get) => self.http_hook(get, target, timeout).await,
            Hook::Sleep(time) => sleep_hook(*time, timeout).await,
            Hook::TcpSocket(_) => Err(HookError::TcpSocket),
        }
    }

    /// The command is run as it stands: only probes have variables filled in.
    async fn exec_hook(
        &self,
        command: &[String],
        target: Target<'_>,
        within: Option<Duration>,
    ) -> Result<HookDone, HookError> {
        let within = within.unwrap_or(exec::UNLIMITED);
        match exec::run(self.exec(), target.container_id, command, within).await {
            Ok(done) if done.exit_code == 0 => Ok(HookDone::default()),
            Ok(done) => Err(HookError::Exited(done.exit_code)),
            Err(ExecError::TimedOut(after)) => Err(HookError::TimedOut(after)),
            Err(ExecError::NotRun(why)) => Err(HookError::NotRun(why)),
            Err(ExecError::RuntimeAway(why)) => Err(HookError::RuntimeAway(why)),
            Err(ExecError::Exhausted(why)) => Err(HookError::Exhausted(why)),
        }
    }

    /// Any answer will do, also half of one. A target that answers HTTPS in plain HTTP is asked again in plain HTTP: there
    /// were times when the scheme of a hook was ignored, and manifests from those times.
    async fn http_hook(
        &self,
        get: &HttpGet,
        target: Target<'_>,
        within: Option<Duration>,
    ) -> Result<HookDone, HookError> {
        let host = target.host(get.host.as_deref())?;
        let port = target.container.resolve_port(&get.port)?;
        let client = self.hook_client(target);
        let begun = Instant::now();
        let error = match client.get(get, host, port, within).await {
            Ok(_) => return Ok(HookDone::default()),
            Err(error) => error,
        };
        if get.scheme != Scheme::Https || !matches!(error, Unanswered::Transport { plain_http: true, .. }) {
            return Err(error.into());
        }
        let left = within.map(|within| within.saturating_sub(begun.elapsed()));
        client.get_in_the_clear(get, host, port, left).await?;
        Ok(HookDone { http_fallback: Some(format!("{error}; plain HTTP was tried and worked")) })
    }
}

// === impl HookError ===

impl From<Unanswered> for HookError {
    fn from(error: Unanswered) -> Self {
        match error {
            Unanswered::TimedOut { within, .. } => Self::TimedOut(within),
            Unanswered::Exhausted { .. } => Self::Exhausted(error.to_string()),
            error => Self::NoAnswer(error.to_string()),
        }
    }
}

async fn sleep_hook(time: Duration, within: Option<Duration>) -> Result<HookDone, HookError> {
    match within {
        Some(within) if within < time => {
            sleep(within).await;
            Err(HookError::TimedOut(within))
        }
        _ => {
            sleep(time).await;
            Ok(HookDone::default())
        }
    }
}
