//! The simulated runtime by itself, in real time, for benchmarks: real probes and a real disk around it.

use std::sync::Arc;

use keelet_agent::Mode;
use keelet_lifecycle::Rules;

use crate::{
    life::{InFlight, Life},
    runtime::SimRuntime,
    sim::Sim,
};

/// A runtime in which every container is healthy and every call succeeds. To be called inside of a tokio runtime.
pub fn bare_runtime(seed: u64) -> keelet_cri::Runtime {
    let sim = Sim::new(seed, Mode::Standalone, Rules::default());
    let runtime = SimRuntime { sim: Arc::clone(&sim), life: Life::new(1, None, InFlight::ByChance) };
    keelet_cri::Runtime::in_process(runtime.clone(), runtime)
}
