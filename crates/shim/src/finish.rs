//! The last steps of a process before it is the container's own: privileges go, the filter is set, the command takes over.

use std::{
    collections::BTreeSet,
    ffi::CString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use keelet_linux::{capabilities, null::is_null, place, seccomp};
use nix::unistd::{AccessFlags, access, chdir, execve};
use oci_spec::runtime::{LinuxCapabilities, LinuxSeccomp, Process, Spec};

/// What a process of a container may do.
#[derive(Clone, Debug)]
pub(crate) struct Confinement {
    capabilities: LinuxCapabilities,
    filter: Option<seccomp::Program>,
    no_new_privileges: bool,
}

// === impl Confinement ===

impl Confinement {
    /// What the configuration says; an error if any of it cannot be enforced.
    pub(crate) fn of(spec: &Spec, process: &Process) -> Result<Self, String> {
        let profile = spec.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
        let filter = profile.map(compile).transpose()?;
        Ok(Self {
            // Nothing said is nothing allowed.
            capabilities: process.capabilities().clone().unwrap_or_else(none),
            filter,
            no_new_privileges: process.no_new_privileges().unwrap_or(false),
        })
    }

    /// Confines a process that has its user already.
    pub(crate) fn apply(&self) -> io::Result<()> {
        self.around(|| {
            if self.no_new_privileges {
                rustix::thread::set_no_new_privs(true)?;
            }
            capabilities::apply(&self.capabilities)
        })
    }

    /// Confines a process and makes it somebody's.
    pub(crate) fn become_user(&self, user: &oci_spec::runtime::User) -> io::Result<()> {
        let groups = user.additional_gids().clone().unwrap_or_default();
        self.around(|| {
            capabilities::become_user(user.uid(), user.gid(), &groups, &self.capabilities, self.no_new_privileges)
        })
    }

    /// A filter may be set by whoever promised to gain no privileges, and then comes last, so that it need not allow the
    /// steps before it. Without that promise it takes a privilege, and has to come first.
    fn around(&self, drop_privileges: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let filter = || self.filter.as_ref().map_or(Ok(()), seccomp::load);
        if self.no_new_privileges {
            drop_privileges()?;
            filter()
        } else {
            filter()?;
            drop_privileges()
        }
    }
}

/// No capability at all.
pub(crate) fn none() -> LinuxCapabilities {
    capabilities::to_oci(&BTreeSet::new(), &BTreeSet::new())
}

fn compile(profile: &LinuxSeccomp) -> Result<seccomp::Program, String> {
    seccomp::compile(profile).map_err(|error| format!("the seccomp profile cannot be enforced: {error}"))
}

/// Makes standard input, output and error the user's, who may then open them again by their names. This process still has all
/// privileges.
pub(crate) fn own_stdio(uid: u32) -> io::Result<()> {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]
        .into_iter()
        .try_for_each(|fd| own(fd, uid))
}

/// The same for one descriptor.
pub(crate) fn own(fd: BorrowedFd<'_>, uid: u32) -> io::Result<()> {
    // Everybody's device stays everybody's.
    if rustix::fs::fstat(fd)?.st_uid == uid || is_null(fd)? {
        return Ok(());
    }
    match rustix::fs::fchown(fd, Some(rustix::fs::Uid::from_raw(uid)), None) {
        // Some have no owner that could change.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM | rustix::io::Errno::ROFS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Enters the working directory of a container; one that is missing is made, as runc does.
///
/// This process has its user already and still all privileges, so that any directory can be entered. What it makes belongs to root.
pub(crate) fn enter(cwd: &Path) -> Result<(), String> {
    let fail =
        |error: nix::Error| format!("cannot enter the directory {:?}: {}", cwd.display().to_string(), error.desc());
    match chdir(cwd) {
        Err(nix::Error::ENOENT) => {
            let made = root().and_then(|root| place::find_or_make(root.as_fd(), cwd, place::Kind::Directory));
            let made = made.and_then(|made| Ok(rustix::process::fchdir(made)?));
            made.map_err(|error| format!("cannot make the directory {:?}: {error}", cwd.display().to_string()))?;
        }
        entered => entered.map_err(fail)?,
    }
    inside(cwd)
}

/// The root directory of this process.
pub(crate) fn root() -> io::Result<OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    Ok(openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A descriptor of ours that is still open must not have been a way out of the container.
pub(crate) fn inside(cwd: &Path) -> Result<(), String> {
    match nix::unistd::getcwd() {
        Ok(found) if found.is_absolute() => Ok(()),
        _ => Err(format!("the directory {:?} is not in the container", cwd.display().to_string())),
    }
}

/// Becomes the command. Returns only if that fails, with the reason.
pub(crate) fn become_command(args: &[String], env: &[String]) -> String {
    let Some(name) = args.first() else { return "no command is given".to_owned() };
    let path = match find(name, env) {
        Ok(path) => path,
        Err(error) => return error,
    };
    let texts =
        |items: &[String]| items.iter().map(|item| CString::new(item.as_bytes())).collect::<Result<Vec<_>, _>>();
    let (Ok(program), Ok(args), Ok(env)) = (CString::new(path.as_os_str().as_bytes()), texts(args), texts(env)) else {
        return format!("{name:?}: arguments and variables must not contain a zero byte");
    };
    match execve(&program, &args, &env) {
        Ok(never) => match never {},
        Err(error) => format!("exec: {:?}: {}", path.display().to_string(), error.desc()),
    }
}

/// The program that a name means, found as a shell would. The words are those that users of runc know.
fn find(name: &str, env: &[String]) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err("exec: the command is empty".to_owned());
    }
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let paths = env.iter().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or(USUAL_PATH);
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
    Err(match forbidden {
        true => format!("exec: {name:?}: permission denied"),
        false => format!("exec: {name:?}: executable file not found in $PATH"),
    })
}

const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::find;

    #[test]
    fn a_command_is_found_as_a_shell_finds_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let (first, second) = (directory.path().join("a"), directory.path().join("b"));
        for (place, mode) in [(&first, 0o644), (&second, 0o755)] {
            fs::create_dir(place).expect("made");
            fs::write(place.join("tool"), "#!/bin/sh\n").expect("written");
            fs::set_permissions(place.join("tool"), fs::Permissions::from_mode(mode)).expect("mode");
        }
        let path = |places: &[&std::path::Path]| {
            let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
            vec![format!("PATH={}", places.join(":"))]
        };
        assert_eq!(find("tool", &path(&[&first, &second])), Ok(second.join("tool")));
        assert_eq!(find("tool", &path(&[&first])), Err("exec: \"tool\": permission denied".to_owned()));
        assert_eq!(
            find("none", &path(&[&second])),
            Err("exec: \"none\": executable file not found in $PATH".to_owned())
        );
        assert_eq!(find("./any/where", &[]), Ok("./any/where".into()));
    }
}
