//! `tcpSocket`: whether a connection opens.

use std::io;

use crate::door::Dial;

/// Opens a connection and closes it, without sending or reading anything.
pub(crate) async fn knock(dial: &dyn Dial, pod: &str, host: &str, port: u16) -> io::Result<()> {
    dial.connect(pod, host, port).await.map(drop)
}
