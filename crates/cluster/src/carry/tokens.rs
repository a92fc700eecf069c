//! Tokens of service accounts: which ones pods have, when each is requested again, and which answers are refused. Pure.
//!
//! A token is dated by when it came and how long the API server says that it lasts, both without the wall clock: a node whose clock is an
//! hour off neither uses a token too long nor requests it too often.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use keelet_launch::{TokenSource, pod_tokens};
use keelet_pod::Pod;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A token that a pod has in a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TokenKey {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) account: String,
    pub(super) source: TokenSource,
}

/// A token that was received. There is no `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    pub(super) account: String,
    pub(super) audience: String,
    /// So many seconds were asked for.
    pub(super) asked: i64,
    pub(super) text: String,
    /// When it was requested, in milliseconds since boot.
    pub(super) requested_ms: i64,
    /// How long it lasts, in seconds.
    pub(super) seconds: i64,
}

/// The tokens that pods have.
#[derive(Default)]
pub(super) struct Tokens(BTreeMap<TokenKey, Entry>);

#[derive(Default)]
struct Entry {
    token: Option<Token>,
    /// What the API server said last, where there is no new one.
    why: String,
    in_flight: bool,
    failures: u32,
    /// Not before this, in milliseconds since boot.
    again_ms: Option<i64>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Request this token.
    Request(TokenKey),
    /// Nothing before this, in milliseconds since boot.
    Wait(i64),
    /// Nothing until something happens.
    Idle,
}

/// An answer that is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RefusedToken {
    #[error("it answered with no token")]
    None,
    #[error("it answered with a token for {0}")]
    OtherPod(String),
    #[error("it answered with a token of service account {0}")]
    OtherAccount(String),
    #[error("it answered with a token for the audiences [{0}]")]
    OtherAudience(String),
    #[error("it answered with a token for {0} s; {1} s were asked for")]
    Longer(i64, i64),
}

/// Requests at once: a node that starts with a hundred pods must not keep the API server from other nodes.
const AT_ONCE: usize = 5;

/// A token is requested again after this part of its life, in percent, or after a day.
const REFRESH_PERCENT: i64 = 80;
const OLDEST_MS: i64 = 24 * 3600 * 1000;

/// The shortest and the longest pause after a request that failed.
const PAUSE_MS: i64 = 100;
const LONGEST_PAUSE_MS: i64 = 10_000;

/// The API server lets a token of exactly this life live for a year, and marks when it should have been replaced: for programs that read
/// their token only once.
const EXTENDED: i64 = 3607;

/// The tokens of a pod.
pub(super) fn keys(pod: &Pod) -> Vec<TokenKey> {
    let account = pod.source.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let account = account.filter(|account| !account.is_empty()).unwrap_or_else(|| "default".to_owned());
    let key = |source| TokenKey {
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        account: account.clone(),
        source,
    };
    pod_tokens(pod).into_iter().map(key).collect()
}

// === impl Tokens ===

impl Tokens {
    /// What pods have from now on, or in addition; `recall` knows what an earlier agent received. Whether tokens came, and whether some went.
    pub(super) fn refer(
        &mut self,
        wanted: BTreeSet<TokenKey>,
        all: bool,
        mut recall: impl FnMut(&TokenKey) -> Option<Token>,
    ) -> (bool, bool) {
        let before = self.0.len();
        if all {
            self.0.retain(|key, _| wanted.contains(key));
        }
        let kept = self.0.len();
        for key in wanted {
            self.0.entry(key).or_insert_with_key(|key| Entry { token: recall(key), ..Entry::default() });
        }
        (self.0.len() > kept, kept < before)
    }

    /// What to do next: what is missing first, then what is due.
    pub(super) fn next(&self, now_ms: i64) -> Next {
        let waiting = self.0.iter().filter(|(_, entry)| !entry.in_flight);
        let Some((due_ms, key)) = waiting.map(|(key, entry)| (entry.due_ms(), key)).min() else { return Next::Idle };
        match self.0.values().filter(|entry| entry.in_flight).count() {
            // One of them ends.
            busy if busy >= AT_ONCE => Next::Idle,
            _ if due_ms <= now_ms => Next::Request(key.clone()),
            _ => Next::Wait(due_ms),
        }
    }

    pub(super) fn requested(&mut self, key: &TokenKey) {
        if let Some(entry) = self.0.get_mut(key) {
            entry.in_flight = true;
        }
    }

    /// A new token. Whether it replaces another one.
    pub(super) fn received(&mut self, key: &TokenKey, token: Token) -> bool {
        let Some(entry) = self.0.get_mut(key) else { return false };
        let replaced = entry.token.is_some();
        *entry = Entry { token: Some(token), ..Entry::default() };
        replaced
    }

    /// No new token.
    pub(super) fn failed(&mut self, key: &TokenKey, why: String, now_ms: i64, at_least: Option<Duration>) {
        let Some(entry) = self.0.get_mut(key) else { return };
        let pause = (PAUSE_MS << entry.failures.min(10)).min(LONGEST_PAUSE_MS);
        let asked = at_least.and_then(|least| i64::try_from(least.as_millis()).ok()).unwrap_or(0);
        entry.again_ms = Some(now_ms.saturating_add(pause.max(asked)));
        entry.failures = entry.failures.saturating_add(1);
        entry.in_flight = false;
        entry.why = why;
    }

    /// The token, or what the API server said last; `None` if the pod is not known, or nothing has been said.
    pub(super) fn get(&self, key: &TokenKey, now_ms: i64) -> Option<Result<&Token, &str>> {
        let entry = self.0.get(key)?;
        match &entry.token {
            Some(token) if token.is_good(now_ms) => Some(Ok(token)),
            Some(_) if entry.why.is_empty() => Some(Err("the one that there was has expired")),
            None if entry.why.is_empty() => None,
            _ => Some(Err(&entry.why)),
        }
    }

    /// Requests that have failed in a row.
    pub(super) fn failures(&self, key: &TokenKey) -> u32 {
        self.0.get(key).map_or(0, |entry| entry.failures)
    }

    pub(super) fn has(&self, key: &TokenKey) -> bool {
        self.0.contains_key(key)
    }

    /// The UIDs of pods that have tokens.
    pub(super) fn pods(&self) -> BTreeSet<String> {
        self.0.keys().map(|key| key.uid.clone()).collect()
    }

    /// All tokens of a pod.
    pub(super) fn of_pod(&self, uid: &str) -> Vec<Token> {
        let of_pod = self.0.iter().filter(|(key, _)| key.uid == uid);
        of_pod.filter_map(|(_, entry)| entry.token.clone()).collect()
    }
}

// === impl Entry ===

impl Entry {
    /// When it is to be requested.
    fn due_ms(&self) -> i64 {
        let refresh_ms = self.token.as_ref().map_or(i64::MIN, Token::refresh_ms);
        refresh_ms.max(self.again_ms.unwrap_or(i64::MIN))
    }
}

// === impl Token ===

impl Token {
    fn refresh_ms(&self) -> i64 {
        let part = self.seconds.saturating_mul(1000 * REFRESH_PERCENT / 100);
        self.requested_ms.saturating_add(part.min(OLDEST_MS))
    }

    /// Whether it has not expired. One from the future is from another boot.
    pub(super) fn is_good(&self, now_ms: i64) -> bool {
        (self.requested_ms..self.requested_ms.saturating_add(self.seconds.saturating_mul(1000))).contains(&now_ms)
    }

    /// Whether it is what a key asks for.
    pub(super) fn is_for(&self, key: &TokenKey) -> bool {
        (&self.account, &self.audience, self.asked) == (&key.account, &key.source.audience, key.source.seconds)
    }
}

// === impl TokenKey ===

impl TokenKey {
    pub(super) fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", self.namespace, self.account)
    }

    /// The request: bound to the pod, so that the token ends with it.
    pub(super) fn request(&self) -> Value {
        let audience = Some(&self.source.audience).filter(|audience| !audience.is_empty());
        let audiences: Vec<_> = audience.into_iter().collect();
        json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": audiences,
                "expirationSeconds": self.source.seconds,
                "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": self.pod, "uid": self.uid },
            },
        })
    }

    /// The token of an answer, if it is what was asked for.
    pub(super) fn token(&self, answer: &Value, requested_ms: i64) -> Result<Token, RefusedToken> {
        let spec = &answer["spec"];
        let text = answer["status"]["token"].as_str().unwrap_or_default();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RefusedToken::None);
        }
        let bound = &spec["boundObjectRef"];
        if (bound["kind"].as_str(), bound["uid"].as_str()) != (Some("Pod"), Some(&self.uid)) {
            return Err(RefusedToken::OtherPod(format!("{} with UID {}", bound["name"], bound["uid"])));
        }
        self.check_audiences(&spec["audiences"])?;
        let seconds = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds > 0).ok_or(RefusedToken::None)?;
        if seconds > self.source.seconds {
            return Err(RefusedToken::Longer(seconds, self.source.seconds));
        }
        if let Some(claims) = claims(text) {
            self.check_claims(&claims)?;
        }
        Ok(Token {
            account: self.account.clone(),
            audience: self.source.audience.clone(),
            asked: self.source.seconds,
            text: text.to_owned(),
            requested_ms,
            seconds,
        })
    }

    /// Without an audience in the request it is the API server's own.
    fn check_audiences(&self, found: &Value) -> Result<(), RefusedToken> {
        let one = found.as_str();
        let found: Vec<&str> = found
            .as_array()
            .map_or(one.into_iter().collect(), |found| found.iter().filter_map(Value::as_str).collect());
        if self.source.audience.is_empty() || found == [self.source.audience.as_str()] {
            return Ok(());
        }
        Err(RefusedToken::OtherAudience(found.join(", ")))
    }

    /// What the token itself says, where it is one that can be read.
    fn check_claims(&self, claims: &Value) -> Result<(), RefusedToken> {
        self.check_audiences(&claims["aud"])?;
        let own = &claims["kubernetes.io"];
        let pod = &own["pod"];
        if pod["uid"].as_str() != Some(&self.uid) {
            return Err(RefusedToken::OtherPod(format!("{} with UID {}", pod["name"], pod["uid"])));
        }
        let account = (own["namespace"].as_str(), own["serviceaccount"]["name"].as_str());
        if account != (Some(&self.namespace), Some(&self.account)) {
            let (namespace, name) = (account.0.unwrap_or_default(), account.1.unwrap_or_default());
            return Err(RefusedToken::OtherAccount(format!("{namespace}/{name}")));
        }
        let warned = own["warnafter"].as_i64().filter(|_| self.source.seconds == EXTENDED);
        let (Some(from), Some(until)) = (claims["iat"].as_i64(), warned.or_else(|| claims["exp"].as_i64())) else {
            return Err(RefusedToken::None);
        };
        let seconds = until.saturating_sub(from);
        if seconds > self.source.seconds {
            return Err(RefusedToken::Longer(seconds, self.source.seconds));
        }
        Ok(())
    }
}

/// What a JSON web token says. Its signature is for those who are shown it.
fn claims(token: &str) -> Option<Value> {
    let mut parts = token.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = serde_json::from_slice::<Value>(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    (claims.is_object() && parts.next().is_none()).then_some(claims)
}

#[cfg(test)]
mod tests;
