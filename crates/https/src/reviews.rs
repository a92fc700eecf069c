//! What the API server says: which user a token stands for, and what a user may do.

use std::{sync::Arc, time::Duration};

use keelet_api::{Api, ApiError};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::timeout};

use crate::{attributes::Demand, cache::Cache, identity::User, told::Outage};

/// For how long answers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReviewSettings {
    /// Whether tokens are accepted: `authentication.webhook.enabled`.
    pub tokens: bool,
    /// Which user a token stands for: `authentication.webhook.cacheTTL`.
    pub token_lasts: Duration,
    /// That a user may do something: `authorization.webhook.cacheAuthorizedTTL`.
    pub allowed_lasts: Duration,
    /// That a user may not: `authorization.webhook.cacheUnauthorizedTTL`.
    pub denied_lasts: Duration,
}

/// Asks the API server, and remembers what it said.
#[derive(Debug)]
pub struct Reviews {
    api: Api,
    node: String,
    settings: ReviewSettings,
    /// By the digest of a token: tokens themselves are not kept.
    tokens: Cache<[u8; 32], Option<Arc<User>>>,
    permissions: Cache<(Arc<User>, &'static str, &'static str), bool>,
    outage: Outage,
    /// For tokens, which any client can send.
    token_turns: Semaphore,
    /// For what users may do, who are known.
    permission_turns: Semaphore,
}

/// Why the API server's word is not known. Nothing is served without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewError {
    /// It does not answer, or not so that it can be understood.
    #[error("the API server does not say {what}: {error}")]
    Api { what: &'static str, error: ApiError },
    /// Too many requests wait for it.
    #[error("too many requests wait for the API server to say who asks and what is allowed")]
    Busy,
}

/// Users, tokens and permissions that are kept: a cluster has some dozens of clients of this API. An entry has about 1 KiB.
const MOST_ANSWERS: usize = 1024;

/// The longest answer that is used: what is kept of users is bounded. A user with a thousand groups has 50 KiB.
const LONGEST_ANSWER: usize = 64 << 10;

/// How long it is kept that a token stands for no user: a client that retries with it makes no more than one request in this time.
const UNKNOWN_TOKEN_LASTS: Duration = Duration::from_secs(10);

/// Reviews of each kind at once: more would help no client, and a client without a valid token must not load the API server. Permissions have
/// turns of their own: while the API server is slow, strangers with invented tokens take all turns for tokens.
const REVIEWS: usize = 16;

/// How long a request waits for its turn. A review takes at most 5 s ([`keelet_api::SHORT`]).
const TURN_TAKES: Duration = Duration::from_secs(10);

/// Tokens of service accounts have some 1 KiB. No more than this is hashed and sent.
const LONGEST_TOKEN: usize = 16 << 10;

#[derive(Debug, Deserialize)]
struct TokenReview {
    status: TokenStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
}

#[derive(Debug, Deserialize)]
struct AccessReview {
    status: AccessStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
}

// === impl ReviewSettings ===

impl Default for ReviewSettings {
    /// The kubelet's values.
    fn default() -> Self {
        Self {
            tokens: true,
            token_lasts: Duration::from_secs(120),
            allowed_lasts: Duration::from_secs(300),
            denied_lasts: Duration::from_secs(30),
        }
    }
}

// === impl Reviews ===

impl Reviews {
    /// Reviews for the server of this node.
    pub fn new(api: Api, node: String, settings: ReviewSettings) -> Self {
        let (tokens, permissions) = (Cache::new(MOST_ANSWERS), Cache::new(MOST_ANSWERS));
        let (token_turns, permission_turns) = (Semaphore::new(REVIEWS), Semaphore::new(REVIEWS));
        let outage = Outage::default();
        Self { api, node, settings, tokens, permissions, outage, token_turns, permission_turns }
    }

    /// The user that a token stands for; none if it stands for none, or is for another audience than the API server.
    pub(crate) async fn user(&self, token: &str) -> Result<Option<Arc<User>>, ReviewError> {
        if !self.settings.tokens || token.is_empty() || token.len() > LONGEST_TOKEN {
            return Ok(None);
        }
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.tokens.get(&key) {
            return Ok(known);
        }
        let what = "which user a token stands for";
        // Without audiences of our own the API server accepts tokens for itself alone.
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": { "token": token },
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let TokenReview { status } = self.ask(&self.token_turns, path, &review, what).await?;
        let user = (status.authenticated && !status.user.username.is_empty()).then(|| status.user.authenticated());
        let user = user.map(Arc::new);
        let lasts = if user.is_some() { self.settings.token_lasts } else { UNKNOWN_TOKEN_LASTS };
        self.tokens.put(key, user.clone(), lasts);
        Ok(user)
    }

    /// Whether a user may do what is asked for.
    pub(crate) async fn allows(&self, user: &Arc<User>, demand: &Demand) -> Result<bool, ReviewError> {
        for subresource in demand.subresources {
            if self.allows_one(user, demand.verb, subresource).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn allows_one(
        &self,
        user: &Arc<User>,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, ReviewError> {
        let key = (Arc::clone(user), verb, subresource);
        if let Some(known) = self.permissions.get(&key) {
            return Ok(known);
        }
        let what = "whether a user may do this";
        let User { username, uid, groups, extra } = &**user;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": username, "uid": uid, "groups": groups, "extra": extra,
                "resourceAttributes": {
                    "verb": verb, "group": "", "version": "v1",
                    "resource": "nodes", "subresource": subresource, "name": self.node,
                },
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let AccessReview { status } = self.ask(&self.permission_turns, path, &review, what).await?;
        let allowed = status.allowed && !status.denied;
        let lasts = if allowed { self.settings.allowed_lasts } else { self.settings.denied_lasts };
        self.permissions.put(key, allowed, lasts);
        Ok(allowed)
    }

    /// Asks, and logs where an outage begins and ends: clients retry, and each of them could fill the log.
    async fn ask<T: DeserializeOwned>(
        &self,
        turns: &Semaphore,
        path: &str,
        review: &Value,
        what: &'static str,
    ) -> Result<T, ReviewError> {
        let answer = self.ask_in_turn(turns, path, review, what).await;
        match &answer {
            Ok(_) => {
                if let Some(refused) = self.outage.over() {
                    tracing::info!(refused, "the API server reviews requests again");
                }
            }
            Err(error) if self.outage.failed() => {
                tracing::warn!(%error, "the API server does not review requests: refusing them until it does");
            }
            Err(error) => tracing::debug!(%error, "refused request: the API server was not able to review it"),
        }
        answer
    }

    async fn ask_in_turn<T: DeserializeOwned>(
        &self,
        turns: &Semaphore,
        path: &str,
        review: &Value,
        what: &'static str,
    ) -> Result<T, ReviewError> {
        let _turn = timeout(TURN_TAKES, turns.acquire()).await.map_err(|_| ReviewError::Busy)?;
        let answer = self.api.create(path, review).await.map_err(|error| ReviewError::Api { what, error })?;
        let wrong = |why: String| ReviewError::Api { what, error: ApiError::NoAnswer(why) };
        if answer.len() > LONGEST_ANSWER {
            return Err(wrong(format!("its answer has {} bytes; {LONGEST_ANSWER} are allowed", answer.len())));
        }
        serde_json::from_slice(&answer).map_err(|error| wrong(format!("its answer is no review: {error}")))
    }
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
