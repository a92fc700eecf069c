//! An agent that goes away while a command watches or follows: the agent may be killed any number of times, and the
//! command goes on with the next one.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, bail};
use keelet_serve::Client;
use tokio::net::UnixStream;

use crate::output;

/// How often to look for the next agent: a person does not notice the delay, and a refused connection costs nothing.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// How often a run that has ended is looked for: two seconds, in which the next one would have its socket there.
const MOMENT: usize = 20;

/// Whether the agent on a socket is away. Each absence is reported once, and so is its end.
#[derive(Debug)]
pub(crate) struct Absence {
    socket: PathBuf,
    /// What happens meanwhile, in words.
    meanwhile: &'static str,
    away: AtomicBool,
}

// === impl Absence ===

impl Absence {
    pub(crate) fn new(client: &Client, meanwhile: &'static str) -> Self {
        Self { socket: client.socket().to_owned(), meanwhile, away: AtomicBool::new(false) }
    }

    /// Says that the agent went away, and waits until an agent listens again. Fails if none ever will: the socket of
    /// `keelet run` goes with its directory.
    pub(crate) async fn wait(&self) -> Result<()> {
        if !self.away.swap(true, Ordering::Relaxed) {
            output::note(&format!("the agent on {} stopped; {}", self.socket.display(), self.meanwhile));
        }
        loop {
            if UnixStream::connect(&self.socket).await.is_ok() {
                return Ok(());
            }
            if !self.has_directory() {
                bail!("the agent on {} stopped, and its directory was removed", self.socket.display());
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Whether no agent will ever listen there again, which may take a moment to show: an agent that ends in an orderly
    /// way removes the socket, and a run its directory too. One that was killed leaves both.
    pub(crate) async fn is_for_good(&self) -> bool {
        for _ in 0..MOMENT {
            if !self.has_directory() {
                return true;
            } else if UnixStream::connect(&self.socket).await.is_ok() {
                return false;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        !self.socket.exists()
    }

    fn has_directory(&self) -> bool {
        self.socket.parent().is_some_and(Path::is_dir)
    }

    /// Says that the agent is back, if it was away.
    pub(crate) fn is_over(&self) {
        if self.away.swap(false, Ordering::Relaxed) {
            output::note("the agent is back");
        }
    }
}
