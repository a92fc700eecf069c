//! Which capabilities a container gets. Applying them is tested in `tests/confinement.rs`, in a process of its own.

use super::*;

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

fn set(add: &[&str], drop: &[&str]) -> BTreeSet<Cap> {
    effective_set(&names(add), &names(drop), false).unwrap()
}

#[test]
fn a_position_in_the_table_is_the_kernels_number() {
    // From linux/capability.h, one of each neighbourhood.
    let numbers = [("CHOWN", 0), ("SETPCAP", 8), ("SYS_ADMIN", 21), ("SYS_TIME", 25), ("MKNOD", 27), ("SYSLOG", 34)];
    for (name, number) in numbers {
        assert_eq!(Cap::parse(name).unwrap().number(), number, "{name}");
    }
    assert_eq!(Cap::SYS_PTRACE.number(), 19);
    assert_eq!(Cap::CHECKPOINT_RESTORE.number(), 40);
    assert_eq!(Cap::all().last(), Some(Cap::CHECKPOINT_RESTORE));
    for cap in Cap::all() {
        assert_eq!(Cap::parse(cap.short_name()), Ok(cap));
    }
}

#[test]
fn every_capability_has_an_oci_form_of_the_same_name() {
    for cap in Cap::all() {
        let oci = cap.to_oci().unwrap_or_else(|| panic!("{cap} is unknown to the OCI types"));
        assert_eq!(serde_json::to_value(oci).unwrap(), cap.to_string());
    }
}

#[test]
fn names_are_read_in_any_case_with_or_without_prefix() {
    for name in ["NET_ADMIN", "net_admin", "CAP_NET_ADMIN", "cap_net_Admin"] {
        assert_eq!(Cap::parse(name), Ok(Cap::NET_ADMIN), "{name}");
    }
    for name in ["", "CAP_", "CAP_CAP_KILL", "NETADMIN", "ALL", "kill;"] {
        assert_eq!(Cap::parse(name), Err(UnknownCapability { name: name.to_owned() }), "{name}");
    }
}

#[test]
fn add_and_drop_follow_cri() {
    let default = BTreeSet::from(DEFAULT);
    let all: BTreeSet<Cap> = Cap::all().collect();
    assert_eq!(default.len(), 14);
    assert_eq!(set(&[], &[]), default);
    assert_eq!(set(&["net_admin"], &["CAP_KILL"]), &(&default | &[Cap::NET_ADMIN].into()) - &[Cap::KILL].into());
    assert_eq!(set(&["KILL"], &["ALL"]), [Cap::KILL].into(), "drop ALL, then add");
    assert_eq!(set(&["ALL"], &["KILL"]), &all - &[Cap::KILL].into(), "add ALL, then drop");
    assert_eq!(set(&["all"], &[]), all);
    assert_eq!(set(&[], &["all"]), BTreeSet::new());
    assert_eq!(set(&["ALL"], &["ALL"]), BTreeSet::new(), "drop ALL wins");
    assert_eq!(set(&["KILL"], &["KILL"]), &default - &[Cap::KILL].into(), "drop wins");
    assert_eq!(effective_set(&[], &names(&["ALL"]), true).unwrap(), all, "privileged has all");
}

#[test]
fn the_error_for_a_misspelt_name_lists_the_known_ones() {
    for privileged in [false, true] {
        let error = effective_set(&names(&["SYS_ADMN"]), &[], privileged).unwrap_err();
        assert_eq!(error.name, "SYS_ADMN");
        assert!(error.to_string().contains("SYS_ADMIN"), "{error}");
    }
    assert!(effective_set(&[], &names(&["ALL", "NONE"]), false).is_err());
}

#[test]
fn capabilities_outside_the_bounding_set_are_left_out() {
    let node: BTreeSet<Cap> = [Cap::CHOWN, Cap::KILL].into();
    let granted = cap_to(&[Cap::KILL, Cap::SYS_ADMIN].into(), &node);
    assert_eq!(granted, Granted { granted: [Cap::KILL].into(), left_out: [Cap::SYS_ADMIN].into() });
}

#[test]
fn the_bounding_set_is_what_the_status_file_says() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
    let mask = u64::from_str_radix(line.trim(), 16).unwrap();
    assert_eq!(bounding_mask().unwrap(), mask);
    assert_eq!(node_bounding().unwrap(), from_mask(mask));
    let all: BTreeSet<Cap> = Cap::all().collect();
    assert_eq!(from_mask(0x1ff_feff_ffff), &all - &[Cap::SYS_RESOURCE].into());
    assert_eq!(from_mask(u64::MAX), all, "newer capabilities have no name here");
}

#[test]
fn oci_sets_have_nothing_inheritable_but_the_ambient_ones() {
    let set: BTreeSet<Cap> = [Cap::KILL, Cap::NET_BIND_SERVICE].into();
    let oci = to_oci(&set, &[Cap::NET_BIND_SERVICE, Cap::SYS_ADMIN].into());
    let both = [Capability::Kill, Capability::NetBindService].into_iter().collect();
    let one = [Capability::NetBindService].into_iter().collect();
    assert_eq!(oci.bounding(), &Some(both));
    assert_eq!(oci.effective(), oci.bounding());
    assert_eq!(oci.permitted(), oci.bounding());
    assert_eq!(oci.inheritable(), &Some(one), "and SYS_ADMIN is not in the set, so it is not ambient");
    assert_eq!(oci.ambient(), oci.inheritable());
    assert_eq!(to_oci(&set, &BTreeSet::new()).inheritable(), &Some(Default::default()));
}
