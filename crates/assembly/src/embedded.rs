//! The runtime that pods run on: one on a socket, or the embedded one in this process.

use std::{io, sync::Arc};

use futures::future::BoxFuture;
use keelet_cri::Runtime;
use keelet_image::{Image, Tally};
use keelet_runtime::{Engine, OpenError, Pulling, Settings};
use keelet_serve::{Archive, Images, ImportError, api};
use tokio::net::unix::pipe;

use crate::{claim, paths::Paths};

/// The runtime that pods run on, and its images, if it is in this process.
#[derive(Debug)]
pub struct ChosenRuntime {
    /// The runtime.
    pub runtime: Runtime,
    /// Its images.
    pub images: Option<Arc<dyn Images>>,
}

/// The images of the embedded runtime.
#[derive(Debug)]
struct Store(Engine);

/// The settings of an embedded runtime in these directories, whose pods are connected to that bridge.
pub fn settings_in(paths: &Paths, bridge: Option<&str>) -> Settings {
    let mut settings = Settings::new(&paths.root_dir.join("runtime"), &paths.state_dir.join("runtime"));
    settings.images = paths.root_dir.join(Paths::IMAGES);
    settings.network.owner = Some(claim::real(&paths.root_dir));
    if let Some(bridge) = bridge {
        bridge.clone_into(&mut settings.network.bridge);
    }
    settings
}

/// What an image that was imported is called.
pub fn image_name(image: &Image) -> String {
    image.tags.first().cloned().unwrap_or_else(|| image.id.clone())
}

/// How far a pull has come, as the local API says it.
pub fn pull_progress(image: String, tally: &Tally) -> api::Pulling {
    api::Pulling {
        image,
        layers: tally.layers,
        unpacked_layers: tally.unpacked,
        bytes: tally.bytes,
        fetched_bytes: tally.fetched(),
    }
}

/// Registries are asked over TLS. That an earlier call has prepared for it is no error.
pub fn prepare_to_pull() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

// === impl ChosenRuntime ===

impl ChosenRuntime {
    /// One on a socket, which has its images to itself.
    pub fn remote(runtime: Runtime) -> Self {
        Self { runtime, images: None }
    }

    /// The embedded one.
    pub async fn embedded(settings: Settings) -> Result<Self, OpenError> {
        prepare_to_pull();
        let engine = Engine::open(settings).await?;
        Ok(Self { runtime: engine.in_process(), images: Some(Arc::new(Store(engine))) })
    }
}

// === impl Store ===

impl Images for Store {
    fn import<'a>(&'a self, mut archive: Archive<'a>) -> BoxFuture<'a, Result<Vec<String>, ImportError>> {
        Box::pin(async move {
            let (reader, writer) = io::pipe().map_err(ImportError::Pipe)?;
            let store = self.0.images().clone();
            let reading = tokio::task::spawn_blocking(move || store.import(reader, None));
            let mut writer = pipe::Sender::from_owned_fd(writer.into()).map_err(ImportError::Pipe)?;
            let sent = tokio::io::copy(&mut archive, &mut writer).await;
            drop(writer);
            let imported = reading.await.map_err(|error| ImportError::Store(error.into()))?;
            // What is wrong with the archive says more than the broken pipe that follows from it.
            let images = imported.map_err(|error| ImportError::Store(error.into()))?;
            sent.map_err(ImportError::Receive)?;
            Ok(images.iter().map(image_name).collect())
        })
    }

    fn pulling(&self) -> Vec<api::Pulling> {
        self.0.pulling().into_iter().map(|Pulling { image, tally }| pull_progress(image, &tally)).collect()
    }
}
