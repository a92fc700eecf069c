//! A reference to a process that survives PID reuse and can be stored.

use serde::{Deserialize, Serialize};

/// A process, distinguishable from a later one with the same PID by its start time and boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Its PID.
    pub pid: u32,
    /// When it was started, in clock ticks since the boot.
    pub ticks: u64,
    /// The boot in which it was started. Earlier versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
}

/// The kernel's ID of a boot, `/proc/sys/kernel/random/boot_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(u128);

/// A text that is not a boot ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid boot ID {text:?}: must be 32 hexadecimal digits")]
pub struct InvalidBootId {
    /// The text.
    pub text: String,
}

// === impl ProcessRef ===

impl ProcessRef {
    /// Whether both refer to the same process, as far as both say. A reference without a boot ID matches any boot.
    pub fn is_same(self, other: Self) -> bool {
        let boots = self.boot.zip(other.boot);
        (self.pid, self.ticks) == (other.pid, other.ticks) && boots.is_none_or(|(one, other)| one == other)
    }
}

// === impl BootId ===

impl TryFrom<String> for BootId {
    type Error = InvalidBootId;

    fn try_from(text: String) -> Result<Self, InvalidBootId> {
        let digits: String = text.chars().filter(|letter| *letter != '-').collect();
        match u128::from_str_radix(&digits, 16) {
            Ok(id) if digits.len() == 32 => Ok(Self(id)),
            _ => Err(InvalidBootId { text }),
        }
    }
}

impl From<BootId> for String {
    fn from(BootId(id): BootId) -> Self {
        let text = format!("{id:032x}");
        [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
    }
}

#[cfg(test)]
mod tests {
    use super::{BootId, ProcessRef};

    #[test]
    fn a_process_of_another_boot_is_another_process() {
        const ONE: &str = r#"{"pid":7,"ticks":99,"boot":"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"}"#;
        let one: ProcessRef = serde_json::from_str(ONE).expect("read");
        assert_eq!(serde_json::to_string(&one).expect("written"), ONE);
        let boot = BootId::try_from("00000000-0000-0000-0000-000000000001".to_owned()).expect("a boot ID");
        let other = ProcessRef { boot: Some(boot), ..one };
        assert!(one.is_same(one) && !one.is_same(other));
        assert!(!one.is_same(ProcessRef { ticks: 98, ..one }) && !one.is_same(ProcessRef { pid: 8, ..one }));
        // As an earlier version stored it, without a boot: running containers are recovered after an upgrade.
        let older: ProcessRef = serde_json::from_str(r#"{"pid":7,"ticks":99}"#).expect("read");
        assert!(older.is_same(one) && one.is_same(older));
        let error = serde_json::from_str::<ProcessRef>(r#"{"pid":7,"ticks":99,"boot":"0f1e"}"#).expect_err("too short");
        assert!(error.to_string().contains("invalid boot ID \"0f1e\""), "{error}");
    }
}
