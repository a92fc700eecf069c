//! Whether a disk of the node is nearly full: the node's condition `DiskPressure`.
//!
//! The thresholds are the kubelet's hard ones. Pressure begins with the first check that finds too little, and ends five
//! minutes after the last one that did, as with the kubelet, so that a disk at its edge does not make the condition
//! come and go. keelet evicts no pod for it; unused images are collected at once ([`crate::upkeep`]).

use std::{fmt, path::Path, sync::Arc, time::Duration};

use keelet_host::Space;
use keelet_lifecycle::Moment;

use crate::shared::Shared;

/// How often the disks are checked: two calls of the kernel, as often as the kubelet's.
const PERIOD: Duration = Duration::from_secs(10);
/// How long it has to be well again, the kubelet's `evictionPressureTransitionPeriod`.
const TRANSITION: Duration = Duration::from_secs(300);

/// The kubelet's `evictionHard`, in percent.
const THRESHOLDS: [(FileSystem, Room, u64); 4] = [
    (FileSystem::Node, Room::Bytes, 10),
    (FileSystem::Node, Room::Inodes, 5),
    (FileSystem::Images, Room::Bytes, 15),
    (FileSystem::Images, Room::Inodes, 5),
];

/// Whether a disk of the node is nearly full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskPressure {
    /// Whether it is.
    pub holds: bool,
    /// Since when that is so; none before the first check.
    pub since: Option<Moment>,
    /// Which disk has how little of what.
    pub message: String,
}

/// The kubelet's words for the file systems of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileSystem {
    /// The root directory's: volumes, logs, the ledger.
    Node,
    /// The images'.
    Images,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Bytes,
    Inodes,
}

/// Less of something than there should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shortage {
    file_system: FileSystem,
    room: Room,
    percent: u64,
    least: u64,
}

/// Looks at the disks for as long as the agent runs.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut images = None;
    let mut last_short = None;
    while shared.pause(PERIOD).await {
        let Some(of_node) = shared.host.space(&shared.disk).await else { continue };
        if images.is_none() {
            // Where images are does not change. A runtime that does not report it has them where everything is.
            images = place_of_images(&shared).await;
        }
        let of_images = match &images {
            Some(path) => shared.host.space(Path::new(path)).await,
            None => None,
        };
        let now = shared.clock.now();
        let short = shortages(of_node, of_images.unwrap_or(of_node));
        if !short.is_empty() {
            last_short = Some(now);
        }
        let old = shared.pressure.borrow().clone();
        let new = next(&old, &short, last_short, now);
        if new.holds && !old.holds {
            tracing::warn!(
                shortage = new.message,
                "node has DiskPressure: unused images are being removed; free space on the disk"
            );
        } else if old.holds && !new.holds {
            tracing::info!("node no longer has DiskPressure");
        }
        shared.metrics.disk_pressure(new.holds);
        shared.pressure.send_if_modified(|known| {
            let is_news = *known != new;
            *known = new;
            is_news
        });
    }
}

async fn place_of_images(shared: &Shared) -> Option<String> {
    let disks = shared.runtime.image_fs_info().await.ok()?;
    let place = disks.image_filesystems.into_iter().next()?.fs_id?.mountpoint;
    Some(place).filter(|place| !place.is_empty())
}

fn shortages(of_node: Space, of_images: Space) -> Vec<Shortage> {
    let short = |(file_system, room, least): &(FileSystem, Room, u64)| {
        let space = match file_system {
            FileSystem::Node => of_node,
            FileSystem::Images => of_images,
        };
        let (all, free) = match room {
            Room::Bytes => (space.capacity, space.available),
            Room::Inodes => (space.inodes, space.inodes_free),
        };
        // Some file systems have no fixed number of inodes, and say 0.
        let percent = u64::try_from(u128::from(free) * 100 / u128::from(all.max(1))).unwrap_or(u64::MAX);
        let shortage = Shortage { file_system: *file_system, room: *room, percent, least: *least };
        (all > 0 && percent < *least).then_some(shortage)
    };
    THRESHOLDS.iter().filter_map(short).collect()
}

/// Whether the images have to give way, and how many bytes of them: all, if it is inodes that are short.
pub(crate) fn wanted_of_images(space: Space) -> u64 {
    let short = shortages(space, space);
    let of_images = |room: Room| short.iter().find(|s| s.file_system == FileSystem::Images && s.room == room);
    match (of_images(Room::Inodes), of_images(Room::Bytes)) {
        (Some(_), _) => u64::MAX,
        (None, Some(shortage)) => {
            let enough = u128::from(space.capacity) * u128::from(shortage.least) / 100;
            u64::try_from(enough).unwrap_or(u64::MAX).saturating_sub(space.available)
        }
        (None, None) => 0,
    }
}

fn next(old: &DiskPressure, short: &[Shortage], last_short: Option<Moment>, now: Moment) -> DiskPressure {
    let lately = last_short.is_some_and(|last| now.since(&last) < TRANSITION);
    let holds = !short.is_empty() || old.holds && lately;
    let message = match (short.is_empty(), holds) {
        (false, _) => short.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        (true, true) => format!("there was less than five minutes ago: {}", old.message.trim_start_matches(BEFORE)),
        (true, false) => "the disks of the node have enough free space".to_owned(),
    };
    let since = if holds == old.holds { old.since.or(Some(now)) } else { Some(now) };
    DiskPressure { holds, since, message }
}

const BEFORE: &str = "there was less than five minutes ago: ";

// === impl Shortage ===

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = match (self.file_system, self.room) {
            (FileSystem::Node, Room::Bytes) => "nodefs.available",
            (FileSystem::Node, Room::Inodes) => "nodefs.inodesFree",
            (FileSystem::Images, Room::Bytes) => "imagefs.available",
            (FileSystem::Images, Room::Inodes) => "imagefs.inodesFree",
        };
        write!(f, "{signal} is {} %, less than {} %", self.percent, self.least)
    }
}

#[cfg(test)]
mod tests {
    use keelet_lifecycle::{BootId, Wall};

    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment { boot_ms: seconds * 1000, wall: Wall::from_millis(seconds * 1000), boot_id: BootId::default() }
    }

    fn space(available: u64, inodes_free: u64) -> Space {
        Space { capacity: 100, available, inodes: 100, inodes_free }
    }

    fn signals(of_node: Space, of_images: Space) -> Vec<String> {
        shortages(of_node, of_images).iter().map(ToString::to_string).collect()
    }

    /// NODE-8.
    #[test]
    fn the_thresholds_are_the_kubelets() {
        let fine = space(15, 5);
        assert_eq!(signals(fine, fine), [""; 0]);
        assert_eq!(signals(space(10, 5), fine), [""; 0]);
        assert_eq!(signals(space(9, 5), fine), ["nodefs.available is 9 %, less than 10 %"]);
        assert_eq!(signals(space(15, 4), fine), ["nodefs.inodesFree is 4 %, less than 5 %"]);
        assert_eq!(signals(fine, space(14, 5)), ["imagefs.available is 14 %, less than 15 %"]);
        assert_eq!(signals(fine, space(15, 4)), ["imagefs.inodesFree is 4 %, less than 5 %"]);
        assert_eq!(signals(space(0, 0), space(0, 0)).len(), 4);
        // File systems without a number of inodes, and without anything at all.
        assert_eq!(signals(Space { inodes: 0, inodes_free: 0, ..fine }, fine), [""; 0]);
        assert_eq!(signals(Space::default(), Space::default()), [""; 0]);
    }

    /// NODE-8: it begins at once and ends five minutes after the last shortage.
    #[test]
    fn pressure_begins_at_once_and_ends_late() {
        let short = shortages(space(9, 9), space(20, 9));
        let first = next(&DiskPressure::default(), &[], None, at(10));
        assert_eq!((first.holds, first.since), (false, Some(at(10))));
        let begun = next(&first, &short, Some(at(20)), at(20));
        assert_eq!((begun.holds, begun.since), (true, Some(at(20))));
        assert_eq!(begun.message, "nodefs.available is 9 %, less than 10 %");
        let mut after = begun.clone();
        for seconds in [30, 319] {
            after = next(&after, &[], Some(at(20)), at(seconds));
            assert_eq!((after.holds, after.since), (true, Some(at(20))), "{seconds}");
            let expected = "there was less than five minutes ago: nodefs.available is 9 %, less than 10 %";
            assert_eq!(after.message, expected, "{seconds}");
        }
        let over = next(&after, &[], Some(at(20)), at(320));
        assert_eq!((over.holds, over.since), (false, Some(at(320))));
    }

    /// NODE-8: as much as brings the disk back over its threshold, or all if inodes are short.
    #[test]
    fn images_give_way_for_as_much_as_is_short() {
        for (of_images, expected) in [(space(15, 5), 0), (space(14, 5), 1), (space(0, 5), 15), (space(50, 4), u64::MAX)]
        {
            assert_eq!(wanted_of_images(of_images), expected, "{of_images:?}");
        }
    }
}
