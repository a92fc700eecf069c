//! `tcpSocket`.

use std::{io, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Handler, PortRef, TcpSocket};
use keelet_prober::{Connection, Dial};
use tokio::{io::AsyncReadExt, sync::mpsc};

use crate::{
    servers::{closed_port, serve},
    target::{LONG, SHORT, ask, ask_at, prober_over},
};

fn socket(port: u16) -> Handler {
    Handler::TcpSocket(TcpSocket { host: None, port: PortRef::Number(port) })
}

/// PROBE-37, SCN-U32.
#[tokio::test]
async fn an_open_port_passes_and_gets_nothing() {
    let (report, mut reported) = mpsc::channel(1);
    let port = serve(move |mut connection| {
        let report = report.clone();
        async move {
            let mut bytes = Vec::new();
            let ended = connection.read_to_end(&mut bytes).await;
            let _ = report.send((ended.is_ok(), bytes)).await;
        }
    })
    .await;
    assert_eq!(ask(socket(port), LONG).await, (Outcome::Success, String::new()));
    assert_eq!(reported.recv().await, Some((true, Vec::new())), "closed in order, and nothing sent");
}

/// PROBE-37, SCN-U32.
#[tokio::test]
async fn a_closed_port_fails() {
    let port = closed_port().await;
    let expected = format!("connecting to 127.0.0.1 port {port}: connection refused");
    assert_eq!(ask(socket(port), LONG).await, (Outcome::Failure, expected));
}

/// PROBE-31, PROBE-37.
#[tokio::test]
async fn a_connection_that_times_out_fails() {
    #[derive(Debug)]
    struct Nowhere;
    impl Dial for Nowhere {
        fn connect<'a>(&'a self, _: &'a str, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
            Box::pin(std::future::pending())
        }
    }
    let done = ask_at(&prober_over(Arc::new(Nowhere)), Some("10.0.0.1"), socket(81), SHORT).await;
    let expected = "connecting to 10.0.0.1 port 81: timed out after 200 ms";
    assert_eq!((done.report.outcome, done.report.output.as_str()), (Outcome::Failure, expected));
}

/// PROBE-32.
#[tokio::test]
async fn an_unknown_port_gives_no_result() {
    let handler = Handler::TcpSocket(TcpSocket { host: None, port: PortRef::Name("http".to_owned()) });
    let expected = "container \"main\" has no port named \"http\"".to_owned();
    assert_eq!(ask(handler, Duration::from_secs(1)).await, (Outcome::Error, expected));
}
