//! Lifecycle hooks (API-24).

use std::time::Duration;

use k8s_openapi::api::core::v1;

use crate::{
    Container, Hook,
    path::FieldPath,
    problem::{forbidden, invalid, suspicious, unsupported},
    review::Review,
};

use super::{container::Around, probe};

/// Signals that `lifecycle.stopSignal` may name.
const SIGNALS: [&str; 31] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGWINCH",
];

/// Checks the hooks of a container and adds them to the model.
pub(super) fn build(
    raw: &v1::Container,
    container: &mut Container,
    around: &Around<'_>,
    path: &FieldPath,
    review: &mut Review<'_>,
) {
    let Some(lifecycle) = &raw.lifecycle else { return };
    let path = path.field("lifecycle");
    let mut build = |field: &'static str, raw: &Option<v1::LifecycleHandler>| {
        build_hook(raw.as_ref()?, around.grace, &path.field(field), review)
    };
    container.post_start = build("postStart", &lifecycle.post_start);
    container.pre_stop = build("preStop", &lifecycle.pre_stop);
    if let Some(signal) = &lifecycle.stop_signal {
        let path = path.field("stopSignal");
        if around.spec.os.is_none() {
            review.object(&path, forbidden("may not be set for containers without spec.os.name set"));
        }
        // Real-time signals, SIGRTMIN+3 and the like, are allowed too.
        if !SIGNALS.contains(&signal.as_str()) && !signal.starts_with("SIGRT") {
            review.object(&path, unsupported(signal, &SIGNALS));
        }
    }
}

fn build_hook(raw: &v1::LifecycleHandler, grace: u64, path: &FieldPath, review: &mut Review<'_>) -> Option<Hook> {
    let given = [
        ("exec", raw.exec.is_some()),
        ("httpGet", raw.http_get.is_some()),
        ("tcpSocket", raw.tcp_socket.is_some()),
        ("sleep", raw.sleep.is_some()),
    ];
    let first = probe::only_one(&given, path, review)?;
    let path = path.field(first);
    if let Some(exec) = &raw.exec {
        return probe::exec_command(exec, &path, review).map(|command| Hook::Exec { command });
    }
    if let Some(http) = &raw.http_get {
        return probe::http_get(http, &path, review).map(Hook::HttpGet);
    }
    if let Some(tcp) = &raw.tcp_socket {
        review.warn(&path, suspicious("the API accepts tcpSocket hooks, but they always fail at run time"));
        return probe::tcp_socket(tcp, &path, review).map(Hook::TcpSocket);
    }
    let seconds = raw.sleep.as_ref()?.seconds;
    let path = path.field("seconds");
    match u64::try_from(seconds) {
        Ok(seconds) if seconds <= grace => Some(Hook::Sleep(Duration::from_secs(seconds))),
        _ => {
            let message = format!("must be non-negative and not more than terminationGracePeriodSeconds ({grace})");
            review.object(&path, invalid(seconds, message));
            // The grace period ends a longer sleep anyway.
            Some(Hook::Sleep(Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(grace))))
        }
    }
}
