//! A separate machine for each test.
//!
//! A test calls [`run`]. That starts the test binary once more, with this one test, inside private namespaces (`bed.sh`),
//! and there the body of the test runs.

use std::{
    env,
    path::Path,
    process::{ExitCode, Stdio},
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use tokio::process::Command;

use crate::{Node, Place, Runs};

/// How many machines there are at once. Tests mostly wait, but agents and containers take their share of small machines.
const AT_ONCE: usize = 4;

/// A test that hangs must not hang the rest; it has its own, shorter deadlines. Tests that are ignored by default may take
/// long.
const LIMIT: Duration = Duration::from_secs(1800);

/// The exit status of `bed.sh` if the machine cannot be created.
const SKIPPED: u8 = 77;

const NOT_ROOT: &str = "it needs root";
const SCRIPT: &str = include_str!("bed.sh");
const DIRECTORY: &str = "KEELET_NODE_DIR";

static FREE: (Mutex<usize>, Condvar) = (Mutex::new(AT_ONCE), Condvar::new());

/// Runs a test on a separate machine, with an embedded runtime. The binary is keelet's, unless `KEELET_NODE_BINARY`
/// names another.
///
/// # Panics
///
/// If the test fails.
pub fn run<T: AsyncFnOnce(&mut Node)>(binary: &str, test: T) {
    if let Some(place) = inside(binary) {
        return block_on(async { test(&mut Node::new(place)).await });
    }
    if !rustix::process::geteuid().is_root() {
        return keelet_report::skipped(NOT_ROOT);
    }
    let _permit = Permit::take();
    match block_on(outside(name_of::<T>())) {
        Ok(said) => keelet_report::skipped_elsewhere(&said),
        Err(said) => panic!("on a machine of its own:\n{said}"),
    }
}

/// The state of a program that needs a separate machine.
#[derive(Debug)]
pub enum Entered {
    /// It is on one.
    Inside(Place),
    /// It was, and has ended.
    Left(ExitCode),
    /// It cannot have one.
    Not(String),
}

/// Runs this program once more, on a separate machine, and returns its directory there.
pub fn enter(binary: &str) -> Entered {
    if let Some(place) = inside(binary) {
        return Entered::Inside(place);
    }
    if !rustix::process::geteuid().is_root() {
        return Entered::Not(NOT_ROOT.to_owned());
    }
    let ran = env::current_exe().and_then(|program| block_on(async { machine(&program).status().await }));
    match ran.map(|status| status.code()) {
        Ok(Some(code)) => Entered::Left(u8::try_from(code).map_or(ExitCode::FAILURE, |code| match code {
            // The script has printed the reason.
            SKIPPED => ExitCode::SUCCESS,
            code => ExitCode::from(code),
        })),
        Ok(None) => Entered::Left(ExitCode::FAILURE),
        Err(error) => Entered::Not(error.to_string()),
    }
}

/// The directory of this process, if it is on a separate machine.
fn inside(binary: &str) -> Option<Place> {
    let binary = env::var("KEELET_NODE_BINARY").unwrap_or_else(|_| binary.to_owned());
    Some(Place {
        directory: env::var_os(DIRECTORY)?.into(),
        binary: binary.into(),
        image: "rootfs:/".to_owned(),
        runtime: Runs::Embedded,
    })
}

/// A program on a separate machine.
fn machine(program: &Path) -> Command {
    // The machines of a program end when it is killed.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM", "bash", "-c", SCRIPT, "bed.sh", "outside"])
        .arg(program)
        .env("BED_SCRIPT", SCRIPT)
        .current_dir(Path::new("/"))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The output of the test on a separate machine, also if it was skipped there; or how it failed.
async fn outside(name: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let test = env::current_exe().map_err(failed)?;
    let mut command = machine(&test);
    command.args(["--exact", name, "--include-ignored", "--nocapture"]).env("RUST_BACKTRACE", "0");
    let Ok(output) = tokio::time::timeout(LIMIT, command.output()).await else {
        return Err(format!("{name} did not end within {LIMIT:?}"));
    };
    let output = output.map_err(failed)?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    match output.status.code() {
        Some(0) if out.contains("1 passed") => Ok(format!("{out}\n{err}")),
        Some(code) if code == i32::from(SKIPPED) => Ok(out),
        _ => Err(format!("{}\n{out}\n{err}", output.status)),
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
struct Permit;

// === impl Permit ===

impl Permit {
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

impl Drop for Permit {
    fn drop(&mut self) {
        *FREE.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        FREE.1.notify_one();
    }
}
