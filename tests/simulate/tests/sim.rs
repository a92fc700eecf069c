//! The program behind `make sim`, called as `make sim` calls it.

use std::{
    io::{self, Read},
    process::{Command, ExitStatus, Stdio},
};

/// Calls the program with these settings; its exit status, and what it printed.
fn sim(settings: &[(&str, &str)]) -> io::Result<(ExitStatus, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    for variable in ["SIM_RUNS", "SIM_SECONDS", "SIM_FIRST", "SIM_SUBJECT", "SIM_THREADS", "SIM_SEED"] {
        command.env_remove(variable);
    }
    command.envs(settings.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut printed = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut printed)?;
    child.stderr.take().expect("a pipe").read_to_string(&mut printed)?;
    #[expect(clippy::disallowed_methods, reason = "its output has ended, so it has")]
    let status = child.wait()?;
    Ok((status, printed))
}

/// The command that is printed for a seed shows the run of that seed.
#[test]
fn a_seed_is_replayed() -> io::Result<()> {
    let of_agent = keelet_sim::random_run(7).unwrap_or_else(|failure| panic!("{failure}")).timeline.to_string();
    let of_controller = keelet_sim_gates::random_run(7).unwrap_or_else(|failure| panic!("{failure}")).log.to_string();
    for (subject, happened) in [("", of_agent), ("controller", of_controller)] {
        let (status, printed) = sim(&[("SIM_SUBJECT", subject), ("SIM_SEED", "7")])?;
        assert!(status.success(), "{status}\n{printed}");
        assert_eq!(printed, format!("{happened}seed 7 keeps every promise\n"));
    }
    Ok(())
}

#[test]
fn so_many_runs_are_made_as_were_asked_for() -> io::Result<()> {
    let (status, printed) = sim(&[("SIM_FIRST", "3"), ("SIM_RUNS", "5"), ("SIM_THREADS", "2")])?;
    assert!(status.success(), "{status}\n{printed}");
    assert!(printed.contains("from seed 3 on\n"), "{printed}");
    let summary = printed.lines().last().unwrap_or_default();
    assert!(summary.starts_with("seeds 3 to 7 in "), "{printed}");
    assert!(
        summary.contains(": 4 runs of the agent and 1 of the controller (") && summary.ends_with(" 0 failed"),
        "{printed}"
    );
    Ok(())
}

#[test]
fn a_setting_that_is_not_a_number_is_refused() -> io::Result<()> {
    let (status, printed) = sim(&[("SIM_RUNS", "many")])?;
    assert_eq!(status.code(), Some(2), "{printed}");
    assert_eq!(printed, "make sim: SIM_RUNS=\"many\": expected a whole number above zero\n");
    Ok(())
}
