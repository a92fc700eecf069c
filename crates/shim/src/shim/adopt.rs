//! Adopting containers of an earlier shim.

use std::os::fd::OwnedFd;

use super::{
    Container, Shim,
    error::RequestError,
    output::Output,
    starts::{cgroup_of, load_config, open_output, open_stdin},
};
use crate::{
    create::{STDERR, STDOUT},
    logfile::LogFile,
    protocol::{START_OPTIONS, STATE, StartOptions, State, container_dir, read},
};

// === impl Shim ===

impl Shim {
    /// Adopts containers with their pidfds. The output of a terminal is lost, because the terminal was closed with the earlier shim. Known
    /// containers are left unchanged. An error lists what is missing of some containers; the others are adopted all the same.
    pub(super) fn adopt(&mut self, ids: &[String], pidfds: Vec<OwnedFd>) -> Result<(), RequestError> {
        let mut problems = Vec::new();
        if let Some(without) = ids.get(pidfds.len()..).filter(|without| !without.is_empty()) {
            problems.push(format!("the request carries no pidfd for the containers {}", without.join(", ")));
        }
        for (id, pidfd) in ids.iter().zip(pidfds) {
            if self.containers.contains_key(id) || self.unwritten.contains_key(id) {
                continue;
            }
            let found = self.adopt_one(id, pidfd);
            problems.extend(found.into_iter().map(|problem| format!("container {id}: {problem}")));
        }
        if problems.is_empty() { Ok(()) } else { Err(RequestError::Adopt(problems)) }
    }

    /// Adopts a container and returns what is missing. Without its start options a container has no log, without its configuration no cgroup, without
    /// its pipe no standard input; its exit is noticed all the same.
    fn adopt_one(&mut self, id: &str, pidfd: OwnedFd) -> Vec<String> {
        let dir = container_dir(&self.dir, id);
        let state: State = match read(&dir.join(STATE)) {
            Ok(State { exit: Some(_), .. }) => return Vec::new(),
            Ok(state) => state,
            Err(error) => return vec![error.to_string()],
        };
        let mut problems = Vec::new();
        let options: StartOptions = read(&dir.join(START_OPTIONS)).unwrap_or_else(|error| {
            problems.push(error.to_string());
            StartOptions::default()
        });
        let spec = load_config(&dir).map_err(|error| problems.push(error.to_string())).ok();
        let log = options.log.clone().and_then(|path| LogFile::open(path).ok());
        let output = match (open_output(&dir.join(STDOUT)), open_output(&dir.join(STDERR))) {
            (Ok(out), Ok(err)) => {
                let stdin = open_stdin(&dir, &options).map_err(|error| problems.push(error.to_string()));
                Output::pipes(log, out, err, stdin.ok().flatten())
            }
            _ => Output::none(log),
        };
        let container = Container {
            process: state.process,
            pidfd: Some(pidfd),
            adopted: true,
            started_at: state.started_at,
            cgroup: spec.as_ref().and_then(cgroup_of),
            output,
        };
        self.containers.insert(id.to_owned(), container);
        problems
    }
}
