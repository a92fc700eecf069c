//! Logs of a container that is restarted and whose files are rotated.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use futures::StreamExt;

use super::*;

fn entry(text: &str) -> String {
    format!("2026-01-01T00:00:00Z stdout F {text}\n")
}

fn write(path: &Path, texts: &[&str]) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    texts.iter().for_each(|text| file.write_all(entry(text).as_bytes()).unwrap());
}

fn compress(path: &Path, texts: &[&str]) {
    let mut file = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    texts.iter().for_each(|text| file.write_all(entry(text).as_bytes()).unwrap());
    file.finish().unwrap();
}

/// Two instances, the second with two rotated parts.
fn container() -> (tempfile::TempDir, LogRequest) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    write(&path("0.log"), &["old"]);
    compress(&path("1.log.20260101-000000.gz"), &["a", "b"]);
    write(&path("1.log.20260102-000000"), &["c", "d"]);
    write(&path("1.log"), &["e", "f"]);
    let request = LogRequest { directory: directory.path().to_owned(), ..LogRequest::default() };
    (directory, request)
}

/// A log that is written until the flag is set.
fn open_log() -> (Arc<AtomicBool>, impl Fn() -> LogState + Send + Sync + 'static) {
    let closed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&closed);
    (closed, move || if seen.load(Ordering::Relaxed) { LogState::Closed } else { LogState::Open })
}

async fn all(request: LogRequest) -> String {
    let pieces: Vec<_> = read(request, || LogState::Open).map(Result::unwrap).collect().await;
    String::from_utf8(pieces.concat()).unwrap()
}

#[tokio::test]
async fn the_parts_of_the_newest_instance_are_one_log() {
    let (_directory, request) = container();
    assert_eq!(all(request.clone()).await, "a\nb\nc\nd\ne\nf\n");
    assert_eq!(all(LogRequest { which: Which::BeforeNewest, ..request }).await, "old\n");
}

/// LOG-1: a pod that can write to the directory of logs puts links and FIFOs there.
#[tokio::test]
async fn a_log_that_is_a_link_or_a_fifo_is_not_read() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let place = tempfile::tempdir().unwrap();
    let (node, pod) = (place.path().join("node"), place.path().join("pod"));
    fs::create_dir_all(&node).unwrap();
    write(&node.join("0.log"), &["secret"]);
    for kind in ["link", "rotated link", "linked directory", "fifo"] {
        let directory = pod.join(kind);
        fs::create_dir_all(&pod).unwrap();
        if kind != "linked directory" {
            fs::create_dir(&directory).unwrap();
        }
        let link = |to: &Path, at: PathBuf| std::os::unix::fs::symlink(to, at).unwrap();
        match kind {
            "link" => link(&node.join("0.log"), directory.join("0.log")),
            "rotated link" => link(&node.join("0.log"), directory.join("0.log.20260101-000000")),
            "fifo" => mknodat(CWD, directory.join("0.log"), FileType::Fifo, Mode::RUSR, 0).unwrap(),
            _ => link(&node, directory.clone()),
        }
        let request = LogRequest { directory, ..LogRequest::default() };
        let reading = read(request, || LogState::Closed).collect::<Vec<_>>();
        let pieces = tokio::time::timeout(Duration::from_secs(60), reading).await.expect("reading does not block");
        let said: Vec<String> = pieces.iter().flatten().map(|piece| String::from_utf8_lossy(piece).into()).collect();
        assert_eq!(said.concat(), "", "{kind}: a file of the node was read");
        assert!(pieces.iter().any(Result::is_err), "{kind}: no error");
    }
}

#[tokio::test]
async fn the_last_lines_are_counted_over_all_parts() {
    let (_directory, request) = container();
    for (tail, expected) in [(0, ""), (1, "f\n"), (3, "d\ne\nf\n"), (5, "b\nc\nd\ne\nf\n"), (99, "a\nb\nc\nd\ne\nf\n")]
    {
        assert_eq!(all(LogRequest { tail: Some(tail), ..request.clone() }).await, expected, "{tail}");
    }
}

/// A log of these files, each with its own text.
fn files(files: &[(&str, &str)]) -> (tempfile::TempDir, LogRequest) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        if name.ends_with(".gz") {
            let mut file = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
            file.write_all(text.as_bytes()).unwrap();
            file.finish().unwrap();
        } else {
            fs::write(path, text).unwrap();
        }
    }
    let request = LogRequest { directory: directory.path().to_owned(), ..LogRequest::default() };
    (directory, request)
}

/// Whatever the runtime or another process wrote, the last lines are the end of all lines, and as many as asked for.
#[tokio::test]
async fn the_last_lines_are_the_end_of_all_lines() {
    let long_tag = format!("t stdout P:{} x\n", "y".repeat(200));
    let cases: [(&str, Vec<(&str, &str)>); 6] = [
        ("lines of another program", vec![("0.log.1-1.gz", "a\nb\nt stdout F c\nd\n"), ("0.log", "t stdout F e\n")]),
        ("empty lines", vec![("0.log", "\nt stdout F a\n\n\nb\n")]),
        ("a line over two parts", vec![("0.log.1-1", "t stdout F a\nt stdout P b\n"), ("0.log", "t stdout F c\n")]),
        (
            "a line over three parts",
            vec![
                ("0.log.1-1.gz", "t stdout F a\nt stdout P b\n"),
                ("0.log.1-2", "t stdout P c\n"),
                ("0.log", "t stdout F d\nt stdout F e\n"),
            ],
        ),
        ("a part that was cut off", vec![("0.log.1-1", "t stdout F a\nt stdout F b"), ("0.log", "t stdout F c\n")]),
        ("an endless head", vec![("0.log", &*long_tag), ("0.log.1-1", "t stdout F a\n")]),
    ];
    for (what, parts) in cases {
        let (_directory, request) = files(&parts);
        let whole = all(request.clone()).await;
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        for tail in 0..=lines.len() + 1 {
            let expected = lines[lines.len().saturating_sub(tail)..].concat();
            let told = all(LogRequest { tail: Some(tail as u64), ..request.clone() }).await;
            assert_eq!(told, expected, "{what}: the last {tail} of {whole:?}");
        }
    }
}

#[tokio::test]
async fn a_part_that_was_cut_off_does_not_swallow_the_next_one() {
    let (_directory, request) = files(&[("0.log.1-1", "t stdout F a\nt stdout F b"), ("0.log", "t stdout F c\n")]);
    assert_eq!(all(request).await, "a\nb\nc\n");
}

#[tokio::test]
async fn the_last_instance_that_can_be_counted_is_followed_like_any_other() {
    let (_directory, request) = files(&[("4294967295.log", "t stdout F a\n")]);
    let mut looks = 0;
    let log_state = move || {
        looks += 1;
        if looks < 3 { LogState::Open } else { LogState::Closed }
    };
    let pieces: Vec<_> = read(LogRequest { follow: true, ..request }, log_state).map(Result::unwrap).collect().await;
    assert_eq!(pieces.concat(), b"a\n");
}

#[tokio::test]
async fn parts_that_are_too_old_are_not_even_opened() {
    let (directory, request) = container();
    let old = std::time::UNIX_EPOCH;
    let compressed = directory.path().join("1.log.20260101-000000.gz");
    File::options().write(true).open(&compressed).unwrap().set_modified(old).unwrap();
    fs::write(&compressed, "no gzip").unwrap();
    File::options().write(true).open(&compressed).unwrap().set_modified(old).unwrap();
    let since = Some("2025-12-31T00:00:00Z".parse().unwrap());
    assert_eq!(all(LogRequest { since, ..request.clone() }).await, "c\nd\ne\nf\n");
    let later = Some("2026-01-01T00:00:01Z".parse().unwrap());
    assert_eq!(all(LogRequest { since: later, ..request }).await, "");
}

#[tokio::test]
async fn a_log_that_is_not_there_is_empty() {
    let request = LogRequest { directory: PathBuf::from("/nonexistent/main"), ..LogRequest::default() };
    assert!(!exists(&request).unwrap());
    assert_eq!(all(request).await, "");
}

#[tokio::test]
async fn following_a_log_shows_rotation_and_the_next_instance_and_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let ended = Arc::new(AtomicBool::new(false));
    let log_state = {
        let ended = Arc::clone(&ended);
        move || if ended.load(Ordering::Relaxed) { LogState::Closed } else { LogState::Open }
    };
    let request = LogRequest { directory: directory.path().to_owned(), follow: true, ..LogRequest::default() };
    let mut log = Box::pin(read(request, log_state));
    let mut seen = String::new();
    let mut expect = async |expected: &str| {
        let told = tokio::time::timeout(Duration::from_secs(20), async {
            while !seen.contains(expected) {
                let piece = log.next().await.expect("it goes on").expect("readable");
                seen.push_str(std::str::from_utf8(&piece).unwrap());
            }
        });
        told.await.unwrap_or_else(|_| panic!("{expected} is missing in {seen:?}"));
    };
    // It begins before there is anything.
    write(&path("0.log"), &["a"]);
    expect("a\n").await;
    // Rotated; the runtime writes a last word to the old file before it opens the new one.
    fs::rename(path("0.log"), path("0.log.20260101-000000")).unwrap();
    write(&path("0.log.20260101-000000"), &["b"]);
    write(&path("0.log"), &["c"]);
    expect("b\nc\n").await;
    // The container starts again.
    write(&path("0.log"), &["d"]);
    write(&path("1.log"), &["e"]);
    expect("d\ne\n").await;
    write(&path("1.log"), &["f"]);
    ended.store(true, Ordering::Relaxed);
    expect("f\n").await;
    assert!(log.next().await.is_none(), "it has ended");
    assert_eq!(seen, "a\nb\nc\nd\ne\nf\n");
}

/// Rotates as the agent does: the part before is compressed, then the log gets another name and a new one begins.
fn rotate(directory: &Path, before: Option<&str>, stamp: &str, texts: &[&str]) {
    let path = |name: &str| directory.join(name);
    if let Some(before) = before {
        let plain = path(&format!("0.log.{before}"));
        let mut file = GzEncoder::new(File::create(path(&format!("0.log.{before}.gz"))).unwrap(), Compression::fast());
        file.write_all(&fs::read(&plain).unwrap()).unwrap();
        file.finish().unwrap();
        fs::remove_file(plain).unwrap();
    }
    fs::rename(path("0.log"), path(&format!("0.log.{stamp}"))).unwrap();
    write(&path("0.log"), texts);
}

/// The reader emits all that was there when it began, and nothing of what came after it.
#[tokio::test]
async fn parts_that_are_rotated_before_they_are_read_are_read_all_the_same() {
    for tail in [None, Some(5), Some(3)] {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        compress(&path("0.log.1-1.gz"), &["a", "b"]);
        write(&path("0.log.1-2"), &["c", "d"]);
        write(&path("0.log"), &["e", "f"]);
        let request = LogRequest { directory: directory.path().to_owned(), tail, ..LogRequest::default() };
        let mut log = Box::pin(read(request, || LogState::Open));
        let mut seen = log.next().await.unwrap().unwrap().to_vec();
        rotate(directory.path(), Some("1-2"), "1-3", &["g"]);
        rotate(directory.path(), Some("1-3"), "1-4", &["h"]);
        while let Some(piece) = log.next().await {
            seen.extend_from_slice(&piece.unwrap());
        }
        let all = ["a\n", "b\n", "c\n", "d\n", "e\n", "f\n"];
        let expected = all[tail.map_or(0, |tail| all.len() - usize::try_from(tail).unwrap())..].concat();
        assert_eq!(String::from_utf8(seen).unwrap(), expected, "{tail:?}");
    }
}

/// A slow follower gets every part that is still there, the one in the middle too, and also if the container has ended
/// by then.
#[tokio::test]
async fn a_slow_follower_misses_no_part() {
    let collected =
        |stamp: &str, directory: &Path| fs::remove_file(directory.join(format!("0.log.{stamp}.gz"))).unwrap();
    for (what, ended, gone) in
        [("it runs", false, false), ("it has ended", true, false), ("its part was collected", true, true)]
    {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        write(&path("0.log"), &["a"]);
        let (closed, log_state) = open_log();
        let request = LogRequest { directory: directory.path().to_owned(), follow: true, ..LogRequest::default() };
        let mut log = Box::pin(read(request, log_state));
        let mut seen = log.next().await.unwrap().unwrap().to_vec();
        write(&path("0.log"), &["b"]);
        rotate(directory.path(), None, "1-1", &["c"]);
        rotate(directory.path(), Some("1-1"), "1-2", &["d"]);
        rotate(directory.path(), Some("1-2"), "1-3", &["e"]);
        if gone {
            collected("1-1", directory.path());
        }
        write(&path("1.log"), &["f"]);
        closed.store(ended, Ordering::Relaxed);
        while !seen.ends_with(b"f\n") {
            let piece = tokio::time::timeout(Duration::from_secs(20), log.next()).await;
            let Ok(Some(piece)) = piece else { panic!("{what}: only {:?}", String::from_utf8_lossy(&seen)) };
            seen.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(String::from_utf8(seen).unwrap(), "a\nb\nc\nd\ne\nf\n", "{what}");
        closed.store(true, Ordering::Relaxed);
        assert!(log.next().await.is_none(), "{what}: it has ended");
    }
}

/// Between the two steps of a rotation there is no file of the usual name.
#[tokio::test]
async fn following_that_begins_in_the_middle_of_a_rotation_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    compress(&path("0.log.1-1.gz"), &["a"]);
    write(&path("0.log.1-2"), &["b"]);
    let (closed, log_state) = open_log();
    let request = LogRequest { directory: directory.path().to_owned(), follow: true, ..LogRequest::default() };
    let mut log = Box::pin(read(request, log_state));
    let mut seen = log.next().await.unwrap().unwrap().to_vec();
    seen.extend_from_slice(&log.next().await.unwrap().unwrap());
    write(&path("0.log.1-2"), &["c"]);
    write(&path("0.log"), &["d"]);
    closed.store(true, Ordering::Relaxed);
    while let Some(piece) = log.next().await {
        seen.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(String::from_utf8(seen).unwrap(), "a\nb\nc\nd\n");
}

/// The container writes and is restarted, its log is rotated in two steps of which the second may fail, and a client
/// reads now and then: the reader emits each line once and in order, whatever comes between.
#[test]
fn whatever_comes_between_each_line_is_read_once() {
    for seed in 1..=100_u64 {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let request = LogRequest { directory: directory.path().to_owned(), follow: true, ..LogRequest::default() };
        let mut reader = Reader::new(request);
        let (mut random, mut seen) = (seed, Vec::new());
        let (mut instance, mut stamp, mut before, mut lines) = (0, 1000, None::<String>, 0);
        let write_next = |to: &Path, lines: &mut u32| {
            write(to, &[&lines.to_string()]);
            *lines += 1;
        };
        write_next(&path("0.log"), &mut lines);
        read_some(&mut reader, &mut seen);
        for _ in 0..60 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let current = path(&format!("{instance}.log"));
            match random >> 60 {
                0..6 => write_next(&current, &mut lines),
                6..10 => {
                    if let Some(before) = before.take() {
                        let plain = path(&before);
                        let made = File::create(path(&format!("{before}.gz"))).unwrap();
                        let mut file = GzEncoder::new(made, Compression::fast());
                        file.write_all(&fs::read(&plain).unwrap()).unwrap();
                        file.finish().unwrap();
                        fs::remove_file(plain).unwrap();
                    }
                    stamp += 1;
                    let rotated = format!("{instance}.log.{stamp}");
                    fs::rename(&current, path(&rotated)).unwrap();
                    // The runtime has not heard of it yet.
                    write_next(&path(&rotated), &mut lines);
                    if random >> 58 & 3 == 0 {
                        read_some(&mut reader, &mut seen);
                    }
                    if random >> 56 & 3 == 0 {
                        fs::rename(path(&rotated), &current).unwrap();
                    } else {
                        before = Some(rotated);
                    }
                    write_next(&current, &mut lines);
                }
                10 => {
                    instance += 1;
                    before = None;
                    write_next(&path(&format!("{instance}.log")), &mut lines);
                }
                _ => drop(read_some(&mut reader, &mut seen)),
            }
        }
        reader.no_more();
        while read_some(&mut reader, &mut seen) {}
        let expected: String = (0..lines).map(|line| format!("{line}\n")).collect();
        assert_eq!(String::from_utf8(seen).unwrap(), expected, "{seed}");
    }
}

/// One step. Whether there are more.
fn read_some(reader: &mut Reader, seen: &mut Vec<u8>) -> bool {
    let step = reader.step().unwrap();
    if let Step::Lines(lines) = &step {
        seen.extend_from_slice(lines);
    }
    step != Step::End
}
