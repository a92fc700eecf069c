//! One exec or attach: from the streams of a transport to the plain readers and writers of a backend, and back to a
//! status on the error stream.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{oneshot, watch};

use crate::StreamError;
use crate::backend::{Attach, Backend, Exec, Failure, Io, Output, Resizes, Size, Streams};
use crate::link::{Channel, Hangup};
use crate::negotiate::Version;
use crate::spdy::Spdy;
use crate::status::{self, ExitStatus, Outcome};
use crate::ws::{Ws, WsFrame};

/// The channels over WebSocket.
pub(crate) mod channel {
    pub(crate) const STDIN: u8 = 0;
    pub(crate) const STDOUT: u8 = 1;
    pub(crate) const STDERR: u8 = 2;
    pub(crate) const ERROR: u8 = 3;
    pub(crate) const RESIZE: u8 = 4;
}

/// The header that names the purpose of a SPDY stream.
pub(crate) const STREAM_TYPE: &str = "streamtype";

/// A size is `{"Width":80,"Height":24}`. A much longer text is not a size.
const MAX_RESIZE: usize = 1024;

/// The work of a session.
pub(crate) enum Command {
    Exec(Exec),
    Attach(Attach),
}

/// The streams of a session that were opened.
#[derive(Default)]
pub(crate) struct Lines {
    stdin: Option<Channel>,
    stdout: Option<Channel>,
    stderr: Option<Channel>,
    error: Option<Channel>,
    resize: Option<Channel>,
}

/// Waits until a SPDY client opened the streams of its session.
pub(crate) async fn spdy_lines(
    spdy: &mut Spdy,
    streams: Streams,
    version: Version,
    within: Duration,
) -> Result<Lines, StreamError> {
    let mut lines = Lines::default();
    let opened = async {
        while !lines.are_complete(streams, version) {
            let incoming = spdy.accept().await.ok_or(StreamError::Hangup)?;
            let kind = incoming.headers.get(STREAM_TYPE).cloned().unwrap_or_default();
            // An unrequested stream is accepted and closed: refusing it would end the session of a client that opens
            // more streams than it needs.
            match lines.slot(&kind) {
                Some(slot) if slot.is_none() => *slot = Some(incoming.accept().await?),
                Some(_) => incoming.refuse().await,
                None => drop(incoming.accept().await?),
            }
        }
        Ok(())
    };
    tokio::time::timeout(within, opened).await.unwrap_or(Err(StreamError::NoStreams { within }))?;
    Ok(lines)
}

/// The channels that a WebSocket session has.
pub(crate) fn websocket_channels(streams: Streams) -> Vec<u8> {
    let wanted = [
        (channel::STDIN, streams.stdin),
        (channel::STDOUT, streams.stdout),
        (channel::STDERR, streams.stderr),
        (channel::ERROR, true),
        (channel::RESIZE, true),
    ];
    wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name).collect()
}

/// Takes the channels of a WebSocket session, and sends the client an empty message, for which some clients wait.
pub(crate) async fn websocket_lines(ws: &mut Ws) -> Lines {
    let mut take = |name| ws.channels.remove(&name);
    let lines = Lines {
        stdin: take(channel::STDIN),
        stdout: take(channel::STDOUT),
        stderr: take(channel::STDERR),
        error: take(channel::ERROR),
        resize: take(channel::RESIZE),
    };
    let first = match (&lines.stdout, &lines.stderr) {
        (Some(_), _) => channel::STDOUT,
        (None, Some(_)) => channel::STDERR,
        (None, None) => channel::ERROR,
    };
    let hello = WsFrame::Message { channel: Some(first), payload: bytes::Bytes::new() };
    // If the client has disconnected already, the session notices.
    let _ = ws.link.frames.send(hello).await;
    lines
}

/// Runs the session, including the last byte of its status.
pub(crate) async fn run(lines: Lines, hangup: Hangup, version: Version, command: Command, backend: Arc<dyn Backend>) {
    let (sizes, resize) = watch::channel(None);
    if let Some(channel) = lines.resize {
        tokio::spawn(follow_sizes(channel.inbound, sizes));
    }
    let (stdout, stdout_sent) = output(lines.stdout);
    let (stderr, stderr_sent) = output(lines.stderr);
    let stdin = lines.stdin.map(|channel| -> crate::Input {
        // Kept together: the end of the outbound side signals to the client that its input is no longer read.
        Box::new(tokio::io::join(channel.inbound, channel.outbound))
    });
    let mut gone = hangup.clone();
    let io = Io { stdin, stdout, stderr, resize: Resizes(resize), hangup };
    let outcome = match command {
        Command::Exec(exec) => outcome("error executing command in container", backend.exec(exec, io).await),
        Command::Attach(attach) => {
            let ended = backend.attach(attach, io).await;
            outcome("error attaching to container", ended.map(|()| ExitStatus(0)))
        }
    };
    let Some(mut error) = lines.error else { return };
    let finish = async {
        // The status comes after all output: some clients stop reading there.
        for sent in [stdout_sent, stderr_sent].into_iter().flatten() {
            let _ = sent.await;
        }
        let _ = error.outbound.write_all(&status::encode(&outcome, version)).await;
        drop(error.outbound);
        let _ = error.sent.await;
    };
    tokio::select! {
        () = finish => {}
        () = gone.wait() => {}
    }
}

fn outcome(what: &str, ended: Result<ExitStatus, Failure>) -> Outcome {
    match ended {
        Ok(status) => Outcome::Exited(status),
        Err(failure) => Outcome::Failed(format!("{what}: {failure}")),
    }
}

fn output(channel: Option<Channel>) -> (Option<Output>, Option<oneshot::Receiver<()>>) {
    match channel {
        Some(Channel { outbound, sent, .. }) => (Some(Box::new(outbound)), Some(sent)),
        None => (None, None),
    }
}

/// Reads sizes, one JSON object after the other, until the stream ends. Invalid ones are skipped.
async fn follow_sizes(mut stream: DuplexStream, sizes: watch::Sender<Option<Size>>) {
    let mut text = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut text).await {
        let (newest, read) = newest_size(&text);
        text.drain(..read);
        if text.len() > MAX_RESIZE {
            text.clear();
        }
        if let Some(size) = newest
            && sizes.send(Some(size)).is_err()
        {
            return;
        }
    }
}

/// The last complete size in `text`, and how much of it was read.
fn newest_size(text: &[u8]) -> (Option<Size>, usize) {
    let mut objects = serde_json::Deserializer::from_slice(text).into_iter::<Size>();
    let mut newest = None;
    loop {
        let read = objects.byte_offset();
        match objects.next() {
            Some(Ok(size)) => newest = Some(size),
            Some(Err(error)) if !error.is_eof() => return (newest, text.len()),
            Some(Err(_)) | None => return (newest, read),
        }
    }
}

// === impl Lines ===

impl Lines {
    fn slot(&mut self, kind: &str) -> Option<&mut Option<Channel>> {
        match kind {
            "stdin" => Some(&mut self.stdin),
            "stdout" => Some(&mut self.stdout),
            "stderr" => Some(&mut self.stderr),
            "error" => Some(&mut self.error),
            "resize" => Some(&mut self.resize),
            _ => None,
        }
    }

    fn are_complete(&self, streams: Streams, version: Version) -> bool {
        let resize = streams.tty && version >= Version::V3;
        let there = |wanted: bool, line: &Option<Channel>| !wanted || line.is_some();
        there(true, &self.error)
            && there(streams.stdin, &self.stdin)
            && there(streams.stdout, &self.stdout)
            && there(streams.stderr, &self.stderr)
            && there(resize, &self.resize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_complete_size_counts() {
        let size = |width, height| Some(Size { width, height });
        for (text, newest, read) in [
            ("", None, 0),
            (r#"{"Width":80,"#, None, 0),
            (r#"{"Width":80,"Height":24}"#, size(80, 24), 24),
            (r#"{"Width":80,"Height":24}{"Width":132,"Height":50}"#, size(132, 50), 49),
            ("{\"Width\":80,\"Height\":24}\n{\"Wid", size(80, 24), 24),
            ("nonsense", None, 8),
            (r#"{"Width":-1,"Height":24}"#, None, 24),
            (r#"{"Width":70000,"Height":24}"#, None, 27),
        ] {
            assert_eq!(newest_size(text.as_bytes()), (newest, read), "{text}");
        }
    }

    /// Writes more than fits into all pipes and queues.
    struct Flood;

    const FLOOD: usize = 1_000_000;

    impl Backend for Flood {
        fn exec(&self, _: Exec, io: Io) -> crate::BoxFuture<'_, Result<ExitStatus, Failure>> {
            Box::pin(async move {
                io.stdout.ok_or("no stdout")?.write_all(&vec![b'x'; FLOOD]).await?;
                Ok(ExitStatus(0))
            })
        }

        fn attach(&self, _: Attach, _: Io) -> crate::BoxFuture<'_, Result<(), Failure>> {
            unreachable!("no test attaches")
        }

        fn port_forward(
            &self,
            _: String,
            _: u16,
            _: Box<dyn crate::Duplex>,
        ) -> crate::BoxFuture<'_, Result<(), Failure>> {
            unreachable!("no test forwards")
        }
    }

    #[tokio::test]
    async fn the_status_comes_after_all_output_also_to_a_slow_client() {
        let streams = Streams { stdout: true, ..Streams::default() };
        let exec = Exec { container: "c".into(), cmd: vec!["flood".into()], streams };
        let (near, mut far) = tokio::io::duplex(1024);
        let framing = crate::ws::Framing::Channels { close_signal: true };
        let names = websocket_channels(streams);
        let mut ws = crate::ws::channels(near, crate::link::Role::Server, framing, names, Duration::from_secs(60));
        tokio::spawn(async move {
            let lines = websocket_lines(&mut ws).await;
            run(lines, ws.link.hangup.clone(), Version::V5, Command::Exec(exec), Arc::new(Flood)).await;
            ws.link.end(Ws::goodbye()).await;
        });
        let mut received = 0;
        loop {
            let _binary = far.read_u8().await.unwrap();
            let length = match far.read_u8().await.unwrap() {
                126 => usize::from(far.read_u16().await.unwrap()),
                short => usize::from(short),
            };
            let mut payload = vec![0; length];
            far.read_exact(&mut payload).await.unwrap();
            match payload[0] {
                channel::STDOUT => received += length - 1,
                _ => break assert_eq!(received, FLOOD),
            }
        }
    }
}
