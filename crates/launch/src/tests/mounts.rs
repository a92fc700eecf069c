//! Volumes and files.

use keelet_cri::v1::MountPropagation;

use super::*;
use crate::Writer;

const VOLUMES: &str = "volumes:\n- {name: data, emptyDir: {}}\n- {name: node, hostPath: {path: /srv}}\n\
    - {name: conf, configMap: {name: conf}}";

#[track_caller]
fn mounting(mounts: &str) -> Place {
    let mut place = Place::with(
        "",
        VOLUMES,
        &format!("env: [{{name: POD, value: web}}, {{name: EMPTY}}]\nvolumeMounts:\n{mounts}"),
    );
    for (name, path) in [("data", "/run/data"), ("node", "/srv"), ("conf", "/run/conf")] {
        place.volumes.insert(name.to_owned(), path.into());
    }
    place
}

#[test]
fn volumes_come_first_then_the_hosts_file_and_the_termination_message() {
    let config = mounting("- {name: data, mountPath: /data}\n- {name: node, mountPath: rel, readOnly: true}").launch();
    let mounts: Vec<_> =
        config.mounts.iter().map(|mount| (&*mount.host_path, &*mount.container_path, mount.readonly)).collect();
    assert_eq!(
        mounts,
        [
            ("/run/data", "/data", false),
            ("/srv", "/rel", true),
            ("/run/pods/u-1/etc-hosts", "/etc/hosts", false),
            ("/run/pods/u-1/main/3", "/dev/termination-log", false),
        ]
    );
}

#[test]
fn files_belong_to_the_same_users_whatever_those_are_on_the_node() {
    let mut place = mounting("- {name: data, mountPath: /data}\n- {name: node, mountPath: /node}");
    assert!(place.launch().mounts.iter().all(|mount| mount.uid_mappings.is_empty() && mount.gid_mappings.is_empty()));
    place.users = Some(IdRange { first: 131_072, length: 65_536 });
    let range = [v1::IdMapping { host_id: 131_072, container_id: 0, length: 65_536 }];
    let mounts = place.launch().mounts;
    assert_eq!(mounts.len(), 4);
    for mount in mounts {
        assert_eq!((&*mount.uid_mappings, &*mount.gid_mappings), (&range[..], &range[..]), "{}", mount.container_path);
    }
}

#[test]
fn the_hosts_file_gives_way() {
    let has_hosts = |place: Place| place.launch().mounts.iter().any(|mount| mount.host_path.ends_with("etc-hosts"));
    assert!(has_hosts(mounting("- {name: data, mountPath: /etc}")));
    assert!(!has_hosts(mounting("- {name: data, mountPath: /etc/hosts}")));
    assert!(has_hosts(Place::spec("hostNetwork: true")), "it holds the pod's aliases there as well");
}

#[test]
fn the_termination_message_goes_where_the_container_writes_it() {
    let mounts = Place::container("terminationMessagePath: tmp/last-words").launch().mounts;
    assert_eq!(mounts.last().expect("a mount").container_path, "/tmp/last-words");
}

#[test]
fn what_the_agent_fills_in_is_only_read_and_what_is_not_the_pods_keeps_its_labels() {
    let cases = [("data", false, true), ("node", false, false), ("conf", true, true)];
    for (name, readonly, relabel) in cases {
        let mounts = mounting(&format!("- {{name: {name}, mountPath: /m}}")).launch().mounts;
        assert_eq!((mounts[0].readonly, mounts[0].selinux_relabel), (readonly, relabel), "{name}");
    }
}

#[test]
fn propagation_is_private_unless_asked_for() {
    let cases = [
        ("", MountPropagation::PropagationPrivate),
        (", mountPropagation: None", MountPropagation::PropagationPrivate),
        (", mountPropagation: HostToContainer", MountPropagation::PropagationHostToContainer),
        (", mountPropagation: Bidirectional", MountPropagation::PropagationBidirectional),
    ];
    for (field, propagation) in cases {
        let mounts = mounting(&format!("- {{name: node, mountPath: /m{field}}}")).launch().mounts;
        assert_eq!(mounts[0].propagation(), propagation, "{field}");
    }
}

#[test]
fn recursive_read_only_is_had_where_it_is_demanded_and_where_it_is_possible() {
    for (word, where_possible, elsewhere) in
        [("Disabled", false, Some(false)), ("IfPossible", true, Some(false)), ("Enabled", true, None)]
    {
        let mount = format!("- {{name: node, mountPath: /m, readOnly: true, recursiveReadOnly: {word}}}");
        let mut place = mounting(&mount);
        assert!(wants_recursive_read_only(&place.pod, place.pod.container("main").expect("main")));
        assert_eq!(place.launch().mounts[0].recursive_read_only, where_possible, "{word}");
        place.recursive_read_only = false;
        match elsewhere {
            Some(recursive) => assert_eq!(place.launch().mounts[0].recursive_read_only, recursive, "{word}"),
            None => assert!(place.refusal().contains("recursiveReadOnly: Enabled is more than the runtime can do")),
        }
    }
    let shared =
        "{name: node, mountPath: /m, readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: HostToContainer}";
    assert!(!mounting(&format!("- {shared}")).launch().mounts[0].recursive_read_only);
    let silent = mounting("- {name: node, mountPath: /m, readOnly: true}");
    assert!(!wants_recursive_read_only(&silent.pod, silent.pod.container("main").expect("main")));
    let both =
        "{name: node, mountPath: /m, readOnly: true, recursiveReadOnly: Enabled, mountPropagation: HostToContainer}";
    assert!(mounting(&format!("- {both}")).refusal().contains("exclude each other"));
}

#[test]
fn a_part_of_a_volume_is_mounted_from_inside_it() {
    let cases = [
        ("subPath: logs", "/run/data/logs"),
        ("subPath: a/./b//c", "/run/data/a/b/c"),
        ("subPath: .", "/run/data"),
        ("subPath: ..data", "/run/data/..data"),
        ("subPathExpr: logs/$(POD)", "/run/data/logs/web"),
        ("subPathExpr: $$(POD)", "/run/data/$(POD)"),
    ];
    for (field, path) in cases {
        let place = mounting(&format!("- {{name: data, mountPath: /m, {field}}}"));
        assert_eq!(place.launch().mounts[0].host_path, path, "{field}");
        let parts = place.sub_paths().expect("parts");
        let joined: Vec<_> = parts.iter().map(|part| part.volume.join(&part.path)).collect();
        let expected: Vec<_> =
            [PathBuf::from(path)].into_iter().filter(|path| path != Path::new("/run/data")).collect();
        assert_eq!(joined, expected, "{field}");
    }
}

/// A part of a volume that the agent fills is mounted from where it is at that moment.
#[test]
fn a_part_of_what_the_agent_fills_in_is_mounted_from_where_it_really_is() {
    let mut place =
        mounting("- {name: conf, mountPath: /m, subPath: a.conf}\n- {name: data, mountPath: /d, subPath: x}");
    let writers: Vec<_> = place.sub_paths().expect("parts").iter().map(|part| part.writer).collect();
    assert_eq!(writers, [Writer::Agent, Writer::Pod]);
    place.parts.insert("/run/conf/a.conf".into(), "/run/conf/..1/a.conf".into());
    let paths: Vec<_> = place.launch().mounts.into_iter().take(2).map(|mount| mount.host_path).collect();
    assert_eq!(paths, ["/run/conf/..1/a.conf", "/run/data/x"]);
}

#[test]
fn nothing_leads_out_of_a_volume() {
    let cases = [
        ("subPathExpr: $(UP)/etc", "must not contain '..'"),
        ("subPathExpr: $(ABS)", "must be relative"),
        ("subPathExpr: a/$(EMPTY)/$(NOBODY)", "no value for EMPTY, NOBODY"),
    ];
    for (field, words) in cases {
        let mut place = Place::with(
            "",
            VOLUMES,
            &format!(
                "env: [{{name: UP, value: a/../..}}, {{name: ABS, value: /etc}}, {{name: EMPTY}}]\n\
                 volumeMounts: [{{name: data, mountPath: /m, {field}}}]"
            ),
        );
        place.volumes.insert("data".to_owned(), "/run/data".into());
        let message = place.refusal();
        assert!(message.starts_with("volume \"data\" cannot be mounted into container \"main\""), "{message}");
        assert!(message.contains(words), "{message}");
        assert!(place.sub_paths().is_err(), "{field}");
    }
}

#[test]
fn a_volume_that_is_not_there_is_named() {
    let mut place = mounting("- {name: data, mountPath: /m}");
    place.volumes.clear();
    assert!(place.refusal().contains("volume \"data\""));
    let device = "volumeDevices: [{name: data, devicePath: /dev/x}]";
    assert!(Place::with("", VOLUMES, device).refusal().contains("raw block volumes"));
}
