//! Connecting to a port inside a pod, for port forwarding.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};

use crate::threads;

/// Loopback answers at once; this bounds the wait for a full accept queue.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to a port on the loopback address inside a network namespace: `127.0.0.1`, else `::1`.
///
/// # Errors
///
/// When the namespace cannot be entered, or neither address accepts; the error has both answers.
pub async fn dial(netns: &Path, port: u16) -> io::Result<TcpStream> {
    let path = netns.to_owned();
    // A socket belongs to the namespace in which it was created, wherever it is used later.
    let make = move || threads::inside(&path, || Ok((TcpSocket::new_v4(), TcpSocket::new_v6())));
    let (ipv4, ipv6) = threads::aside("keelet-dial", make).await.map_err(io::Error::other)?;
    let first = match connect(ipv4, Ipv4Addr::LOCALHOST.into(), port).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    let second = match connect(ipv6, Ipv6Addr::LOCALHOST.into(), port).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    let text = format!("cannot connect to port {port} in the pod: 127.0.0.1: {first}; ::1: {second}");
    Err(io::Error::new(first.kind(), text))
}

async fn connect(socket: io::Result<TcpSocket>, ip: IpAddr, port: u16) -> io::Result<TcpStream> {
    let connecting = socket?.connect(SocketAddr::new(ip, port));
    match tokio::time::timeout(TIMEOUT, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} s", TIMEOUT.as_secs()))),
    }
}
