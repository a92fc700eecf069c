//! `keelet exec`: a command in a container.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use anyhow::{Context, Result};
use keelet_serve::api::{ExecSession, Session};
use keelet_stream::{
    Size, StreamError,
    client::{self, Terminal},
};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{
    net::TcpStream,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::{
    ask::{self, Connection, InNamespace},
    output,
};

/// Run a command in a container of a pod
///
/// The command runs in the namespaces of the container, as its user and within its limits.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: the command's own; 1 if it could not be run, 2 wrong usage, 255 if the session broke: \
                        commands end with the agent, containers do not.\n\n\
                        Examples:\n  keelet exec web -- ls -l /data\n  keelet exec -it web -c server -- sh"
)]
pub struct Args {
    /// Name of the pod
    #[arg(value_name = "POD")]
    pod: String,
    /// Container [default: the one named by the annotation kubectl.kubernetes.io/default-container, else the first]
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Pass standard input to the command
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Allocate a terminal for the command
    #[arg(short, long)]
    tty: bool,
    #[command(flatten)]
    place: InNamespace,
    #[command(flatten)]
    connection: Connection,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A terminal in raw mode: its keys go to the command in the container. Dropped, it restores the previous mode.
struct Raw(Termios);

/// What ssh ends with as well when the connection breaks: rarely what a command ends with itself.
const BROKEN: u8 = 255;

/// Sizes that may wait: only the newest counts.
const SIZES: usize = 1;

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(session(args));
    // Standard input may be waited for in a thread that never ends.
    runtime.shutdown_background();
    Ok(ended.map_or_else(
        |error| {
            output::error(&ask::explained(&error));
            ExitCode::from(1)
        },
        ExitCode::from,
    ))
}

async fn session(args: &Args) -> Result<u8> {
    let tty = args.tty && io::stdin().is_terminal();
    if args.tty && !tty {
        output::warning("standard input is not a terminal: the command runs without one");
    }
    let client = args.connection.client();
    let pod = ask::pod(&client, args.place.namespace.as_deref(), &args.pod).await?;
    let asked =
        ExecSession { container: args.container.clone(), command: args.command.clone(), stdin: args.stdin, tty };
    let session: Session = client.post(&format!("{}/exec", ask::path_of(&pod)), &asked).await?;
    let socket = connect(&session.url).await?;
    let raw = tty.then(Raw::take).transpose().context("cannot use the terminal")?;
    let terminal = Terminal {
        stdin: args.stdin.then(|| Box::new(tokio::io::stdin()) as _),
        stdout: Some(Box::new(tokio::io::stdout())),
        stderr: Some(Box::new(tokio::io::stderr())),
        resize: tty.then(sizes).transpose()?,
    };
    let ended = client::run(socket, &session.url, terminal).await;
    drop(raw);
    match ended {
        Ok(status) => Ok(status.0),
        Err(
            error @ (StreamError::Hangup | StreamError::Read(_) | StreamError::Write(_) | StreamError::Idle { .. }),
        ) => {
            // Asked, not only connected to: a process that was killed goes in steps.
            output::error(&match client.stream("/healthz").await {
                Ok(_) => {
                    format!("the exec session failed, and the command was killed if it was still running: {error}")
                }
                Err(_) => "the agent stopped, and the command with it; the container keeps running".to_owned(),
            });
            Ok(BROKEN)
        }
        Err(error) => Err(error.into()),
    }
}

/// Connects to where a session waits.
pub(crate) async fn connect(url: &str) -> Result<TcpStream> {
    let address = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let connected = TcpStream::connect(address).await;
    connected.with_context(|| format!("cannot connect to the streaming server of the runtime on {address}"))
}

/// The sizes of our terminal, now and whenever it changes.
fn sizes() -> Result<mpsc::Receiver<Size>> {
    let (sender, receiver) = mpsc::channel(SIZES);
    let mut changes = signal(SignalKind::window_change())?;
    tokio::spawn(async move {
        loop {
            if let Ok(size) = tcgetwinsize(io::stdin()) {
                let size = Size { width: size.ws_col, height: size.ws_row };
                if sender.send(size).await.is_err() {
                    return;
                }
            }
            if changes.recv().await.is_none() {
                return;
            }
        }
    });
    Ok(receiver)
}

// === impl Raw ===

impl Raw {
    fn take() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
