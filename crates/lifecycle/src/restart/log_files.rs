//! The restart count by log files, where there is no other evidence of it (STAT-8).

/// The restart count of the next instance, by the names of the files in a container's log directory: one more than the
/// highest `<N>` of `<N>.log` and its rotated forms `<N>.log.*`; zero where there is none.
pub fn count_from_logs<'a>(names: impl IntoIterator<Item = &'a str>) -> u32 {
    names.into_iter().filter_map(log_number).max().map_or(0, |highest| highest.saturating_add(1))
}

fn log_number(name: &str) -> Option<u32> {
    let (number, rest) = name.split_once(".log")?;
    let is_log = rest.is_empty() || rest.starts_with('.');
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_log && digits { number.parse().ok() } else { None }
}
