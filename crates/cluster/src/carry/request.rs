//! The requests for tokens, a few at once.

use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use keelet_api::{Api, ApiError};
use tokio::time::sleep;
use tracing::{debug, info};

use super::{
    Carried,
    tokens::{Next, Token, TokenKey},
};

/// A machine that slept is no reason to miss the end of a token: no sleep here is longer.
const LONGEST_SLEEP: Duration = Duration::from_secs(300);

// === impl Carried ===

impl Carried {
    /// Requests tokens when pods need them and when they are due, for as long as it is polled.
    pub(super) async fn request_tokens(&self, api: &Api) {
        let mut in_flight = FuturesUnordered::new();
        loop {
            let (next, now) = (self.lock().tokens.next(self.now_ms()), self.now_ms());
            let pause = match next {
                Next::Request(key) => {
                    self.lock().tokens.requested(&key);
                    in_flight.push(self.request_token(api, key));
                    continue;
                }
                Next::Wait(until) => Some(Duration::from_millis(u64::try_from(until - now).unwrap_or_default())),
                Next::Idle => None,
            };
            tokio::select! {
                biased;
                Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
                () = self.0.token_work.notified() => {}
                () = sleep(pause.unwrap_or_default().min(LONGEST_SLEEP)), if pause.is_some() => {}
            }
        }
    }

    async fn request_token(&self, api: &Api, key: TokenKey) {
        // Its life is counted from before the API server can have made it.
        let requested_ms = self.now_ms();
        let answer = api.create(&key.path(), &key.request()).await;
        let retry_after = answer.as_ref().err().and_then(ApiError::retry_after);
        let token = answer.map_err(|error| error.to_string()).and_then(|body| {
            let answer = serde_json::from_slice(&body).map_err(|_| "its answer is not a token request".to_owned())?;
            key.token(&answer, requested_ms).map_err(|error| error.to_string())
        });
        match token {
            Ok(token) => self.received(&key, token),
            Err(why) => {
                let (pod, account) = (format!("{}/{}", key.namespace, key.pod), &key.account);
                if self.lock().tokens.failures(&key) == 1 {
                    info!(pod, account, error = why, "cannot get a token for a pod; retrying");
                } else {
                    debug!(pod, account, error = why, "cannot get a token for a pod");
                }
                self.lock().tokens.failed(&key, why, self.now_ms(), retry_after);
            }
        }
        self.0.more.send_replace(());
    }

    fn received(&self, key: &TokenKey, token: Token) {
        let mut state = self.lock();
        let replaced = state.tokens.received(key, token);
        let of_pod = state.tokens.of_pod(&key.uid);
        drop(state);
        // Unless the pod went meanwhile.
        if !of_pod.is_empty() {
            self.0.memory.remember_tokens(&key.uid, &of_pod);
        }
        if replaced {
            self.0.changed.notify_one();
        }
    }
}
