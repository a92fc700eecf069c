//! A backend that runs no processes: its commands and ports are simulated.

use std::sync::Arc;
use std::time::Duration;

use keelet_stream::{
    Attach, Backend, BoxFuture, Config, Duplex, Exec, ExitStatus, Failure, Io, PortForward, Sessions, Streams, serve,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// Echoes until the client shuts down, then says how many bytes there were.
pub(crate) const ECHO_PORT: u16 = 7;

/// Sends a word and closes.
pub(crate) const GREETING_PORT: u16 = 13;

/// Sends letters for ever.
pub(crate) const ENDLESS_PORT: u16 = 19;

/// Greets again and again, whatever becomes of its client.
pub(crate) const STUBBORN_PORT: u16 = 20;

/// Ends its side first, and then listens to the end.
pub(crate) const LISTENING_PORT: u16 = 21;

/// Fails.
pub(crate) const CLOSED_PORT: u16 = 9;

/// Understands the commands below.
#[derive(Default)]
pub(crate) struct Words {
    /// Notified when a `hang` begins.
    pub(crate) started: Notify,
    /// Notified when a `hang` sees its client disconnect.
    pub(crate) hung_up: Notify,
}

/// A server on loopback.
pub(crate) struct Server {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) words: Arc<Words>,
    pub(crate) address: std::net::SocketAddr,
}

pub(crate) const STREAMS: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };

pub(crate) async fn start(config: Config) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback");
    let address = listener.local_addr().expect("an address");
    let sessions = Arc::new(Sessions::new(format!("http://{address}")));
    let words = Arc::new(Words::default());
    tokio::spawn(serve(listener, sessions.clone(), words.clone(), config));
    Server { sessions, words, address }
}

/// Waits for something. The deadline only ends a test that failed.
pub(crate) async fn in_time<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(120), happens).await;
    waited.unwrap_or_else(|_| panic!("waited two minutes for {what}"))
}

impl Server {
    /// The URL of a command.
    pub(crate) fn exec(&self, cmd: &[&str], streams: Streams) -> String {
        let cmd = cmd.iter().map(|&word| word.to_owned()).collect();
        self.sessions.exec(Exec { container: "c1".into(), cmd, streams }).expect("a session")
    }

    /// The URL of a port-forward.
    pub(crate) fn port_forward(&self, ports: &[u16]) -> String {
        self.sessions.port_forward(PortForward { sandbox: "s1".into(), ports: ports.to_vec() }).expect("a session")
    }
}

impl Backend for Words {
    fn exec(&self, request: Exec, io: Io) -> BoxFuture<'_, Result<ExitStatus, Failure>> {
        Box::pin(async move {
            let words: Vec<&str> = request.cmd.iter().map(String::as_str).collect();
            self.run(&words, io).await
        })
    }

    fn attach(&self, request: Attach, io: Io) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let mut stdout = io.stdout.ok_or("no stdout")?;
            stdout.write_all(format!("attached to {}", request.container).as_bytes()).await?;
            Ok(())
        })
    }

    fn port_forward(
        &self,
        sandbox: String,
        port: u16,
        mut stream: Box<dyn Duplex>,
    ) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            match port {
                ECHO_PORT => {
                    let (mut from, mut to) = tokio::io::split(stream);
                    let count = tokio::io::copy(&mut from, &mut to).await?;
                    to.write_all(format!("{count} bytes").as_bytes()).await?;
                    Ok(to.shutdown().await?)
                }
                GREETING_PORT => {
                    stream.write_all(format!("hello from {sandbox}").as_bytes()).await?;
                    Ok(stream.shutdown().await?)
                }
                LISTENING_PORT => {
                    stream.shutdown().await?;
                    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
                    Ok(())
                }
                STUBBORN_PORT => loop {
                    let _ = stream.write_all(b"hello").await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                },
                ENDLESS_PORT => {
                    tokio::io::copy(&mut tokio::io::repeat(b'x'), &mut stream).await?;
                    Ok(())
                }
                _ => Err(format!("connection refused on port {port}").into()),
            }
        })
    }
}

impl Words {
    async fn run(&self, words: &[&str], mut io: Io) -> Result<ExitStatus, Failure> {
        match *words {
            // Copies stdin to stdout.
            ["cat"] => {
                let (mut stdin, mut stdout) =
                    (io.stdin.take().ok_or("no stdin")?, io.stdout.take().ok_or("no stdout")?);
                tokio::io::copy(&mut stdin, &mut stdout).await?;
                Ok(ExitStatus(0))
            }
            // Exits with a code, whatever is on stdin.
            ["exit", code] => Ok(ExitStatus(code.parse()?)),
            // Writes to stdout and to stderr.
            ["both"] => {
                io.stdout.take().ok_or("no stdout")?.write_all(b"for stdout").await?;
                io.stderr.take().ok_or("no stderr")?.write_all(b"for stderr").await?;
                Ok(ExitStatus(0))
            }
            // Prints sizes until the height is 50.
            ["sizes"] => {
                let mut stdout = io.stdout.take().ok_or("no stdout")?;
                while let Some(size) = io.resize.next().await {
                    stdout.write_all(format!("{}x{}\n", size.width, size.height).as_bytes()).await?;
                    if size.height == 50 {
                        return Ok(ExitStatus(0));
                    }
                }
                Err("the sizes ended".into())
            }
            // Writes that many bytes.
            ["flood", count] => {
                let mut stdout = io.stdout.take().ok_or("no stdout")?;
                let mut bytes = tokio::io::repeat(b'x').take(count.parse()?);
                tokio::io::copy(&mut bytes, &mut stdout).await?;
                Ok(ExitStatus(0))
            }
            // Waits for the client to disconnect.
            ["hang"] => {
                self.started.notify_one();
                io.hangup.wait().await;
                self.hung_up.notify_one();
                Ok(ExitStatus(0))
            }
            _ => Err(format!("{}: no such file", words.join(" ")).into()),
        }
    }
}
