//! `keelet image`: what the runtime has to run containers from. The agent is asked; where there is none, the store is opened.

mod direct;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Subcommand;
use futures::{StreamExt, stream};
use keelet_serve::{
    Client, ClientError,
    api::{Imported, Pull, PullLine, Pulled},
    escaped,
};
use tokio::io::{AsyncRead, AsyncReadExt};

use self::direct::Direct;

use crate::{
    absence::Absence,
    ask::{self, Connection},
    exit::ExitStatus,
    get, output,
    paths::absolute,
    progress::{Meter, Part, of_pull},
    registries::Registries,
};

/// List, pull, remove and import images
///
/// The command asks the agent of the node. If no agent answers and --socket is not given, it uses the image store of
/// the node directly, as `keelet run` does; that requires root.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 success, 1 failure, 2 wrong usage.\n\nExamples:\n  keelet image ls\n  \
                        keelet image pull docker.io/library/busybox:1.37\n  keelet image rm busybox:1.37\n  \
                        keelet image ls --image-store /srv/node/runtime/images")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the images of the node
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        how: get::How,
        #[command(flatten)]
        place: Place,
    },
    /// Pull images from their registry
    Pull {
        /// Names
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
        #[command(flatten)]
        connection: Connection,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        registries: Registries,
    },
    /// Remove images
    Rm {
        /// Image names or IDs
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
        /// Remove the image even if a container uses it
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        connection: Connection,
        #[command(flatten)]
        place: Place,
    },
    /// Import images from an archive: an OCI layout, or the output of `docker save`
    Import {
        /// Archives, or - for standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        connection: Connection,
        #[command(flatten)]
        place: Place,
    },
}

/// Where the images are, if not with an agent.
#[derive(Clone, Debug, clap::Args)]
struct Place {
    /// Image store to use directly, without an agent [default, if no agent answers: that of the node,
    /// /var/lib/keelet/runtime/images]
    #[arg(long, value_name = "DIR", conflicts_with = "socket")]
    image_store: Option<PathBuf>,
}

/// What has the images: an agent, or a store on this machine.
enum Keeper {
    Agent(Client),
    Store(Direct),
}

/// Bytes of an archive that are sent at once.
const PIECE: usize = 256 << 10;

/// How often to read how much of an archive was taken.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Does it and says so.
pub fn run(args: &Args) -> Result<ExitStatus> {
    match &args.command {
        Command::Ls { how, place } => ask::run(async {
            match place.keeper(how.connection()).await? {
                Keeper::Agent(_) => get::show(get::Kind::Images, BTreeSet::new(), how).await,
                Keeper::Store(store) => get::show_images(&store.list()?, how),
            }
        }),
        Command::Pull { images, connection, place, registries } => ask::run(async {
            let keeper = place.keeper(connection).await?;
            for image in images {
                let image_ref = match &keeper {
                    Keeper::Agent(client) => {
                        registries.refuse_beside("the agent")?;
                        pull(client, image).await?.image_ref
                    }
                    Keeper::Store(store) => store.pull(image, registries).await?,
                };
                output::out(&format!("{image} is {image_ref}\n")).context("cannot write the answer")?;
            }
            Ok(ExitStatus::Success)
        }),
        Command::Rm { images, force, connection, place } => ask::run(async {
            let keeper = place.keeper(connection).await?;
            let mut status = ExitStatus::Success;
            for image in images {
                let removed = match &keeper {
                    Keeper::Agent(client) => {
                        let force = if *force { "?force=true" } else { "" };
                        client.delete(&format!("/v1/images/{}{force}", escaped(image))).await.map_err(Into::into)
                    }
                    Keeper::Store(store) => store.remove(image, *force),
                };
                match removed {
                    Ok(()) => output::out(&format!("{image} removed\n")).context("cannot write the answer")?,
                    Err(error) => {
                        output::error(&ask::explained(&error));
                        status = ExitStatus::Failure;
                    }
                }
            }
            Ok(status)
        }),
        Command::Import { files, connection, place } => ask::run(async {
            let keeper = place.keeper(connection).await?;
            for path in files {
                let images = match &keeper {
                    Keeper::Agent(client) => import(client, path).await?.images,
                    Keeper::Store(store) => store.import(path).await?,
                };
                let lines: String = images.iter().map(|image| format!("{image} imported\n")).collect();
                output::out(&lines).context("cannot write the answer")?;
            }
            Ok(ExitStatus::Success)
        }),
    }
}

// === impl Place ===

impl Place {
    /// What to ask. That a store is used in the place of an agent is said: another runtime has images of its own.
    async fn keeper(&self, connection: &Connection) -> Result<Keeper> {
        if let Some(store) = &self.image_store {
            if !store.is_dir() {
                bail!("--image-store: {} is not a directory", store.display());
            }
            return Direct::open(&absolute("--image-store", store)?).map(Keeper::Store);
        }
        let Some(socket) = connection.usual_without_agent().await else {
            return Ok(Keeper::Agent(connection.client()));
        };
        let place = direct::of_this_node();
        let store = Direct::open(&place).with_context(|| format!("no agent answers on {socket}"))?;
        output::note(&format!("no agent answers on {socket}; using the image store {} itself", place.display()));
        Ok(Keeper::Store(store))
    }
}

/// Fetches an image. If the agent goes away meanwhile, the next one begins anew: asking twice does no harm.
async fn pull(client: &Client, image: &str) -> Result<Pulled> {
    let absence = Absence::new(client, "waiting for the next one");
    let mut begun = false;
    loop {
        match pull_once(client, image, &absence, &mut begun).await {
            Err(error) if begun && error.downcast_ref().is_some_and(ClientError::is_away) => absence.wait().await?,
            ended => return ended,
        }
    }
}

async fn pull_once(client: &Client, image: &str, absence: &Absence, begun: &mut bool) -> Result<Pulled> {
    let lines = client.post_stream("/v1/images/pull?progress=true", &Pull { image: image.to_owned() }).await?;
    *begun = true;
    absence.is_over();
    let mut meter = Meter::begin(format!("fetching {image}"));
    let mut lines = Box::pin(output::lines(lines));
    while let Some(line) = lines.next().await {
        match serde_json::from_slice(&line?).context("cannot parse the agent's response")? {
            PullLine::Pulling(pulling) => {
                let (words, part) = of_pull(&pulling);
                meter.show(&words, part);
            }
            PullLine::Pulled(pulled) => return Ok(pulled),
            PullLine::Failed(failure) => return Err(ClientError::Refused(Box::new(failure)).into()),
        }
    }
    bail!("the agent did not say how the pull ended");
}

/// Sends an archive. How far it has come is how much the agent has taken.
async fn import(client: &Client, path: &Path) -> Result<Imported> {
    let mut meter = Meter::begin(format!("importing {}", path.display()));
    let (archive, all) = open(path).await?;
    let sent = Arc::new(AtomicU64::new(0));
    let mut importing = Box::pin(client.upload("/v1/images/import", pieces(archive, Arc::clone(&sent))));
    loop {
        tokio::select! {
            imported = &mut importing => return Ok(imported?),
            () = tokio::time::sleep(POLL_EVERY) => {
                let part = all.map(|all| Part { done: sent.load(Ordering::Relaxed), all });
                if let Some(part) = part {
                    meter.show(&part.words(), Some(part));
                }
            }
        }
    }
}

/// An archive, and how long it is if that is known.
async fn open(path: &Path) -> Result<(Box<dyn AsyncRead + Send + Unpin>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(tokio::io::stdin()), None));
    }
    let unreadable = || format!("cannot read {}", path.display());
    let file = tokio::fs::File::open(path).await.with_context(unreadable)?;
    let metadata = file.metadata().await.with_context(unreadable)?;
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len())))
}

fn pieces(
    archive: impl AsyncRead + Send + Unpin + 'static,
    sent: Arc<AtomicU64>,
) -> impl futures::Stream<Item = std::io::Result<Bytes>> + Send {
    stream::unfold((archive, sent), |(mut archive, sent)| async {
        let mut piece = vec![0; PIECE];
        match archive.read(&mut piece).await {
            Ok(0) => None,
            Ok(count) => {
                piece.truncate(count);
                sent.fetch_add(count as u64, Ordering::Relaxed);
                Some((Ok(piece.into()), (archive, sent)))
            }
            Err(error) => Some((Err(error), (archive, sent))),
        }
    })
}
