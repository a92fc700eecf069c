//! Port-forward: many connections over SPDY, each a pair of streams; or one per port over WebSocket v4.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backend::Backend;
use crate::link::Channel;
use crate::session::STREAM_TYPE;
use crate::spdy::{Headers, Incoming, Spdy};
use crate::ws::Ws;

/// The header that names a port.
pub(crate) const PORT: &str = "port";

/// The header that names a connection.
pub(crate) const REQUEST_ID: &str = "requestid";

/// A port takes two channels, and channel 255 is reserved.
pub(crate) const MAX_PORTS: usize = 127;

/// How long connections continue after their client disconnected, because the data it sent last may not be delivered
/// yet.
const GRACE: Duration = Duration::from_secs(10);

/// Connections of one session at once. A browser has a few for each tab; a client that opens more waits for the first ones to end.
const MAX_CONNECTIONS: usize = 128;

/// Streams of one session that wait for their other half.
const MAX_HALVES: usize = 64;

/// Clients number their connections.
const LONGEST_REQUEST_ID: usize = 64;

/// One of the two streams of a connection, while the other is missing.
struct Half {
    kind: Kind,
    port: u16,
    channel: Channel,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Error,
}

/// The meaning of a stream's headers.
#[derive(Debug, PartialEq, Eq)]
struct Label {
    kind: Kind,
    port: u16,
    request: String,
}

/// Carries connections until the client disconnects.
pub(crate) async fn over_spdy(mut spdy: Spdy, sandbox: String, pair_within: Duration, backend: Arc<dyn Backend>) {
    let mut connections = JoinSet::new();
    let mut halves: BTreeMap<String, Half> = BTreeMap::new();
    loop {
        let oldest = halves.values().map(|half| half.until).min();
        tokio::select! {
            incoming = spdy.accept() => {
                let Some(incoming) = incoming else { break };
                // A stream that is reset leaves the table of streams, but what was made for it ends in its own time.
                if connections.len() >= MAX_CONNECTIONS || halves.len() >= MAX_HALVES {
                    tracing::debug!(%sandbox, "port-forward stream refused: too many connections in this session");
                    incoming.refuse().await;
                    continue;
                }
                if let Some((port, data, error)) = pair(incoming, &mut halves, pair_within).await {
                    connections.spawn(connection(backend.clone(), sandbox.clone(), port, data, error));
                }
            }
            () = sleep_until(oldest.unwrap_or_else(Instant::now)), if oldest.is_some() => {
                let now = Instant::now();
                for (_, half) in halves.extract_if(.., |_, half| half.until <= now) {
                    expired(half).await;
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    let _ = timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
}

/// Carries one connection per port, over channels that exist from the start.
pub(crate) async fn over_websocket(ws: &mut Ws, sandbox: &str, ports: &[u16], backend: &Arc<dyn Backend>) {
    let mut connections = JoinSet::new();
    for (index, port) in (0u8..).step_by(2).zip(ports) {
        let (Some(mut data), Some(mut error)) = (ws.channels.remove(&index), ws.channels.remove(&(index + 1))) else {
            return;
        };
        // Both channels begin with their port.
        let _ = data.outbound.write_all(&port.to_le_bytes()).await;
        let _ = error.outbound.write_all(&port.to_le_bytes()).await;
        connections.spawn(connection(backend.clone(), sandbox.to_owned(), *port, data, error));
    }
    let mut gone = ws.link.hangup.clone();
    let all = async |connections: &mut JoinSet<()>| while connections.join_next().await.is_some() {};
    tokio::select! {
        () = all(&mut connections) => return,
        () = gone.wait() => {}
    }
    let _ = timeout(GRACE, all(&mut connections)).await;
}

/// Finds the other stream of a connection. Streams with unusable headers are refused.
async fn pair(
    incoming: Incoming,
    halves: &mut BTreeMap<String, Half>,
    within: Duration,
) -> Option<(u16, Channel, Channel)> {
    let Some(Label { kind, port, request }) = label(incoming.id, &incoming.headers) else {
        tracing::debug!(headers = ?incoming.headers, "port-forward stream refused: no valid port and type");
        incoming.refuse().await;
        return None;
    };
    if halves.get(&request).is_some_and(|half| half.kind == kind) {
        incoming.refuse().await;
        return None;
    }
    let channel = incoming.accept().await.ok()?;
    let Some(half) = halves.remove(&request) else {
        halves.insert(request, Half { kind, port, channel, until: Instant::now() + within });
        return None;
    };
    Some(match kind {
        Kind::Data => (port, channel, half.channel),
        Kind::Error => (half.port, half.channel, channel),
    })
}

/// Reads the headers of a stream. Old clients name no connection: theirs follows from the IDs of its two streams, of
/// which the error stream is the first.
fn label(id: u32, headers: &Headers) -> Option<Label> {
    let kind = match headers.get(STREAM_TYPE)?.as_str() {
        "data" => Kind::Data,
        "error" => Kind::Error,
        _ => return None,
    };
    let port = headers.get(PORT)?.parse().ok().filter(|port| *port != 0)?;
    let request = match (headers.get(REQUEST_ID).filter(|request| !request.is_empty()), kind) {
        (Some(request), _) if request.len() > LONGEST_REQUEST_ID => return None,
        (Some(request), _) => request.clone(),
        (None, Kind::Error) => id.to_string(),
        (None, Kind::Data) => id.saturating_sub(2).to_string(),
    };
    Some(Label { kind, port, request })
}

async fn expired(half: Half) {
    if half.kind == Kind::Error {
        let mut channel = half.channel;
        let text = format!("the client opened no data stream for port {} in time", half.port);
        let _ = channel.outbound.write_all(text.as_bytes()).await;
    }
}

async fn connection(backend: Arc<dyn Backend>, sandbox: String, port: u16, data: Channel, mut error: Channel) {
    let Channel { inbound, outbound, mut sent, .. } = data;
    let mut forward = backend.port_forward(sandbox.clone(), port, Box::new(tokio::io::join(inbound, outbound)));
    let mut all_sent = false;
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut forward => break ended,
            sent = &mut sent, if !all_sent => match sent {
                // The pod has ended its side; the client may go on.
                Ok(()) => all_sent = true,
                // Reset by the client: the pod may keep its end open for ever.
                Err(_) => return tracing::debug!(port, %sandbox, "forwarded connection reset by the client"),
            },
        }
    };
    let reset = !all_sent && sent.await.is_err();
    match ended {
        // A browser that closes a tab is not an error; clients would take any message here as the end of all their
        // connections.
        Err(failure) if reset => tracing::debug!(%failure, port, %sandbox, "forwarded connection reset by the client"),
        Err(failure) => {
            tracing::debug!(%failure, port, %sandbox, "forwarded connection failed");
            let text = format!("error forwarding port {port} to sandbox {sandbox}: {failure}");
            let _ = error.outbound.write_all(text.as_bytes()).await;
        }
        Ok(()) => {}
    }
    drop(error.outbound);
    let _ = error.sent.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_which_connection_a_stream_belongs_to() {
        let label = |id, pairs: &[(&str, &str)]| {
            label(id, &pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let expect = |kind, port, request: &str| Some(Label { kind, port, request: request.to_owned() });
        let named = [(STREAM_TYPE, "data"), (PORT, "80"), (REQUEST_ID, "7")];
        assert_eq!(label(9, &named), expect(Kind::Data, 80, "7"));
        assert_eq!(label(1, &[(STREAM_TYPE, "error"), (PORT, "80")]), expect(Kind::Error, 80, "1"));
        assert_eq!(label(3, &[(STREAM_TYPE, "data"), (PORT, "80")]), expect(Kind::Data, 80, "1"));
        for wrong in [
            &[(STREAM_TYPE, "data")][..],
            &[(PORT, "80")],
            &[(STREAM_TYPE, "stdin"), (PORT, "80")],
            &[(STREAM_TYPE, "data"), (PORT, "0")],
            &[(STREAM_TYPE, "data"), (PORT, "65536")],
            &[(STREAM_TYPE, "data"), (PORT, "-1")],
            &[(STREAM_TYPE, "data"), (PORT, "80"), (REQUEST_ID, &"7".repeat(LONGEST_REQUEST_ID + 1))],
        ] {
            assert_eq!(label(1, wrong), None, "{wrong:?}");
        }
    }
}
