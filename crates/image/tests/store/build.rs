//! Archives and images made for tests, and a way to see whether a store changed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use keelet_image::{Limits, Options, Store};
use sha2::{Digest as _, Sha256};

/// How a blob or archive is packed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// An image to be put into archives.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) layers: Vec<Vec<u8>>,
    pub(crate) config: serde_json::Value,
    pub(crate) tags: Vec<&'static str>,
    pub(crate) packing: Packing,
}

pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        keelet_report::skipped("layers are unpacked as root only");
    }
    is_root
}

pub(crate) fn options() -> Options {
    let mut limits = Limits::default();
    (limits.reserve, limits.reserved_inodes) = (0, 0);
    Options { limits, durable: false, ..Options::default() }
}

pub(crate) fn store(root: &Path) -> Store {
    Store::open_with(root, options()).unwrap()
}

pub(crate) fn sha256(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

pub(crate) fn pack(content: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Plain => content.to_vec(),
        Packing::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        Packing::Zstd => zstd::stream::encode_all(content, 1).unwrap(),
    }
}

/// One entry, with whatever name and fields a test wants.
pub(crate) struct Raw {
    header: tar::Header,
    content: Vec<u8>,
    before: Vec<u8>,
}

impl Raw {
    pub(crate) fn new(kind: u8, name: &str) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_mode(if kind == b'5' { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        Self { header, content: Vec::new(), before: Vec::new() }
    }

    pub(crate) fn file(name: &str, content: &str) -> Self {
        Self::new(b'0', name).content(content.as_bytes())
    }

    pub(crate) fn dir(name: &str) -> Self {
        Self::new(b'5', name)
    }

    pub(crate) fn symlink(name: &str, target: &str) -> Self {
        Self::new(b'2', name).link(target)
    }

    pub(crate) fn hardlink(name: &str, target: &str) -> Self {
        Self::new(b'1', name).link(target)
    }

    pub(crate) fn content(mut self, content: &[u8]) -> Self {
        self.content = content.to_vec();
        self
    }

    pub(crate) fn link(mut self, target: &str) -> Self {
        self.header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        self
    }

    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.header.set_mode(mode);
        self
    }

    pub(crate) fn owner(mut self, uid: u64, gid: u64) -> Self {
        self.header.set_uid(uid);
        self.header.set_gid(gid);
        self
    }

    pub(crate) fn device(mut self, major: u32, minor: u32) -> Self {
        self.header.set_device_major(major).unwrap();
        self.header.set_device_minor(minor).unwrap();
        self
    }

    pub(crate) fn pax(self, key: &str, value: &[u8]) -> Self {
        self.pax_raw(&record(key, value))
    }

    /// An extended header with these records.
    pub(crate) fn pax_raw(mut self, records: &[u8]) -> Self {
        self.before = Self::new(b'x', "pax").content(records).bytes();
        self
    }

    /// A sparse file of this size with all its content at the start, in the old form.
    pub(crate) fn bytes_sparse(mut self, size: u64) -> Vec<u8> {
        self.header.set_entry_type(tar::EntryType::GNUSparse);
        let length = self.content.len() as u64;
        let gnu = self.header.as_gnu_mut().unwrap();
        gnu.sparse[0].set_offset(0);
        gnu.sparse[0].set_length(length);
        gnu.set_real_size(size);
        self.bytes()
    }

    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.header.set_size(self.content.len() as u64);
        self.header.set_cksum();
        let mut bytes = self.before;
        bytes.extend_from_slice(self.header.as_bytes());
        bytes.extend_from_slice(&self.content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

/// A record of an extended header.
pub(crate) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let length = (1..).find(|digits| (rest + digits).to_string().len() == *digits).unwrap() + rest;
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// A whole archive.
pub(crate) fn tar(entries: Vec<Raw>) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.into_iter().flat_map(Raw::bytes).collect();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

pub(crate) fn archive(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

impl Sample {
    pub(crate) fn new(layers: Vec<Vec<u8>>) -> Self {
        let config = serde_json::json!({"Env": ["PATH=/bin"], "Cmd": ["sh"]});
        Self { layers, config, tags: vec!["sample:v1"], packing: Packing::Gzip }
    }

    pub(crate) fn tags(mut self, tags: &[&'static str]) -> Self {
        self.tags = tags.to_vec();
        self
    }

    pub(crate) fn packing(mut self, packing: Packing) -> Self {
        self.packing = packing;
        self
    }

    pub(crate) fn config_json(&self) -> Vec<u8> {
        let platform = keelet_image::Platform::of_this_machine();
        let diff_ids: Vec<String> = self.layers.iter().map(|layer| sha256(layer)).collect();
        serde_json::to_vec(&serde_json::json!({
            "architecture": platform.architecture, "os": platform.os, "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }))
        .unwrap()
    }

    pub(crate) fn id(&self) -> String {
        sha256(&self.config_json())
    }

    pub(crate) fn blobs(&self) -> Vec<Vec<u8>> {
        self.layers.iter().map(|layer| pack(layer, self.packing)).collect()
    }

    pub(crate) fn manifest_json(&self) -> Vec<u8> {
        let describe = |kind: &str, blob: &[u8]| serde_json::json!({"mediaType": kind, "digest": sha256(blob), "size": blob.len()});
        let layers: Vec<_> =
            self.blobs().iter().map(|blob| describe("application/vnd.oci.image.layer.v1.tar+gzip", blob)).collect();
        serde_json::to_vec(&serde_json::json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": describe("application/vnd.oci.image.config.v1+json", &self.config_json()), "layers": layers,
        }))
        .unwrap()
    }

    /// Blobs by digest: layers, configuration and manifest.
    pub(crate) fn all_blobs(&self) -> BTreeMap<String, Vec<u8>> {
        let mut blobs: Vec<Vec<u8>> = self.blobs();
        blobs.push(self.config_json());
        blobs.push(self.manifest_json());
        blobs.into_iter().map(|blob| (sha256(&blob), blob)).collect()
    }

    pub(crate) fn docker_archive(&self) -> Vec<u8> {
        docker_archive(std::slice::from_ref(self))
    }

    pub(crate) fn oci_archive(&self) -> Vec<u8> {
        oci_archive(std::slice::from_ref(self))
    }
}

pub(crate) fn docker_archive(samples: &[Sample]) -> Vec<u8> {
    let mut members: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut table = Vec::new();
    for sample in samples {
        let config = format!("{}.json", &sample.id()[7..]);
        members.insert(config.clone(), sample.config_json());
        let mut layers = Vec::new();
        for blob in sample.blobs() {
            let name = format!("{}/layer.tar", &sha256(&blob)[7..]);
            members.insert(name.clone(), blob);
            layers.push(name);
        }
        table.push(serde_json::json!({"Config": config, "RepoTags": sample.tags, "Layers": layers}));
    }
    members.insert("manifest.json".into(), serde_json::to_vec(&table).unwrap());
    archive(&members.into_iter().collect::<Vec<_>>())
}

pub(crate) fn oci_archive(samples: &[Sample]) -> Vec<u8> {
    let mut members: Vec<(String, Vec<u8>)> =
        vec![("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())];
    let mut entries = Vec::new();
    for sample in samples {
        let manifest = sample.manifest_json();
        for tag in &sample.tags {
            entries.push(serde_json::json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": sha256(&manifest), "size": manifest.len(),
                "annotations": {"io.containerd.image.name": tag},
            }));
        }
        for (digest, blob) in sample.all_blobs() {
            members.push((format!("blobs/sha256/{}", &digest[7..]), blob));
        }
    }
    let index = serde_json::json!({"schemaVersion": 2, "manifests": entries});
    members.push(("index.json".into(), serde_json::to_vec(&index).unwrap()));
    archive(&members)
}

/// Mode and owner, as `chmod` and `chown` write them.
pub(crate) fn access(found: &fs::Metadata) -> String {
    format!("{:o} {}:{}", found.mode() & 0o7777, found.uid(), found.gid())
}

/// Everything observable below a directory: names, kinds, modes, owners, sizes and contents.
pub(crate) fn listing(directory: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() { sha256(&fs::read(&path).unwrap()) } else { String::new() };
        let name = path.strip_prefix(directory).unwrap().display().to_string();
        lines.push(format!(
            "{name} {:o} {}:{} {} {content}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.rdev()
        ));
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    lines.sort();
    lines
}

/// The directory of an image's topmost layer.
pub(crate) fn top_layer(root: &Path, image: &keelet_image::Image) -> std::path::PathBuf {
    match &image.source {
        keelet_image::ImageContent::Layers(layers) => root.join("layers").join(layers.last().unwrap()).join("diff"),
        keelet_image::ImageContent::Directory(path) => path.clone(),
    }
}
