//! Hostile servers. An attempt takes bounded time and memory with all of them.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{GrpcProbe, Handler, HttpGet, HttpProtocol, Scheme};
use keelet_prober::{Connection, Dial};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::{
    servers::{drain, pour, read_head, serve},
    target::{HALFWAY, LONG, SHORT, ask, ask_at, get, http_get, prober_over},
};

/// A server that sends a beginning, and then repeats the rest without end.
async fn endless(beginning: &'static str, again: &'static str) -> u16 {
    serve(move |mut socket| async move {
        let _ = read_head(&mut socket).await;
        // Large writes, so that the endless stream is also fast.
        pour(&mut socket, beginning.as_bytes(), again.repeat(4096 / again.len() + 1).as_bytes()).await;
    })
    .await
}

/// The attempt ends long before its timeout, because the amount of data is limited.
async fn assert_given_up(port: u16) {
    let (outcome, output) = get(http_get(port, "/")).await;
    assert_eq!(outcome, Outcome::Failure, "{output}");
    assert!(!output.contains("within"), "{output}");
}

/// PROBE-33, PROBE-34.
#[tokio::test]
async fn endless_headers_are_given_up() {
    assert_given_up(endless("HTTP/1.1 200 OK\r\n", "X-More: and more\r\n").await).await;
}

/// PROBE-34.
#[tokio::test]
async fn a_header_without_an_end_is_given_up() {
    assert_given_up(endless("HTTP/1.1 200 OK\r\nX-Long: ", "looooooong").await).await;
}

/// PROBE-34.
#[tokio::test]
async fn a_status_line_without_an_end_is_given_up() {
    assert_given_up(endless("HTTP/1.1 200 ", "O").await).await;
}

/// PROBE-34, VEC-32.
#[tokio::test]
async fn a_storm_of_informational_responses_is_given_up() {
    let port = endless("", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n").await;
    let (outcome, output) = get(http_get(port, "/")).await;
    assert_eq!(outcome, Outcome::Failure);
    assert!(output.ends_with("more than 256 KiB received"), "{output}");
}

/// PROBE-36.
#[tokio::test]
async fn an_endless_body_is_cut() {
    for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"] {
        let (outcome, output) = get(http_get(endless(head, "body").await, "/")).await;
        assert_eq!((outcome, output.len()), (Outcome::Success, 10240));
    }
}

/// PROBE-36: chunks that bring nothing are not read for ever.
#[tokio::test]
async fn a_chunk_whose_extension_never_ends_is_given_up() {
    let port = endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "ext").await;
    let (outcome, output) = get(http_get(port, "/")).await;
    assert_eq!(outcome, Outcome::Error, "{output}");
}

/// PROBE-31: the timeout covers the whole attempt, not each byte.
#[tokio::test]
async fn a_byte_at_a_time_is_not_enough() {
    let port = serve(|mut socket| async move {
        let _ = read_head(&mut socket).await;
        for byte in "HTTP/1.1 200 OK\r\n".bytes().chain(std::iter::repeat(b'x')) {
            if socket.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let expected = format!("GET http://127.0.0.1:{port}/: timed out after 200 ms");
    assert_eq!(ask(Handler::HttpGet(http_get(port, "/")), SHORT).await, (Outcome::Failure, expected));
}

/// PROBE-31: the same for a body.
#[tokio::test]
async fn a_body_of_a_byte_at_a_time_is_not_enough() {
    let port = serve(|mut socket| async move {
        let _ = read_head(&mut socket).await;
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while socket.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let expected = (Outcome::Failure, "timed out reading the body after 4 s".to_owned());
    assert_eq!(ask(Handler::HttpGet(http_get(port, "/")), HALFWAY).await, expected);
}

/// PROBE-34.
#[tokio::test]
async fn a_reset_before_the_answer_fails() {
    let port = serve(|mut socket| async move {
        let _ = read_head(&mut socket).await;
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nX-Half: ").await;
        let _ = socket.set_zero_linger();
    })
    .await;
    let (outcome, output) = get(http_get(port, "/")).await;
    assert_eq!(outcome, Outcome::Failure);
    assert!(output.starts_with(&format!("GET http://127.0.0.1:{port}/: conn")), "{output}");
}

/// PROBE-36. In memory, so that the reset comes after the half has been read, however busy the machine is.
#[tokio::test]
async fn a_reset_within_the_body_gives_no_result() {
    #[derive(Debug)]
    struct ResetAfterHalf;
    #[derive(Default)]
    struct Half {
        unread: &'static [u8],
        asked: bool,
        reader: Option<Waker>,
    }
    impl Dial for ResetAfterHalf {
        fn connect<'a>(&'a self, _: &'a str, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
            let unread = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf";
            let half = Half { unread, ..Half::default() };
            Box::pin(async { Ok(Box::new(half) as Box<dyn Connection>) })
        }
    }
    impl AsyncRead for Half {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if !self.asked {
                self.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            if self.unread.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            buf.put_slice(std::mem::take(&mut self.unread));
            Poll::Ready(Ok(()))
        }
    }
    impl AsyncWrite for Half {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.asked = true;
            self.reader.take().into_iter().for_each(Waker::wake);
            Poll::Ready(Ok(buf.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    let prober = prober_over(Arc::new(ResetAfterHalf));
    let report = ask_at(&prober, Some("10.0.0.1"), Handler::HttpGet(http_get(80, "/")), LONG).await.report;
    assert_eq!(report.outcome, Outcome::Error, "{}", report.output);
    assert!(report.output.starts_with("reading the body: "), "{}", report.output);
}

/// PROBE-38: pings are cheap to send, so their bytes count towards the limit.
#[tokio::test]
async fn a_storm_of_http_2_pings_is_given_up() {
    const SETTINGS: &str = "\0\0\0\x04\0\0\0\0\0";
    // Unsolicited acknowledgements of pings need no response, so nothing slows the storm down.
    const PING: &str = "\0\0\x08\x06\x01\0\0\0\0pingpong";
    let port = serve(|socket| async move {
        let (mut read, mut write) = socket.into_split();
        let pings = PING.repeat(100);
        tokio::join!(drain(&mut read), pour(&mut write, SETTINGS.as_bytes(), pings.as_bytes()));
    })
    .await;
    let h2c = HttpGet { protocol: HttpProtocol::Http2, ..http_get(port, "/") };
    let (outcome, output) = get(h2c).await;
    assert_eq!(outcome, Outcome::Failure, "{output}");
    assert!(output.ends_with("more than 256 KiB received"), "{output}");
    let grpc = Handler::Grpc(GrpcProbe { port, service: String::new(), tls: false });
    let (outcome, output) = ask(grpc, LONG).await;
    assert_eq!((outcome, output.as_str()), (Outcome::Failure, "grpc: connection error: more than 256 KiB received"));
}

/// PROBE-34: the same for TLS records without content.
#[tokio::test]
async fn endless_tls_records_are_given_up() {
    let port = serve(|mut socket| async move {
        let mut hello = [0; 512];
        let _ = socket.read(&mut hello).await;
        // The longest handshake message that a record can begin, continued for ever.
        let record: Vec<u8> = [0x16, 3, 3, 0x40, 0].into_iter().chain([0x0b, 0xff, 0xff, 0xff]).collect();
        let mut rest = vec![0; 0x4000 - 4];
        rest.splice(0..0, record);
        let mut next = vec![0x16, 3, 3, 0x40, 0];
        next.resize(5 + 0x4000, 0);
        pour(&mut socket, &rest, &next).await;
    })
    .await;
    let https = HttpGet { scheme: Scheme::Https, ..http_get(port, "/") };
    let (outcome, output) = get(https).await;
    assert_eq!(outcome, Outcome::Failure, "{output}");
    assert!(!output.contains("within"), "{output}");
}

/// A connection that is always ready, with the same bytes. Real connections are not; this shows that the timeout does
/// not depend on the socket being idle.
#[tokio::test]
async fn a_connection_that_is_never_idle_ends_too() {
    #[derive(Debug)]
    struct Busy;
    struct Always;
    impl Dial for Busy {
        fn connect<'a>(&'a self, _: &'a str, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
            Box::pin(async { Ok(Box::new(Always) as Box<dyn Connection>) })
        }
    }
    impl AsyncRead for Always {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            buf.put_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            Poll::Ready(Ok(()))
        }
    }
    impl AsyncWrite for Always {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(buf.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    let prober = prober_over(Arc::new(Busy));
    let done = ask_at(&prober, Some("10.0.0.1"), Handler::HttpGet(http_get(80, "/")), LONG).await;
    assert_eq!(done.report.outcome, Outcome::Failure, "{}", done.report.output);
}
