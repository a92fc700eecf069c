//! The OOM score of the calling process: which processes the kernel kills first when memory is short.

use std::{fs, io};

const FILE: &str = "/proc/self/oom_score_adj";

/// The score of processes that hold a pod together. The kubelet gives the same to critical pods.
pub const PROTECTED: i32 = -998;

/// Sets the score of this process, which its children inherit. Lowering it takes CAP_SYS_RESOURCE; without that it stays as it is.
pub fn set_score(score: i32) -> io::Result<()> {
    match fs::write(FILE, score.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// Why this process cannot lower its score; none if it can.
///
/// Its capabilities do not say: in a user namespace every process may have CAP_SYS_RESOURCE, and the kernel ignores it. So this lowers the
/// score and restores it.
pub fn cannot_lower_score() -> Option<io::Error> {
    let before = fs::read_to_string(FILE).ok()?;
    let lowered = fs::write(FILE, PROTECTED.to_string());
    let restored = fs::write(FILE, before.trim());
    lowered.and(restored).err()
}
