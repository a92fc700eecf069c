//! Downloads one blob into a file, verifies it, and resumes after a lost connection.

use std::path::Path;

use futures::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _, BufWriter};

use super::Progress;
use super::registry::Endpoint;
use crate::digest::Digest;
use crate::error::{At, Error, RegistryProblem};
use crate::limits::Budget;
use crate::manifest::Descriptor;

/// Retries after a lost connection, each from the last byte. The caller has its own backoff for a line that fails more
/// often.
const TRIES: u32 = 3;
/// How often progress is reported: a few times per second on a fast line.
const TELL_EVERY: u64 = 1024 * 1024;

/// What has arrived of a blob.
struct Arrived {
    file: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
    told: u64,
}

/// Downloads a blob. It succeeds only with the right size and digest.
pub(super) async fn fetch(
    endpoint: &Endpoint,
    descriptor: &Descriptor,
    path: &Path,
    budget: &Budget,
    progress: &(impl Fn(Progress) + Send + Sync),
) -> Result<(), Error> {
    let file = File::create(path).await.at("create", path)?;
    let mut arrived =
        Arrived { file: BufWriter::with_capacity(256 * 1024, file), hash: Sha256::new(), bytes: 0, told: 0 };
    let mut tries = 1;
    while let Err(error) = attempt(endpoint, descriptor, path, budget, progress, &mut arrived).await {
        let broke = matches!(&error, Error::Registry { problem: RegistryProblem::Unreachable, .. });
        if !broke || tries == TRIES {
            return Err(error);
        }
        tracing::debug!(%error, tries, "blob download interrupted; resuming");
        tokio::time::sleep(endpoint.retry_pause * tries).await;
        tries += 1;
    }
    arrived.file.flush().await.at("write", path)?;
    let found = Digest::from_hash(&arrived.hash.finalize());
    if found != descriptor.digest {
        let detail = format!("blob {}: the content has the digest {found}", descriptor.digest);
        return Err(endpoint.bad_answer(detail));
    }
    Ok(())
}

async fn attempt(
    endpoint: &Endpoint,
    descriptor: &Descriptor,
    path: &Path,
    budget: &Budget,
    progress: &(impl Fn(Progress) + Send + Sync),
    arrived: &mut Arrived,
) -> Result<(), Error> {
    if arrived.bytes == descriptor.size && descriptor.size > 0 {
        return Ok(());
    }
    let blob = endpoint.open_blob(descriptor, arrived.bytes).await?;
    if !blob.continues && arrived.bytes > 0 {
        arrived.restart(path).await?;
    }
    let mut stream = blob.stream;
    let mut unchecked = 0u64;
    while let Some(chunk) = stream.next().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            // It is complete; the digest decides whether it is right.
            Err(_) if arrived.bytes == descriptor.size => break,
            Err(error) => return Err(endpoint.broken(&descriptor.digest, arrived.bytes, descriptor.size, &error)),
        };
        let length = chunk.len() as u64;
        if arrived.bytes + length > descriptor.size {
            let detail = format!("blob {}: larger than its {} bytes", descriptor.digest, descriptor.size);
            return Err(endpoint.bad_answer(detail));
        }
        budget.pay_bytes(length).map_err(std::io::Error::from).at("fetch into", path)?;
        arrived.file.write_all(&chunk).await.at("write", path)?;
        arrived.hash.update(&chunk);
        arrived.bytes += length;
        unchecked += length;
        if unchecked >= 16 * TELL_EVERY {
            budget.check_disk().at("fetch into", path)?;
            unchecked = 0;
        }
        if arrived.bytes - arrived.told >= TELL_EVERY || arrived.bytes == descriptor.size {
            arrived.told = arrived.bytes;
            let layer = descriptor.digest.to_string();
            progress(Progress::Fetched { layer, done: arrived.bytes, total: descriptor.size });
        }
    }
    if arrived.bytes < descriptor.size {
        let detail = format!("blob {}: {} of {} bytes", descriptor.digest, arrived.bytes, descriptor.size);
        return Err(endpoint.bad_answer(detail));
    }
    Ok(())
}

// === impl Arrived ===

impl Arrived {
    /// The registry sent the whole blob, not the rest.
    async fn restart(&mut self, path: &Path) -> Result<(), Error> {
        self.file.flush().await.at("write", path)?;
        self.file.get_ref().set_len(0).await.at("write", path)?;
        self.file.rewind().await.at("write", path)?;
        (self.hash, self.bytes, self.told) = (Sha256::new(), 0, 0);
        Ok(())
    }
}
