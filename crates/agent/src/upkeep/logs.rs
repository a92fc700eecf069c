//! Logs of containers: rotated when they grow too large, dropped when their instance is long past.

use std::{sync::Arc, time::Duration};

use keelet_host::LogFile;

use crate::{
    registry::{Doing, Seen},
    shared::Shared,
};

/// How often logs of past instances are looked for.
const DROP_EVERY: Duration = Duration::from_secs(60);

/// Instances whose logs stay: the present one, and the one before it, which people ask about.
pub(crate) const KEPT_INSTANCES: u32 = 2;

/// What has to be done about a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    /// The runtime writes to a file that is not there: an agent died right after it had renamed it.
    Reopen,
    Rotate,
}

/// Rotates logs for as long as the agent runs.
pub(super) async fn keep(shared: Arc<Shared>) {
    loop {
        let interval = shared.upkeep.borrow().logs.interval;
        if !shared.pause(interval).await {
            return;
        }
        check_sizes(&shared).await;
    }
}

async fn check_sizes(shared: &Shared) {
    let rules = shared.upkeep.borrow().logs.clone();
    let Some(most) = rules.max_bytes else { return };
    let (mut files, mut ids) = (Vec::new(), Vec::new());
    for (pod, seen) in shared.registry.seen() {
        for Seen { id, name, attempt, .. } in seen.into_iter().filter(|seen| seen.doing == Doing::Runs) {
            files.push(LogFile { pod: Arc::clone(&pod), container: name, attempt });
            ids.push(id);
        }
    }
    if files.is_empty() {
        return;
    }
    let sizes = shared.host.log_sizes(&files).await;
    for ((file, id), size) in files.iter().zip(&ids).zip(sizes) {
        match act(size, most) {
            Act::Nothing => {}
            Act::Reopen => reopen(shared, file, id).await,
            Act::Rotate => rotate(shared, file, id, rules.max_files).await,
        }
    }
}

fn act(size: Option<u64>, most: u64) -> Act {
    match size {
        None => Act::Reopen,
        Some(size) if size >= most => Act::Rotate,
        Some(_) => Act::Nothing,
    }
}

async fn reopen(shared: &Shared, file: &LogFile, id: &str) {
    if let Err(error) = shared.runtime.reopen_container_log(id).await {
        tracing::debug!(log = %file, %error, "cannot reopen missing container log");
    }
}

/// Gives the log another name and has the runtime begin a new one. If it does not, the old name comes back.
async fn rotate(shared: &Shared, file: &LogFile, id: &str, max_files: u32) {
    let stamp = stamp(shared.clock.now().wall.as_millis());
    if let Err(error) = shared.host.rotate_log(file, max_files, &stamp).await {
        tracing::warn!(log = %file, %error, "cannot rotate container log");
        return;
    }
    match shared.runtime.reopen_container_log(id).await {
        Ok(()) => tracing::debug!(log = %file, "rotated container log"),
        Err(error) => {
            tracing::warn!(log = %file, %error, "the container runtime cannot reopen a rotated log; undoing the rotation");
            if let Err(error) = shared.host.unrotate_log(file, &stamp).await {
                tracing::warn!(log = %file, %error, "cannot undo the rotation of a container log");
            }
        }
    }
}

/// The time as it stands in the name of a rotated log.
fn stamp(wall_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(wall_ms).unwrap_or_default();
    time.strftime("%Y%m%d-%H%M%S").to_string()
}

/// Drops logs of past instances for as long as the agent runs.
pub(super) async fn drop_old(shared: Arc<Shared>) {
    while shared.pause(DROP_EVERY).await {
        for (pod, seen) in shared.registry.seen() {
            // Before that many instances there is nothing to drop.
            if seen.iter().any(|seen| seen.attempt >= KEPT_INSTANCES)
                && let Err(error) = shared.host.drop_old_logs(&pod, KEPT_INSTANCES).await
            {
                tracing::warn!(pod = %format_args!("{}/{}", pod.namespace, pod.name), %error, "cannot remove old container logs");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Extent, Upkeep,
        bed::{Bed, pass, pod, wanted},
        upkeep::LogRules,
    };

    #[test]
    fn a_log_is_rotated_when_it_has_the_size() {
        for (size, act_expected) in
            [(None, Act::Reopen), (Some(0), Act::Nothing), (Some(99), Act::Nothing), (Some(100), Act::Rotate)]
        {
            assert_eq!(act(size, 100), act_expected, "{size:?}");
        }
    }

    /// A runtime that does not begin a new file writes on into the old one, so that one has its name again.
    #[tokio::test(start_paused = true)]
    async fn a_log_that_is_not_reopened_has_its_name_again() {
        let (bed, web) = (Bed::new(), pod("web", "a"));
        let (_, main) = bed.runtime.put(&web);
        bed.remember(&web, keelet_lifecycle::Evidence::default(), Some(&web));
        bed.runtime.fail("ReopenContainerLog", Some(tonic::Code::Internal));
        let directory = bed.root().join("logs/default_web_a/main");
        std::fs::create_dir_all(&directory).expect("made");
        std::fs::write(directory.join("0.log"), "a line").expect("written");
        let agent = bed.agent().await;
        agent.set_pods(wanted(&[&web]), Extent::Complete);
        let logs = LogRules { max_bytes: Some(3), ..LogRules::default() };
        agent.set_upkeep(Upkeep { logs, ..Upkeep::default() });
        bed.runtime.called(&format!("ReopenContainerLog {main}")).await;
        pass(Duration::from_millis(10)).await;
        let names: Vec<_> =
            std::fs::read_dir(&directory).expect("read").map(|entry| entry.expect("read").file_name()).collect();
        assert_eq!(names, ["0.log"], "the log that the runtime writes to has another name");
    }

    #[test]
    fn the_time_in_a_name_sorts() {
        assert_eq!(stamp(1_700_000_000_000), "20231114-221320");
    }
}
