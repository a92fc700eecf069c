//! Images from registries.
//!
//! A pull resolves the reference to a manifest for this machine, downloads the configuration, and then only the layers
//! that the store does not have: up to three at a time into a working directory, hashed on the way, while layers that
//! have arrived are unpacked from the lowest up. Dropping the future at any point leaves nothing behind but a working
//! directory that is removed in the background, or at the next start.

mod answer;
mod blob;
mod credentials;
mod guard;
mod http;
mod pulse;
mod registry;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{Either, select};
use oci_spec::distribution::Reference;
use tokio::sync::mpsc;

use crate::assemble::{Assembly, Position};
use crate::digest::Digest;
use crate::error::{At, Error};
use crate::image::{Image, parse_config};
use crate::limits::Budget;
use crate::manifest::{DEEPEST_INDEX, Document, Manifest, check_layers, choose, parse};
use crate::reference::{parse_name, repository_of, tag_of};
use crate::store::Store;
use registry::Endpoint;

pub use credentials::{Auth, docker_auth, docker_auth_in, docker_config_path};
pub use tally::Tally;

/// How and from where to pull.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PullOptions {
    /// hosts to ask before a registry, in order, by the registry's host, or `*` for all; they never get the registry's credentials
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// hosts (with port) that speak plain HTTP
    pub plain_http: BTreeSet<String>,
    /// certificates in PEM to trust beside those of the system
    pub extra_roots: Vec<Vec<u8>>,
    /// a docker configuration with credentials, for when the caller has none
    pub docker_config: Option<PathBuf>,
    /// how long to wait for a connection
    pub connect_timeout: Duration,
    /// how long a connection may be silent before it is replaced
    pub read_timeout: Duration,
    /// how long to wait before a lost connection is retried, longer each time
    pub retry_pause: Duration,
    /// how long no data may arrive from a host before the pull from it is abandoned
    pub progress_timeout: Duration,
}

/// The progress of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// the manifest is known
    Resolved {
        /// digest of what the reference points to
        digest: String,
        /// layers that have to be fetched
        layers: usize,
        /// their size
        bytes: u64,
    },
    /// part of a layer arrived
    Fetched {
        /// the layer's digest
        layer: String,
        /// bytes so far
        done: u64,
        /// bytes in all
        total: u64,
    },
    /// a layer is unpacked
    Unpacked {
        /// the layer's digest
        layer: String,
    },
}

/// An assembly in a future. If the future is dropped, its files are removed on a blocking thread.
struct Held(Option<Assembly>);

/// The layers to unpack.
struct Layers<'a> {
    what: &'a str,
    chain: &'a [Digest],
    diff_ids: &'a [Digest],
    manifest: &'a Manifest,
}

/// Concurrent downloads of layers. Three fill a line without being unfair to other clients of the registry.
const AT_ONCE: usize = 3;

// === impl PullOptions ===

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            mirrors: BTreeMap::new(),
            plain_http: BTreeSet::new(),
            extra_roots: Vec::new(),
            docker_config: None,
            connect_timeout: Duration::from_secs(20),
            // Two silent connections fit into the time limit, so that one dead connection does not end a pull.
            read_timeout: Duration::from_secs(29),
            retry_pause: Duration::from_millis(200),
            progress_timeout: Duration::from_secs(60),
        }
    }
}

// === impl Store ===

impl Store {
    /// Pulls an image. The registry is always asked for the manifest, even for an image that is present and named by
    /// its digest, because the registry decides about access. Without `auth` the docker configuration of the options is
    /// used, and without an entry there the request is anonymous. Mirrors are tried first; the error is that of the
    /// last host.
    pub async fn pull(
        &self,
        reference: &str,
        auth: Option<Auth>,
        options: &PullOptions,
        progress: impl Fn(Progress) + Send + Sync,
    ) -> Result<Image, Error> {
        let name = parse_name(reference)?;
        let mut failures = Vec::new();
        let mut last = Error::NotFound { reference: reference.to_owned() };
        for endpoint in registry::endpoints(&name, auth.as_ref(), options)? {
            match self.pull_from(&name, &endpoint, &progress).await {
                Ok(image) => return Ok(image),
                Err(error) => {
                    tracing::debug!(host = endpoint.host(), %error, "pull failed");
                    failures.push(error.to_string());
                    last = error;
                }
            }
        }
        failures.pop();
        if let Error::Registry { detail, .. } = &mut last {
            for failure in failures {
                detail.push_str("; earlier attempt: ");
                detail.push_str(&failure);
            }
        }
        Err(last)
    }

    async fn pull_from(
        &self,
        name: &Reference,
        endpoint: &Endpoint,
        progress: &(impl Fn(Progress) + Send + Sync),
    ) -> Result<Image, Error> {
        let (digest, manifest) = self.resolve(endpoint).await?;
        let tags: BTreeSet<String> = tag_of(name).filter(|_| name.digest().is_none()).into_iter().collect();
        let digests = BTreeSet::from([format!("{}@{digest}", repository_of(name))]);
        if let Some(image) = self.name_existing(&manifest.config.digest, &tags, &digests).await? {
            progress(Progress::Resolved { digest: digest.to_string(), layers: 0, bytes: 0 });
            return Ok(image);
        }
        let what = endpoint.describe();
        let config = endpoint.fetch_document(&manifest.config).await?;
        let parsed = parse_config(&config, &what)?;
        if !self.inner.options.platform.runs(&parsed.platform) {
            let wanted = self.inner.options.platform.to_string();
            return Err(Error::NoPlatform { what, wanted, found: parsed.platform.to_string() });
        }
        check_layers(manifest.layers.len(), parsed.diff_ids.len(), &what)?;

        let (store, diff_ids) = (self.clone(), parsed.diff_ids.clone());
        let (assembly, chain, missing, budget) = blocking("preparing a pull", move || {
            let mut assembly = Assembly::new(&store)?;
            let chain = assembly.claim(&diff_ids)?;
            let missing: Vec<usize> = (0..chain.len()).filter(|index| !assembly.has(&chain[*index])).collect();
            let budget = Budget::new(&store.inner.options.limits, &assembly.path(""))?;
            Ok((Held(Some(assembly)), chain, missing, budget))
        })
        .await?;
        let bytes = missing.iter().map(|index| manifest.layers[*index].size).sum();
        progress(Progress::Resolved { digest: digest.to_string(), layers: missing.len(), bytes });

        let directory = assembly.path();
        // Room for all of them, so that a slow disk never blocks a download.
        let (arrived, arrivals) = mpsc::channel(missing.len().max(1));
        let fetching = async {
            let fetching = fetch_layers(endpoint, &manifest, &missing, &directory, &budget, progress, arrived);
            endpoint.watch(fetching).await?
        };
        let layers = Layers { what: &what, chain: &chain, diff_ids: &parsed.diff_ids, manifest: &manifest };
        let unpacking = layers.unpack(&missing, assembly, arrivals, progress);
        let assembly = match select(pin!(fetching), pin!(unpacking)).await {
            Either::Left((Ok(()), unpacking)) => unpacking.await?,
            Either::Left((Err(error), unpacking)) => {
                // Waits for the layer in progress, so that nothing is left when the caller gets the error.
                let _ = unpacking.await;
                return Err(error);
            }
            Either::Right((unpacked, _)) => unpacked?,
        };
        let published = blocking("storing an image", move || {
            let mut assembly = assembly.take()?;
            assembly.add(&parsed, tags, digests);
            assembly.publish()
        });
        published.await?.pop().ok_or(Error::Abandoned { step: "storing an image" })
    }

    /// Adds names to an image that is present already. The configuration identifies an image, so nothing has to be
    /// downloaded.
    async fn name_existing(
        &self,
        id: &Digest,
        tags: &BTreeSet<String>,
        digests: &BTreeSet<String>,
    ) -> Result<Option<Image>, Error> {
        let (store, id) = (self.clone(), id.to_string());
        let (tags, digests) = (tags.clone(), digests.clone());
        blocking("naming an image", move || store.add_names(&id, tags, digests)).await
    }

    /// Resolves a reference to the manifest for this machine, with the digest that the reference itself points to.
    async fn resolve(&self, endpoint: &Endpoint) -> Result<(Digest, Manifest), Error> {
        let mut wanted: Option<Digest> = None;
        let mut first: Option<Digest> = None;
        for _ in 0..DEEPEST_INDEX {
            let (digest, content) = endpoint.fetch_manifest(wanted.as_ref()).await?;
            let first = first.get_or_insert(digest);
            match parse(&content, &endpoint.describe())? {
                Document::Manifest(manifest) => return Ok((first.clone(), manifest)),
                Document::Index(entries) => {
                    let chosen = choose(&entries, &self.inner.options.platform, &endpoint.describe())?;
                    wanted = Some(chosen.digest.clone());
                }
            }
        }
        let reason = format!("indexes within indexes, more than {DEEPEST_INDEX} deep");
        Err(Error::Image { what: endpoint.describe(), reason })
    }
}

/// Downloads all missing layers and reports each that has arrived.
async fn fetch_layers(
    endpoint: &Endpoint,
    manifest: &Manifest,
    missing: &[usize],
    directory: &Path,
    budget: &Budget,
    progress: &(impl Fn(Progress) + Send + Sync),
    arrived: mpsc::Sender<(usize, PathBuf)>,
) -> Result<(), Error> {
    let fetches = missing.iter().copied().map(|index| async move {
        let path = directory.join(format!("blob-{index}"));
        blob::fetch(endpoint, &manifest.layers[index], &path, budget, progress).await?;
        Ok::<_, Error>((index, path))
    });
    let mut fetches = futures::stream::iter(fetches).buffer_unordered(AT_ONCE);
    while let Some(fetched) = fetches.next().await {
        // The receiver is dropped only when unpacking failed, and then that error counts.
        let _ = arrived.send(fetched?).await;
    }
    Ok(())
}

/// Runs a function that waits for the disk on a blocking thread.
async fn blocking<T: Send + 'static>(
    step: &'static str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Abandoned { step })?
}

// === impl Layers ===

impl Layers<'_> {
    /// Unpacks layers from the lowest up as they arrive.
    async fn unpack(
        &self,
        missing: &[usize],
        mut assembly: Held,
        mut arrivals: mpsc::Receiver<(usize, PathBuf)>,
        progress: &(impl Fn(Progress) + Send + Sync),
    ) -> Result<Held, Error> {
        let mut waiting: BTreeMap<usize, PathBuf> = BTreeMap::new();
        for index in missing {
            let path = loop {
                if let Some(path) = waiting.remove(index) {
                    break path;
                }
                let Some((arrived, path)) = arrivals.recv().await else {
                    blocking("removing downloaded layers", move || assembly.take().map(drop)).await?;
                    return Err(Error::Abandoned { step: "fetching a layer" });
                };
                waiting.insert(arrived, path);
            };
            let layer = self.manifest.layers[*index].digest.to_string();
            assembly = self.unpack_one(assembly, *index, &layer, path).await?;
            progress(Progress::Unpacked { layer });
        }
        Ok(assembly)
    }

    /// Unpacks a downloaded layer on a blocking thread, and removes the downloaded file.
    async fn unpack_one(&self, assembly: Held, index: usize, layer: &str, path: PathBuf) -> Result<Held, Error> {
        let what = format!("{}: layer {layer}", self.what);
        let (chain, diff_id) = (self.chain.to_vec(), self.diff_ids[index].clone());
        blocking("unpacking a layer", move || {
            let mut assembly = assembly.take()?;
            let archive = File::open(&path).at("open", &path)?;
            assembly.unpack(&Position { chain: &chain, index, diff_id: &diff_id, what: &what }, archive)?;
            std::fs::remove_file(&path).at("remove", &path)?;
            Ok(Held(Some(assembly)))
        })
        .await
    }
}

// === impl Held ===

impl Held {
    fn path(&self) -> PathBuf {
        self.0.as_ref().map(|assembly| assembly.path("")).unwrap_or_default()
    }

    fn take(mut self) -> Result<Assembly, Error> {
        self.0.take().ok_or(Error::Abandoned { step: "assembling an image" })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(assembly) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || drop(assembly));
        }
    }
}
