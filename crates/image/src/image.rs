//! The description of an image, and the parser of its configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::Error;
use crate::platform::Platform;

/// An image of the store, or a directory of the host that stands in for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// `sha256:` and the digest of the configuration; for a directory its whole reference, `rootfs:/path`
    pub id: String,
    /// full names with tags, `docker.io/library/busybox:latest`
    pub tags: Vec<String>,
    /// full names with manifest digests, `docker.io/library/busybox@sha256:...`
    pub digests: Vec<String>,
    /// bytes that the unpacked layers take on disk, shared ones counted too; 0 for a directory
    pub size: u64,
    /// whether garbage collection must not remove it
    pub pinned: bool,
    /// the defaults for running it
    pub config: ImageConfig,
    /// where its files are
    pub source: ImageContent,
}

/// Where the files of an image are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageContent {
    /// layers of the store by chain ID, the lowest first
    Layers(Vec<String>),
    /// a directory of the host
    Directory(PathBuf),
}

/// The defaults of an image for running it. Empty where the image sets none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// `user`, `uid`, `user:group` or `uid:gid`
    pub user: String,
    /// `NAME=value`
    pub env: Vec<String>,
    /// the program and its first arguments
    pub entrypoint: Vec<String>,
    /// further arguments, or the program if there is no entrypoint
    pub cmd: Vec<String>,
    /// where the program starts
    pub working_dir: String,
    /// name or number
    pub stop_signal: String,
    /// `80/tcp`
    pub exposed_ports: Vec<String>,
    /// directories that want a volume
    pub volumes: Vec<String>,
    /// what the builder wrote on it
    pub labels: BTreeMap<String, String>,
}

/// A configuration as far as unpacking needs it.
pub(crate) struct Parsed {
    pub(crate) id: Digest,
    pub(crate) platform: Platform,
    pub(crate) diff_ids: Vec<Digest>,
    pub(crate) config: ImageConfig,
}

#[derive(Deserialize)]
struct RawImage {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: Option<String>,
    #[serde(default)]
    config: Option<RawConfig>,
    rootfs: RawRoot,
}

#[derive(Deserialize)]
struct RawRoot {
    #[serde(default)]
    diff_ids: Option<Vec<Digest>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawConfig {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    stop_signal: Option<String>,
    exposed_ports: Option<BTreeMap<String, IgnoredAny>>,
    volumes: Option<BTreeMap<String, IgnoredAny>>,
    labels: Option<BTreeMap<String, String>>,
}

/// The default of `PATH`.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Reads an image's configuration.
pub(crate) fn parse_config(json: &[u8], what: &str) -> Result<Parsed, Error> {
    let raw: RawImage = serde_json::from_slice(json)
        .map_err(|error| Error::Image { what: format!("{what}: configuration"), reason: error.to_string() })?;
    let config = raw.config.unwrap_or_default();
    Ok(Parsed {
        id: Digest::of(json),
        platform: Platform { os: raw.os, architecture: raw.architecture, variant: raw.variant.unwrap_or_default() },
        diff_ids: raw.rootfs.diff_ids.unwrap_or_default(),
        config: ImageConfig {
            user: config.user.unwrap_or_default(),
            env: config.env.unwrap_or_default(),
            entrypoint: config.entrypoint.unwrap_or_default(),
            cmd: config.cmd.unwrap_or_default(),
            working_dir: config.working_dir.unwrap_or_default(),
            stop_signal: config.stop_signal.unwrap_or_default(),
            exposed_ports: config.exposed_ports.unwrap_or_default().into_keys().collect(),
            volumes: config.volumes.unwrap_or_default().into_keys().collect(),
            labels: config.labels.unwrap_or_default(),
        },
    })
}

// === impl Image ===

impl Image {
    /// What pulls exactly this image again, or its ID where no registry has it.
    pub fn pull_reference(&self) -> String {
        self.digests.first().unwrap_or(&self.id).clone()
    }

    /// A directory of the host as an image.
    pub(crate) fn of_directory(path: PathBuf) -> Self {
        Self {
            id: format!("rootfs:{}", path.display()),
            tags: Vec::new(),
            digests: Vec::new(),
            size: 0,
            pinned: false,
            config: ImageConfig { env: vec![DEFAULT_PATH.to_owned()], ..ImageConfig::default() },
            source: ImageContent::Directory(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_with_nulls_and_without_most_of_it() {
        let json = br#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":null},
            "config":{"User":"app","Env":["A=b"],"Entrypoint":null,"Cmd":["sh"],"WorkingDir":"/srv","StopSignal":"SIGQUIT",
            "ExposedPorts":{"80/tcp":{}},"Volumes":{"/data":{}},"Labels":{"a":"b"},"OnBuild":null}}"#;
        let parsed = parse_config(json, "test").unwrap();
        assert_eq!(parsed.id, Digest::of(json));
        assert!(parsed.diff_ids.is_empty());
        let config = parsed.config;
        assert_eq!((config.user.as_str(), config.working_dir.as_str()), ("app", "/srv"));
        assert_eq!((config.entrypoint.len(), config.cmd.as_slice()), (0, &["sh".to_owned()][..]));
        assert_eq!(
            (config.exposed_ports.as_slice(), config.volumes.as_slice()),
            (&["80/tcp".to_owned()][..], &["/data".to_owned()][..])
        );
        assert_eq!(config.stop_signal, "SIGQUIT");
        assert_eq!(config.labels["a"], "b");
        let bare = parse_config(br#"{"rootfs":{"type":"layers","diff_ids":[]}}"#, "test").unwrap();
        assert_eq!(bare.config, ImageConfig::default());
    }

    #[test]
    fn a_configuration_with_a_digest_that_is_none_is_refused() {
        let error =
            parse_config(br#"{"rootfs":{"diff_ids":["sha256:../../etc"]}}"#, "x.tar").err().unwrap().to_string();
        assert!(error.contains("x.tar: configuration") && error.contains("../../etc"), "{error}");
    }
}
