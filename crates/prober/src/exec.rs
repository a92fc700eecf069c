//! `exec`: a command in the container, judged by its exit code.

use std::{collections::BTreeMap, time::Duration};

use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Container, Pod};
use tokio::time::timeout;

use crate::{
    door::{Exec, ExecError, Executed},
    text,
};

/// The time a runtime has, beyond the command's timeout, to kill the command and to report it. Later than that the
/// runtime counts as unavailable.
const MARGIN: Duration = Duration::from_secs(10);
/// The timeout of a command without a time limit: decades, in seconds that fit every type on the way.
pub(crate) const UNLIMITED: Duration = Duration::from_secs(i32::MAX as u64);

/// Runs a command.
pub(crate) async fn run(
    exec: &dyn Exec,
    container_id: &str,
    command: &[String],
    within: Duration,
) -> Result<Executed, ExecError> {
    match timeout(within.saturating_add(MARGIN), exec.exec(container_id, command, within)).await {
        Ok(done) => done,
        Err(_) => {
            Err(ExecError::RuntimeAway(format!("no response {} after the command's timeout", text::limit(MARGIN))))
        }
    }
}

/// The outcome of a probe by the result of its command.
pub(crate) fn judge(done: Result<Executed, ExecError>) -> (Outcome, String) {
    match done {
        Ok(Executed { exit_code: 0, output }) => (Outcome::Success, text::output(&output)),
        Ok(Executed { exit_code, output }) if output.trim_ascii().is_empty() => {
            (Outcome::Failure, format!("command exited with code {exit_code}"))
        }
        Ok(Executed { output, .. }) => (Outcome::Failure, text::output(&output)),
        Err(error @ ExecError::TimedOut(_)) => (Outcome::Failure, error.to_string()),
        Err(error @ ExecError::NotRun(_)) => (Outcome::Error, error.to_string()),
        Err(error @ (ExecError::RuntimeAway(_) | ExecError::Exhausted(_))) => (Outcome::Late, error.to_string()),
    }
}

/// A probe's command with the container's own variables expanded. Only values in the manifest are known here: a
/// variable with `valueFrom` expands to nothing.
pub(crate) fn expand(command: &[String], pod: &Pod, container: &Container) -> Vec<String> {
    if !command.iter().any(|word| word.contains('$')) {
        return command.to_vec();
    }
    let variables = variables(pod, container);
    command.iter().map(|word| expand_word(word, &variables)).collect()
}

fn variables<'a>(pod: &'a Pod, container: &Container) -> BTreeMap<&'a str, &'a str> {
    let Some(spec) = &pod.source.spec else { return BTreeMap::new() };
    let init = spec.init_containers.iter().flatten();
    let Some(source) = spec.containers.iter().chain(init).find(|source| source.name == container.name) else {
        return BTreeMap::new();
    };
    let env = source.env.iter().flatten();
    env.map(|variable| (variable.name.as_str(), variable.value.as_deref().unwrap_or_default())).collect()
}

/// `$(NAME)` expands to the variable, or stays if there is none; `$$` is a dollar sign.
fn expand_word(word: &str, variables: &BTreeMap<&str, &str>) -> String {
    let mut expanded = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let reference = after.strip_prefix('(').and_then(|name| name.split_once(')'));
        (rest, _) = if let Some(after) = after.strip_prefix('$') {
            (after, expanded.push('$'))
        } else if let Some((name, after)) = reference {
            match variables.get(name) {
                Some(value) => (after, expanded.push_str(value)),
                None => (after, expanded.extend(["$(", name, ")"])),
            }
        } else {
            (after, expanded.push('$'))
        };
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PROBE-39.
    #[test]
    fn variables_are_expanded_as_in_a_container_command() {
        let variables = BTreeMap::from([("PORT", "8080"), ("EMPTY", ""), ("NESTED", "$(PORT)")]);
        for (word, expected) in [
            ("plain", "plain"),
            ("$(PORT)", "8080"),
            ("a$(PORT)b$(PORT)", "a8080b8080"),
            ("[$(EMPTY)]", "[]"),
            ("$(NESTED)", "$(PORT)"),
            ("$(UNKNOWN)", "$(UNKNOWN)"),
            ("$()", "$()"),
            ("$$(PORT)", "$(PORT)"),
            ("$$$(PORT)", "$8080"),
            ("$PORT", "$PORT"),
            ("$(PORT", "$(PORT"),
            ("cost: 5$", "cost: 5$"),
            ("$$", "$"),
            ("ü$(PORT)ü", "ü8080ü"),
        ] {
            assert_eq!(expand_word(word, &variables), expected, "{word:?}");
        }
    }
}
