//! The list of images: one small file, replaced as a whole, so that a tag never points to two images.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use oci_spec::distribution::Reference;
use serde::{Deserialize, Serialize};

use crate::error::{At, Error};
use crate::image::{Image, ImageConfig, ImageContent};
use crate::reference::{Wanted, repository_of, repository_of_text, tag_of};

/// All images of the store by ID.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Index {
    format: u32,
    pub(crate) images: BTreeMap<String, Record>,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) tags: BTreeSet<String>,
    pub(crate) digests: BTreeSet<String>,
    /// chain IDs without the algorithm, the lowest first
    pub(crate) layers: Vec<String>,
    pub(crate) size: u64,
    pub(crate) pinned: bool,
    pub(crate) config: ImageConfig,
}

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// tags and digests that no longer resolve
    pub names: Vec<String>,
    /// the image, if that was the last of its names or it was removed by ID
    pub id: Option<String>,
}

/// The format of this version. A store with another format is not modified.
const FORMAT: u32 = 1;

/// Replaces a file in one step that survives a crash at any point.
pub(crate) fn write_file(path: &Path, content: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary).at("create", &temporary)?;
    file.write_all(content).and_then(|()| file.sync_all()).at("write", &temporary)?;
    std::fs::rename(&temporary, path).at("replace", path)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    File::open(directory).and_then(|directory| directory.sync_all()).at("sync", directory)
}

// === impl Index ===

impl Index {
    /// Reads the list. A store without a list is empty; a list that cannot be read is an error and never overwritten.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let content = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { format: FORMAT, ..Self::default() });
            }
            content => content.at("read", path)?,
        };
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let damaged = |error: serde_json::Error| Error::Damaged { path: path.into(), reason: error.to_string() };
        let Format { format } = serde_json::from_slice(&content).map_err(damaged)?;
        if format != FORMAT {
            return Err(Error::Format { path: path.into(), found: format, known: FORMAT });
        }
        serde_json::from_slice(&content).map_err(damaged)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let content = serde_json::to_vec(self)
            .map_err(|error| Error::Damaged { path: path.into(), reason: error.to_string() })?;
        write_file(path, &content)
    }

    /// The ID of the image that a reference resolves to.
    pub(crate) fn find(&self, reference: &str, wanted: &Wanted) -> Result<Option<&str>, Error> {
        match wanted {
            Wanted::Directory(_) => Ok(None),
            Wanted::Id(digits) => self.find_id(reference, digits),
            Wanted::Name(name, digits) => match (self.find_name(name), digits) {
                (Some(id), _) => Ok(Some(id)),
                (None, Some(digits)) => self.find_id(reference, digits),
                (None, None) => Ok(None),
            },
        }
    }

    fn find_id(&self, reference: &str, digits: &str) -> Result<Option<&str>, Error> {
        let prefix = format!("sha256:{digits}");
        let mut matching = self.images.range(prefix.clone()..).map(|(id, _)| id.as_str());
        let matching: Vec<&str> = matching.by_ref().take_while(|id| id.starts_with(&prefix)).collect();
        match matching.as_slice() {
            [] => Ok(None),
            [id] => Ok(Some(id)),
            several => Err(Error::Ambiguous { reference: reference.to_owned(), count: several.len() }),
        }
    }

    /// A digest identifies the image exactly; a tag beside it is ignored.
    fn find_name(&self, name: &Reference) -> Option<&str> {
        let mut images = self.images.iter();
        let found = match name.digest() {
            Some(digest) => {
                let wanted = format!("{}@{digest}", repository_of(name));
                images.find(|(_, record)| record.digests.contains(&wanted))
            }
            None => {
                let wanted = tag_of(name)?;
                images.find(|(_, record)| record.tags.contains(&wanted))
            }
        };
        found.map(|(id, _)| id.as_str())
    }

    /// Adds an image, or names to an existing one. A tag moves here from another image.
    pub(crate) fn add(&mut self, id: &str, new: Record) {
        for record in self.images.values_mut() {
            record.tags.retain(|tag| !new.tags.contains(tag));
        }
        match self.images.get_mut(id) {
            Some(record) => {
                record.tags.extend(new.tags);
                record.digests.extend(new.digests);
            }
            None => {
                self.images.insert(id.to_owned(), new);
            }
        }
    }

    /// Removes a name, and the image with its last name; or an image with all its names, if the reference is an ID.
    pub(crate) fn remove(&mut self, reference: &str, wanted: &Wanted) -> Result<Removed, Error> {
        let Some(id) = self.find(reference, wanted)?.map(str::to_owned) else { return Ok(Removed::default()) };
        let by_name = match wanted {
            Wanted::Name(name, _) => self.find_name(name).is_some().then_some(name),
            _ => None,
        };
        let Some(record) = self.images.get_mut(&id) else { return Ok(Removed::default()) };
        let mut names = Vec::new();
        if let Some(name) = by_name {
            names = record.remove_name(name);
            if !record.tags.is_empty() || !record.digests.is_empty() {
                return Ok(Removed { names, id: None });
            }
        }
        names.extend(record.tags.iter().chain(&record.digests).cloned());
        self.images.remove(&id);
        Ok(Removed { names, id: Some(id) })
    }

    pub(crate) fn image(&self, id: &str) -> Option<Image> {
        self.images.get(id).map(|record| record.image(id))
    }
}

// === impl Record ===

impl Record {
    fn image(&self, id: &str) -> Image {
        Image {
            id: id.to_owned(),
            tags: self.tags.iter().cloned().collect(),
            digests: self.digests.iter().cloned().collect(),
            size: self.size,
            pinned: self.pinned,
            config: self.config.clone(),
            source: ImageContent::Layers(self.layers.clone()),
        }
    }

    /// Removes a tag or digest. The last tag of a repository takes the digests of that repository with it.
    fn remove_name(&mut self, name: &Reference) -> Vec<String> {
        let repository = repository_of(name);
        if let Some(digest) = name.digest() {
            let wanted = format!("{repository}@{digest}");
            self.digests.remove(&wanted);
            return vec![wanted];
        }
        let mut removed: Vec<String> = tag_of(name).into_iter().collect();
        self.tags.retain(|tag| !removed.contains(tag));
        if !self.tags.iter().any(|tag| repository_of_text(tag) == repository) {
            let (gone, kept) = std::mem::take(&mut self.digests)
                .into_iter()
                .partition(|digest| repository_of_text(digest) == repository);
            self.digests = kept;
            let gone: BTreeSet<String> = gone;
            removed.extend(gone);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::parse;

    fn id(letter: char) -> String {
        format!("sha256:{}", letter.to_string().repeat(64))
    }

    fn record(tags: &[&str], digests: &[&str]) -> Record {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Record { tags: set(tags), digests: set(digests), ..Record::default() }
    }

    fn remove(index: &mut Index, reference: &str) -> Removed {
        index.remove(reference, &parse(reference).unwrap()).unwrap()
    }

    fn find(index: &Index, reference: &str) -> Option<String> {
        index.find(reference, &parse(reference).unwrap()).unwrap().map(str::to_owned)
    }

    #[test]
    fn a_tag_points_to_one_image_only() {
        let mut index = Index::default();
        index.add(&id('a'), record(&["docker.io/library/x:latest"], &[]));
        index.add(&id('b'), record(&["docker.io/library/x:latest"], &[]));
        assert_eq!(find(&index, "x"), Some(id('b')));
        assert!(index.images[&id('a')].tags.is_empty());
        assert_eq!(find(&index, &id('a')), Some(id('a')));
    }

    #[test]
    fn an_image_is_found_by_digest_prefix_and_name() {
        let digest = format!("sha256:{}", "1".repeat(64));
        let mut index = Index::default();
        index.add(&id('a'), record(&["docker.io/library/x:v1"], &[&format!("docker.io/library/x@{digest}")]));
        for reference in [
            "x:v1",
            "docker.io/x:v1",
            "aaaaaaaaaaaa",
            "sha256:aaaaaaaaaaaa",
            &id('a'),
            &id('a')[7..],
            &format!("x@{digest}"),
            &format!("x:other@{digest}"),
        ] {
            assert_eq!(find(&index, reference), Some(id('a')), "{reference}");
        }
        for reference in ["x", "y:v1", "aaaaaaaaaaab", &format!("y@{digest}"), "aaaaaaaaaaa"] {
            assert_eq!(find(&index, reference), None, "{reference}");
        }
    }

    #[test]
    fn digits_that_fit_two_images_are_refused() {
        let mut index = Index::default();
        index.add(&format!("sha256:{}0", "a".repeat(63)), record(&[], &[]));
        index.add(&format!("sha256:{}1", "a".repeat(63)), record(&[], &[]));
        let error = index.find("aaaaaaaaaaaa", &parse("aaaaaaaaaaaa").unwrap()).unwrap_err();
        assert!(matches!(error, Error::Ambiguous { count: 2, .. }), "{error}");
    }

    #[test]
    fn removing_the_last_name_removes_the_image() {
        let mut index = Index::default();
        let digest = format!("docker.io/library/x@sha256:{}", "1".repeat(64));
        index.add(&id('a'), record(&["docker.io/library/x:v1", "docker.io/library/x:v2"], &[&digest]));
        assert_eq!(remove(&mut index, "x:v1"), Removed { names: vec!["docker.io/library/x:v1".into()], id: None });
        assert_eq!(
            remove(&mut index, "x:v2"),
            Removed { names: vec!["docker.io/library/x:v2".into(), digest], id: Some(id('a')) }
        );
        assert_eq!(remove(&mut index, "x:v2"), Removed::default());
    }

    #[test]
    fn removal_by_id_removes_all_names() {
        let mut index = Index::default();
        index.add(&id('a'), record(&["docker.io/library/x:v1", "docker.io/library/y:v2"], &[]));
        let removed = remove(&mut index, "aaaaaaaaaaaa");
        assert_eq!(removed.id, Some(id('a')));
        assert_eq!(removed.names.len(), 2);
        assert!(index.images.is_empty());
    }
}
