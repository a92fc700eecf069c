//! Simulated reboots of a node.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::{Node, Remains, eventually};

/// The file that identifies a boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

// === impl Node ===

impl Node {
    /// Removes what a reboot removes: processes, mounts, cgroups and the state directory; and changes the boot ID. The node's
    /// bridge stays, which makes no difference to an agent.
    pub async fn reboot(&mut self) {
        self.kill().await;
        eventually("all processes to be gone", async || {
            let left = Remains::now().without(&self.before);
            let pids: Vec<_> = left.processes().collect();
            for pid in &pids {
                // A process that has just exited cannot be killed.
                let _ = Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, Signal::KILL));
            }
            if pids.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
        })
        .await;
        // Threads of an exited process may take a moment more, and keep mounts and cgroups busy.
        eventually("mounts and cgroups to be gone", async || {
            let left = Remains::now().without(&self.before);
            // The inner ones first.
            for mount in left.mounts().rev() {
                said("umount", &[mount]).await?;
            }
            for cgroup in left.cgroups().rev() {
                fs::remove_dir(cgroup).map_err(|error| format!("{cgroup}: {error}"))?;
            }
            Ok::<_, String>(())
        })
        .await;
        fs::remove_dir_all(self.path("state")).expect("what is kept until a reboot");
        fs::create_dir(self.path("state")).expect("a directory");
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a random ID");
        let file = self.path("boot_id");
        if !file.exists() {
            fs::write(&file, &boot_id).expect("a boot ID");
            said("mount", &["--bind", &file.display().to_string(), BOOT_ID]).await.expect("a mount");
            self.before = Remains::now();
        }
        fs::write(&file, boot_id).expect("a boot ID");
    }
}

/// Runs a program; its standard error if it failed.
async fn said(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().await.expect(program);
    let words = || format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(words()) }
}
