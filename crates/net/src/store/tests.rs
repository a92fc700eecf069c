//! Records without root: allocate, free and crash in any order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn pod(sandbox: &str) -> PodNetwork {
    PodNetwork {
        sandbox_id: sandbox.to_owned(),
        netns: "/proc/1/ns/net".into(),
        name: "pod".to_owned(),
        namespace: "default".to_owned(),
        uid: "uid".to_owned(),
        ports: Vec::new(),
        annotations: BTreeMap::new(),
    }
}

fn ranges(text: &[&str]) -> Vec<IpNet> {
    text.iter().map(|range| range.parse().unwrap()).collect()
}

fn reserve(store: &Store, sandbox: &str, ranges: &[IpNet]) -> Result<Vec<IpAddr>, Error> {
    let locked = store.lock()?;
    let record = match locked.record(sandbox)? {
        Some(record) => record,
        None => Record::new(&pod(sandbox), Via::Bridge { ips: Vec::new() }),
    };
    Ok(locked.reserve(ranges, record, &BTreeSet::new())?.bridge_ips().to_vec())
}

fn open() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    (dir, store)
}

#[test]
fn the_same_sandbox_keeps_its_addresses() {
    let (_dir, store) = open();
    let ranges = ranges(&["10.1.0.0/24", "fd00::/64"]);
    let first = reserve(&store, "a", &ranges).unwrap();
    assert_eq!(first, ["10.1.0.2", "fd00::2"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    assert_eq!(reserve(&store, "a", &ranges).unwrap(), first);
    assert_ne!(reserve(&store, "b", &ranges).unwrap(), first);
}

#[test]
fn an_address_just_freed_is_not_allocated_next() {
    let (_dir, store) = open();
    let ranges = ranges(&["10.1.0.0/24"]);
    let first = reserve(&store, "a", &ranges).unwrap();
    store.lock().unwrap().forget("a").unwrap();
    assert_ne!(reserve(&store, "b", &ranges).unwrap(), first);
}

#[test]
fn a_former_range_is_kept_while_a_pod_has_an_address_in_it() {
    let (_dir, store) = open();
    let (old, new) = (ranges(&["10.1.0.0/24"]), ranges(&["10.2.0.0/24"]));
    reserve(&store, "a", &old).unwrap();
    let remembered = |ranges: &[IpNet]| {
        let locked = store.lock().unwrap();
        locked.store_ranges(ranges).unwrap();
        locked.cursors().unwrap().iter().map(|cursor| cursor.range.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(remembered(&old), ["10.1.0.0/24"]);
    assert_eq!(remembered(&new), ["10.2.0.0/24", "10.1.0.0/24"]);
    assert_eq!(reserve(&store, "b", &old).unwrap(), ["10.1.0.3".parse::<IpAddr>().unwrap()], "goes on where it stood");
    for sandbox in ["a", "b"] {
        store.lock().unwrap().forget(sandbox).unwrap();
    }
    assert_eq!(remembered(&new), ["10.2.0.0/24"]);
}

#[test]
fn the_error_for_a_full_range_has_its_size() {
    let (_dir, store) = open();
    let ranges = ranges(&["10.1.0.0/30"]);
    reserve(&store, "a", &ranges).unwrap();
    let error = reserve(&store, "b", &ranges).unwrap_err().to_string();
    assert_eq!(error, "no free address in 10.1.0.0/30: all 1 are used by pods");
    store.lock().unwrap().forget("a").unwrap();
    assert_eq!(reserve(&store, "b", &ranges).unwrap().len(), 1);
}

#[test]
fn addresses_of_links_are_taken_even_if_the_records_are_lost() {
    let (_dir, store) = open();
    let locked = store.lock().unwrap();
    let seen: BTreeSet<IpAddr> = ["10.1.0.2".parse().unwrap(), "10.1.0.3".parse().unwrap()].into();
    let record = Record::new(&pod("a"), Via::Bridge { ips: Vec::new() });
    let record = locked.reserve(&ranges(&["10.1.0.0/24"]), record, &seen).unwrap();
    assert_eq!(record.bridge_ips(), ["10.1.0.4".parse::<IpAddr>().unwrap()]);
}

#[test]
fn invalid_files_are_renamed_and_the_others_still_read() {
    let (dir, store) = open();
    let ranges = ranges(&["10.1.0.0/24"]);
    reserve(&store, "a", &ranges).unwrap();
    reserve(&store, "b.with.dots", &ranges).unwrap();
    for (content, sandbox) in [("", "empty"), ("{\"version\":1", "torn"), ("[]", "shape")] {
        fs::write(dir.path().join(format!("sandboxes/{sandbox}.json")), content).unwrap();
    }
    let mut future = serde_json::to_value(store.lock().unwrap().record("a").unwrap()).unwrap();
    future["version"] = 2.into();
    fs::write(dir.path().join("sandboxes/future.json"), future.to_string()).unwrap();
    fs::write(dir.path().join("ranges.json"), "no JSON").unwrap();

    let locked = store.lock().unwrap();
    let known: Vec<String> = locked.records().unwrap().into_iter().map(|record| record.sandbox).collect();
    assert_eq!(known, ["a", "b.with.dots"]);
    assert_eq!(locked.broken().unwrap(), ["empty", "future", "shape", "torn"]);
    assert_eq!(fs::read_to_string(dir.path().join("sandboxes/torn.broken")).unwrap(), "{\"version\":1");
    assert_eq!(locked.cursors().unwrap(), []);
    assert!(dir.path().join("ranges.broken").exists());
    drop(locked);
    // The cursor is lost, the owned addresses are not.
    let third = reserve(&store, "c", &ranges).unwrap();
    assert_eq!(third, ["10.1.0.4".parse::<IpAddr>().unwrap()]);
}

#[test]
fn removing_a_record_leaves_no_file() {
    let (dir, store) = open();
    reserve(&store, "a", &ranges(&["10.1.0.0/24"])).unwrap();
    fs::write(dir.path().join("sandboxes/a.broken"), "old").unwrap();
    fs::write(dir.path().join("sandboxes/a.new"), "half").unwrap();
    store.lock().unwrap().forget("a").unwrap();
    store.lock().unwrap().forget("a").unwrap();
    assert_eq!(fs::read_dir(dir.path().join("sandboxes")).unwrap().count(), 0);
}

#[test]
fn two_agents_never_allocate_the_same_address() {
    let (dir, _store) = open();
    let ranges = ranges(&["10.1.0.0/24"]);
    let mut all: Vec<IpAddr> = std::thread::scope(|scope| {
        let agents: Vec<_> = (0..4)
            .map(|agent| {
                let (dir, ranges) = (dir.path(), &ranges);
                scope.spawn(move || {
                    let store = Store::open(dir).unwrap();
                    (0..20).flat_map(|n| reserve(&store, &format!("{agent}-{n}"), ranges).unwrap()).collect::<Vec<_>>()
                })
            })
            .collect();
        agents.into_iter().flat_map(|agent| agent.join().unwrap()).collect()
    });
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 80);
}

#[derive(Debug, Clone)]
enum Act {
    Reserve(u8),
    Forget(u8),
    /// A new agent opens the same directory.
    Restart,
    /// The agent crashed while it wrote: a partial file beside the real one.
    DieWriting(u8),
    /// The agent crashed between writing the record and the cursor: the cursor is an older one.
    LoseCursor,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0_u8..8).prop_map(Act::Reserve),
        3 => (0_u8..8).prop_map(Act::Forget),
        1 => Just(Act::Restart),
        1 => (0_u8..8).prop_map(Act::DieWriting),
        1 => Just(Act::LoseCursor),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// In any order: no address has two owners, none leaks, a sandbox keeps its own, and a range is reported full only when it is.
    #[test]
    fn addresses_have_one_owner_and_come_back(acts in proptest::collection::vec(act(), 1..40)) {
        let (dir, mut store) = open();
        let ranges = ranges(&["10.1.0.0/29"]);
        let mut owners: BTreeMap<String, IpAddr> = BTreeMap::new();
        for act in acts {
            match act {
                Act::Reserve(n) => {
                    let sandbox = format!("s{n}");
                    match reserve(&store, &sandbox, &ranges) {
                        Ok(ips) => {
                            prop_assert_eq!(ips.len(), 1);
                            let before = owners.insert(sandbox.clone(), ips[0]);
                            prop_assert!(before.is_none_or(|before| before == ips[0]), "{} moved", sandbox);
                        }
                        Err(Error::RangeFull { .. }) => {
                            prop_assert!(owners.len() == 5 && !owners.contains_key(&sandbox), "not full: {:?}", owners);
                        }
                        Err(other) => return Err(TestCaseError::fail(other.to_string())),
                    }
                }
                Act::Forget(n) => {
                    store.lock().unwrap().forget(&format!("s{n}")).unwrap();
                    owners.remove(&format!("s{n}"));
                }
                Act::Restart => store = Store::open(dir.path()).unwrap(),
                Act::DieWriting(n) => fs::write(dir.path().join(format!("sandboxes/s{n}.new")), "{\"vers").unwrap(),
                Act::LoseCursor => remove(&dir.path().join("ranges.json")).unwrap(),
            }
            let distinct: BTreeSet<&IpAddr> = owners.values().collect();
            prop_assert_eq!(distinct.len(), owners.len(), "shared: {:?}", owners);
        }
        let on_disk: BTreeMap<String, IpAddr> = store.lock().unwrap().records().unwrap().into_iter()
            .map(|record| (record.sandbox.clone(), record.bridge_ips()[0])).collect();
        prop_assert_eq!(on_disk, owners);
    }
}
