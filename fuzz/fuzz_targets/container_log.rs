//! Logs of containers as `keelet logs` reads them: any files in any state of rotation.
//!
//! The first line of the input has the options, each further part is a file with its name in the first line. Reading
//! ends, fails only with the name of a file, and gives the same twice. The last lines are the end of all lines, and as
//! many as were asked for.

#![no_main]

use std::{fs, io::Write as _, path::Path, sync::OnceLock};

use flate2::{Compression, write::GzEncoder};
use futures::StreamExt as _;
use keelet_fuzz::parts;
use keelet_serve::logs::{self, LogState, LogRequest, Which};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

/// What a container may have written before it is asked whether more comes.
const LOOKS_WHILE_OPEN: u32 = 5;

fuzz_target!(|input: &[u8]| {
    let input = parts::split(input, 6);
    let Some((options, files)) = input.split_first() else { return };
    let directory = directory();
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        fs::remove_file(entry.path()).expect("a file of ours");
    }
    let mut whole = Vec::new();
    for file in files {
        let (name, content) = parts::title(file);
        if name.is_empty() || name.len() > 100 || name.contains(['/', '\0']) || name.starts_with('.') {
            continue;
        }
        whole.extend_from_slice(content);
        whole.push(b'\n');
        fs::write(directory.join(&name), stored(&name, content)).expect("a file of ours");
    }
    let request = request(&String::from_utf8_lossy(options), directory);
    let exists = logs::exists(&request).expect("the directory can be listed");
    let Ok(told) = read(&request) else { return };
    assert!(exists || told.is_empty() || request.follow, "lines out of nowhere");
    assert_eq!(read(&request).ok().as_deref(), Some(&*told), "another time it says something else");
    if let (Some(tail), None) = (request.tail, request.since) {
        let Ok(all) = read(&LogRequest { tail: None, ..request.clone() }) else { return };
        // With two streams, a line of one may begin before the last lines of the other. Words of no line are a stream
        // of their own.
        let kinds: std::collections::BTreeSet<_> = whole.split(|byte| *byte == b'\n').map(kind).collect();
        let one_stream = !kinds.contains(&Kind::Stderr)
            && !kinds.contains(&Kind::Unsure)
            && !(kinds.contains(&Kind::Part) && kinds.contains(&Kind::Foreign));
        if one_stream && !request.follow {
            assert_eq!(
                String::from_utf8_lossy(&told),
                String::from_utf8_lossy(last_lines(&all, tail)),
                "the last {tail} lines of {:?}",
                String::from_utf8_lossy(&all)
            );
        }
    }
});

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Stderr,
    Part,
    Whole,
    Foreign,
    Unsure,
}

/// What a line of a file is, told by its words.
fn kind(line: &[u8]) -> Kind {
    let words: Vec<&[u8]> = line.splitn(4, |byte| *byte == b' ').collect();
    match words.as_slice() {
        [b"", ..] => Kind::Foreign,
        [_, b"stderr", ..] => Kind::Stderr,
        // From some length on a beginning belongs to no line, and a time is text.
        [time, b"stdout", tags, ..] if time.len() + tags.len() > 100 || std::str::from_utf8(time).is_err() => {
            Kind::Unsure
        }
        [_, b"stdout", tags, ..] if tags.starts_with(b"F") => Kind::Whole,
        [_, b"stdout", tags, ..] if tags.starts_with(b"P") => Kind::Part,
        _ => Kind::Foreign,
    }
}

/// A directory in memory that exists as long as the process.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<std::path::PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let path = Path::new("/dev/shm").join(format!("keelet-fuzz-log-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory in memory");
        path
    })
}

/// Compressed parts are compressed, unless the fuzzer has written some bytes that look so.
fn stored(name: &str, content: &[u8]) -> Vec<u8> {
    if !name.ends_with(".gz") || content.starts_with(&[0x1f, 0x8b]) {
        return content.to_vec();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).and_then(|()| encoder.finish()).expect("memory takes everything")
}

/// `tail=3 since=2026-01-01T00:00:00Z times follow before`, in any order.
fn request(options: &str, directory: &Path) -> LogRequest {
    let mut request = LogRequest { directory: directory.to_owned(), ..LogRequest::default() };
    for word in options.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("tail", number) => request.tail = number.parse().ok(),
            ("since", time) => request.since = time.parse().ok(),
            ("times", _) => request.timestamps = true,
            ("follow", _) => request.follow = true,
            ("before", _) => request.which = Which::BeforeNewest,
            _ => {}
        }
    }
    request
}

fn read(request: &LogRequest) -> Result<Vec<u8>, ()> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME
        .get_or_init(|| Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime"));
    let mut looks = 0;
    let log_state = move || {
        looks += 1;
        if looks < LOOKS_WHILE_OPEN { LogState::Open } else { LogState::Closed }
    };
    let pieces: Vec<_> = runtime.block_on(logs::read(request.clone(), log_state).collect());
    let mut told = Vec::new();
    for piece in pieces {
        match piece {
            Ok(lines) => {
                assert!(!lines.is_empty(), "a piece of nothing");
                told.extend_from_slice(&lines);
            }
            Err(error) => {
                assert!(error.to_string().starts_with("/dev/shm/keelet-fuzz-log-"), "{error}");
                return Err(());
            }
        }
    }
    Ok(told)
}

fn last_lines(all: &[u8], count: u64) -> &[u8] {
    let lines = all.split_inclusive(|byte| *byte == b'\n').count() as u64;
    let left_out = lines.saturating_sub(count) as usize;
    let bytes: usize = all.split_inclusive(|byte| *byte == b'\n').take(left_out).map(<[u8]>::len).sum();
    &all[bytes..]
}
