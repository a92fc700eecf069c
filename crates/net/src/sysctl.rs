//! Sysctls below /proc/sys/net. They belong to the network namespace of the calling thread.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// Sets a sysctl. Returns whether it was changed.
pub(crate) fn ensure(name: &str, wanted: &str) -> Result<bool, Error> {
    let path = path_of(name);
    let current = fs::read_to_string(&path).map_err(Error::state("read", &path))?;
    if current.trim() == wanted {
        return Ok(false);
    }
    fs::write(&path, wanted).map_err(Error::state("write", &path))?;
    Ok(true)
}

/// Whether the kernel has the sysctl.
pub(crate) fn exists(name: &str) -> bool {
    path_of(name).exists()
}

/// Components are separated by slashes, because names of interfaces may have dots.
fn path_of(name: &str) -> PathBuf {
    Path::new("/proc/sys/net").join(name)
}
