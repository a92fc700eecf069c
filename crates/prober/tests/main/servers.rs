//! Servers for the probes of these tests.

use std::{
    future::Future,
    io,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Serves every connection with this function; returns the port.
pub(crate) async fn serve<F, S>(serve: S) -> u16
where
    S: Fn(TcpStream) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    port
}

/// A port on which no process listens.
pub(crate) async fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// The requests that an HTTP server got, one text per request.
pub(crate) type Requests = Arc<Mutex<Vec<String>>>;

/// Reads one request head and responds with these bytes, then closes; returns the port and the requests.
pub(crate) async fn answer(respond: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (u16, Requests) {
    let requests = Requests::default();
    let (respond, notes) = (Arc::new(respond), Arc::clone(&requests));
    let port = serve(move |mut socket| {
        let (respond, notes) = (Arc::clone(&respond), Arc::clone(&notes));
        async move {
            let Ok(request) = read_head(&mut socket).await else { return };
            let response = respond(&request);
            notes.lock().unwrap().push(request);
            let _ = socket.write_all(&response).await;
            let _ = socket.shutdown().await;
            drain(&mut socket).await;
        }
    })
    .await;
    (port, requests)
}

/// Always the same response.
pub(crate) async fn always(response: impl Into<Vec<u8>>) -> u16 {
    let response = response.into();
    answer(move |_| response.clone()).await.0
}

/// Sends these bytes, then nothing more, but keeps the connection open.
pub(crate) async fn stall_after(response: impl Into<Vec<u8>>) -> u16 {
    let response = response.into();
    serve(move |mut socket| {
        let response = response.clone();
        async move {
            let _ = read_head(&mut socket).await;
            let _ = socket.write_all(&response).await;
            drain(&mut socket).await;
        }
    })
    .await
}

/// Sends these bytes at once, whatever the request is.
pub(crate) async fn blurt(bytes: impl Into<Vec<u8>>) -> u16 {
    let bytes = bytes.into();
    serve(move |mut socket| {
        let bytes = bytes.clone();
        async move {
            let _ = socket.write_all(&bytes).await;
            drain(&mut socket).await;
        }
    })
    .await
}

pub(crate) fn page(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Some Words\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

pub(crate) fn redirect(status: u16, location: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Some Words\r\nLocation: {location}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// The request line's target.
pub(crate) fn path(request: &str) -> &str {
    request.split(' ').nth(1).unwrap_or_default()
}

pub(crate) async fn read_head(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Reads until the peer closes the connection.
pub(crate) async fn drain(socket: &mut (impl AsyncRead + Unpin)) {
    let mut bytes = [0; 4096];
    while matches!(socket.read(&mut bytes).await, Ok(1..)) {}
}

/// Sends a beginning, then the same bytes until the peer closes the connection.
pub(crate) async fn pour(socket: &mut (impl AsyncWrite + Unpin), beginning: &[u8], again: &[u8]) {
    if socket.write_all(beginning).await.is_ok() {
        while socket.write_all(again).await.is_ok() {}
    }
}

/// The protocols that a TLS server may offer.
pub(crate) struct TlsServer {
    pub(crate) alpn: &'static [&'static str],
    pub(crate) versions: &'static [&'static rustls::SupportedProtocolVersion],
}

impl TlsServer {
    /// Serves every connection that completes the handshake; returns the port.
    pub(crate) async fn serve<F, S>(self, talk: S) -> u16
    where
        S: Fn(TlsStream<TcpStream>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let acceptor = self.acceptor();
        serve(move |socket| {
            let (acceptor, talk) = (acceptor.clone(), talk.clone());
            async move {
                if let Ok(stream) = acceptor.accept(socket).await {
                    talk(stream).await;
                }
            }
        })
        .await
    }

    fn acceptor(&self) -> TlsAcceptor {
        let made = rcgen::generate_simple_self_signed(vec!["other.example".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}
