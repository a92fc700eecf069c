//! Processes from /proc.

use std::{fs, path::Path};

/// A process of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) command: String,
}

/// All running processes by PID, without zombies.
pub(crate) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<_> = pids.filter_map(of).collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn of(pid: u32) -> Option<Process> {
    let directory = Path::new("/proc").join(pid.to_string());
    let stat = Stat::read(&directory)?;
    let command = fs::read(directory.join("cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
    (stat.state != "Z" && stat.state != "X").then_some(Process { pid, parent: stat.parent, command })
}

/// Whether this very process runs: its PID alone may have been reused.
pub(crate) fn is_running(pid: u32, ticks: u64) -> bool {
    let stat = Stat::read(&Path::new("/proc").join(pid.to_string()));
    stat.is_some_and(|stat| stat.started == ticks && stat.state != "Z" && stat.state != "X")
}

struct Stat {
    state: String,
    parent: u32,
    started: u64,
}

// === impl Stat ===

impl Stat {
    fn read(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join("stat")).ok()?;
        // The name before it is in brackets and may contain anything.
        let mut fields = text.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.to_owned();
        let parent = fields.next()?.parse().ok()?;
        // Field 22 of the line; two fields are before the bracket and two have been read.
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, started })
    }
}
