//! What the server asks of a shim, and what is written down.
//!
//! One request goes over one connection: a line of JSON, with file descriptors beside its first byte where the request
//! has some. Answers are lines too.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use keelet_linux::{pidfd::ProcessRef, userns::Users};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Where a shim listens, in the sandbox's directory.
pub const SOCKET: &str = "shim.sock";
/// The sandbox's directory of containers.
pub const CONTAINERS: &str = "containers";
/// The OCI configuration, in the container's directory.
pub const CONFIG: &str = "config.json";
/// How to start a container, besides its configuration.
pub const PLAN: &str = "plan.json";
/// The process that holds a pod's namespaces, in the sandbox's directory.
pub const PAUSE: &str = "pause.json";
/// What became of a container.
pub const STATE: &str = "state.json";

/// What a shim can be asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase")]
pub enum Request {
    /// Make the pod's namespaces and the process that holds them. Answers [`Answer::Running`].
    Sandbox(Sandbox),
    /// Make and start the container whose directory is there. Answers [`Answer::Running`].
    Start {
        /// The container.
        id: String,
    },
    /// Run a command in a container. With the request come standard input, output and error; with a terminal, none. Answers
    /// [`Answer::Running`], with the terminal beside it, and then [`Answer::Ended`].
    Exec {
        /// The container.
        id: String,
        /// The command and its arguments; everything else is as with the container's own process.
        command: Vec<String>,
        /// Whether it gets a terminal.
        terminal: bool,
        /// The cgroup below the container's own that takes the command in, so that its whole tree can be killed.
        cgroup: Option<String>,
    },
    /// The log file was moved: open a new one. Answers [`Answer::Done`].
    ReopenLog {
        /// The container.
        id: String,
    },
    /// Send a copy of what the container says to two descriptors that come with the request. Answers [`Answer::Done`],
    /// with the container's standard input or terminal beside it if it has one.
    Attach {
        /// The container.
        id: String,
    },
    /// The last writer to the container's standard input has gone. Answers [`Answer::Done`].
    CloseStdin {
        /// The container.
        id: String,
    },
    /// Watch these processes, whose pidfds come with the request: an earlier shim of this pod started them. Those that are
    /// known stay as they are. Answers [`Answer::Done`], or what was wrong with some of them.
    Adopt {
        /// The containers, in the order of the pidfds.
        ids: Vec<String>,
    },
    /// Tell what happens: at once [`Answer::Ended`] for each end that could not be written down yet, and [`Answer::Done`];
    /// then any number of [`Answer::Started`] and [`Answer::Ended`].
    Watch,
    /// Go. Answers [`Answer::Done`].
    Quit {
        /// End what still runs first.
        kill: bool,
    },
}

/// What a shim answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub enum Answer {
    /// The process runs.
    Running {
        /// Its number.
        pid: u32,
    },
    /// A container has started.
    Started {
        /// The container.
        id: String,
    },
    /// A container or a command has ended.
    Ended {
        /// The container; empty for the pod's own process.
        id: String,
        /// How.
        exit: Exit,
    },
    /// It is done.
    Done,
    /// It is not.
    Failed {
        /// Why.
        message: String,
    },
    /// The shim has no free descriptors. What was asked for was not begun, and nothing follows from that about the container.
    Exhausted,
}

/// The namespaces of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// The host name, in a UTS namespace of its own; none on the node's network.
    pub hostname: Option<String>,
    /// A network of its own.
    pub network: bool,
    /// IPC objects of its own.
    pub ipc: bool,
    /// One process tree for all containers.
    pub processes: bool,
    /// Kernel parameters of these namespaces.
    pub sysctls: Vec<(String, String)>,
    /// Users of its own.
    #[serde(default)]
    pub users: Option<Users>,
}

/// How to start a container, besides its OCI configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The log file; none keeps nothing.
    pub log: Option<PathBuf>,
    /// Whether it reads what is written to it.
    pub stdin: bool,
    /// The program that makes it, called as `runc` is; none is libcontainer.
    #[serde(default)]
    pub runc: Option<PathBuf>,
}

/// What became of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its first process.
    pub process: ProcessRef,
    /// When that was started, in nanoseconds since 1970.
    pub started_at: i64,
    /// How it ended.
    pub exit: Option<Exit>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Its code, or 128 and the signal. None if nobody can know.
    pub code: Option<i32>,
    /// When, in nanoseconds since 1970.
    pub at: i64,
    /// Whether the kernel killed something in it for its memory.
    pub oom: bool,
}

/// A container's directory in the directory of its sandbox.
pub fn container_dir(sandbox: &Path, id: &str) -> PathBuf {
    sandbox.join(CONTAINERS).join(id)
}

/// Reads a file of JSON.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let text = fs::read(path)?;
    serde_json::from_slice(&text).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{} cannot be used: {error}", path.display()))
    })
}

/// Writes a file of JSON in one step: whoever reads it sees the old one or the new one.
pub fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(value)?)?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::{Answer, Exit, ProcessRef, Request, State, read, write};

    #[test]
    fn what_is_written_is_read_back() {
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
        assert!(error.to_string().contains("state.json cannot be used"), "{error}");
    }

    #[test]
    fn requests_and_answers_are_lines() {
        let request = serde_json::to_string(&Request::Start { id: "a".to_owned() }).expect("JSON");
        assert_eq!(request, r#"{"do":"start","id":"a"}"#);
        let answer = serde_json::to_string(&Answer::Running { pid: 7 }).expect("JSON");
        assert_eq!(answer, r#"{"is":"running","pid":7}"#);
    }
}
