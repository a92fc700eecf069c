//! `keelet logs`: what containers wrote, over restarts and rotated files.

mod follow;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use keelet_pod::duration;
use keelet_serve::{Client, escaped, logs::LogRequest};
use tokio::{sync::mpsc, task::JoinSet};

use self::follow::{Instance, Log};
use crate::{
    ask::{self, Connection, InNamespace},
    exit::ExitStatus,
    number::{self, InvalidNumber},
    output::{self, Reader},
    style::Style,
    view::pod::PodView,
};

/// Print the logs of a container, or of all containers of a pod
///
/// Rotated files are read as one log, and lines that the runtime split are joined. -f continues with the next instance
/// when the container is restarted, until it has ended for good. Logs are read from files: they are followed even while
/// the agent is down.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 success, 1 pod, container or log not found, or no agent; 2 wrong usage.\n\n\
                        Examples:\n  keelet logs web\n  keelet logs -f --since 5m web -c main\n  \
                        keelet logs web --all-containers --prefix --tail 20\n  keelet logs -p web")]
pub struct Args {
    /// Pod, by name or UID
    #[arg(value_name = "POD")]
    pod: String,
    /// Container, if the pod has several
    #[arg(value_name = "CONTAINER", conflicts_with_all = ["container", "all_containers"])]
    position: Option<String>,
    /// Container, if the pod has several
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_containers")]
    container: Option<String>,
    /// All containers of the pod
    #[arg(long)]
    all_containers: bool,
    /// Follow the log
    #[arg(short, long, conflicts_with = "previous")]
    follow: bool,
    /// Print the log of the previous instance of the container
    #[arg(short, long)]
    previous: bool,
    /// Only lines newer than this, such as 5s, 2m or 3h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_with_fractions, conflicts_with = "since_time")]
    since: Option<Duration>,
    /// Only lines since this time (RFC 3339), such as 2026-11-16T08:30:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since_time: Option<Timestamp>,
    /// Number of last lines to print; -1 for all
    #[arg(long, value_name = "LINES", allow_hyphen_values = true, value_parser = Lines::parse)]
    tail: Option<Lines>,
    /// Prefix each line with its time
    #[arg(long)]
    timestamps: bool,
    /// Prefix each line with pod and container
    #[arg(long)]
    prefix: bool,
    #[command(flatten)]
    place: InNamespace,
    #[command(flatten)]
    connection: Connection,
}

/// How many lines are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    All,
    Last(u64),
}

/// Lines on their way to the terminal. A log reader that is faster than the terminal waits.
const LINES: usize = 256;

/// Reads and prints.
pub fn run(args: &Args) -> Result<ExitStatus> {
    ask::run(async {
        let client = args.connection.client();
        let pod = ask::pod(&client, args.place.namespace.as_deref(), &args.pod).await?;
        let containers = args.containers(&pod)?;
        match containers.as_slice() {
            [only] if args.follow && !args.prefix => {
                for log in followed(&client, args, &pod, std::slice::from_ref(only)).await? {
                    single(log).await?;
                }
            }
            all if args.follow => together(followed(&client, args, &pod, all).await?, args, &pod, all).await?,
            [only] if !args.prefix => single(so_far(&client, args, &pod, only).await?).await?,
            all => one_by_one(&client, args, &pod, all).await?,
        }
        Ok(ExitStatus::Success)
    })
}

/// The log as the agent sends it.
async fn streamed(client: &Client, path: &str) -> Result<Log> {
    Ok(client.stream(path).await?.map(|piece| piece.map_err(Into::into)).boxed())
}

/// What a container has written so far: from its files if these can be seen from here, else as the agent sends it.
async fn so_far(client: &Client, args: &Args, pod: &PodView, container: &str) -> Result<Log> {
    let instance = if args.previous { Instance::Previous } else { Instance::Present };
    match follow::so_far(client, pod, container, instance, &args.request()?).await? {
        Some(log) => Ok(log),
        None => streamed(client, &args.path(pod, container)).await,
    }
}

/// Logs that go on: from their files if these can be seen from here, else for as long as the agent sends them.
async fn followed(client: &Client, args: &Args, pod: &PodView, containers: &[String]) -> Result<Vec<Log>> {
    if let Some(logs) = follow::logs(client, pod, containers, &args.request()?).await? {
        return Ok(logs);
    }
    let mut logs = Vec::new();
    for container in containers {
        logs.push(streamed(client, &args.path(pod, container)).await?);
    }
    Ok(logs)
}

async fn single(mut pieces: Log) -> Result<()> {
    while let Some(piece) = pieces.next().await {
        if output::live(&piece?).context("cannot write the log")? == Reader::Gone {
            break;
        }
    }
    Ok(())
}

/// One log after the other. Of several, one that is not there does not hide the others.
async fn one_by_one(client: &Client, args: &Args, pod: &PodView, containers: &[String]) -> Result<()> {
    let mut missing = None;
    let mut shown = false;
    for (index, container) in containers.iter().enumerate() {
        let pieces = match so_far(client, args, pod, container).await {
            Ok(pieces) => pieces,
            Err(error) => {
                missing.get_or_insert(error);
                continue;
            }
        };
        shown = true;
        let prefix = args.prefix_of(pod, container, index);
        let mut lines = Box::pin(output::lines(pieces));
        while let Some(line) = lines.next().await {
            if output::live(&[prefix.as_bytes(), &line?, b"\n"].concat()).context("cannot write the log")?
                == Reader::Gone
            {
                return Ok(());
            }
        }
    }
    match missing {
        Some(error) if !shown => Err(error),
        Some(error) => {
            output::note(&format!("note: {error:#}"));
            Ok(())
        }
        None => Ok(()),
    }
}

/// All logs at once, line by line as they come.
async fn together(logs: Vec<Log>, args: &Args, pod: &PodView, containers: &[String]) -> Result<()> {
    let (sender, mut lines) = mpsc::channel::<Result<Vec<u8>>>(LINES);
    let mut readers = JoinSet::new();
    for (index, (log, container)) in logs.into_iter().zip(containers).enumerate() {
        let (sender, prefix) = (sender.clone(), args.prefix_of(pod, container, index));
        readers.spawn(async move {
            let mut lines = Box::pin(output::lines(log));
            while let Some(line) = lines.next().await {
                let line = line.map(|line| [prefix.as_bytes(), &line, b"\n"].concat());
                if sender.send(line).await.is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    while let Some(line) = lines.recv().await {
        if output::live(&line?).context("cannot write the log")? == Reader::Gone {
            break;
        }
    }
    Ok(())
}

/// Text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {0:?}: expected one such as 2026-11-16T08:30:00Z")]
struct InvalidTime(String);

/// A time as the Kubernetes API writes it.
fn moment(text: &str) -> Result<Timestamp, InvalidTime> {
    text.parse().map_err(|_| InvalidTime(text.to_owned()))
}

// === impl Lines ===

impl Lines {
    fn parse(text: &str) -> Result<Self, InvalidNumber<u64>> {
        // kubectl's word for all of them.
        if text == "-1" { Ok(Self::All) } else { number::parse(text).map(Self::Last) }
    }

    fn last(self) -> Option<u64> {
        match self {
            Self::All => None,
            Self::Last(count) => Some(count),
        }
    }
}

// === impl Args ===

impl Args {
    /// The containers that are meant.
    fn containers(&self, pod: &PodView) -> Result<Vec<String>> {
        let all: Vec<String> = pod.container_names().map(str::to_owned).collect();
        if self.all_containers {
            return Ok(all);
        }
        if let Some(name) = self.container.as_ref().or(self.position.as_ref()) {
            if !all.contains(name) {
                bail!(
                    "container {name:?} not found in pod {}/{}; containers: {}",
                    pod.namespace,
                    pod.name,
                    all.join(", ")
                );
            }
            return Ok(vec![name.clone()]);
        }
        let regular: Vec<&str> =
            pod.specs("containers").iter().filter_map(|container| container["name"].as_str()).collect();
        let annotated = pod.value["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
        let chosen = annotated.filter(|name| all.iter().any(|known| known == name)).or(regular.first().copied());
        let Some(chosen) = chosen else { bail!("pod {}/{} has no containers", pod.namespace, pod.name) };
        if all.len() > 1 {
            output::note(&format!("Defaulted container {chosen:?} out of: {}", all.join(", ")));
        }
        Ok(vec![chosen.to_owned()])
    }

    fn path(&self, pod: &PodView, container: &str) -> String {
        let mut path = format!("{}/log?container={}", ask::path_of(pod), escaped(container));
        for (on, name) in [(self.follow, "follow"), (self.previous, "previous"), (self.timestamps, "timestamps")] {
            if on {
                path.push_str(&format!("&{name}=true"));
            }
        }
        if let Some(since) = self.since {
            // Whole seconds are all that the API knows.
            path.push_str(&format!("&sinceSeconds={}", since.as_secs() + u64::from(since.subsec_nanos() > 0)));
        }
        if let Some(time) = self.since_time {
            path.push_str(&format!("&sinceTime={}", escaped(&time.to_string())));
        }
        if let Some(tail) = self.tail.and_then(Lines::last) {
            path.push_str(&format!("&tailLines={tail}"));
        }
        path
    }

    /// The same for files that are read here.
    fn request(&self) -> Result<LogRequest> {
        let since = self.since.map(|since| {
            let now = Timestamp::from_millisecond(ask::now()?.as_millis())?;
            anyhow::Ok(now.checked_sub(SignedDuration::try_from(since)?).unwrap_or(Timestamp::MIN))
        });
        Ok(LogRequest {
            tail: self.tail.and_then(Lines::last),
            since: since.transpose()?.or(self.since_time),
            timestamps: self.timestamps,
            ..LogRequest::default()
        })
    }

    fn prefix_of(&self, pod: &PodView, container: &str, index: usize) -> String {
        match self.prefix {
            true => format!("{} ", Style::of_stdout().one_of_many(index, &format!("[pod/{}/{container}]", pod.name))),
            false => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_times_are_written_as_for_kubectl() {
        assert_eq!((Lines::parse("-1"), Lines::parse("0")), (Ok(Lines::All), Ok(Lines::Last(0))));
        for bad in ["-2", "x", "1.5", ""] {
            assert!(Lines::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(moment("2026-01-01T02:00:00+02:00"), moment("2026-01-01T00:00:00Z"));
        for bad in ["noon", "2026-01-01", "2026-01-01T00:00:00", ""] {
            assert!(moment(bad).unwrap_err().to_string().contains("invalid time"), "{bad:?}");
        }
    }
}
