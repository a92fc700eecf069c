//! Restarts: which containers are restarted, when, and with which others.

mod all;
mod backoff;
mod log_files;
mod policy;
mod request;

pub(crate) use self::{
    all::{
        BACKOFF_OF_ALL, RESTARTING_ALL, backoff_of, clean_up, describe, finish, instance_began, names_exit,
        names_trigger, notice, release, start_over,
    },
    backoff::{BackoffState, backoff_state},
    policy::{is_restartable, restarts_after},
};
pub use self::{
    all::{Cleanup, RestartAll, RestartAllStage, Startup, Summary, Trigger},
    backoff::{Backoff, BackoffConfigError, BackoffLimits},
    log_files::count_from_logs,
    policy::{Decision, RestartAllRule, on_exit},
    request::{RestartRefused, check_request},
};
