//! The log of what runs for long: the agent, the embedded runtime, and `keelet run -v`.

use std::io::{self, IsTerminal};

use keelet_cli::style;
use tracing_subscriber::{EnvFilter, fmt};

/// Logs to standard error from now on.
pub(crate) fn to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let usual = || {
        EnvFilter::new(format!(
            "warn,keelet={level},keelet_agent={level},keelet_runtime={level},keelet_image={level},keelet_net={level}"
        ))
    };
    let asked = std::env::var("KEELET_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = asked.as_ref().map(EnvFilter::try_new);
    let colours = io::stderr().is_terminal() && !style::is_refused(std::env::var_os("NO_COLOR").as_deref());
    let wrong = filter.as_ref().and_then(|filter| filter.as_ref().err()).map(ToString::to_string);
    let filter = filter.and_then(Result::ok).unwrap_or_else(usual);
    // Its complaints about a line that cannot be written would go to the same place, and end whichever task wrote it.
    let log = fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    log.with_ansi(colours).with_target(false).init();
    if let Some(error) = wrong {
        tracing::warn!(KEELET_LOG = asked, %error, "ignored: expected a filter such as warn,keelet_agent=debug");
    }
}
