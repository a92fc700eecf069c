//! What the agent has to say itself, such as that the runtime does not answer: kept until there is a place for it.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// Bytes that wait at most. A line that does not fit is dropped; `take` makes room again.
const MOST: usize = 64 << 10;

/// Lines that wait to be shown.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<u8>>>);

// === impl Notes ===

impl Notes {
    /// Takes what the agent warns of from now on. Events are shown elsewhere.
    pub fn listen(&self) {
        let filter = EnvFilter::new("error,keelet_agent=warn,keelet_host=warn,keelet_agent::board=off");
        let layer = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_target(false);
        // Fails only if a global subscriber is set already.
        let _ = layer.with_writer(self.clone()).try_init();
    }

    /// The lines so far.
    pub(super) fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl io::Write for Notes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() + bytes.len() <= MOST {
            notes.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Notes {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
