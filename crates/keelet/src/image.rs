//! `keelet image`: what the runtime has to run containers from.

use std::{
    collections::BTreeSet,
    io::IsTerminal,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Subcommand;
use futures::stream;
use keelet_local::{
    api::{Imported, Pull, Pulled},
    escaped,
};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{
    ask::{self, Connection},
    get, output,
    validate::Verdict,
};

/// List, fetch, remove and import images
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 done, 1 not done, 2 wrong usage.\n\nExamples:\n  keelet image ls\n  \
                        keelet image pull docker.io/library/busybox:1.37\n  keelet image rm busybox:1.37")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the images of the node
    #[command(visible_alias = "list")]
    Ls(get::How),
    /// Fetch images from their registry
    Pull {
        /// Names
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove images
    Rm {
        /// Names or IDs
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
        /// Also if a container uses it
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Bring in images from an archive: an OCI layout, or what `docker save` writes
    Import {
        /// Archives, or - for standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Bytes of an archive that are sent at once.
const PIECE: usize = 256 << 10;

/// Does it and says so.
pub(crate) fn run(args: &Args) -> Result<Verdict> {
    match &args.command {
        Command::Ls(how) => ask::run(get::show(get::Kind::Images, BTreeSet::new(), how)),
        Command::Pull { images, connection } => ask::run(async {
            let client = connection.client();
            for image in images {
                if std::io::stderr().is_terminal() {
                    output::note(&format!("fetching {image} ..."));
                }
                let pulled: Pulled = client.post("/v1/images/pull", &Pull { image: image.clone() }).await?;
                output::out(&format!("{image} is {}\n", pulled.image_ref)).context("cannot write the answer")?;
            }
            Ok(Verdict::Valid)
        }),
        Command::Rm { images, force, connection } => ask::run(async {
            let client = connection.client();
            let mut verdict = Verdict::Valid;
            for image in images {
                let force = if *force { "?force=true" } else { "" };
                match client.delete(&format!("/v1/images/{}{force}", escaped(image))).await {
                    Ok(()) => output::out(&format!("{image} removed\n")).context("cannot write the answer")?,
                    Err(error) => {
                        output::error(&ask::explained(&error.into()));
                        verdict = Verdict::Invalid;
                    }
                }
            }
            Ok(verdict)
        }),
        Command::Import { files, connection } => ask::run(async {
            let client = connection.client();
            for path in files {
                let archive = open(path).await?;
                let Imported { images } = client.upload("/v1/images/import", pieces(archive)).await?;
                let lines: String = images.iter().map(|image| format!("{image} imported\n")).collect();
                output::out(&lines).context("cannot write the answer")?;
            }
            Ok(Verdict::Valid)
        }),
    }
}

async fn open(path: &Path) -> Result<Box<dyn AsyncRead + Send + Unpin>> {
    if path == Path::new("-") {
        return Ok(Box::new(tokio::io::stdin()));
    }
    let file = tokio::fs::File::open(path).await.with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(Box::new(file))
}

fn pieces(
    archive: impl AsyncRead + Send + Unpin + 'static,
) -> impl futures::Stream<Item = std::io::Result<Bytes>> + Send {
    stream::unfold(archive, |mut archive| async {
        let mut piece = vec![0; PIECE];
        match archive.read(&mut piece).await {
            Ok(0) => None,
            Ok(count) => {
                piece.truncate(count);
                Some((Ok(piece.into()), archive))
            }
            Err(error) => Some((Err(error), archive)),
        }
    })
}
