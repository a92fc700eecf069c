//! The client: one request, one connection.

use std::{
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream, stream::BoxStream};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::api::Failure;

/// Talks to the agent on one socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No agent is there.
    #[error("no agent answers on {}: {source}", .socket.display())]
    NoAgent {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The agent says no.
    #[error("{}", .0.message)]
    Refused(Box<Failure>),
    /// The connection broke.
    #[error("connection to the agent lost: {0}")]
    Broken(#[from] hyper::Error),
    /// The request cannot be sent.
    #[error("cannot send the request to the agent: {0}")]
    Request(#[from] http::Error),
    /// What came is no answer.
    #[error("cannot parse the agent's answer: {0}")]
    Answer(#[from] serde_json::Error),
}

/// What is sent with a request.
type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The most that is read of an answer that comes in one piece: far more than a full node reports.
const LARGEST_ANSWER: usize = 256 << 20;

// === impl ClientError ===

impl ClientError {
    /// Whether there is no agent at the moment, but may be one later: it was killed, or is being replaced.
    pub fn is_away(&self) -> bool {
        match self {
            Self::NoAgent { source, .. } => {
                matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
            }
            Self::Broken(_) => true,
            Self::Refused(_) | Self::Request(_) | Self::Answer(_) => false,
        }
    }
}

// === impl Client ===

impl Client {
    /// A client of the agent on that socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Where it asks.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks for something.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(Method::GET, path, nothing()).await
    }

    /// Asks for something to be done.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl serde::Serialize) -> Result<T, ClientError> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        self.json(Method::POST, path, whole(body)).await
    }

    /// Sends something that comes in pieces.
    pub async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<T, ClientError> {
        self.json(Method::POST, path, StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync()).await
    }

    /// Asks for something to go away. What the answer says is of no interest.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(Method::DELETE, path, nothing()).await.map(drop)
    }

    /// Asks for something that goes on: the pieces as they come, until its end or until this is dropped.
    pub async fn stream(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + use<>, ClientError> {
        Ok(pieces(self.send(Method::GET, path, nothing()).await?))
    }

    /// Asks for something to be done, and for word of it meanwhile.
    pub async fn post_stream(
        &self,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<BoxStream<'static, Result<Bytes, ClientError>>, ClientError> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        Ok(pieces(self.send(Method::POST, path, whole(body)).await?).boxed())
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, body: Body) -> Result<T, ClientError> {
        let answer = collect(self.send(method, path, body).await?).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    async fn send(&self, method: Method, path: &str, body: Body) -> Result<Incoming, ClientError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::NoAgent { socket: self.socket.clone(), source })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the answer, or with its reader.
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header(header::HOST, "keelet").body(body)?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let text = collect(answer.into_body()).await?;
        Err(ClientError::Refused(Box::new(
            serde_json::from_slice(&text).unwrap_or_else(|_| unexplained(status, &text)),
        )))
    }
}

fn pieces(body: Incoming) -> impl Stream<Item = Result<Bytes, ClientError>> + Unpin + Send {
    Box::pin(stream::unfold(body, |mut body| async {
        loop {
            match body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some((Ok(data), body));
                    }
                }
                Err(error) => return Some((Err(ClientError::from(error)), body)),
            }
        }
    }))
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, ClientError> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data()
            && all.len() + data.len() <= LARGEST_ANSWER
        {
            all.extend_from_slice(&data);
        }
    }
    Ok(all)
}

/// A refusal whose body is not in the agent's own shape.
fn unexplained(status: StatusCode, text: &[u8]) -> Failure {
    let message = format!("the agent answers {status}: {}", String::from_utf8_lossy(text).trim());
    Failure::new(status.as_u16(), "Unknown", message)
}

fn nothing() -> Body {
    whole(Bytes::new())
}

fn whole(bytes: Bytes) -> Body {
    http_body_util::Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A part of a path, so that it stays one: everything that is not plain is escaped.
pub fn escaped(part: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    part.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn names_stay_within_their_part_of_a_path() {
        assert_eq!(escaped("web-1.x_y~"), "web-1.x_y~");
        assert_eq!(escaped("a/b?c=d&é"), "a%2Fb%3Fc%3Dd%26%C3%A9");
    }
}
