//! Commands, attaching and ports. The runtime prepares a session on its own streaming server, which listens on loopback; the client's request
//! for an upgrade is repeated there, and then bytes are carried in both directions as they are.
//!
//! A client sees the protocol that it asked for, and nothing of the runtime: no address, no header that is not of the upgrade, no redirect.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    body::Body,
    extract::Query,
    http::{
        HeaderMap, HeaderName, Request, Response, StatusCode, Uri,
        header::{
            CONNECTION, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
            UPGRADE,
        },
    },
    response::IntoResponse,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use keelet_cri::v1;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{ContainerRef, PodRef, SessionHold, pod, pod_with};
use crate::server::{
    Local,
    failure::{Refusal, bad_request},
    session::{running, sandbox},
};

/// A streaming server is in this process or beside it, and answers at once.
const ANSWER_TAKES: Duration = Duration::from_secs(30);

/// How much is read of an answer that is no upgrade: a sentence.
const LARGEST_ANSWER: usize = 16 << 10;

/// How long a client may take to close its end after the session has ended. It may still be reading the last bytes.
const LINGER: Duration = Duration::from_secs(10);

/// Copied at once, in each direction.
const PIECE: usize = 32 << 10;

/// Ports in one request: the protocol has two channels for each, numbered in a byte. A head has room for thousands.
const MOST_PORTS: usize = 127;

/// What is repeated of the client's request.
const ASKED: [HeaderName; 6] =
    [CONNECTION, UPGRADE, STREAM_VERSION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, SEC_WEBSOCKET_PROTOCOL];

/// What is repeated of the streaming server's answer.
const ANSWERED: [HeaderName; 7] = [
    CONNECTION,
    UPGRADE,
    STREAM_VERSION,
    HeaderName::from_static("x-accepted-stream-protocol-versions"),
    SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION,
];

const STREAM_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// The parameters of exec and attach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Streams {
    command: Vec<String>,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

pub(super) async fn exec(
    local: &Local,
    of: &ContainerRef,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    check_upgrade(request.headers())?;
    let Streams { command, stdin, stdout, stderr, tty } = streams(request.uri())?;
    if command.is_empty() {
        return Err(bad_request("you must specify at least one command for the container".to_owned()));
    }
    let published = pod_with(local, of).await?;
    let container_id = running(local, &published, &of.container).await?;
    let asked = v1::ExecRequest { container_id, cmd: command, tty, stdin, stdout, stderr };
    carry(&local.runtime().exec(asked).await?, request).await
}

pub(super) async fn attach(
    local: &Local,
    of: &ContainerRef,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    check_upgrade(request.headers())?;
    let Streams { stdin, stdout, stderr, tty, .. } = streams(request.uri())?;
    let published = pod_with(local, of).await?;
    let container_id = running(local, &published, &of.container).await?;
    let asked = v1::AttachRequest { container_id, stdin, tty, stdout, stderr };
    carry(&local.runtime().attach(asked).await?, request).await
}

pub(super) async fn port_forward(
    local: &Local,
    of: &PodRef,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    check_upgrade(request.headers())?;
    let ports = ports(request.uri())?;
    let published = pod(local, of).await?;
    let sandbox = sandbox(local, &published).await?;
    carry(&local.runtime().port_forward(&sandbox, &ports).await?, request).await
}

/// A request that is no upgrade prepares no session.
fn check_upgrade(headers: &HeaderMap) -> Result<(), Refusal> {
    let lists = |name: HeaderName, wanted: &[&str]| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|word| wanted.iter().any(|w| word.trim().eq_ignore_ascii_case(w)))
    };
    if lists(CONNECTION, &["upgrade"]) && lists(UPGRADE, &["websocket", "SPDY/3.1"]) {
        return Ok(());
    }
    Err(bad_request("unable to upgrade: the request asks for neither SPDY/3.1 nor websocket".to_owned()))
}

fn pairs(uri: &Uri) -> Result<Vec<(String, String)>, Refusal> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    pairs.map(|Query(pairs)| pairs).map_err(|error| bad_request(format!("cannot decode the query: {error}")))
}

fn streams(uri: &Uri) -> Result<Streams, Refusal> {
    let pairs = pairs(uri)?;
    // An API server names them input, output and error; its own clients, and those of the CRI, as they are called elsewhere.
    let on = |names: [&str; 2]| {
        pairs.iter().any(|(key, value)| names.contains(&key.as_str()) && matches!(value.as_str(), "1" | "true"))
    };
    let tty = on(["tty", "tty"]);
    let wanted = Streams {
        command: pairs.iter().filter(|(key, _)| key == "command").map(|(_, value)| value.clone()).collect(),
        stdin: on(["input", "stdin"]),
        stdout: on(["output", "stdout"]),
        // A terminal has one output.
        stderr: on(["error", "stderr"]) && !tty,
        tty,
    };
    if !(wanted.stdin || wanted.stdout || wanted.stderr) {
        return Err(bad_request("you must specify at least 1 of stdin, stdout, stderr".to_owned()));
    }
    Ok(wanted)
}

/// The ports of a client that opens all connections at once (WebSocket v4). Others name the port with each connection.
fn ports(uri: &Uri) -> Result<Vec<i32>, Refusal> {
    let texts = pairs(uri)?.into_iter().filter(|(key, _)| key == "port").map(|(_, value)| value).collect::<Vec<_>>();
    let texts: Vec<_> = texts.iter().flat_map(|text| text.split(',')).collect();
    if texts.len() > MOST_PORTS {
        return Err(bad_request(format!("{} ports in one request; {MOST_PORTS} are allowed", texts.len())));
    }
    texts
        .into_iter()
        .map(|text| match text.parse::<u16>() {
            Ok(port @ 1..) => Ok(i32::from(port)),
            _ => Err(bad_request(format!("invalid port={text:?}: must be a number from 1 to 65535"))),
        })
        .collect()
}

/// Repeats the request on the runtime's streaming server, and carries bytes between it and the client if both upgrade.
async fn carry<B>(url: &str, mut request: Request<B>) -> Result<Response<Body>, Refusal> {
    let (address, path) = place(url)?;
    let client = hyper::upgrade::on(&mut request);
    let answer = timeout(ANSWER_TAKES, repeat(address, &path, &request)).await;
    let (answer, server) = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            // The address is for the log, not for the client.
            tracing::warn!(%address, %error, "cannot use the streaming server of the runtime");
            return Err(no_stream("the streaming server of the runtime cannot be used"));
        }
        Err(_) => return Err(no_stream("the streaming server of the runtime does not answer")),
    };
    let Some(server) = server else { return Ok(answer) };
    let hold = request.extensions().get::<SessionHold>().cloned();
    tokio::spawn(async move {
        if let Err(error) = join(client, server).await {
            tracing::debug!(%error, "streaming session ended");
        }
        drop(hold);
    });
    Ok(answer)
}

fn no_stream(message: &str) -> Refusal {
    Refusal::new(502, "RuntimeError", message.to_owned())
}

/// The address and path of a session. Elsewhere than on loopback the session would cross a network without encryption.
fn place(url: &str) -> Result<(SocketAddr, String), Refusal> {
    let uri: Option<Uri> = url.parse().ok();
    let found = uri.as_ref().and_then(|uri| {
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
        let address = SocketAddr::new(host.parse().ok()?, uri.port_u16()?);
        let plain = uri.scheme_str() == Some("http");
        (plain && address.ip().is_loopback()).then(|| (address, uri.path_and_query().map_or("/", |p| p.as_str())))
    });
    found.map(|(address, path)| (address, path.to_owned())).ok_or_else(|| {
        // Not all of it: it has the token of the session.
        let host = uri.as_ref().and_then(Uri::authority).map(ToString::to_string);
        tracing::warn!(host, "the runtime offers no plain streaming server on loopback: exec, attach and port-forward fail");
        no_stream("the runtime offers no streaming server on loopback; in containerd's configuration: stream_server_address = \"127.0.0.1\"")
    })
}

/// The answer for the client, and the server's end of the stream if it upgrades.
async fn repeat<B>(
    address: SocketAddr,
    path: &str,
    request: &Request<B>,
) -> Result<(Response<Body>, Option<OnUpgrade>), Box<dyn std::error::Error + Send + Sync>> {
    let socket = TcpStream::connect(address).await?;
    // Keystrokes are small and should be sent at once.
    let _ = socket.set_nodelay(true);
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection.with_upgrades());
    let mut again = Request::builder().method(request.method()).uri(path).header(HOST, address.to_string());
    for name in &ASKED {
        for value in request.headers().get_all(name) {
            again = again.header(name, value);
        }
    }
    let mut answer = sender.send_request(again.body(Empty::<Bytes>::new())?).await?;
    let mut shown = Response::new(Body::empty());
    for name in &ANSWERED {
        for value in answer.headers().get_all(name) {
            shown.headers_mut().append(name, value.clone());
        }
    }
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        *shown.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        return Ok((shown, Some(hyper::upgrade::on(&mut answer))));
    }
    for name in [CONNECTION, UPGRADE] {
        shown.headers_mut().remove(name);
    }
    let status = answer.status();
    if status.is_redirection() || status.is_success() {
        return Err(format!("it answers {status} to a request for an upgrade").into());
    }
    let text = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await?.to_bytes();
    let (mut parts, body) = (status, String::from_utf8_lossy(&text).into_owned()).into_response().into_parts();
    parts.headers.extend(shown.headers().clone());
    Ok((Response::from_parts(parts, body), None))
}

/// Carries bytes both ways until the session ends.
async fn join(client: OnUpgrade, server: OnUpgrade) -> io::Result<()> {
    let (client, server) = tokio::try_join!(client, server).map_err(io::Error::other)?;
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(client));
    let (mut from_server, mut to_server) = tokio::io::split(TokioIo::new(server));
    let up = copy(&mut from_client, &mut to_server);
    let down = copy(&mut from_server, &mut to_client);
    tokio::pin!(up, down);
    tokio::select! {
        ended = &mut down => {
            ended?;
            // The session is over; a client that keeps its end open holds nothing.
            timeout(LINGER, up).await.unwrap_or(Ok(()))
        }
        ended = &mut up => {
            ended?;
            // The end of input is not the end of output.
            down.await
        }
    }
}

async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..count]).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-41: no other server than one on loopback is connected to, and a refusal does not name it.
    #[test]
    fn sessions_are_on_loopback() {
        for (url, address, path) in [
            ("http://127.0.0.1:10010/exec/token", "127.0.0.1:10010", "/exec/token"),
            ("http://[::1]:4000/a?b=c", "[::1]:4000", "/a?b=c"),
        ] {
            let found = place(url).expect(url);
            assert_eq!((found.0.to_string().as_str(), found.1.as_str()), (address, path));
        }
        for url in [
            "http://192.0.2.7:10010/exec/token",
            "https://127.0.0.1:10010/exec/token",
            "http://localhost:10010/exec/token",
            "http://127.0.0.1/exec/token",
            "/exec/token",
            "",
        ] {
            let refused = crate::api::Failure::from(place(url).expect_err(url));
            assert_eq!(refused.code, 502);
            assert!(
                !refused.message.contains("192.0.2.7") && !refused.message.contains("token"),
                "{}",
                refused.message
            );
        }
    }

    /// CLU-41: whatever a streaming server answers, its client learns nothing of where it is.
    #[tokio::test]
    async fn no_address_of_the_runtime_reaches_a_client() {
        for (answer, code, words) in [
            ("302 Found\r\nLocation: http://127.0.0.1:9/secret", 502, "cannot be used"),
            ("200 OK\r\nLocation: http://127.0.0.1:9/secret", 502, "cannot be used"),
            ("404 Not Found\r\nLocation: /secret\r\nSet-Cookie: secret", 404, "session not found"),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
            let url = format!("http://{}/exec/token", listener.local_addr().expect("an address"));
            let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 17\r\n\r\nsession not found");
            tokio::spawn(async move {
                let (mut socket, _) = listener.accept().await.expect("a client");
                let mut request = [0; 512];
                let _ = socket.read(&mut request).await;
                socket.write_all(head.as_bytes()).await.expect("sent");
            });
            let request = Request::get("/exec/a/b/c").header(CONNECTION, "Upgrade").header(UPGRADE, "SPDY/3.1");
            let told =
                carry(&url, request.body(()).expect("a request")).await.unwrap_or_else(crate::server::kubelet::plain);
            assert_eq!(told.status().as_u16(), code, "{answer}");
            let (parts, body) = told.into_parts();
            let text = body.collect().await.expect("a body").to_bytes();
            let text = format!("{:?} {}", parts.headers, String::from_utf8_lossy(&text));
            assert!(text.contains(words) && !text.contains("secret") && !text.contains("127.0.0.1"), "{text}");
        }
    }

    /// CLU-40
    #[test]
    fn streams_are_named_as_an_api_server_does() {
        let read = |query: &str| streams(&format!("/exec/a/b/c?{query}").parse().expect("a URI"));
        let all = read("command=sh&command=-c&command=echo%20%24HOME&input=1&output=1&error=1").expect("streams");
        assert_eq!(all.command, ["sh", "-c", "echo $HOME"]);
        assert_eq!((all.stdin, all.stdout, all.stderr, all.tty), (true, true, true, false));
        let terminal = read("command=sh&input=1&output=1&error=1&tty=1").expect("streams");
        assert_eq!((terminal.stderr, terminal.tty), (false, true), "a terminal has one output");
        assert!(read("command=sh").is_err() && read("command=sh&output=0").is_err());
        assert_eq!(
            ports(&"/portForward/a/b?port=80&port=443,8080".parse().expect("a URI")).ok(),
            Some(vec![80, 443, 8080])
        );
        let many = format!("/portForward/a/b?port={}", vec!["80"; MOST_PORTS + 1].join(","));
        assert!(ports(&many.parse().expect("a URI")).is_err(), "more ports than the protocol has channels");
        assert!(ports(&"/portForward/a/b?port=0".parse().expect("a URI")).is_err());
    }
}
