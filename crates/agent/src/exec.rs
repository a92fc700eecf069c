//! Commands in containers, for exec probes and hooks: through the runtime.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;
use keelet_cri::{ErrorKind, Runtime};
use keelet_prober::{Exec, ExecError, Executed, LONGEST_OUTPUT};

/// Runs commands in containers through the runtime.
pub(crate) struct RuntimeExec(Runtime);

// === impl RuntimeExec ===

impl RuntimeExec {
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self(runtime)
    }
}

impl Exec for RuntimeExec {
    fn exec<'a>(
        &'a self,
        container_id: &'a str,
        command: &'a [String],
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Executed, ExecError>> {
        Box::pin(async move {
            match self.0.exec_sync_keeping(container_id, command, timeout, LONGEST_OUTPUT).await {
                Ok(mut done) => {
                    done.stdout.append(&mut done.stderr);
                    Ok(Executed { exit_code: done.exit_code, output: done.stdout })
                }
                Err(error) => Err(match error.kind {
                    // The runtime has killed the command, and says so. A runtime that says nothing has failed itself.
                    ErrorKind::Deadline => ExecError::TimedOut(timeout),
                    ErrorKind::Unavailable | ErrorKind::NoAnswer => ExecError::RuntimeAway(error.to_string()),
                    ErrorKind::Exhausted => ExecError::Exhausted(error.to_string()),
                    _ => ExecError::NotRun(error.to_string()),
                }),
            }
        })
    }
}

impl fmt::Debug for RuntimeExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuntimeExec")
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::bed::FakeRuntime;

    /// What the runtime does with the call.
    #[derive(Debug)]
    enum Fault {
        Answer(Code),
        Silence,
    }

    /// PROBE-19, PROBE-39: which answer, or none, of a runtime says something about the container.
    #[tokio::test(start_paused = true)]
    async fn only_what_the_runtime_says_of_a_command_is_a_failure() {
        for (fault, expected) in [
            (Fault::Answer(Code::DeadlineExceeded), "TimedOut"),
            (Fault::Answer(Code::Unavailable), "RuntimeAway"),
            (Fault::Answer(Code::ResourceExhausted), "Exhausted"),
            (Fault::Answer(Code::Unknown), "NotRun"),
            (Fault::Silence, "RuntimeAway"),
        ] {
            let fake = FakeRuntime::default();
            match fault {
                Fault::Answer(code) => fake.fail("ExecSync", Some(code)),
                Fault::Silence => fake.hold_back("ExecSync"),
            }
            let exec = RuntimeExec::new(Runtime::in_process(fake.clone(), fake));
            let error = exec.exec("c1", &["check".to_owned()], Duration::from_secs(3)).await.unwrap_err();
            let found = format!("{error:?}");
            assert!(found.starts_with(expected), "{fault:?}: {found}");
        }
    }
}
