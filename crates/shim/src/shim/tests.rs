//! Exits, adoption and writing of states, without processes.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    time::Instant,
};

use keelet_linux::{ProcessRef, cgroup::Mounts};
use nix::sys::{signal::SigSet, signalfd::SignalFd};

use super::{Container, Output, RETRY, Shim};
use crate::{
    create::{STDERR, STDOUT},
    protocol::{Answer, Exit, START_OPTIONS, STATE, StartOptions, State, container_dir, read, write},
};

/// A shim without clients. It must not reap: this process has children of other tests.
fn shim(dir: &Path) -> Shim {
    let listener = UnixListener::bind(dir.join("shim.sock")).expect("a socket");
    let signals = SignalFd::new(&SigSet::empty()).expect("no signals");
    Shim::new(dir.to_owned(), Mounts::V2(dir.join("cgroups")), listener, signals)
}

/// A connection whose request is being handled, and its other end.
fn request(shim: &mut Shim) -> (u64, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    theirs.set_nonblocking(true).expect("set");
    let number = shim.add_connection(ours);
    (number, theirs)
}

fn answers(client: &mut UnixStream) -> Vec<Answer> {
    let mut text = String::new();
    // The connection may still be open, so reading ends with an error.
    let _ = client.read_to_string(&mut text);
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Reads reports until the client has been answered: a process that another test has just forked may hold the other end of the report
/// until it executes its program.
fn answers_of(shim: &mut Shim, client: &mut UnixStream) -> Vec<Answer> {
    for _ in 0..6000 {
        shim.read_reports();
        let answered = answers(client);
        if !answered.is_empty() {
            return answered;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Vec::new()
}

/// A PID that no process has: it is above the kernel's limit.
const EXITED: u32 = (1 << 22) + 7;

/// A command may exit before the shim has read the report with its PID. Its wait status is kept until then.
#[test]
fn a_child_that_is_reaped_before_its_report_is_read_has_its_exit_code() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut shim = shim(directory.path());
    let (number, mut client) = request(&mut shim);
    let mut report = shim.expect_command(number);
    shim.child_exited(EXITED, 7 << 8);
    assert_eq!(answers(&mut client), [], "the report is still outstanding");
    writeln!(report, "pid {EXITED}").expect("written");
    drop(report);
    match answers_of(&mut shim, &mut client).as_slice() {
        [Answer::Running { pid: EXITED }, Answer::Ended { exit, .. }] => {
            assert_eq!(exit.code, Some(7), "its exit code")
        }
        other => panic!("expected Running, then Ended; the shim answered {other:?}"),
    }
    assert!(shim.commands.is_empty(), "the command has exited and is still listed");
    assert!(shim.unclaimed.is_empty(), "the status was used, and the PID may be reused");
}

/// The report may also have arrived and not been read when the child is reaped.
#[test]
fn a_report_that_has_arrived_is_read_before_a_status_is_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut shim = shim(directory.path());
    let (number, mut client) = request(&mut shim);
    let mut report = shim.expect_command(number);
    writeln!(report, "pid {EXITED}").expect("written");
    drop(report);
    shim.child_exited(EXITED, 7 << 8);
    let answered = answers(&mut client);
    let both = matches!(answered.as_slice(), [Answer::Running { .. }, Answer::Ended { .. }]);
    assert!(both, "expected Running and Ended; the shim answered {answered:?}");
    // No report is outstanding now: the exit of any other child is ignored.
    shim.child_exited(EXITED + 1, 0);
    assert!(shim.unclaimed.is_empty(), "a status was kept for a later process with the same PID");
}

/// A container that exits as soon as it runs.
#[test]
fn a_container_that_is_reaped_before_its_report_is_read_has_its_exit_code() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut shim = shim(directory.path());
    let dir = container_dir(directory.path(), "a");
    fs::create_dir_all(&dir).expect("made");
    let (number, mut client) = request(&mut shim);
    let mut report = shim.expect_container(number, "a");
    shim.child_exited(EXITED, 7 << 8);
    writeln!(report, "pid {EXITED}").expect("written");
    drop(report);
    assert_eq!(answers_of(&mut shim, &mut client), [Answer::Running { pid: EXITED }]);
    let state = read::<State>(&dir.join(STATE)).expect("written");
    assert_eq!(state.exit.map(|exit| exit.code), Some(Some(7)), "{state:?}");
    assert!(shim.containers.is_empty(), "the container has exited and is still listed as running");
}

fn running() -> State {
    State { process: ProcessRef { pid: 7, ticks: 99, boot: None }, started_at: 1, exit: None }
}

#[test]
fn a_container_with_missing_files_is_adopted_and_the_error_names_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut shim = shim(directory.path());
    let dir = container_dir(directory.path(), "a");
    fs::create_dir_all(&dir).expect("made");
    write(&dir.join(STATE), &running()).expect("written");
    write(&dir.join(START_OPTIONS), &StartOptions { stdin: true, ..StartOptions::default() }).expect("written");
    for pipe in [STDOUT, STDERR] {
        fs::write(dir.join(pipe), "").expect("written");
    }
    let pidfd = fs::File::open(&dir).expect("any").into();
    let ids = ["a", "b", "c"].map(str::to_owned);
    let error = shim.adopt(&ids, vec![pidfd]).expect_err("no standard input and no configuration").to_string();
    assert!(shim.containers.contains_key("a"), "{error}");
    assert!(error.contains("no pidfd for the containers b, c"), "{error}");
}

#[test]
fn a_state_that_cannot_be_written_is_retried_at_an_interval() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut shim = shim(directory.path());
    let dir = container_dir(directory.path(), "a");
    // A directory in the place of the file.
    fs::create_dir_all(dir.join(STATE)).expect("made");
    let (start, ended) = (Instant::now(), Exit { code: Some(7), at: 2, oom: false });
    shim.unwritten.insert("a".to_owned(), State { exit: Some(ended), ..running() });
    shim.write_exits(start);
    assert!(shim.unwritten.contains_key("a"));
    fs::remove_dir(dir.join(STATE)).expect("removed");
    shim.retry_writes(start + RETRY / 2);
    assert!(shim.unwritten.contains_key("a"), "too early");
    shim.retry_writes(start + RETRY);
    assert!(shim.unwritten.is_empty());
    assert_eq!(read::<State>(&dir.join(STATE)).expect("written").exit, Some(ended));
}

/// A runtime that does not know of an exit, because the disk was full, requests the adoption of the container once more.
#[test]
fn an_exited_container_is_not_adopted_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut shim = shim(directory.path());
    let dir = container_dir(directory.path(), "a");
    fs::create_dir_all(&dir).expect("made");
    write(&dir.join(STATE), &running()).expect("written");
    let ended = Exit { code: Some(7), at: 2, oom: false };
    shim.unwritten.insert("a".to_owned(), State { exit: Some(ended), ..running() });
    let pidfd = fs::File::open(&dir).expect("any").into();
    shim.adopt(&["a".to_owned()], vec![pidfd]).expect("nothing to do");
    assert!(!shim.containers.contains_key("a"), "an exited container is listed as running");
    assert!(shim.unwritten.contains_key("a"), "its exit is kept until it can be written");
}

/// A container that exits with 0 was not OOM killed, whatever happened to one of its other processes.
#[test]
fn only_a_container_that_failed_was_oom_killed() {
    for (code, oom_kills, expected) in
        [(Some(0), 1, false), (Some(137), 1, true), (Some(1), 1, true), (None, 1, true), (Some(137), 0, false)]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let mut shim = shim(directory.path());
        let cgroup = directory.path().join("cgroups/pod");
        fs::create_dir_all(&cgroup).expect("made");
        fs::write(cgroup.join("memory.events"), format!("oom 9\noom_kill {oom_kills}\n")).expect("written");
        let dir = container_dir(directory.path(), "a");
        fs::create_dir_all(&dir).expect("made");
        let State { process, started_at, .. } = running();
        let (cgroup, output) = (Some("/pod".to_owned()), Output::none(None));
        let container = Container { process, pidfd: None, adopted: false, started_at, cgroup, output };
        shim.containers.insert("a".to_owned(), container);
        shim.container_exited("a", code);
        let exit = read::<State>(&dir.join(STATE)).expect("written").exit.expect("an exit");
        assert_eq!((exit.code, exit.oom), (code, expected), "{oom_kills} processes were OOM killed");
    }
}
