//! A pod's state in the runtime: over CRI, or from the runtime's files and /proc.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use keelet_cri::v1;
use prost::Message;
use serde_json::Value;

use crate::processes;

/// The runtime of an agent.
#[derive(Clone, Debug)]
pub enum Runs {
    /// A runtime behind a socket.
    On(keelet_cri::Runtime),
    /// The runtime in its own process.
    Embedded,
}

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its ID.
    pub id: String,
    /// Whether it can be used.
    pub ready: bool,
    /// The pod's address.
    pub address: String,
    /// The process that holds it, where that is known.
    pub pause: Option<u32>,
}

/// A container, running or exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its ID.
    pub id: String,
    /// Its name in its pod.
    pub name: String,
    /// Its attempt.
    pub attempt: u32,
    /// Whether it runs.
    pub running: bool,
    /// Its process while it runs, where that is known.
    pub pid: Option<u32>,
}

/// The label with the name of the pod.
const POD: &str = "io.kubernetes.pod.name";

/// A pod's state according to a runtime behind a socket.
pub(crate) async fn asked(
    runtime: &keelet_cri::Runtime,
    pod: &str,
) -> Result<(Vec<Sandbox>, Vec<Container>), keelet_cri::Error> {
    let label_selector = BTreeMap::from([(POD.to_owned(), pod.to_owned())]);
    let sandboxes = v1::PodSandboxFilter { label_selector: label_selector.clone(), ..Default::default() };
    let containers = v1::ContainerFilter { label_selector, ..Default::default() };
    let mut found = Vec::new();
    for sandbox in runtime.list_pod_sandbox(Some(sandboxes)).await? {
        let ready = sandbox.state() == v1::PodSandboxState::SandboxReady;
        let status = runtime.pod_sandbox_status(&sandbox.id).await?;
        let address = status.network.unwrap_or_default().ip;
        found.push(Sandbox { id: sandbox.id, ready, address, pause: None });
    }
    let containers = runtime.list_containers(Some(containers)).await?.into_iter().map(|container| {
        let running = container.state() == v1::ContainerState::ContainerRunning;
        let metadata = container.metadata.unwrap_or_default();
        Container { id: container.id, name: metadata.name, attempt: metadata.attempt, running, pid: None }
    });
    Ok((found, containers.collect()))
}

/// A pod's state according to the files of the embedded runtime and the processes of the machine.
pub(crate) fn looked_up(state: &Path, pod: &str) -> io::Result<(Vec<Sandbox>, Vec<Container>)> {
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    for directory in below(&state.join("runtime/sandboxes")) {
        // A directory without a record is a sandbox that is being created or removed.
        let (Ok(config), Ok(record)) = (fs::read(directory.join("sandbox.pb")), json(&directory.join("record.json")))
        else {
            continue;
        };
        let config = v1::PodSandboxConfig::decode(config.as_slice()).map_err(io::Error::other)?;
        if config.labels.get(POD).map(String::as_str) != Some(pod) {
            continue;
        }
        let pause = process(&record["pause"]);
        sandboxes.push(Sandbox {
            id: name(&directory),
            ready: pause.is_some() && record["stopped"] == false,
            address: record["ips"][0].as_str().unwrap_or_default().to_owned(),
            pause,
        });
        for directory in below(&directory.join("containers")) {
            let (Ok(config), true) = (fs::read(directory.join("container.pb")), directory.join("record.json").exists())
            else {
                continue;
            };
            let config = v1::ContainerConfig::decode(config.as_slice()).map_err(io::Error::other)?;
            let metadata = config.metadata.unwrap_or_default();
            // Without a state it was never started.
            let pid = json(&directory.join("state.json")).ok().and_then(|state| process(&state["process"]));
            containers.push(Container {
                id: name(&directory),
                name: metadata.name,
                attempt: metadata.attempt,
                running: pid.is_some(),
                pid,
            });
        }
    }
    Ok((sandboxes, containers))
}

/// The shim of a sandbox: the process of that sandbox whose parent does not belong to it.
pub(crate) fn shim(sandbox: &str) -> Option<u32> {
    let processes = processes::all();
    let of_it = |process: &processes::Process| {
        process.command.contains(" shim ") && process.command.ends_with(&format!("/sandboxes/{sandbox}"))
    };
    let pids: Vec<_> = processes.iter().filter(|process| of_it(process)).map(|process| process.pid).collect();
    let first = |process: &&processes::Process| of_it(process) && !pids.contains(&process.parent);
    let mut found = processes.iter().filter(first);
    // Processes that lost their shim have PID 1 as their parent; the pause process is not a shim.
    found.next_back().map(|process| process.pid)
}

fn process(reference: &Value) -> Option<u32> {
    let pid = u32::try_from(reference["pid"].as_u64()?).ok()?;
    processes::is_running(pid, reference["ticks"].as_u64()?).then_some(pid)
}

fn json(file: &Path) -> io::Result<Value> {
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

fn below(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
