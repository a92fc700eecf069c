//! Requests to a shim, its answers, and the files of a sandbox.
//!
//! Each connection carries one request: a line of JSON, with file descriptors beside its first byte where the request has some. Answers
//! are lines too.
//!
//! # Compatibility
//!
//! A shim keeps running over an upgrade of keelet, so the runtime talks to shims of earlier versions, and reads the files that they wrote.
//! Names of requests, answers and fields therefore never change. A new field has a default ([`Sandbox::users`], [`StartOptions::runc`]), and
//! unknown fields are ignored. An error crosses the socket as the text of [`Answer::Failed`] and nothing else: the runtime decides by the
//! kind of answer (a failure, a closed connection, no answer in time), never by the text, so the error types of each version and their
//! texts may change.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use keelet_linux::{ProcessRef, userns::Users};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The socket of a shim, in the sandbox's directory.
pub const SOCKET: &str = "shim.sock";
/// The directory of containers, in the sandbox's directory.
pub const CONTAINERS: &str = "containers";
/// The OCI configuration, in the container's directory.
pub const CONFIG: &str = "config.json";
/// The [`StartOptions`], in the container's directory.
pub const START_OPTIONS: &str = "plan.json";
/// The [`ProcessRef`] of the pause process, in the sandbox's directory.
pub const PAUSE: &str = "pause.json";
/// The [`State`], in the container's directory.
pub const STATE: &str = "state.json";

/// A request to a shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase")]
pub enum Request {
    /// Create the pod's namespaces and the pause process that holds them. Answers [`Answer::Running`].
    Sandbox(Sandbox),
    /// Create and start the container of a directory that exists. Answers [`Answer::Running`].
    Start {
        /// The container.
        id: String,
    },
    /// Execute a command in a container. The request carries standard input, output and error, or none if the command gets a terminal.
    /// Answers [`Answer::Running`], with the terminal beside it, and then [`Answer::Ended`].
    Exec {
        /// The container.
        id: String,
        /// The command and its arguments; everything else is as for the container's own process.
        command: Vec<String>,
        /// Whether it gets a terminal.
        terminal: bool,
        /// The child cgroup of the container for the command, so that it can be killed with its descendants.
        cgroup: Option<String>,
    },
    /// The log file was renamed: open a new one. Answers [`Answer::Done`].
    ReopenLog {
        /// The container.
        id: String,
    },
    /// Copy the container's output to two descriptors that the request carries. Answers [`Answer::Done`], with the container's standard
    /// input or terminal beside it if it has one.
    Attach {
        /// The container.
        id: String,
    },
    /// Close the container's standard input, because its last writer has gone. Answers [`Answer::Done`].
    CloseStdin {
        /// The container.
        id: String,
    },
    /// Adopt containers that an earlier shim of this pod started; the request carries their pidfds. Known containers are left unchanged.
    /// Answers [`Answer::Done`], or [`Answer::Failed`] with what is missing of some of them.
    Adopt {
        /// The containers, in the order of the pidfds.
        ids: Vec<String>,
    },
    /// Subscribe to events: at once [`Answer::Ended`] for each exit that could not be written to disk yet, and [`Answer::Done`]; then any
    /// number of [`Answer::Started`] and [`Answer::Ended`].
    Watch,
    /// Exit. Answers [`Answer::Done`].
    Quit {
        /// Kill all containers and the pause process first.
        kill: bool,
    },
}

/// An answer of a shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub enum Answer {
    /// The process is running.
    Running {
        /// Its PID.
        pid: u32,
    },
    /// A container has started.
    Started {
        /// The container.
        id: String,
    },
    /// A container, a command or the pause process has exited.
    Ended {
        /// The container; empty for the pause process and for a command.
        id: String,
        /// Its exit status.
        exit: Exit,
    },
    /// The request is done.
    Done,
    /// The request failed.
    Failed {
        /// The error, for people.
        message: String,
    },
    /// The shim has no free descriptors. The request was not begun, which says nothing about the container.
    Exhausted,
}

/// The namespaces of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The host name, with a UTS namespace; none on the node's network.
    pub hostname: Option<String>,
    /// Whether it has a network namespace.
    pub network: bool,
    /// Whether it has an IPC namespace.
    pub ipc: bool,
    /// Whether all containers share a PID namespace.
    pub processes: bool,
    /// Sysctls of these namespaces.
    pub sysctls: Vec<(String, String)>,
    /// The ID mappings of its user namespace, if it has one.
    #[serde(default)]
    pub users: Option<Users>,
}

/// How to start a container, in addition to its OCI configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartOptions {
    /// The log file; none discards the output.
    pub log: Option<PathBuf>,
    /// Whether it has a standard input.
    pub stdin: bool,
    /// The program that creates it, with the command line of `runc`; none is libcontainer.
    #[serde(default)]
    pub runc: Option<PathBuf>,
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its first process.
    pub process: ProcessRef,
    /// When that was started, in nanoseconds since the Unix epoch.
    pub started_at: i64,
    /// Its exit; none while it runs.
    pub exit: Option<Exit>,
}

/// The exit of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code, or 128 plus the signal. None if the exit status is unknown.
    pub code: Option<i32>,
    /// When, in nanoseconds since the Unix epoch.
    pub at: i64,
    /// Whether the OOM killer killed one of its processes.
    pub oom: bool,
}

/// A container's directory in the directory of its sandbox.
pub fn container_dir(sandbox: &Path, id: &str) -> PathBuf {
    sandbox.join(CONTAINERS).join(id)
}

/// Reads a JSON file.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let text = fs::read(path)?;
    serde_json::from_slice(&text).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("invalid file {}: {error}", path.display()))
    })
}

/// Writes a JSON file atomically: a reader sees the old one or the new one.
pub fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(value)?)?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::{Answer, Exit, ProcessRef, Request, StartOptions, State, read, write};

    #[test]
    fn a_written_state_is_read_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state.json");
        let state = State {
            process: ProcessRef { pid: 7, ticks: 99, boot: None },
            started_at: 1,
            exit: Some(Exit { code: None, at: 2, oom: true }),
        };
        write(&path, &state).expect("written");
        assert_eq!(read::<State>(&path).expect("read"), state);
        std::fs::write(&path, "{\"process\"").expect("cut short");
        let error = read::<State>(&path).expect_err("cut short");
        let text = error.to_string();
        assert!(text.starts_with("invalid file") && text.contains("state.json: "), "{text}");
    }

    /// A shim of an earlier version keeps running after an upgrade of the agent, and a shim of a later one after a downgrade.
    #[test]
    fn lines_and_files_of_other_versions_are_read() {
        let earlier = r#"{"do":"sandbox","hostname":"a","network":true,"ipc":true,"processes":false,"sysctls":[]}"#;
        let request: Request = serde_json::from_str(earlier).expect("without users");
        assert!(matches!(request, Request::Sandbox(sandbox) if sandbox.users.is_none() && sandbox.network));
        let options: StartOptions = serde_json::from_str(r#"{"log":"/l","stdin":true}"#).expect("without runc");
        assert!(options.stdin && options.runc.is_none());
        let state = r#"{"process":{"pid":7,"ticks":99},"started_at":1,"exit":{"code":3,"at":2,"oom":false}}"#;
        let state: State = serde_json::from_str(state).expect("without a boot ID");
        assert_eq!(state.exit.map(|exit| exit.code), Some(Some(3)));
        let later = r#"{"is":"failed","message":"no","kind":"notRunning"}"#;
        let answer: Answer = serde_json::from_str(later).expect("with an unknown field");
        assert_eq!(answer, Answer::Failed { message: "no".to_owned() });
    }

    #[test]
    fn requests_and_answers_are_lines() {
        let request = serde_json::to_string(&Request::Start { id: "a".to_owned() }).expect("JSON");
        assert_eq!(request, r#"{"do":"start","id":"a"}"#);
        let answer = serde_json::to_string(&Answer::Running { pid: 7 }).expect("JSON");
        assert_eq!(answer, r#"{"is":"running","pid":7}"#);
    }
}
