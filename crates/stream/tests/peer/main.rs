//! client-go as the peer: what kubectl, crictl and critest are made of.
//!
//! Building it takes a minute or two when nothing is cached, so it does not belong to the usual tests:
//! `cargo test -p keelet-stream --test peer -- --ignored --nocapture`. Without Go it is skipped, and says so.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use keelet_stream::{Config, Streams};
use tokio::process::Command;

#[path = "../main/backend.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod backend;

use backend::{STREAMS, Server};

/// A cold build downloads client-go and compiles it on whatever machine this is.
const BUILD: Duration = Duration::from_secs(600);

/// Each scenario gives up by itself after half of this.
const RUN: Duration = Duration::from_secs(60);

async fn output(mut command: Command, within: Duration) -> Output {
    command.kill_on_drop(true);
    let ended = tokio::time::timeout(within, command.output()).await;
    ended.unwrap_or_else(|_| panic!("{command:?} did not end within {within:?}")).expect("it can be started")
}

async fn build() -> PathBuf {
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client-go-peer");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&binary).arg(".");
    go.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peer"));
    let built = output(go, BUILD).await;
    assert!(built.status.success(), "go build: {}", String::from_utf8_lossy(&built.stderr));
    binary
}

async fn has_go() -> bool {
    Command::new("go").arg("version").output().await.is_ok_and(|output| output.status.success())
}

/// The URL for a scenario.
fn url(server: &Server, scenario: &str) -> String {
    let tty = Streams { stdin: true, stdout: true, stderr: false, tty: true };
    match scenario {
        "echo" | "half-closed" => server.exec(&["cat"], STREAMS),
        "exit" | "unread" => server.exec(&["exit", "7"], STREAMS),
        "stderr" => server.exec(&["both"], STREAMS),
        "failure" => server.exec(&["nonsense"], STREAMS),
        "flood" => server.exec(&["flood", "20000000"], STREAMS),
        "resize" => server.exec(&["sizes"], tty),
        "forward" | "refused" | "given-up" => server.port_forward(&[]),
        other => panic!("no scenario {other:?}"),
    }
}

#[expect(clippy::print_stdout, reason = "the output lists the scenarios that ran")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "builds client-go, which takes minutes when nothing is cached: cargo test -p keelet-stream --test peer -- --ignored"]
async fn client_go_is_content_with_every_transport() {
    if !has_go().await {
        return keelet_report::skipped("go is not installed, so client-go cannot be built");
    }
    let binary = build().await;
    let server = backend::start(Config::default()).await;
    let all = ["echo", "exit", "unread", "half-closed", "stderr", "failure", "flood", "resize"];
    // Version 4 over WebSocket cannot signal the end of stdin.
    let without_half_close = ["exit", "unread", "stderr", "failure", "flood", "resize"];
    let old = ["echo", "exit", "half-closed", "stderr", "failure", "flood"];
    let plan: [(&str, &[&str]); 7] = [
        ("spdy", &all),
        ("spdy-v3", &old),
        ("spdy-v2", &old),
        ("websocket", &all),
        ("websocket-v4", &without_half_close),
        ("spdy", &["forward", "refused", "given-up"]),
        ("websocket", &["forward", "refused", "given-up"]),
    ];
    let mut faults = Vec::new();
    for (transport, scenarios) in plan {
        for scenario in scenarios {
            let mut peer = Command::new(&binary);
            peer.args([scenario, transport, &url(&server, scenario)]);
            let ended = output(peer, RUN).await;
            let said = String::from_utf8_lossy(&ended.stderr);
            println!("{scenario} over {transport}: {}", if ended.status.success() { "ok" } else { &said });
            if !ended.status.success() {
                faults.push(format!("{scenario} over {transport}: {said}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
