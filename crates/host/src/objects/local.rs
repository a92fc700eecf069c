//! Config maps and secrets in a directory of the node. Blocks.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::{ByteString, api::core::v1};
use keelet_launch::{Data, ObjectKind};
use keelet_pod::{Object, Origin, Pod, TypeMeta, read_object};
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;

use super::{ObjectError, ObjectName, ObjectStore};

/// The largest object: the API server's own limit.
const MAX_BYTES: u64 = 1 << 20;
/// A manifest of the largest object: values in base64 are a third longer, and there is room for the rest.
const MAX_MANIFEST_BYTES: u64 = 2 << 20;
/// The longest key.
const MAX_KEY: usize = 253;

/// Config maps and secrets as files.
#[derive(Clone, Debug)]
pub struct LocalObjects {
    directory: PathBuf,
}

/// Where one object was found.
enum Place {
    Directory(PathBuf),
    Manifest(PathBuf),
}

// === impl LocalObjects ===

impl LocalObjects {
    /// Where objects are by default.
    pub const DIRECTORY: &'static str = "/etc/keelet";

    /// Objects in this directory. It may come and go.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    fn place(&self, kind: ObjectKind, namespace: &str, name: &str) -> Result<Option<Place>, ObjectError> {
        let folder = match kind {
            ObjectKind::ConfigMap => "configmaps",
            ObjectKind::Secret => "secrets",
        };
        let folder = self.directory.join(folder).join(namespace);
        let mut found = Vec::new();
        for (file, make) in [
            (name.to_owned(), Place::Directory as fn(PathBuf) -> Place),
            (format!("{name}.yaml"), Place::Manifest),
            (format!("{name}.yml"), Place::Manifest),
            (format!("{name}.json"), Place::Manifest),
        ] {
            let path = folder.join(file);
            match fs::metadata(&path) {
                // A name may end in `.yaml` itself.
                Ok(metadata) if metadata.is_dir() == matches!(make(PathBuf::new()), Place::Directory(_)) => {
                    found.push(make(path));
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(source) => return Err(ObjectError::Read { path, source }),
            }
        }
        match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => {
                let paths = found.iter().map(|place| place.path().to_owned()).collect();
                Err(ObjectError::Ambiguous { object: object(kind, namespace, name), paths })
            }
        }
    }
}

impl ObjectStore for LocalObjects {
    fn find(&self, pod: &Pod, kind: ObjectKind, name: &str) -> Result<Option<Data>, ObjectError> {
        self.read(kind, &pod.namespace, name)
    }
}

impl LocalObjects {
    fn read(&self, kind: ObjectKind, namespace: &str, name: &str) -> Result<Option<Data>, ObjectError> {
        for part in [namespace, name] {
            // The name is untrusted input, and becomes a path here.
            if part.is_empty() || part.starts_with('.') || part.contains(['/', '\0']) {
                return Err(ObjectError::Name { object: object(kind, namespace, name), part: part.to_owned() });
            }
        }
        let data = match self.place(kind, namespace, name)? {
            None => return Ok(None),
            Some(Place::Directory(path)) => from_directory(&path)?,
            Some(Place::Manifest(path)) => match kind {
                ObjectKind::ConfigMap => config_map(&path, namespace, name)?,
                ObjectKind::Secret => secret(&path, namespace, name)?,
            },
        };
        let bytes = data.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() as u64;
        if bytes > MAX_BYTES {
            let object = object(kind, namespace, name);
            return Err(ObjectError::TooLarge { object, bytes, allowed: MAX_BYTES });
        }
        Ok(Some(data))
    }
}

// === impl Place ===

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Manifest(path) => path,
        }
    }
}

/// A file for each key.
fn from_directory(directory: &Path) -> Result<Data, ObjectError> {
    let mut data = Data::new();
    for entry in fs::read_dir(directory).map_err(unreadable(directory))? {
        let path = entry.map_err(unreadable(directory))?.path();
        let Some(name) = path.file_name().filter(|name| !is_ignored(name)) else { continue };
        let metadata = fs::metadata(&path).map_err(unreadable(&path))?;
        if metadata.is_dir() {
            continue;
        }
        let key = name.to_str().filter(|key| is_key(key)).ok_or_else(|| ObjectError::FileName(path.clone()))?;
        let bytes = read(&path, MAX_BYTES).map_err(unreadable(&path))?;
        data.insert(key.to_owned(), bytes);
    }
    Ok(data)
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> ObjectError {
    move |source| ObjectError::Read { path: path.to_owned(), source }
}

fn object(kind: ObjectKind, namespace: &str, name: &str) -> ObjectName {
    ObjectName { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

/// What the API takes as a key.
fn is_key(key: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !key.is_empty() && key.len() <= MAX_KEY && key != "." && !key.starts_with("..") && key.bytes().all(good)
}

/// What editors leave behind, and the agent's own `..data` where a volume is the source. A key may start with one dot:
/// `.dockerconfigjson` does.
fn is_ignored(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("..")
        || name.starts_with(".#")
        || name.ends_with('~')
        || [".swp", ".swo", ".swx"].iter().any(|swap| name.ends_with(swap))
        || (name.starts_with('#') && name.ends_with('#'))
}

/// Reads a file, through links; never waits for the other end of a pipe.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("is larger than {most} bytes")));
    }
    Ok(bytes)
}

fn config_map(path: &Path, namespace: &str, name: &str) -> Result<Data, ObjectError> {
    let v1::ConfigMap { metadata, data, binary_data, .. } = manifest(path, ObjectKind::ConfigMap)?;
    check_name(path, metadata.namespace.as_deref(), metadata.name.as_deref(), namespace, name)?;
    let text = data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
    let bytes = binary_data.into_iter().flatten().map(|(key, ByteString(value))| (key, value));
    collect(path, text.chain(bytes))
}

fn secret(path: &Path, namespace: &str, name: &str) -> Result<Data, ObjectError> {
    let v1::Secret { metadata, data, string_data, .. } = manifest(path, ObjectKind::Secret)?;
    check_name(path, metadata.namespace.as_deref(), metadata.name.as_deref(), namespace, name)?;
    let bytes = data.into_iter().flatten().map(|(key, ByteString(value))| (key, value));
    // As in the API, what is given as text replaces what is given as bytes.
    let text = string_data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
    collect(path, bytes.chain(text))
}

fn collect(path: &Path, values: impl Iterator<Item = (String, Vec<u8>)>) -> Result<Data, ObjectError> {
    let data: Data = values.collect();
    match data.keys().find(|key| !is_key(key)) {
        Some(key) => Err(ObjectError::Key { path: path.to_owned(), key: key.clone() }),
        None => Ok(data),
    }
}

fn manifest<T: DeserializeOwned + Default>(path: &Path, kind: ObjectKind) -> Result<T, ObjectError> {
    let bytes = read(path, MAX_MANIFEST_BYTES).map_err(unreadable(path))?;
    let expected = TypeMeta { api_version: "v1", kind: kind.name() };
    let origin = Origin::file(path.display().to_string());
    let Object { value, errors, warnings, .. } = read_object(&bytes, &origin, expected);
    // A misspelt `stringdata` would be an empty object.
    let problems: Vec<_> = errors.iter().chain(&warnings).map(ToString::to_string).collect();
    if problems.is_empty() { Ok(value) } else { Err(ObjectError::Manifest(problems)) }
}

/// A manifest that says another name is in the wrong place.
fn check_name(
    path: &Path,
    said_namespace: Option<&str>,
    said_name: Option<&str>,
    namespace: &str,
    name: &str,
) -> Result<(), ObjectError> {
    for (field, said, place) in [("namespace", said_namespace, namespace), ("name", said_name, name)] {
        if let Some(said) = said.filter(|said| *said != place) {
            let (path, said, place) = (path.to_owned(), said.to_owned(), place.to_owned());
            return Err(ObjectError::Misplaced { path, field, said, place });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(files: &[(&str, &str)]) -> (tempfile::TempDir, LocalObjects) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let store = LocalObjects::new(directory.path());
        (directory, store)
    }

    fn data(pairs: &[(&str, &str)]) -> Data {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn an_object_is_a_directory_of_files_or_a_manifest() {
        let (directory, store) = store(&[
            ("configmaps/shop/conf/a.txt", "one"),
            ("configmaps/shop/conf/.hidden", "two"),
            ("configmaps/shop/conf/a.txt~", "old"),
            ("configmaps/shop/conf/.a.txt.swp", "vim's"),
            ("configmaps/shop/conf/.a.txt.swo", "vim's"),
            ("configmaps/shop/conf/.a.txt.swx", "vim's"),
            ("configmaps/shop/conf/..data/x", "not ours"),
            ("configmaps/shop/conf/sub/x", "no key"),
            ("configmaps/shop/other.yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {k: v}\nbinaryData: {b: YmI=}\n"),
            ("secrets/shop/keys.yml", "apiVersion: v1\nkind: Secret\ndata: {k: YQ==, l: YQ==}\nstringData: {k: b}\n"),
            (
                "secrets/shop/token.json",
                "{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"metadata\": {\"name\": \"token\"}}",
            ),
        ]);
        // Emacs locks a file with a link that leads nowhere.
        let lock = directory.path().join("configmaps/shop/conf/.#a.txt");
        std::os::unix::fs::symlink("somebody@somewhere.1:2", lock).unwrap();
        let find = |kind, name: &str| store.read(kind, "shop", name).unwrap();
        assert_eq!(find(ObjectKind::ConfigMap, "conf"), Some(data(&[("a.txt", "one"), (".hidden", "two")])));
        assert_eq!(find(ObjectKind::ConfigMap, "other"), Some(data(&[("k", "v"), ("b", "bb")])));
        assert_eq!(find(ObjectKind::Secret, "keys"), Some(data(&[("k", "b"), ("l", "a")])));
        assert_eq!(find(ObjectKind::Secret, "token"), Some(Data::new()));
        assert_eq!(find(ObjectKind::Secret, "conf"), None);
        assert_eq!(store.read(ObjectKind::ConfigMap, "other", "conf").unwrap(), None);
        assert_eq!(LocalObjects::new("/nowhere").read(ObjectKind::Secret, "a", "b").unwrap(), None);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let (directory, store) = store(&[
            ("configmaps/shop/twice/k", "v"),
            ("configmaps/shop/twice.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
            ("configmaps/shop/bad/sp ace", "v"),
            ("configmaps/shop/big/k", &"x".repeat(MAX_BYTES as usize)),
            ("configmaps/shop/moved.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: home}\n"),
            ("configmaps/shop/typo.yaml", "apiVersion: v1\nkind: ConfigMap\ndate: {}\n"),
            ("configmaps/shop/keys.yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {../x: z}\n"),
            ("configmaps/shop/kind.yaml", "apiVersion: v1\nkind: Secret\n"),
        ]);
        let at = |file: &str| directory.path().join("configmaps/shop").join(file).display().to_string();
        for (name, words) in [
            ("twice", format!("exists more than once: {}, {}", at("twice"), at("twice.yaml"))),
            ("bad", format!("{}: is no key", at("bad/sp ace"))),
            ("big", "1048576 are allowed".to_owned()),
            ("moved", "metadata.namespace is \"home\", but by its path the file belongs to \"shop\"".to_owned()),
            ("typo", format!("{}:3:1: date: Unknown field: did you mean \"data\"?", at("typo.yaml"))),
            ("keys", "\"../x\" is no key".to_owned()),
            ("kind", "supported values: \"ConfigMap\"".to_owned()),
            ("../shop/twice", "invalid name \"../shop/twice\"".to_owned()),
            ("", "invalid name \"\"".to_owned()),
        ] {
            let error = store.read(ObjectKind::ConfigMap, "shop", name).unwrap_err().to_string();
            assert!(error.contains(&words), "{name}: {error}");
        }
    }
}
