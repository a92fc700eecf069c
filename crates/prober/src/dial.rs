//! Connections over the machine's own network.

use std::io;

use futures::future::BoxFuture;
use tokio::net::TcpStream;

use crate::door::{Connection, Dial};

/// Dials over TCP, through no proxy. Addresses of a name are tried in order.
///
/// `SO_LINGER` is left alone. On Linux it shortens no TIME_WAIT, and with it set `close` waits for the other side, also
/// on a non-blocking socket: milliseconds on loopback, the whole linger time with a peer that is gone. A thread that
/// serves other pods cannot afford that.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDial;

// === impl TcpDial ===

impl Dial for TcpDial {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            // A request is one small write; waiting for more to send would only delay it.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}
