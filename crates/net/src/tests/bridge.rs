//! Pods on the built-in bridge: connectivity, cleaning up, and recovery from crashes.

use super::*;
use crate::{Error, names};

#[test]
fn node_and_pods_reach_each_other_and_nothing_remains() {
    inside("tests::bridge::node_and_pods_reach_each_other_and_nothing_remains", |scene| {
        let before = scene.snapshot();
        let (one, two) = (scene.pod("one"), scene.pod("two"));
        let first = scene.attach(&one).unwrap()[0];
        let second = scene.attach(&two).unwrap()[0];
        assert_eq!((first, second), (ip("10.213.0.2"), ip("10.213.0.3")));
        serve(Some(&one.netns), "0.0.0.0:80");
        serve(Some(&two.netns), "0.0.0.0:80");
        serve(None, "0.0.0.0:90");
        let gateway = ip("10.213.0.1");
        assert_eq!(ask(None, first, 80).unwrap(), gateway.to_string());
        assert_eq!(ask(Some(&two.netns), first, 80).unwrap(), second.to_string());
        assert_eq!(ask(Some(&one.netns), second, 80).unwrap(), first.to_string());
        assert_eq!(ask(Some(&one.netns), gateway, 90).unwrap(), first.to_string());
        assert_eq!(ask(Some(&one.netns), ip("127.0.0.1"), 80).unwrap(), "127.0.0.1");

        scene.detach(&one).unwrap();
        assert!(is_silent(None, first, 80));
        assert_eq!(ask(None, second, 80).unwrap(), gateway.to_string());
        scene.detach(&two).unwrap();
        assert_eq!(scene.snapshot(), before);
        assert_eq!(scene.files(), [""; 0]);
        scene.detach(&two).unwrap();
        scene.runtime.block_on(scene.network().detach("never-seen", None)).unwrap();
        assert_eq!(scene.snapshot(), before);
    });
}

#[test]
fn attaching_again_changes_nothing() {
    inside("tests::bridge::attaching_again_changes_nothing", |scene| {
        let pod = scene.pod("one");
        let first = scene.attach(&pod).unwrap();
        let before = link(&names::host_end(&pod.sandbox_id)).unwrap();
        assert_eq!(scene.attach(&pod).unwrap(), first);
        assert_eq!(link(&names::host_end(&pod.sandbox_id)).unwrap().index, before.index);
        assert!(before.up && before.alias.contains(&pod.sandbox_id), "{before:?}");
    });
}

#[test]
fn a_new_namespace_gets_the_former_address() {
    inside("tests::bridge::a_new_namespace_gets_the_former_address", |scene| {
        let mut pod = scene.pod("one");
        let first = scene.attach(&pod).unwrap();
        pod.netns = scene.netns("another");
        assert_eq!(scene.attach(&pod).unwrap(), first);
        serve(Some(&pod.netns), "0.0.0.0:80");
        assert_eq!(ask(None, first[0], 80).unwrap(), "10.213.0.1");
    });
}

/// Stops attaching after each of its steps, and continues in each of the ways that an agent has.
#[test]
fn attaching_recovers_from_a_crash_at_any_step() {
    inside("tests::bridge::attaching_recovers_from_a_crash_at_any_step", |scene| {
        let before = scene.snapshot();
        let mut stops = 0;
        for step in 0.. {
            for way in ["attach", "detach", "sweep"] {
                let mut pod = scene.pod(&format!("{step}-{way}"));
                pod.ports = vec![port(80, 8080)];
                failpoint::arm(step);
                let first = scene.attach(&pod);
                if !failpoint::disarm() {
                    scene.detach(&pod).unwrap();
                    // Past the last step.
                    assert!(first.is_ok());
                    assert_eq!(scene.snapshot(), before);
                    assert!(stops >= 3 * 5, "only {stops} stops");
                    return;
                }
                assert!(matches!(first, Err(Error::Stopped(_))), "{first:?}");
                stops += 1;
                match way {
                    "attach" => {
                        let ips = scene.attach(&pod).unwrap();
                        serve(Some(&pod.netns), "0.0.0.0:80");
                        assert_eq!(ask(None, ips[0], 80).unwrap(), "10.213.0.1", "{first:?}");
                        assert_eq!(scene.files().len(), 1);
                        scene.detach(&pod).unwrap();
                    }
                    "detach" => scene.detach(&pod).unwrap(),
                    _ => scene.sweep(&[]).unwrap(),
                }
                assert_eq!(scene.snapshot(), before, "{first:?} then {way}");
                assert_eq!(scene.files(), [""; 0], "{first:?} then {way}");
            }
        }
    });
}

#[test]
fn detaching_recovers_from_a_crash_at_any_step() {
    inside("tests::bridge::detaching_recovers_from_a_crash_at_any_step", |scene| {
        let before = scene.snapshot();
        let mut stops = 0;
        for step in 0.. {
            let pod = scene.pod(&format!("{step}"));
            scene.attach(&pod).unwrap();
            failpoint::arm(step);
            let first = scene.detach(&pod);
            let stopped = failpoint::disarm();
            stops += i32::from(stopped);
            assert_eq!(matches!(first, Err(Error::Stopped(_))), stopped, "{first:?}");
            scene.detach(&pod).unwrap();
            assert_eq!(scene.snapshot(), before, "{first:?}");
            assert_eq!(scene.files(), [""; 0], "{first:?}");
            if !stopped {
                return assert!(stops >= 2);
            }
        }
    });
}

#[test]
fn a_missing_namespace_does_not_prevent_detaching() {
    inside("tests::bridge::a_missing_namespace_does_not_prevent_detaching", |scene| {
        let before = scene.snapshot();
        let pod = scene.pod("one");
        scene.attach(&pod).unwrap();
        nix::mount::umount(&pod.netns).unwrap();
        std::fs::remove_file(&pod.netns).unwrap();
        scene.detach(&pod).unwrap();
        assert_eq!(scene.snapshot(), before);
    });
}

#[test]
fn the_error_for_a_missing_namespace_names_it() {
    inside("tests::bridge::the_error_for_a_missing_namespace_names_it", |scene| {
        let before = scene.snapshot();
        let pod = PodNetwork { netns: "/nowhere/netns".into(), ..scene.pod("one") };
        let error = scene.attach(&pod).unwrap_err().to_string();
        assert!(error.contains("/nowhere/netns"), "{error}");
        let not_a_namespace = PodNetwork { netns: scene.dir.path().join("plain"), ..scene.pod("two") };
        std::fs::write(&not_a_namespace.netns, "").unwrap();
        let error = scene.attach(&not_a_namespace).unwrap_err().to_string();
        assert!(error.contains("plain"), "{error}");
        assert_eq!((scene.snapshot(), scene.files()), (before, vec![]));
    });
}

#[test]
fn a_sweep_removes_all_but_live_sandboxes() {
    inside("tests::bridge::a_sweep_removes_all_but_live_sandboxes", |scene| {
        let before = scene.snapshot();
        let (dead, living) = (scene.pod("dead"), scene.pod("living"));
        scene.attach(&dead).unwrap();
        let address = scene.attach(&living).unwrap()[0];
        scene.sweep(&[&living]).unwrap();
        assert_eq!(scene.files(), ["sandbox-living.json"]);
        assert!(link(&names::host_end(&dead.sandbox_id)).is_none());
        serve(Some(&living.netns), "0.0.0.0:80");
        assert_eq!(ask(None, address, 80).unwrap(), "10.213.0.1");
        scene.sweep(&[]).unwrap();
        assert_eq!((scene.snapshot(), scene.files()), (before, vec![]));
    });
}

#[test]
fn lost_records_neither_leak_links_nor_share_addresses() {
    inside("tests::bridge::lost_records_neither_leak_links_nor_share_addresses", |scene| {
        let before = scene.snapshot();
        let (one, two, three) = (scene.pod("one"), scene.pod("two"), scene.pod("three"));
        let first = scene.attach(&one).unwrap();
        std::fs::remove_dir_all(&scene.settings.state_dir).unwrap();
        let second = scene.attach(&two).unwrap();
        assert_ne!(first, second);
        // An invalid file counts as missing.
        std::fs::write(scene.settings.state_dir.join("sandboxes/sandbox-two.json"), "{").unwrap();
        let third = scene.attach(&three).unwrap();
        assert!(third != first && third != second, "{first:?} {second:?} {third:?}");
        assert_eq!(scene.files(), ["sandbox-three.json", "sandbox-two.broken"]);
        assert_eq!(scene.attach(&two).unwrap(), second, "its interface knows the address");
        std::fs::remove_file(scene.settings.state_dir.join("sandboxes/sandbox-two.json")).unwrap();
        scene.sweep(&[&three]).unwrap();
        assert!(link(&names::host_end(&one.sandbox_id)).is_none());
        assert!(link(&names::host_end(&two.sandbox_id)).is_none());
        assert_eq!(scene.files(), ["sandbox-three.json"]);
        scene.sweep(&[]).unwrap();
        assert_eq!(scene.snapshot(), before);
    });
}

#[test]
fn many_pods_at_once_have_addresses_of_their_own() {
    inside("tests::bridge::many_pods_at_once_have_addresses_of_their_own", |scene| {
        let before = scene.snapshot();
        let pods: Vec<PodNetwork> = (0..12).map(|n| scene.pod(&format!("{n}"))).collect();
        let network = scene.network();
        let all = scene.runtime.block_on(futures::future::join_all(pods.iter().map(|pod| network.attach(pod))));
        let ips: BTreeSet<IpAddr> = all.into_iter().flat_map(|attached| attached.unwrap().ips).collect();
        assert_eq!(ips.len(), pods.len());
        let gone = pods.iter().map(|pod| network.detach(&pod.sandbox_id, Some(&pod.netns)));
        scene.runtime.block_on(futures::future::join_all(gone)).into_iter().for_each(|gone| gone.unwrap());
        assert_eq!(scene.snapshot(), before);
    });
}

#[test]
fn both_families_work() {
    inside("tests::bridge::both_families_work", |mut scene| {
        if !crate::sysctl::exists("ipv6/conf/all/forwarding") {
            return keelet_report::skipped("this kernel has no IPv6");
        }
        let before = scene.snapshot();
        scene.settings.ranges = vec![net("fd00:42::/64"), net("10.42.0.0/24")];
        let (one, two) = (scene.pod("one"), scene.pod("two"));
        let first = scene.attach(&one).unwrap();
        let second = scene.attach(&two).unwrap();
        assert_eq!(first, [ip("fd00:42::2"), ip("10.42.0.2")]);
        serve(Some(&one.netns), "[::]:80");
        assert_eq!(ask(None, first[0], 80).unwrap(), "fd00:42::1");
        assert_eq!(ask(Some(&two.netns), first[0], 80).unwrap(), second[0].to_string());
        assert_eq!(ask(Some(&two.netns), first[1], 80).unwrap(), format!("::ffff:{}", second[1]));
        scene.detach(&one).unwrap();
        scene.detach(&two).unwrap();
        assert_eq!(scene.snapshot(), before);
    });
}

#[test]
fn a_range_that_is_routed_already_is_not_chosen() {
    inside("tests::bridge::a_range_that_is_routed_already_is_not_chosen", |mut scene| {
        let pod = scene.pod("one");
        scene.settings.bridge = "other0".to_owned();
        scene.settings.ranges = vec![net("10.213.7.0/24")];
        scene.attach(&pod).unwrap();

        scene.settings = Settings {
            state_dir: scene.dir.path().join("second"),
            bridge: "keelet0".to_owned(),
            ranges: Vec::new(),
            ..scene.settings.clone()
        };
        let network = scene.network();
        let kind = scene.runtime.block_on(network.status()).unwrap();
        assert_eq!(kind.to_string(), "bridge keelet0 with 10.171.0.0/16");
        let second = scene.pod("two");
        assert_eq!(scene.attach(&second).unwrap(), [ip("10.171.0.2")]);
        assert_eq!(scene.runtime.block_on(network.status()).unwrap(), kind);
    });
}

#[test]
fn the_error_for_a_bridge_name_in_use_names_it() {
    inside("tests::bridge::the_error_for_a_bridge_name_in_use_names_it", |mut scene| {
        scene.settings.bridge = "lo".to_owned();
        let error = scene.attach(&scene.pod("one")).unwrap_err().to_string();
        assert!(error.contains("interface lo exists and is not a bridge"), "{error}");
        assert_eq!(scene.files(), [""; 0]);
        assert!(link("lo").is_some());
    });
}

#[test]
fn new_ranges_replace_old_ones() {
    inside("tests::bridge::new_ranges_replace_old_ones", |mut scene| {
        let (old, new) = (scene.pod("old"), scene.pod("new"));
        let first = scene.attach(&old).unwrap()[0];
        scene.settings.ranges = vec![net("10.99.0.0/24")];
        assert_eq!(scene.attach(&new).unwrap(), [ip("10.99.0.2")]);
        serve(Some(&old.netns), "0.0.0.0:80");
        assert_eq!(ask(None, first, 80).unwrap(), "10.213.0.1", "a running pod keeps its gateway");
        assert_eq!(scene.attach(&old).unwrap(), [first], "and its address, when it is attached again");
        scene.detach(&old).unwrap();
        scene.attach(&scene.pod("newer")).unwrap();
        let bridge: Vec<String> = scene.snapshot().links.into_iter().filter(|link| link.contains("keelet0")).collect();
        assert_eq!(bridge, ["keelet0 [10.99.0.1/24]"]);
    });
}
