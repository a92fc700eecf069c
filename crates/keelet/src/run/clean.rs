//! Naming and removing what runs that were killed have left.

use anyhow::{Context, Result};
use keelet_assembly::leftovers;
use keelet_cli::output;
use keelet_runtime::{owned_bridges, remove_idle_bridge};

/// Names what is left, and removes what has ended; with `all` also what runs. Whether nothing is left.
pub(super) async fn clear(all: bool) -> Result<bool> {
    let bridges = owned_bridges().await.unwrap_or_default();
    let found = match leftovers::find(&bridges) {
        Ok(found) => found,
        // Without root nothing can be found, and nothing could have been left.
        Err(error) if all => return Err(error).context("cannot list the processes of this machine"),
        Err(_) => return Ok(true),
    };
    let mut left = 0;
    for leftover in found {
        let (place, pods) = (leftover.place().display().to_string(), leftover.pods());
        if !all && leftover.runs() {
            left += 1;
            output::error(&format!(
                "a run that was killed has left pods in {place}: {}; `keelet run --clean` ends them",
                pods.join(", ")
            ));
            continue;
        }
        match leftover.remove().await.map_err(anyhow::Error::new) {
            Ok(()) if pods.is_empty() => {
                output::error(&format!("removed what a run that was killed has left in {place}"))
            }
            Ok(()) => {
                output::error(&format!("removed what a run that was killed has left in {place}: {}", pods.join(", ")));
            }
            Err(error) => {
                left += 1;
                output::error(&format!("what a run that was killed has left in {place} cannot be removed: {error:#}"));
            }
        }
    }
    for bridge in bridges.iter().filter(|bridge| !bridge.owner.exists()) {
        match remove_idle_bridge(&bridge.name).await {
            // Pods run that are plugged in. Their shims carry their directory, so they were named above.
            Ok(false) => {}
            Ok(true) => {
                let (name, owner) = (&bridge.name, bridge.owner.display());
                output::error(&format!("removed the bridge {name}, whose directory {owner} is gone"));
            }
            Err(error) => {
                left += 1;
                let (name, owner) = (&bridge.name, bridge.owner.display());
                output::error(&format!(
                    "the bridge {name}, whose directory {owner} is gone, cannot be removed: {error}"
                ));
            }
        }
    }
    Ok(left == 0)
}
