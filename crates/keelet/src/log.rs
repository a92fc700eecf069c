//! The log of the commands that run for long: the agent, the embedded runtime, the controller, and `keelet run -v`.

mod json;

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use keelet_cli::style;
use tracing_subscriber::{EnvFilter, fmt};

/// How much is logged, and in which format.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LogOptions {
    /// Log more: -v debug messages, -vv trace messages
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Format of the log on standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// One line per message, for people
    Text,
    /// One JSON object per message: timestamp, level, message, and the fields of the message
    Json,
}

/// The crates whose log is of interest beyond warnings.
const CRATES: [&str; 9] = [
    "keelet",
    "keelet_agent",
    "keelet_api",
    "keelet_gates",
    "keelet_host",
    "keelet_serve",
    "keelet_runtime",
    "keelet_image",
    "keelet_net",
];

/// Logs to standard error from now on.
pub(crate) fn to_stderr(options: LogOptions) {
    let level = match options.verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let usual = || {
        let of_crates: String = CRATES.iter().map(|name| format!(",{name}={level}")).collect();
        // The client of the API logs every error that it also returns.
        EnvFilter::new(format!("warn,kube_client=off{of_crates}"))
    };
    let asked = std::env::var("KEELET_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = asked.as_ref().map(EnvFilter::try_new);
    let colours = io::stderr().is_terminal() && !style::is_refused(std::env::var_os("NO_COLOR").as_deref());
    let wrong = filter.as_ref().and_then(|filter| filter.as_ref().err()).map(ToString::to_string);
    let filter = filter.and_then(Result::ok).unwrap_or_else(usual);
    // The subscriber would report a line that cannot be written to the same place, and end the task that wrote it.
    let log = fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    match options.log_format {
        LogFormat::Text => log.with_ansi(colours).with_target(false).init(),
        LogFormat::Json => log.event_format(json::Json::new()).init(),
    }
    if let Some(error) = wrong {
        tracing::warn!(KEELET_LOG = asked, %error, "ignored: expected a filter such as warn,keelet_agent=debug");
    }
}
