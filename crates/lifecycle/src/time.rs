//! Moments that survive an agent restart.
//!
//! Within one boot moments compare by boot time, which no administrator and no NTP daemon can set. Across boots boot
//! time means nothing, so they compare by wall time, and a wall clock that went backwards never yields a negative
//! span.

use std::{
    cmp::Ordering,
    fmt::{self, Write},
    str::FromStr,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A wall-clock time in milliseconds since 1970, written as RFC 3339.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(i64);

/// The kernel's boot ID: it distinguishes two boots of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(u128);

/// A point in time, in all three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Milliseconds since boot, suspend included; negative for what happened before it.
    pub boot_ms: i64,
    /// The wall clock.
    pub wall: Wall,
    /// Which boot `boot_ms` counts from.
    pub boot_id: BootId,
}

/// The moment at which a plan is made.
pub type Now = Moment;

/// A boot ID that is not 32 hexadecimal digits, with or without hyphens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a boot ID: expected a UUID such as 6f5c0a9e-3c36-4f4b-9d1c-2f1f2a3b4c5d")]
pub struct BadBootId(String);

/// A duration in whole milliseconds, saturating.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn signed_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

// === impl Wall ===

impl Wall {
    /// From milliseconds since 1970.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Without the fraction of a second, as the API stores times.
    pub const fn whole_seconds(self) -> Self {
        Self(self.0.div_euclid(1000) * 1000)
    }

    /// How much later this is than `earlier`; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(signed_millis(span)))
    }

    fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(signed_millis(span)))
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => timestamp.fmt(f),
            // Out of the calendar's range: still a number a person can read, rather than an error.
            Err(_) => write!(f, "{} ms since 1970", self.0),
        }
    }
}

impl Serialize for Wall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Wall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let timestamp = Timestamp::from_str(&text)
            .map_err(|error| de::Error::custom(format_args!("{text:?} is not an RFC 3339 time: {error}")))?;
        Ok(Self(timestamp.as_millisecond()))
    }
}

// === impl BootId ===

impl BootId {
    /// From the number behind the UUID.
    pub const fn from_u128(id: u128) -> Self {
        Self(id)
    }

    /// The UUID as ASCII. Every moment in a ledger has one, so it is made without an allocation.
    fn digits(self) -> [u8; 36] {
        let mut text = [b'-'; 36];
        let places = (0..36).filter(|place| !matches!(place, 8 | 13 | 18 | 23));
        for (place, shift) in places.zip((0..32).rev()) {
            let digit = (self.0 >> (shift * 4) & 0xf) as u8;
            text[place] = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        }
        text
    }
}

impl FromStr for BootId {
    type Err = BadBootId;

    fn from_str(text: &str) -> Result<Self, BadBootId> {
        let mut id = 0;
        let mut digits = 0;
        for byte in text.trim().bytes().filter(|byte| *byte != b'-') {
            let Some(digit) = char::from(byte).to_digit(16).filter(|_| digits < 32) else {
                return Err(BadBootId(text.to_owned()));
            };
            id = id << 4 | u128::from(digit);
            digits += 1;
        }
        if digits == 32 { Ok(Self(id)) } else { Err(BadBootId(text.to_owned())) }
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits().iter().try_for_each(|digit| f.write_char(char::from(*digit)))
    }
}

impl Serialize for BootId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.digits();
        // Digits and hyphens are UTF-8.
        serializer.serialize_str(str::from_utf8(&digits).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for BootId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

// === impl Moment ===

impl Moment {
    /// How much time passed from `earlier` to this moment; zero if it lies ahead.
    pub fn since(&self, earlier: &Self) -> Duration {
        if self.boot_id == earlier.boot_id {
            Duration::from_millis(u64::try_from(self.boot_ms.saturating_sub(earlier.boot_ms)).unwrap_or(0))
        } else {
            self.wall.since(earlier.wall)
        }
    }

    /// Whether this moment is at or after `other`.
    pub fn has_reached(&self, other: &Self) -> bool {
        self.order(other) != Ordering::Less
    }

    /// The later of two moments.
    pub fn later(self, other: Self) -> Self {
        if self.has_reached(&other) { self } else { other }
    }

    /// The earlier of two moments.
    pub fn earlier(self, other: Self) -> Self {
        if self.has_reached(&other) { other } else { self }
    }

    /// The moment `span` after this one.
    pub fn plus(&self, span: Duration) -> Self {
        Self {
            boot_ms: self.boot_ms.saturating_add(signed_millis(span)),
            wall: self.wall.plus(span),
            boot_id: self.boot_id,
        }
    }

    /// The moment `span` before this one.
    pub fn minus(&self, span: Duration) -> Self {
        Self {
            boot_ms: self.boot_ms.saturating_sub(signed_millis(span)),
            wall: self.wall.minus(span),
            boot_id: self.boot_id,
        }
    }

    /// When something happened that only the wall clock dates, seen for the first time now. It does not lie in the
    /// future, whatever the wall clock did meanwhile.
    pub fn dated(&self, wall: Wall) -> Self {
        let ago = self.wall.since(wall);
        Self { boot_ms: self.boot_ms.saturating_sub(signed_millis(ago)), wall, boot_id: self.boot_id }
    }

    /// The same moment, counted in the boot of `now`. From here on a step of the wall clock does not move it.
    pub fn in_boot_of(&self, now: &Self) -> Self {
        if self.boot_id == now.boot_id { *self } else { now.dated(self.wall) }
    }

    fn order(&self, other: &Self) -> Ordering {
        if self.boot_id == other.boot_id { self.boot_ms.cmp(&other.boot_ms) } else { self.wall.cmp(&other.wall) }
    }
}
