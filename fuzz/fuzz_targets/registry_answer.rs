//! Answers of a registry, from a hostile registry or a proxy in between.
//!
//! The parts of the input answer, in this order: the answer about the version of the protocol, the one to a request for a token, the one to a request
//! for the manifest; the others are blobs. A part that begins with `HTTP/` is sent as it is, others are the body of a success.
//! `DIGEST3` in a part stands for the digest of the part with that number and `HOST` for the registry, so that manifests can
//! be right. A pull ends, an image is taken whole or not at all, and nothing stays of one that is refused.

#![no_main]

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use keelet_fuzz::{parts, store};
use keelet_image::{Auth, PullOptions};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};
use tokio::runtime::{Builder, Runtime};

/// What is answered now.
#[derive(Default)]
struct Answers {
    version: Vec<u8>,
    token: Vec<u8>,
    manifest: Vec<u8>,
    blobs: Vec<(String, Vec<u8>)>,
}

struct Registry {
    host: String,
    answers: Arc<Mutex<Answers>>,
    runtime: Runtime,
}

static REGISTRY: OnceLock<Registry> = OnceLock::new();
const MOST_PARTS: usize = 9;

fuzz_target!(
    init: prepare(),
    |input: &[u8]| {
        let registry = REGISTRY.get().expect("prepared");
        *registry.answers.lock().expect("not poisoned") = Answers::of(input, &registry.host);
        let mut options = PullOptions::default();
        options.plain_http.insert(registry.host.clone());
        options.retry_pause = Duration::from_millis(1);
        (options.read_timeout, options.progress_timeout) = (Duration::from_secs(1), Duration::from_secs(2));
        let reference = format!("{}/team/app:v1", registry.host);
        let auth = Auth::Basic { username: "name".to_owned(), password: "password".to_owned() };
        store::check_pull(|store| {
            registry.runtime.block_on(store.pull(&reference, Some(auth), &options, |_| {}))
        });
    }
);

fn prepare() {
    store::prepare();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback interface");
    let host = listener.local_addr().expect("its address").to_string();
    let answers = Arc::new(Mutex::new(Answers::default()));
    let served = Arc::clone(&answers);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answers = Arc::clone(&served);
            std::thread::spawn(move || serve(stream, &answers));
        }
    });
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    assert!(REGISTRY.set(Registry { host, answers, runtime }).is_ok(), "prepared twice");
}

/// Answers one request, and closes the connection.
fn serve(mut stream: TcpStream, answers: &Mutex<Answers>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|part| part == b"\r\n\r\n") && request.len() < 64 * 1024 {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&buffer[..count]),
        }
    }
    let path = String::from_utf8_lossy(&request).split(' ').nth(1).unwrap_or_default().to_owned();
    let answer = answers.lock().expect("not poisoned").to(&path);
    let _ = stream.write_all(&answer);
}

fn digest_of(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Puts one text in the place of another.
fn replace(content: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut rest = content;
    while let Some(at) = rest.windows(from.len()).position(|part| part == from) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

// === impl Answers ===

impl Answers {
    fn of(input: &[u8], host: &str) -> Self {
        let mut parts: Vec<Vec<u8>> = parts::split(input, MOST_PARTS).into_iter().map(<[u8]>::to_vec).collect();
        parts.resize(MOST_PARTS, Vec::new());
        // From the last to the first: a part names those behind it.
        for index in (0..MOST_PARTS).rev() {
            let mut part = replace(&parts[index], b"HOST", host.as_bytes());
            for (named, other) in parts.iter().enumerate().skip(index + 1) {
                part = replace(&part, format!("DIGEST{named}").as_bytes(), digest_of(other).as_bytes());
            }
            parts[index] = part;
        }
        let mut parts = parts.into_iter();
        let mut next = || parts.next().unwrap_or_default();
        let (version, token, manifest) = (next(), next(), next());
        Self { version, token, manifest, blobs: parts.map(|blob| (digest_of(&blob), blob)).collect() }
    }

    fn to(&self, path: &str) -> Vec<u8> {
        let blob = || self.blobs.iter().find(|(digest, _)| path.contains(digest.as_str())).map(|(_, blob)| blob);
        let content = match path {
            "/v2/" => Some(&self.version),
            _ if path.contains("/manifests/") => Some(&self.manifest),
            _ if path.contains("/blobs/") => blob(),
            _ => Some(&self.token),
        };
        match content {
            None => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(),
            Some(raw) if raw.starts_with(b"HTTP/") => raw.clone(),
            Some(body) => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                [head.as_bytes(), body].concat()
            }
        }
    }
}
