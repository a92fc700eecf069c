//! Lifecycle hooks: they share the handlers of probes, but succeed by other criteria.

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

/// How long a hook waits before it tries again after a shortage: long enough for an attempt or a connection to end.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A hook that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookDone {
    /// The message of the event `LifecycleHTTPFallback`, if the hook asked for HTTPS and only plain HTTP worked.
    pub http_fallback: Option<String>,
}

/// Why a hook failed. The text contains no output of the hook, because that may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// Its command exited with a non-zero code.
    #[error("command exited with code {0}")]
    Exited(i32),
    /// Its command could not be started.
    #[error("command not run: {0}")]
    NotRun(String),
    /// The runtime did not answer; it is unknown whether the command ran.
    #[error("the runtime did not answer: {0}")]
    RuntimeAway(String),
    /// Its request got no response.
    #[error("{0}")]
    NoAnswer(String),
    /// Its port name is unknown.
    #[error(transparent)]
    Port(#[from] PortError),
    /// It names no host, and the pod has no address.
    #[error(transparent)]
    NoAddress(#[from] NoAddress),
    /// The node was out of a resource (descriptors, memory, ports) for the whole time limit of the hook.
    #[error("not begun: {0}")]
    Exhausted(String),
    /// It exceeded its time limit.
    #[error("hook timed out after {}", text::limit(*.0))]
    TimedOut(Duration),
    /// The API accepts a tcpSocket hook; no runtime can run it.
    #[error("tcpSocket hooks are not supported")]
    TcpSocket,
}

// === impl Prober ===

impl Prober {
    /// Runs a hook until it ends or exceeds its time limit. A hook needs no permit: there are no more hooks than
    /// containers that start or stop. A shortage of the agent is not the hook's failure, so such a hook is tried again
    /// until its time limit. Dropping the future cancels it.
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
                // The whole time limit, not the rest of it at the last try.
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

    /// The command runs unchanged: variables are expanded for probes only.
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

    /// Any response is a success, even an incomplete one. If a target answers HTTPS in plain HTTP, the hook tries again
    /// in plain HTTP: older kubelets ignored the scheme of a hook, and manifests rely on that.
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
