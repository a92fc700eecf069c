//! What carries a call: a connection, or the server itself.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::{
    Status,
    body::Body,
    transport::{Channel, Endpoint, Error},
};
use tower::{Service, service_fn, util::BoxCloneSyncService};

use crate::{
    MAX_MESSAGE,
    v1::{
        image_service_server::{ImageService, ImageServiceServer, SERVICE_NAME as IMAGES},
        runtime_service_server::{RuntimeService, RuntimeServiceServer, SERVICE_NAME as RUNTIME},
    },
};

/// Both services of CRI as one tower service: for [`crate::Runtime::in_process`], or to be served on a socket.
///
/// An unknown call returns Unimplemented, as in any gRPC server.
#[derive(Clone)]
pub struct Server {
    runtime: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
    images: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
}

/// What is behind a [`crate::Runtime`].
#[derive(Clone)]
pub(crate) enum Transport {
    /// A unix socket. Connects with the first call, and again after the connection was lost.
    Socket(Channel),
    /// A server in this process. A call runs inside the caller's future and is dropped with it, as a real server drops
    /// the call of a client that disconnects.
    InProcess(Server),
}

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

// === impl Server ===

impl Server {
    /// The two services together, reading messages of up to [`MAX_MESSAGE`].
    pub fn new(runtime: impl RuntimeService, images: impl ImageService) -> Self {
        let runtime = RuntimeServiceServer::new(runtime).max_decoding_message_size(MAX_MESSAGE);
        let images = ImageServiceServer::new(images).max_decoding_message_size(MAX_MESSAGE);
        Self { runtime: BoxCloneSyncService::new(runtime), images: BoxCloneSyncService::new(images) }
    }
}

impl Service<Request<Body>> for Server {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer<Infallible>;

    /// Always ready: the generated servers have no queue.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        match path.split('/').nth(1) {
            Some(RUNTIME) => self.runtime.call(request),
            Some(IMAGES) => self.images.call(request),
            _ => {
                let unknown = Status::unimplemented(format!("{path} is not a call of CRI v1")).into_http();
                Box::pin(async { Ok(unknown) })
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

// === impl Transport ===

impl Transport {
    /// A connection that is opened by the first call. Has to be called inside a tokio runtime, which drives it.
    pub(crate) fn socket(path: PathBuf) -> Self {
        let path: Arc<PathBuf> = Arc::new(path);
        let connect = service_fn(move |_| {
            let path = Arc::clone(&path);
            async move { UnixStream::connect(path.as_path()).await.map(TokioIo::new) }
        });
        // A unix socket has no host, but gRPC requires the header.
        Self::Socket(Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect))
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Answer<Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self {
            Self::Socket(channel) => channel.poll_ready(cx),
            Self::InProcess(server) => server.poll_ready(cx).map_err(|never| match never {}),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self {
            Self::Socket(channel) => Box::pin(channel.call(request)),
            Self::InProcess(server) => {
                let answer = server.call(request);
                Box::pin(async { answer.await.map_err(|never| match never {}) })
            }
        }
    }
}
