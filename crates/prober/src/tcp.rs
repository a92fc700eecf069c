//! `tcpSocket`: whether a connection opens.

use std::io;

use crate::door::Dial;

/// Opens a connection and closes it. Nothing is sent, nothing is read.
pub(crate) async fn knock(dial: &dyn Dial, host: &str, port: u16) -> io::Result<()> {
    dial.connect(host, port).await.map(drop)
}
