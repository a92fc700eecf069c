//! `/healthz`, as the kubelet serves it on a port of its own.

use std::{net::IpAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use keelet_agent::Agent;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

/// Connections at once; whoever asks for health asks rarely.
const CONNECTIONS: usize = 16;
/// A question has a first line and a few headers.
const LONGEST_QUESTION: usize = 8 << 10;
/// For the question, and again for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves until the agent ends.
pub(crate) async fn serve(address: IpAddr, port: u16, agent: Arc<Agent>) -> Result<()> {
    let listener = TcpListener::bind((address, port))
        .await
        .with_context(|| format!("healthzPort: cannot listen on {address} port {port}"))?;
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    tokio::spawn(async move {
        loop {
            // Nobody closes it.
            let permit = Arc::clone(&free).acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let agent = Arc::clone(&agent);
                    tokio::spawn(async move {
                        let _permit = permit;
                        answer(stream, &agent).await;
                    });
                }
                // Out of files, most likely; others give theirs back.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    Ok(())
}

async fn answer(mut stream: TcpStream, agent: &Agent) {
    let Ok(Some(path)) = timeout(PATIENCE, question(&mut stream)).await else { return };
    let (status, text) = match path.split('?').next() {
        Some("/healthz") => match timeout(PATIENCE, agent.pulse()).await {
            Ok(()) => ("200 OK", "ok"),
            Err(_) => ("500 Internal Server Error", "the agent's loop does not turn"),
        },
        _ => ("404 Not Found", "not found"),
    };
    let length = text.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    );
    let _ = timeout(PATIENCE, stream.write_all(answer.as_bytes())).await;
}

/// The path that is asked for; `None` for what is no question.
async fn question(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 1024];
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(length) => bytes.extend_from_slice(&part[..length]),
        }
        if bytes.len() > LONGEST_QUESTION {
            return None;
        }
    }
    path(&String::from_utf8_lossy(&bytes))
}

fn path(question: &str) -> Option<String> {
    let mut words = question.lines().next()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    (method == "GET" && version.starts_with("HTTP/1.")).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn the_path_is_read_from_the_first_line() {
        assert_eq!(path("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").as_deref(), Some("/healthz"));
        for bad in ["", "GET /healthz", "POST /healthz HTTP/1.1", "\u{16}\u{3}", "GET /healthz FTP/1"] {
            assert_eq!(path(bad), None, "{bad:?}");
        }
    }
}
