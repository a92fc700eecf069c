//! `keelet events`: what happened to pods.

use anyhow::Result;

use crate::{
    ask,
    exit::ExitStatus,
    get::{self, Kind, Wanted},
};

/// List events of pods, the newest last
///
/// The newest 512 events are kept, also those of deleted pods and those of earlier agent runs. `keelet timeline` and
/// `keelet why` show what happened before, and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 success, 1 no agent, 2 wrong usage.\n\n\
                        Examples:\n  keelet events\n  keelet events -A -w\n  \
                        keelet events --for pod/web -n shop")]
pub struct Args {
    /// Only events of this pod
    #[arg(long = "for", value_name = "pod/NAME", value_parser = pod)]
    of: Option<String>,
    #[command(flatten)]
    how: get::How,
}

/// Answers and prints.
pub fn run(args: &Args) -> Result<ExitStatus> {
    let wanted = Wanted { pod: args.of.clone(), ..Wanted::default() };
    ask::run(get::show_wanted(Kind::Events, &wanted, &args.how))
}

/// Text that does not name a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid pod {0:?}: expected pod/NAME; only pods have events")]
struct InvalidPod(String);

/// The name of a pod, which is written with its kind as for kubectl, or alone.
fn pod(text: &str) -> Result<String, InvalidPod> {
    match text.split_once('/') {
        None if !text.is_empty() => Ok(text.to_owned()),
        Some(("pod" | "pods" | "po", name)) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(InvalidPod(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::pod;

    #[test]
    fn events_are_those_of_a_pod() {
        assert_eq!((pod("pod/web"), pod("web")), (Ok("web".to_owned()), Ok("web".to_owned())));
        for bad in ["", "pod/", "node/n1", "a/b/c"] {
            assert!(pod(bad).unwrap_err().to_string().contains("expected pod/NAME"), "{bad:?}");
        }
    }
}
