//! The last steps before the command of a container: entering its working directory and execve.

use std::{
    convert::Infallible,
    ffi::CString,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use keelet_linux::in_root::{Kind, open_or_create};
use nix::{
    errno::Errno,
    unistd::{AccessFlags, access, chdir, execve},
};

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a command was not executed. The texts of execve and of the search are those of runc, which users know.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("cannot enter the working directory {path:?}: {}", errno.desc())]
    Enter { path: PathBuf, errno: Errno },
    #[error("cannot create the working directory {path:?}: {source}")]
    Create { path: PathBuf, source: io::Error },
    #[error("the working directory {path:?} is outside the container")]
    Outside { path: PathBuf },
    #[error("no command is given")]
    Missing,
    #[error("exec: the command is empty")]
    Empty,
    #[error("exec: {name:?}: permission denied")]
    Forbidden { name: String },
    #[error("exec: {name:?}: executable file not found in $PATH")]
    NotFound { name: String },
    #[error("exec: {name:?}: arguments and variables must not contain a NUL byte")]
    NulByte { name: String },
    #[error("exec: {path:?}: {}", errno.desc())]
    Exec { path: PathBuf, errno: Errno },
}

/// Enters the working directory of a container and creates it if it is missing, as runc does.
///
/// This process has switched to its user and still has all capabilities, so it can enter any directory. Root owns created directories.
pub(crate) fn enter(cwd: &Path) -> Result<(), CommandError> {
    match chdir(cwd) {
        Ok(()) => {}
        Err(Errno::ENOENT) => {
            let created = root().and_then(|root| open_or_create(root.as_fd(), cwd, Kind::Directory));
            let entered = created.and_then(|created| Ok(rustix::process::fchdir(created)?));
            entered.map_err(|source| CommandError::Create { path: cwd.to_owned(), source })?;
        }
        Err(errno) => return Err(CommandError::Enter { path: cwd.to_owned(), errno }),
    }
    check_inside(cwd)
}

/// The root directory of this process.
pub(crate) fn root() -> io::Result<OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    Ok(openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Checks that the working directory is below the container's root: through a descriptor of the shim that is still open, a path such as
/// `/proc/self/fd/7` could lead out of it.
pub(crate) fn check_inside(cwd: &Path) -> Result<(), CommandError> {
    match nix::unistd::getcwd() {
        Ok(found) if found.is_absolute() => Ok(()),
        _ => Err(CommandError::Outside { path: cwd.to_owned() }),
    }
}

/// Executes the command in place of this process. Returns only if that fails.
pub(crate) fn execute(args: &[String], env: &[String]) -> Result<Infallible, CommandError> {
    let name = args.first().ok_or(CommandError::Missing)?;
    let path = find(name, env)?;
    let c_strings =
        |items: &[String]| items.iter().map(|item| CString::new(item.as_bytes())).collect::<Result<Vec<_>, _>>();
    let program = CString::new(path.as_os_str().as_bytes());
    let (Ok(program), Ok(args), Ok(env)) = (program, c_strings(args), c_strings(env)) else {
        return Err(CommandError::NulByte { name: name.clone() });
    };
    execve(&program, &args, &env).map_err(|errno| CommandError::Exec { path, errno })
}

/// The program of a name, found in `$PATH` as by a shell.
fn find(name: &str, env: &[String]) -> Result<PathBuf, CommandError> {
    if name.is_empty() {
        return Err(CommandError::Empty);
    }
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let paths = env.iter().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH);
    let mut forbidden = false;
    for directory in paths.split(':') {
        let path = Path::new(if directory.is_empty() { "." } else { directory }).join(name);
        if !path.is_file() {
            continue;
        }
        match access(&path, AccessFlags::X_OK) {
            Ok(()) => return Ok(path),
            Err(_) => forbidden = true,
        }
    }
    let name = name.to_owned();
    Err(if forbidden { CommandError::Forbidden { name } } else { CommandError::NotFound { name } })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

    use super::find;

    #[test]
    fn a_command_is_found_as_a_shell_finds_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let (first, second) = (directory.path().join("a"), directory.path().join("b"));
        for (place, mode) in [(&first, 0o644), (&second, 0o755)] {
            fs::create_dir(place).expect("created");
            fs::write(place.join("tool"), "#!/bin/sh\n").expect("written");
            fs::set_permissions(place.join("tool"), fs::Permissions::from_mode(mode)).expect("mode");
        }
        let path = |places: &[&std::path::Path]| {
            let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
            vec![format!("PATH={}", places.join(":"))]
        };
        let found = |name: &str, env: &[String]| find(name, env).map_err(|error| error.to_string());
        assert_eq!(found("tool", &path(&[&first, &second])), Ok(second.join("tool")));
        assert_eq!(found("tool", &path(&[&first])), Err("exec: \"tool\": permission denied".to_owned()));
        assert_eq!(
            found("none", &path(&[&second])),
            Err("exec: \"none\": executable file not found in $PATH".to_owned())
        );
        assert_eq!(found("./any/where", &[]), Ok(PathBuf::from("./any/where")));
    }
}
