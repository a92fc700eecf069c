//! Where manifests come from: files, directories, standard input. Nothing here blocks, follows a device, or reads more
//! than a manifest may have.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use keelet_pod::{MAX_MANIFEST_BYTES, Origin};

/// One manifest, or why it could not be read.
#[derive(Debug)]
pub(crate) struct ManifestFile {
    pub(crate) origin: Origin,
    pub(crate) bytes: Result<Vec<u8>, UnreadableManifest>,
}

/// Why a manifest could not be read, as the end of a sentence about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableManifest {
    #[error("{}", describe(.0))]
    Read(#[from] io::Error),
    #[error("the directory has no *.yaml, *.yml or *.json file")]
    EmptyDirectory,
    #[error("is a FIFO, not a file; to read it, use `keelet validate - < {}`", .0.display())]
    Fifo(PathBuf),
    #[error("is a socket, not a file")]
    Socket,
    #[error("is a device, not a file; for standard input use -")]
    Device,
}

/// What `kubectl -f` takes for a manifest in a directory.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Everything that an argument of the command line stands for.
pub(crate) fn manifests(argument: &Path) -> Vec<ManifestFile> {
    if argument == Path::new("-") {
        let bytes = read_limited(io::stdin().lock()).map_err(UnreadableManifest::Read);
        return vec![ManifestFile { origin: Origin::stdin(), bytes }];
    }
    match fs::metadata(argument) {
        Ok(metadata) if metadata.is_dir() => directory(argument),
        Ok(_) => vec![file(argument)],
        Err(error) => vec![failed(argument, error.into())],
    }
}

/// The manifests of a directory, sorted by name, not those of directories within.
fn directory(path: &Path) -> Vec<ManifestFile> {
    let entries = match fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(error) => return vec![failed(path, error.into())],
    };
    let mut files: Vec<PathBuf> =
        entries.iter().map(fs::DirEntry::path).filter(|path| is_manifest(path) && !path.is_dir()).collect();
    files.sort();
    if files.is_empty() {
        return vec![failed(path, UnreadableManifest::EmptyDirectory)];
    }
    files.iter().map(|path| file(path)).collect()
}

fn is_manifest(path: &Path) -> bool {
    path.extension().and_then(OsStr::to_str).is_some_and(|extension| EXTENSIONS.contains(&extension))
}

fn file(path: &Path) -> ManifestFile {
    match read_file(path) {
        Ok(bytes) => ManifestFile { origin: Origin::file(path.display().to_string()), bytes: Ok(bytes) },
        Err(error) => failed(path, error),
    }
}

/// Reads a regular file. The type is checked first: opening a FIFO would wait for a writer, reading a device might
/// never end.
fn read_file(path: &Path) -> Result<Vec<u8>, UnreadableManifest> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_fifo() {
        return Err(UnreadableManifest::Fifo(path.to_owned()));
    }
    if kind.is_socket() {
        return Err(UnreadableManifest::Socket);
    }
    if kind.is_char_device() || kind.is_block_device() {
        return Err(UnreadableManifest::Device);
    }
    Ok(read_limited(File::open(path)?)?)
}

/// One byte more than allowed, so that the limit is noticed and the rest never read.
fn read_limited(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MAX_MANIFEST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn failed(path: &Path, error: UnreadableManifest) -> ManifestFile {
    ManifestFile { origin: Origin::file(path.display().to_string()), bytes: Err(error) }
}

/// The usual failures in words, without the error number.
fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
