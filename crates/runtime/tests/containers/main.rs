//! The embedded runtime with real containers, asked as an agent asks it.
//!
//! Each case runs in namespaces of its own: this binary is started once more behind `unshare`, is the first process
//! there (`init`), and starts itself as the case. Shims run from this binary too (`shim DIR`), so nothing else has to
//! be built. After each case everything is removed, and whatever is left then fails the case: mounts, processes,
//! cgroups, interfaces, directories. Without root everything is printed as skipped.

#![expect(clippy::print_stdout, reason = "a list of cases, and why one is skipped")]
#![expect(clippy::disallowed_methods, reason = "a test waits for the processes it starts, and for time to pass")]

mod attach;
mod confinement;
mod damage;
mod differential;
mod errors;
mod exec;
mod hostile;
mod images;
mod keeping;
mod lifecycle;
mod logs;
mod mounts;
mod pods;
mod resources;
mod survival;
mod users;
mod world;

use std::{
    env,
    path::{Path, PathBuf},
    pin::Pin,
    process::{Command, ExitCode},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use keelet_report::{Ended, Tally};
use world::World;

/// How a case ends that does not fail.
pub(crate) enum Shown {
    Yes,
    Skipped(String),
}

type Running = Pin<Box<dyn Future<Output = Shown>>>;
type Case = (&'static str, fn(World) -> Running);

/// The cases of a module, by their names.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) const CASES: &[crate::Case] = &[$((
            concat!(module_path!(), "::", stringify!($name)),
            |world| Box::pin(async move { crate::shown(world, $name).await }),
        )),*];
    };
}
pub(crate) use cases;

/// Runs a case, and then looks for what it left.
pub(crate) async fn shown<F: AsyncFnOnce(&mut World) -> Shown>(mut world: World, case: F) -> Shown {
    let shown = case(&mut world).await;
    world.leaves_nothing().await;
    shown
}

/// A case that hangs must not hang the rest.
const LONGEST: Duration = Duration::from_secs(240);
/// How a case that was skipped ends.
const SKIPPED: i32 = 77;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["shim", dir] => keelet_shim::run(Path::new(dir)).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        ["init", rest @ ..] => world::init(rest),
        ["case", name, dir, cgroup] => case(name, World::at(Path::new(dir), cgroup)),
        ["serve", dir, cgroup] => survival::serve(World::at(Path::new(dir), cgroup)),
        ["overwrite"] => confinement::overwrite(),
        ["swap", dir, one, other] => hostile::swap(dir, one, other),
        _ => all(&args),
    }
}

fn all_cases() -> Vec<Case> {
    [
        lifecycle::CASES,
        errors::CASES,
        logs::CASES,
        exec::CASES,
        attach::CASES,
        confinement::CASES,
        mounts::CASES,
        hostile::CASES,
        resources::CASES,
        pods::CASES,
        images::CASES,
        survival::CASES,
        keeping::CASES,
        damage::CASES,
        users::CASES,
        differential::CASES,
    ]
    .concat()
}

fn all(args: &[String]) -> ExitCode {
    let all = all_cases();
    if args.iter().any(|arg| arg == "--list") {
        all.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<_> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let chosen: Vec<_> = all
        .iter()
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|part| name.contains(part.as_str())))
        .collect();
    let is_root = rustix::process::geteuid().is_root();
    let (next, tally) = (AtomicUsize::new(0), Tally::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, _)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let short = name.split_once("::").map_or(*name, |(_, short)| short);
                    let ended = if is_root { apart(name, short) } else { Ended::Skipped("it needs root".to_owned()) };
                    tally.report(short, ended);
                }
            });
        }
    });
    let well = tally.close(all.len() - chosen.len());
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one case in namespaces of its own.
fn apart(name: &str, short: &str) -> Ended {
    let dir = tempfile::Builder::new().prefix("keelet-rt-").tempdir().unwrap();
    let cgroup = format!("/keelet-rt-{}-{}", std::process::id(), short.replace("::", "-"));
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"])
        .arg(env::current_exe().unwrap())
        .args(["init", name])
        .arg(dir.path())
        .arg(&cgroup)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    if let Ok(mounts) = keelet_linux::cgroup::Mounts::find() {
        mounts.kill(&cgroup);
        let _ = mounts.remove(&cgroup);
    }
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ended::Passed,
        Some(SKIPPED) => Ended::Skipped(text.lines().last().unwrap_or_default().to_owned()),
        _ => Ended::Failed(format!("{}\n{text}", output.status)),
    }
}

/// The case itself, in its namespaces.
fn case(name: &str, world: World) -> ExitCode {
    let all = all_cases();
    let (_, case) = all.iter().find(|(known, _)| *known == name).expect("a case of that name");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let world = world.open().await;
        tokio::time::timeout(LONGEST.saturating_mul(world::slower()), case(world)).await
    });
    match ended {
        Ok(Shown::Yes) => ExitCode::SUCCESS,
        Ok(Shown::Skipped(reason)) => {
            println!("{reason}");
            std::process::exit(SKIPPED)
        }
        Err(_) => {
            println!("the case did not end within {:?}", LONGEST.saturating_mul(world::slower()));
            ExitCode::FAILURE
        }
    }
}

/// A place of this machine that a case may look at.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.is_file())
}
