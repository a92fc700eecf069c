//! What many clients ask for and takes a walk over all containers: made by one at a time, and for all that wait.

use std::{future::Future, time::Duration};

use tokio::{sync::Mutex, time::Instant};

/// How old an answer may be. Scrapers come every ten seconds at most; a person who repeats a command takes longer.
const LASTS: Duration = Duration::from_secs(1);

/// An answer that requests share.
#[derive(Debug)]
pub(super) struct Shared<T>(Mutex<Option<(Instant, T)>>);

// === impl Shared ===

impl<T: Clone> Shared<T> {
    /// The answer of lately, or a new one. A request whose client leaves while it makes one leaves that to the next.
    pub(super) async fn get(&self, make: impl Future<Output = T>) -> T {
        let mut last = self.0.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(made, _)| made.elapsed() < LASTS) {
            return answer.clone();
        }
        // Nothing is kept while it is made: it may be large.
        *last = None;
        let answer = make.await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// CLU-42: however many clients ask at once, one walk is made.
    #[tokio::test(start_paused = true)]
    async fn requests_share_one_answer() {
        let (shared, made) = (Arc::new(Shared::default()), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let (shared, made) = (Arc::clone(&shared), Arc::clone(&made));
            tokio::spawn(async move {
                let make = async {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    made.fetch_add(1, Ordering::Relaxed)
                };
                shared.get(make).await
            })
        };
        // The first client leaves before its answer is made.
        let left = ask();
        tokio::time::sleep(Duration::from_secs(1)).await;
        left.abort();
        let clients: Vec<_> = (0..100).map(|_| ask()).collect();
        for client in clients {
            assert_eq!(client.await.expect("an answer"), 0, "a walk of its own");
        }
        tokio::time::advance(LASTS).await;
        assert_eq!(ask().await.expect("an answer"), 1, "it is not kept for longer");
    }
}
