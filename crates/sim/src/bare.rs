//! The simulated runtime by itself, in real time, for benchmarks: everything around it is real.

use keelet_lifecycle::Rules;

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

/// The same, to be served on a socket.
pub fn bare_server(seed: u64) -> keelet_cri::Server {
    let runtime = healthy(seed);
    keelet_cri::Server::new(runtime.clone(), runtime)
}

fn healthy(seed: u64) -> SimRuntime {
    let sim = Sim::new(seed, Mode::Standalone, Rules::default());
    SimRuntime { sim, process: AgentProcess::new(1, None, InFlight::ByChance) }
}
