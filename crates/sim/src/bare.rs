//! The simulated runtime by itself, in real time, for benchmarks and tests of servers: everything around it is real.

use std::{path::Path, sync::Arc};

use keelet_agent::{Doors, Settings, clock::OsClock, doors::Clock};
use keelet_host::{Layout, OsHost};
use keelet_launch::NodeFacts;
use keelet_ledger::OsDisk;
use keelet_lifecycle::Rules;
use keelet_pod::Features;

use crate::{
    process::{AgentProcess, InFlight},
    runtime::SimRuntime,
    sim::{Mode, Sim},
};

/// A runtime in which every container is healthy and every call succeeds. To be called inside of a tokio runtime.
pub fn bare_runtime(seed: u64) -> keelet_cri::Runtime {
    let runtime = healthy(seed);
    keelet_cri::Runtime::in_process(runtime.clone(), runtime)
}

/// What a real agent is started with on a runtime: everything that it writes is below `directory`, what a reboot removes is in `volatile`.
///
/// # Panics
///
/// If the machine has no clock, or no thread for the ledger.
pub fn bare_agent(
    directory: &Path,
    volatile: &Path,
    runtime: keelet_cri::Runtime,
    facts: NodeFacts,
) -> (Doors<OsDisk>, Settings, Layout) {
    let clock = Arc::new(OsClock::new().expect("a clock"));
    let ledger = keelet_ledger::Settings::new(directory.join("durable"), volatile, clock.now().boot_id);
    let layout = Layout::new(directory, directory.join("logs"));
    let host = Arc::new(OsHost::new(layout.clone()));
    let doors = Doors::on_this_machine(runtime, clock, host).expect("a thread");
    let settings = Settings { facts: facts.into(), ..Settings::new(Features::default(), ledger) };
    (doors, settings, layout)
}

/// The runtime of [`bare_runtime`], to be served on a socket.
pub fn bare_server(seed: u64) -> keelet_cri::Server {
    let runtime = healthy(seed);
    keelet_cri::Server::new(runtime.clone(), runtime)
}

fn healthy(seed: u64) -> SimRuntime {
    let sim = Sim::new(seed, Mode::Standalone, Rules::default());
    SimRuntime { sim, process: AgentProcess::new(1, None, InFlight::ByChance) }
}
