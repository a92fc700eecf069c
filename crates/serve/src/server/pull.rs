//! Fetching an image, and reporting how far it has come to a client that asks for it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::{Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use futures::{future::BoxFuture, stream};
use keelet_cri::Error;
use serde::Deserialize;

use super::{
    Images, Local,
    failure::{Refusal, bad_request},
    pods::query,
};
use crate::api::{Pull, PullLine, Pulled, Pulling};

/// How often progress is reported: often enough for a bar that moves.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How an image is fetched.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PullQuery {
    progress: bool,
}

/// A pull under way, and what was reported of it.
struct Telling {
    pulling: BoxFuture<'static, Result<String, Error>>,
    image: String,
    images: Option<Arc<dyn Images>>,
    told: Option<Pulling>,
}

pub(super) async fn pull(State(local): State<Arc<Local>>, uri: Uri, body: Bytes) -> Result<Response, Refusal> {
    let PullQuery { progress } = query(&uri)?;
    let Pull { image } = serde_json::from_slice(&body)
        .map_err(|error| bad_request(format!("expected a body such as {{\"image\": \"busybox:1\"}}: {error}")))?;
    if image.is_empty() {
        return Err(bad_request("the name of the image is empty".to_owned()));
    }
    if !progress {
        let image_ref = local.runtime().pull_image(&image, None, None).await?;
        return Ok(Json(Pulled { image_ref }).into_response());
    }
    let (runtime, name) = (local.runtime().clone(), image.clone());
    let pulling = Box::pin(async move { runtime.pull_image(&name, None, None).await });
    let telling = Telling { pulling, image, images: local.images.clone(), told: None };
    // The pull is part of the answer: if no client reads it any more, it ends.
    let lines = stream::unfold(Some(telling), |telling| async {
        let (line, telling) = telling?.next().await;
        let mut text = serde_json::to_vec(&line).unwrap_or_default();
        text.push(b'\n');
        Some((Ok::<_, Infallible>(text), telling))
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

// === impl Telling ===

impl Telling {
    /// The next line, and what goes on after it.
    async fn next(mut self) -> (PullLine, Option<Self>) {
        loop {
            tokio::select! {
                biased;
                pulled = &mut self.pulling => return (ending(pulled), None),
                () = tokio::time::sleep(TELL_EVERY) => {
                    let all = self.images.as_ref().map(|images| images.pulling()).unwrap_or_default();
                    // Of two pulls of the same image the one that is further reports more.
                    let ours = all.into_iter().filter(|pulling| pulling.image == self.image);
                    let ours = ours.max_by_key(|pulling| pulling.fetched_bytes);
                    if let Some(ours) = ours.filter(|ours| self.told.as_ref() != Some(ours)) {
                        self.told = Some(ours.clone());
                        return (PullLine::Pulling(ours), Some(self));
                    }
                }
            }
        }
    }
}

fn ending(pulled: Result<String, Error>) -> PullLine {
    match pulled {
        Ok(image_ref) => PullLine::Pulled(Pulled { image_ref }),
        Err(error) => PullLine::Failed(Refusal::from(error).into()),
    }
}
