//! Users, rights, profiles.

use keelet_cri::v1::{SupplementalGroupsPolicy, security_profile::ProfileType};

use super::*;

#[track_caller]
fn contexts(pod: &str, container: &str) -> Place {
    Place::with("", &format!("securityContext: {{{pod}}}"), &format!("securityContext: {{{container}}}"))
}

#[test]
fn the_containers_word_counts_over_the_pods_and_the_images() {
    let cases = [
        ("", "", Some(1000), None),
        ("runAsUser: 1, runAsGroup: 2", "", Some(1), Some(2)),
        ("runAsUser: 1, runAsGroup: 2", "runAsUser: 3", Some(3), Some(2)),
        ("runAsUser: 1", "runAsUser: 0, runAsGroup: 4", Some(0), Some(4)),
    ];
    for (pod, container, user, group) in cases {
        let context = contexts(pod, container).security();
        assert_eq!(context.run_as_user.map(|id| id.value), user, "{pod} {container}");
        assert_eq!(context.run_as_group.map(|id| id.value), group, "{pod} {container}");
        assert_eq!(context.run_as_username, "");
    }
}

#[test]
fn an_image_names_its_user_by_number_by_name_or_not_at_all() {
    let cases = [
        (Some(7), "", "", Some(7), ""),
        (None, "app", "", None, "app"),
        (None, "", "", Some(0), ""),
        (None, "app", "runAsUser: 5", Some(5), ""),
    ];
    for (uid, user, container, run_as_user, run_as_username) in cases {
        let mut place = contexts("", container);
        (place.image.uid, place.image.user) = (uid, user.to_owned());
        let context = place.security();
        assert_eq!(context.run_as_user.map(|id| id.value), run_as_user, "{uid:?} {user}");
        assert_eq!(context.run_as_username, run_as_username, "{uid:?} {user}");
    }
}

#[test]
fn a_container_that_must_not_be_root_is_not_started_as_root() {
    let non_root = "runAsNonRoot: true";
    let cases = [
        (non_root, "", Some(0), "", Some("image will run as root")),
        (non_root, "", None, "", Some("image will run as root")),
        (non_root, "", None, "app", Some("image has non-numeric user (app), cannot verify user is non-root")),
        (non_root, "", Some(1), "", None),
        (non_root, "", Some(1 << 40), "", Some("invalid user id (1099511627776)")),
        (non_root, "", Some(-1), "", Some("invalid user id (-1)")),
        (non_root, "runAsUser: 0", Some(1), "", Some("runAsUser breaks non-root policy")),
        (non_root, "runAsUser: 5", None, "app", None),
        ("runAsNonRoot: true, runAsUser: 0", "", Some(1), "", Some("runAsUser breaks non-root policy")),
        (non_root, "runAsNonRoot: false", Some(0), "", None),
        ("", "runAsNonRoot: true", Some(0), "", Some("image will run as root")),
        ("", "", Some(0), "", None),
    ];
    for (pod, container, uid, user, words) in cases {
        let mut place = contexts(pod, container);
        (place.image.uid, place.image.user) = (uid, user.to_owned());
        match words {
            None => drop(place.launch()),
            Some(words) => {
                let message = place.refusal();
                assert!(message.contains(words), "{message}");
                assert!(message.ends_with("(pod: shop/web, container: main)"), "{message}");
            }
        }
    }
}

#[test]
fn rights_are_passed_on() {
    let context = contexts(
        "fsGroup: 3, supplementalGroups: [4, 5], supplementalGroupsPolicy: Strict, seLinuxOptions: {level: pod}",
        "privileged: true, readOnlyRootFilesystem: true, capabilities: {add: [NET_ADMIN], drop: [ALL]}, \
         seLinuxOptions: {level: own}",
    )
    .security();
    assert!(context.privileged && context.readonly_rootfs);
    let capabilities = context.capabilities.as_ref().expect("capabilities");
    assert_eq!(capabilities.add_capabilities, ["NET_ADMIN"]);
    assert_eq!(capabilities.drop_capabilities, ["ALL"]);
    assert_eq!(context.supplemental_groups, [3, 4, 5]);
    assert_eq!(context.supplemental_groups_policy(), SupplementalGroupsPolicy::Strict);
    assert_eq!(context.selinux_options.expect("options").level, "own");

    let plain = Place::container("").security();
    assert!(!plain.privileged && !plain.readonly_rootfs && plain.capabilities.is_none());
    assert_eq!(plain.supplemental_groups_policy(), SupplementalGroupsPolicy::Merge);
}

#[test]
fn privileges_are_frozen_only_where_the_container_says_so() {
    for (container, frozen) in
        [("", false), ("allowPrivilegeEscalation: true", false), ("allowPrivilegeEscalation: false", true)]
    {
        assert_eq!(contexts("", container).security().no_new_privs, frozen, "{container}");
    }
}

#[test]
fn kernel_paths_are_hidden_unless_unmasked() {
    for mount in ["", "procMount: Default"] {
        let context = contexts("", mount).security();
        assert!(context.masked_paths.contains(&"/proc/kcore".to_owned()), "{mount}");
        assert_eq!(context.readonly_paths, ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]);
    }
    let place = Place::with("", "hostUsers: false", "securityContext: {procMount: Unmasked}");
    let context = place.security();
    assert!(context.masked_paths.is_empty() && context.readonly_paths.is_empty());
}

#[test]
fn seccomp_is_the_containers_then_the_pods_then_none() {
    let default = "seccompProfile: {type: RuntimeDefault}";
    let unconfined = "seccompProfile: {type: Unconfined}";
    let file = "seccompProfile: {type: Localhost, localhostProfile: team/web.json}";
    let path = "/var/lib/keelet/seccomp/team/web.json";
    let cases = [
        ("", "", ProfileType::Unconfined, ""),
        (default, "", ProfileType::RuntimeDefault, ""),
        (default, unconfined, ProfileType::Unconfined, ""),
        (unconfined, default, ProfileType::RuntimeDefault, ""),
        (default, file, ProfileType::Localhost, path),
        (file, "", ProfileType::Localhost, path),
    ];
    for (pod, container, kind, reference) in cases {
        let profile = contexts(pod, container).security().seccomp.expect("a profile");
        assert_eq!((profile.profile_type(), &*profile.localhost_ref), (kind, reference), "{pod} {container}");
    }
    for file in ["../../etc/passwd", "/etc/passwd"] {
        let place = contexts("", &format!("seccompProfile: {{type: Localhost, localhostProfile: {file}}}"));
        assert!(place.refusal().contains("must be a path below /var/lib/keelet/seccomp"));
    }
}

#[test]
fn app_armor_is_the_containers_then_the_annotations_then_the_pods() {
    let named = |name: &str| format!("appArmorProfile: {{type: Localhost, localhostProfile: {name}}}");
    let note = |text: &str| format!("annotations: {{container.apparmor.security.beta.kubernetes.io/main: {text}}}");
    let cases = [
        (String::new(), String::new(), String::new(), None),
        (String::new(), named("pod"), String::new(), Some((ProfileType::Localhost, "pod"))),
        (note("localhost/noted"), named("pod"), String::new(), Some((ProfileType::Localhost, "noted"))),
        (note("runtime/default"), named("pod"), String::new(), Some((ProfileType::RuntimeDefault, ""))),
        (note("unconfined"), String::new(), String::new(), Some((ProfileType::Unconfined, ""))),
        (note("nonsense"), named("pod"), String::new(), Some((ProfileType::Localhost, "pod"))),
        (note("unconfined"), named("pod"), named("own"), Some((ProfileType::Localhost, "own"))),
    ];
    for (metadata, pod, container, expected) in cases {
        let place = Place::with(
            &metadata,
            &format!("securityContext: {{{pod}}}"),
            &format!("securityContext: {{{container}}}"),
        );
        let profile = place.security().apparmor;
        let profile = profile.as_ref().map(|profile| (profile.profile_type(), profile.localhost_ref.as_str()));
        assert_eq!(profile, expected, "{metadata} {pod} {container}");
    }
}
