//! Unused images, removed when room gets short: those first that were used longest ago.
//!
//! When an image was used is known from this run of the agent on; the kubelet forgets it over a restart as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use keelet_cri::{ErrorKind, v1};
use keelet_host::Space;
use keelet_lifecycle::Moment;

use super::ImageRules;
use crate::{node::pressure::wanted_of_images, shared::Shared};

/// How often the disk is checked, as the kubelet does.
const PERIOD: Duration = Duration::from_secs(300);

/// The same while a disk is nearly full.
const UNDER_PRESSURE: Duration = Duration::from_secs(30);

/// What is remembered of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    first_seen: Moment,
    last_used: Option<Moment>,
    bytes: u64,
    pinned: bool,
    in_use: bool,
}

/// By the image's ID.
type Records = BTreeMap<String, Record>;

/// Removes images for as long as the agent runs.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut records = Records::new();
    let started = shared.started;
    while wait(&shared).await {
        match collect(&shared, &mut records, started).await {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::Unimplemented => {
                tracing::info!(
                    "the container runtime does not report its file system usage; image garbage collection is off"
                );
                return;
            }
            Err(error) => tracing::debug!(%error, "cannot list images; retrying image garbage collection later"),
        }
    }
}

/// Waits until it is time to check again, which is at once when a disk becomes nearly full; `false` if the agent stops meanwhile.
async fn wait(shared: &Shared) -> bool {
    let mut pressure = shared.pressure.subscribe();
    let period = if pressure.borrow_and_update().holds { UNDER_PRESSURE } else { PERIOD };
    tokio::select! {
        biased;
        waited = shared.pause(period) => waited,
        _ = pressure.wait_for(|now| now.holds), if period == PERIOD => true,
    }
}

async fn collect(shared: &Shared, records: &mut Records, started: Moment) -> Result<(), keelet_cri::Error> {
    let disks = shared.runtime.image_fs_info().await?;
    let images = shared.runtime.list_images().await?;
    let containers = shared.runtime.list_containers(None).await?;
    let now = shared.clock.now();
    let used = used(&containers, shared.registry.images());
    note(records, &images, &used, now);
    let rules = shared.upkeep.borrow().images.clone();
    let mountpoint =
        disks.image_filesystems.first().and_then(|disk| disk.fs_id.as_ref()).map(|id| id.mountpoint.clone());
    let space = match mountpoint {
        Some(path) => shared.host.space(Path::new(&path)).await,
        None => None,
    };
    let wanted = space.map_or(0, |space| to_free(&rules, space));
    let mut freed = 0;
    for id in victims(records, &rules, now, started, wanted) {
        let bytes = records.get(&id).map_or(0, |record| record.bytes);
        match shared.runtime.remove_image(&id).await {
            Ok(()) => {
                tracing::info!(image = %id, bytes, "removed unused image");
                records.remove(&id);
                freed += bytes;
            }
            Err(error) => tracing::warn!(image = %id, %error, "cannot remove unused image"),
        }
    }
    if freed < wanted {
        tracing::warn!(
            wanted,
            freed,
            "image garbage collection could not free enough space: no unused images are left; free space on the disk"
        );
    }
    Ok(())
}

/// The names and IDs of images in use: by containers, dead ones too, and by pods of this node.
fn used(containers: &[v1::Container], wanted: BTreeSet<String>) -> BTreeSet<String> {
    let mut used = wanted;
    for container in containers {
        used.extend([container.image_ref.clone(), container.image_id.clone()]);
        used.extend(container.image.iter().map(|image| image.image.clone()));
    }
    used.remove("");
    used
}

/// Brings the records up to date.
fn note(records: &mut Records, images: &[v1::Image], used: &BTreeSet<String>, now: Moment) {
    records.retain(|id, _| images.iter().any(|image| image.id == *id));
    for image in images {
        let mut names = [&image.id].into_iter().chain(&image.repo_tags).chain(&image.repo_digests);
        let in_use = names.any(|name| used.contains(name) || used.contains(short(name)));
        let fresh = Record { first_seen: now, last_used: None, bytes: 0, pinned: false, in_use: false };
        let record = records.entry(image.id.clone()).or_insert(fresh);
        *record = Record { bytes: image.size, pinned: image.pinned, in_use, ..*record };
        if in_use {
            record.last_used = Some(now);
        }
    }
}

/// A name as a manifest may have it: `docker.io/library/busybox:latest` is also `busybox` there.
fn short(name: &str) -> &str {
    let name = name.strip_prefix("docker.io/library/").or_else(|| name.strip_prefix("docker.io/")).unwrap_or(name);
    name.strip_suffix(":latest").unwrap_or(name)
}

/// Bytes that have to become free.
fn to_free(rules: &ImageRules, space: Space) -> u64 {
    let Space { capacity, available, .. } = space;
    // A threshold above 100 percent means that nothing is to be collected.
    if capacity == 0 || rules.high_percent > 100 {
        return 0;
    }
    let pressing = wanted_of_images(space);
    let (capacity, available) = (u128::from(capacity), u128::from(available.min(capacity)));
    let full = 100 - available * 100 / capacity;
    if full < u128::from(rules.high_percent) {
        return pressing;
    }
    let wanted = capacity * u128::from(100 - rules.low_percent.min(100)) / 100;
    u64::try_from(wanted.saturating_sub(available)).unwrap_or(u64::MAX).max(pressing)
}

/// The images to remove, in order.
fn victims(records: &Records, rules: &ImageRules, now: Moment, started: Moment, wanted: u64) -> Vec<String> {
    let mut unused: Vec<_> = records.iter().filter(|(_, record)| !record.in_use && !record.pinned).collect();
    // What was never used goes before what was; among equals the one that came first.
    unused.sort_by_key(|(_, record)| (record.last_used.map(|used| used.boot_ms), record.first_seen.boot_ms));
    let mut chosen = Vec::new();
    let mut freed: u64 = 0;
    for (id, record) in unused {
        let idle_since = record.last_used.unwrap_or(record.first_seen);
        let too_old = rules.maximum_age.is_some_and(|most| {
            // Uses of the image before this agent started are unknown.
            now.since(&started) > most && now.since(&idle_since) > most
        });
        let in_the_way = freed < wanted && now.since(&record.first_seen) >= rules.minimum_age;
        if too_old || in_the_way {
            chosen.push(id.clone());
            freed = freed.saturating_add(record.bytes);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use keelet_lifecycle::{BootId, Wall};

    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment { boot_ms: seconds * 1000, wall: Wall::default(), boot_id: BootId::default() }
    }

    fn image(id: &str, tags: &[&str]) -> v1::Image {
        let repo_tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        v1::Image { id: id.to_owned(), repo_tags, size: 10, ..v1::Image::default() }
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn as_much_is_freed_as_the_low_threshold_asks_for() {
        let rules = ImageRules::default();
        for (available, expected) in [(100, 0), (16, 0), (15, 5), (10, 10), (0, 20)] {
            let space = Space { capacity: 100, available, ..Space::default() };
            assert_eq!(to_free(&rules, space), expected, "{available} of 100 free");
        }
        assert_eq!(to_free(&rules, Space::default()), 0);
        let space = Space { capacity: 1000, available: 10, ..Space::default() };
        let late = ImageRules { high_percent: 100, low_percent: 99, ..rules.clone() };
        assert_eq!(to_free(&late, space), 140, "whatever the rules say, until the disk is not nearly full any more");
        let never = ImageRules { high_percent: 101, low_percent: 100, ..rules };
        assert_eq!(to_free(&never, space), 0);
    }

    #[test]
    fn images_in_use_are_known_by_any_of_their_names() {
        for used in ["sha256:1", "docker.io/library/app:latest", "app", "app@sha256:9"] {
            let mut records = Records::new();
            let mut found = image("sha256:1", &["docker.io/library/app:latest"]);
            found.repo_digests = vec!["app@sha256:9".to_owned()];
            note(&mut records, &[found], &names(&[used]), at(0));
            assert!(records["sha256:1"].in_use, "{used}");
        }
        let mut records = Records::new();
        note(&mut records, &[image("sha256:1", &["app:2"])], &names(&["app", ""]), at(0));
        assert!(!records["sha256:1"].in_use);
    }

    #[test]
    fn the_longest_unused_go_first_and_only_as_many_as_needed() {
        let mut records = Records::new();
        let all = [image("new", &[]), image("old", &[]), image("used", &[]), image("never", &[])];
        note(&mut records, &all[1..], &names(&["old", "used"]), at(0));
        note(&mut records, &all[1..], &names(&["used"]), at(300));
        note(&mut records, &all, &names(&[]), at(600));
        let rules = ImageRules::default();
        let go = |wanted| victims(&records, &rules, at(600), at(0), wanted);
        assert_eq!(go(0), Vec::<String>::new());
        assert_eq!(go(1), ["never"]);
        assert_eq!(go(20), ["never", "old"]);
        // The new one is too young, whatever the need.
        assert_eq!(go(u64::MAX), ["never", "old", "used"]);
    }

    #[test]
    fn what_is_pinned_or_in_use_stays() {
        let mut records = Records::new();
        let pinned = v1::Image { pinned: true, ..image("pinned", &[]) };
        note(&mut records, &[pinned, image("busy", &[])], &names(&["busy"]), at(0));
        assert_eq!(victims(&records, &ImageRules::default(), at(10_000), at(0), 100), Vec::<String>::new());
    }

    #[test]
    fn an_image_that_is_unused_for_too_long_goes_without_need() {
        let mut records = Records::new();
        note(&mut records, &[image("a", &[])], &names(&[]), at(0));
        let rules = ImageRules { maximum_age: Some(Duration::from_secs(1000)), ..ImageRules::default() };
        assert_eq!(victims(&records, &rules, at(1000), at(0), 0), Vec::<String>::new());
        assert_eq!(victims(&records, &rules, at(1001), at(0), 0), ["a"]);
        assert_eq!(victims(&records, &rules, at(1001), at(500), 0), Vec::<String>::new(), "the agent is too young");
    }

    #[test]
    fn images_that_are_gone_are_forgotten() {
        let mut records = Records::new();
        note(&mut records, &[image("a", &[])], &names(&[]), at(0));
        note(&mut records, &[], &names(&[]), at(1));
        assert!(records.is_empty());
    }
}
