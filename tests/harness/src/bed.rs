//! A machine of its own for each test.
//!
//! A test calls [`run`]. That starts the test binary once more, with this one test, inside private namespaces (`bed.sh`),
//! and there the body of the test runs.

use std::{
    env,
    path::Path,
    process::Stdio,
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use tokio::process::Command;

use crate::{Node, Place, Runs};

/// How many machines there are at once. Tests mostly wait, but agents and containers take their share of small machines.
const AT_ONCE: usize = 4;

/// A test that hangs must not hang the rest; it has deadlines of its own below this one. Those that are ignored unless
/// asked for may take long.
const LIMIT: Duration = Duration::from_secs(1800);

/// How `bed.sh` says that the machine cannot be made.
const SKIPPED: i32 = 77;

const SCRIPT: &str = include_str!("bed.sh");
const DIRECTORY: &str = "KEELET_NODE_DIR";

static FREE: (Mutex<usize>, Condvar) = (Mutex::new(AT_ONCE), Condvar::new());

/// Runs a test on a machine of its own, with an embedded runtime. The binary is keelet's, unless `KEELET_NODE_BINARY`
/// names another.
///
/// # Panics
///
/// If the test fails.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
pub fn run<T: AsyncFnOnce(&mut Node)>(binary: &str, test: T) {
    let binary = env::var("KEELET_NODE_BINARY").unwrap_or_else(|_| binary.to_owned());
    if let Some(directory) = env::var_os(DIRECTORY) {
        let place = Place {
            directory: directory.into(),
            binary: binary.into(),
            image: "rootfs:/".to_owned(),
            runtime: Runs::Embedded,
        };
        return block_on(async { test(&mut Node::new(place)).await });
    }
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root");
    }
    let _turn = Turn::take();
    match block_on(outside(name_of::<T>())) {
        Ok(()) => {}
        Err(Trouble::Skipped(why)) => println!("{why}"),
        Err(Trouble::Failed(said)) => panic!("on a machine of its own:\n{said}"),
    }
}

enum Trouble {
    Skipped(String),
    Failed(String),
}

async fn outside(name: &str) -> Result<(), Trouble> {
    let failed = |error: std::io::Error| Trouble::Failed(format!("{error}"));
    let test = env::current_exe().map_err(failed)?;
    // A test binary that is killed takes its machines along.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "bash", "-c", SCRIPT, "bed.sh", "outside"]).arg(test).args([
        "--exact",
        name,
        "--include-ignored",
        "--nocapture",
    ]);
    command
        .env("BED_SCRIPT", SCRIPT)
        .env("RUST_BACKTRACE", "0")
        .current_dir(Path::new("/"))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let Ok(output) = tokio::time::timeout(LIMIT, command.output()).await else {
        return Err(Trouble::Failed(format!("{name} did not end within {LIMIT:?}")));
    };
    let output = output.map_err(failed)?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    match output.status.code() {
        Some(0) if out.contains("1 passed") => Ok(()),
        Some(SKIPPED) => Err(Trouble::Skipped(out)),
        _ => Err(Trouble::Failed(format!("{}\n{out}\n{err}", output.status))),
    }
}

/// The name of the test whose body this is, as the test binary knows it.
fn name_of<T>() -> &'static str {
    let path = std::any::type_name::<T>().trim_end_matches("::{{closure}}");
    path.split_once("::").map_or(path, |(_, name)| name)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime for the test").block_on(work)
}

/// The right to have a machine.
struct Turn;

// === impl Turn ===

impl Turn {
    fn take() -> Self {
        let (free, freed) = &FREE;
        let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *FREE.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        FREE.1.notify_one();
    }
}
