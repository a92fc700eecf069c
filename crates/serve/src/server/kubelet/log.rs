//! The logs of containers, with the parameters of the Kubernetes API (`PodLogOptions`).

use std::{io, sync::Arc};

use axum::{
    body::Body,
    extract::Query,
    http::{Request, Response, header::CONTENT_TYPE},
    response::IntoResponse,
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use keelet_agent::board::{Board, Published};
use keelet_lifecycle::status::ContainerState;

use super::{ContainerRef, SessionHold, pod_with};
use crate::{
    logs::{self, Instances, LogRequest, LogState, LogStream},
    server::{
        Local,
        failure::{Refusal, bad_request},
        log::{ago, must_exist, request_of},
    },
};

/// What is asked of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since: Option<Since>,
    tail_lines: Option<u64>,
    limit_bytes: Option<u64>,
    stream: Option<LogStream>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Seconds(i64),
    Time(Timestamp),
}

/// Parameters that cannot be used. The client gets the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid log option {name}={value:?}: {why}")]
struct BadOption {
    name: &'static str,
    value: String,
    why: &'static str,
}

pub(super) async fn log<B>(local: &Local, of: &ContainerRef, asked: &Request<B>) -> Result<Response<Body>, Refusal> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(asked.uri());
    let Query(pairs) = pairs.map_err(|error| bad_request(format!("cannot decode the query: {error}")))?;
    let options = LogOptions::of(&pairs).map_err(|error| Refusal::new(422, "Invalid", error.to_string()))?;
    let published = pod_with(local, of).await?;
    let request = request(local, &published, &of.container, &options)?;
    must_exist(&request, &published, &of.container, options.previous).await?;
    // The instance that runs now is followed to its end, as the kubelet does it; another request reads the next one.
    let instance = running(&published, &of.container);
    let (board, uid, container) = (Arc::clone(local.board()), published.pod.uid.clone(), of.container.clone());
    let hold = asked.extensions().get::<SessionHold>().cloned();
    let state = move || {
        // Counted for its client until the log ends.
        let _ = &hold;
        match instance.is_some() && instance == instance_now(&board, &uid, &container) {
            true => LogState::Open,
            false => LogState::Closed,
        }
    };
    let log = limited(logs::read(request, state), options.limit_bytes);
    Ok(([(CONTENT_TYPE, "text/plain")], Body::from_stream(log)).into_response())
}

fn request(local: &Local, published: &Published, container: &str, options: &LogOptions) -> Result<LogRequest, Refusal> {
    let since = options.since.map(|since| match since {
        Since::Time(time) => time,
        Since::Seconds(seconds) => ago(local, seconds),
    });
    Ok(LogRequest {
        follow: options.follow && !options.previous,
        instances: Instances::One,
        tail: options.tail_lines,
        since,
        timestamps: options.timestamps,
        stream: options.stream,
        ..request_of(local, published, container, options.previous)?
    })
}

/// The ID of the instance of a container that runs; none if it does not run.
fn running(published: &Published, container: &str) -> Option<String> {
    let status = published.status.container(container)?;
    matches!(status.state, ContainerState::Running(_)).then(|| status.container_id.clone())?
}

fn instance_now(board: &Board, uid: &str, container: &str) -> Option<String> {
    running(board.statuses().get(uid)?, container)
}

/// No more than so many bytes.
fn limited(
    log: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    limit: Option<u64>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::unfold((log.boxed(), limit), |(mut log, left)| async move {
        if left == Some(0) {
            return None;
        }
        let mut piece = match log.next().await? {
            Ok(piece) => piece,
            Err(error) => return Some((Err(error), (log, left))),
        };
        if let Some(left) = left {
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        }
        let left = left.map(|left| left.saturating_sub(piece.len() as u64));
        Some((Ok(piece), (log, left)))
    })
}

// === impl LogOptions ===

impl LogOptions {
    /// Reads the parameters. Those of other names mean nothing here; of one that comes twice the first counts.
    fn of(pairs: &[(String, String)]) -> Result<Self, BadOption> {
        let value = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        // As the Kubernetes API reads a switch: whatever does not say no says yes.
        let switch =
            |name| value(name).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"));
        let number = |name: &'static str, least: i64| {
            let Some(text) = value(name).filter(|text| !text.is_empty()) else { return Ok(None) };
            let bad = |why| BadOption { name, value: text.to_owned(), why };
            let number: i64 = text.parse().map_err(|_| bad("must be a number"))?;
            if number < least {
                return Err(bad(if least == 0 { "must not be negative" } else { "must be greater than 0" }));
            }
            Ok(Some(number))
        };
        let seconds = number("sinceSeconds", 1)?;
        let time = match value("sinceTime").filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => {
                let why = "must be a time such as 2026-01-02T15:04:05Z";
                let bad = |_| BadOption { name: "sinceTime", value: text.to_owned(), why };
                Some(text.parse().map_err(bad)?)
            }
        };
        let since = match (seconds, time) {
            (Some(seconds), Some(_)) => {
                let why = "must not be given together with sinceTime";
                return Err(BadOption { name: "sinceSeconds", value: seconds.to_string(), why });
            }
            (Some(seconds), None) => Some(Since::Seconds(seconds)),
            (None, time) => time.map(Since::Time),
        };
        let stream = match value("stream") {
            None | Some("" | "All") => None,
            Some("Stdout") => Some(LogStream::Stdout),
            Some("Stderr") => Some(LogStream::Stderr),
            Some(other) => {
                let why = "must be All, Stdout or Stderr";
                return Err(BadOption { name: "stream", value: other.to_owned(), why });
            }
        };
        // `tail` is what kubelets were asked for before `tailLines`.
        let tail = match value("tail") {
            Some("all") => None,
            Some(text) if !text.is_empty() => number("tail", 0)?,
            _ => number("tailLines", 0)?,
        };
        if let (Some(tail), Some(_)) = (tail, stream) {
            let why = "must not be given together with a stream: lines of one stream cannot be counted from the end";
            return Err(BadOption { name: "tailLines", value: tail.to_string(), why });
        }
        let size = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        Ok(Self {
            follow: switch("follow"),
            previous: switch("previous"),
            timestamps: switch("timestamps"),
            since,
            tail_lines: size(tail),
            limit_bytes: size(number("limitBytes", 1)?),
            stream,
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;

    use super::*;

    fn read(query: &str) -> Result<LogOptions, BadOption> {
        let uri: Uri = format!("/containerLogs/a/b/c?{query}").parse().expect("a URI");
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&uri).expect("a query");
        LogOptions::of(&pairs)
    }

    /// CLU-40
    #[test]
    fn options_are_those_of_the_kubernetes_api() {
        let usual = LogOptions::default();
        let noon: Timestamp = "2026-01-02T12:00:00Z".parse().expect("a time");
        for (query, options) in [
            ("", usual.clone()),
            ("follow=true", LogOptions { follow: true, ..usual.clone() }),
            ("follow", LogOptions { follow: true, ..usual.clone() }),
            ("follow=false&previous=0&timestamps=False", usual.clone()),
            ("previous=1&timestamps=true", LogOptions { previous: true, timestamps: true, ..usual.clone() }),
            ("tailLines=0", LogOptions { tail_lines: Some(0), ..usual.clone() }),
            ("tail=7", LogOptions { tail_lines: Some(7), ..usual.clone() }),
            ("tail=all&tailLines=3", usual.clone()),
            ("limitBytes=10", LogOptions { limit_bytes: Some(10), ..usual.clone() }),
            ("sinceSeconds=60", LogOptions { since: Some(Since::Seconds(60)), ..usual.clone() }),
            ("sinceTime=2026-01-02T12%3A00%3A00Z", LogOptions { since: Some(Since::Time(noon)), ..usual.clone() }),
            ("stream=Stderr", LogOptions { stream: Some(LogStream::Stderr), ..usual.clone() }),
            ("stream=All&tailLines=2", LogOptions { tail_lines: Some(2), ..usual.clone() }),
            ("insecureSkipTLSVerifyBackend=true&container=main&pretty=1", usual),
        ] {
            assert_eq!(read(query), Ok(options), "{query}");
        }
        for (query, words) in [
            ("tailLines=-1", "tailLines=\"-1\": must not be negative"),
            ("tailLines=x", "tailLines=\"x\": must be a number"),
            ("limitBytes=0", "limitBytes=\"0\": must be greater than 0"),
            ("sinceSeconds=0", "sinceSeconds=\"0\": must be greater than 0"),
            ("sinceSeconds=5&sinceTime=2026-01-02T12:00:00Z", "together with sinceTime"),
            ("sinceTime=noon", "must be a time such as"),
            ("stream=stdout", "must be All, Stdout or Stderr"),
            ("stream=Stdout&tailLines=1", "together with a stream"),
        ] {
            let error = read(query).expect_err(query).to_string();
            assert!(error.contains(words), "{query}: {error}");
        }
    }

    /// CLU-40
    #[tokio::test]
    async fn a_log_ends_with_the_last_byte_that_was_asked_for() {
        let all = async |limit| {
            let pieces = ["one\n", "two\n"].map(|piece| Ok(Bytes::from(piece)));
            let taken = limited(stream::iter(pieces), limit).map(|piece| piece.expect("no error"));
            taken
                .fold(Vec::new(), async |mut all, piece| {
                    all.extend_from_slice(&piece);
                    all
                })
                .await
        };
        assert_eq!(all(None).await, b"one\ntwo\n");
        assert_eq!(all(Some(4)).await, b"one\n");
        assert_eq!(all(Some(6)).await, b"one\ntw");
        assert_eq!(all(Some(100)).await, b"one\ntwo\n");
    }
}
