//! Users of a pod's own, as CRI asks for them: what is refused, and which IDs they have on the node.

use std::{fs::File, os::fd::OwnedFd};

use keelet_cri::v1::{self, MountPropagation, NamespaceMode};
use keelet_linux::userns::{IdRange, Users};
use tonic::Status;

use crate::{
    records::User,
    sandbox::{Sandbox, namespaces},
};

/// The node's IDs for the users of a sandbox; none if they are the node's.
pub(crate) fn of(config: &v1::PodSandboxConfig) -> Result<Option<Users>, Status> {
    let options = namespaces(config);
    let Some(asked) = &options.userns_options else { return Ok(None) };
    match NamespaceMode::try_from(asked.mode) {
        Ok(NamespaceMode::Node) => return Ok(None),
        Ok(NamespaceMode::Pod) => {}
        _ => return Err(wrong(format!("invalid userns_options.mode {}: expected POD or NODE", asked.mode))),
    }
    let node = NamespaceMode::Node as i32;
    for (name, mode) in [("network", options.network), ("pid", options.pid), ("ipc", options.ipc)] {
        if mode == node {
            return Err(wrong(format!("a pod with a user namespace cannot have the node's {name} namespace")));
        }
    }
    Ok(Some(Users { uids: range("uids", &asked.uids)?, gids: range("gids", &asked.gids)? }))
}

fn range(what: &str, mappings: &[v1::IdMapping]) -> Result<IdRange, Status> {
    let [one] = mappings else {
        return Err(wrong(format!("userns_options.{what} has {} mappings, one is allowed", mappings.len())));
    };
    let refuse = |why: &str| {
        let v1::IdMapping { container_id, host_id, length } = one;
        Err(wrong(format!("userns_options.{what}: the mapping {container_id} {host_id} {length} {why}")))
    };
    match one {
        v1::IdMapping { container_id: 1.., .. } => refuse("does not start with 0 in the pod"),
        v1::IdMapping { host_id: 0, .. } => refuse("has the node's root in it"),
        v1::IdMapping { length: 0, .. } => refuse("is empty"),
        v1::IdMapping { host_id, length, .. } => match host_id.checked_add(*length) {
            Some(_) => Ok(IdRange { first: *host_id, length: *length }),
            None => refuse("goes beyond the last ID there is"),
        },
    }
}

/// What a container cannot have in such a pod, or outside of one.
pub(crate) fn check(users: Option<Users>, config: &v1::ContainerConfig) -> Result<(), Status> {
    let options = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref()?.namespace_options.as_ref());
    if users.is_some() && options.is_some_and(|options| options.pid == NamespaceMode::Node as i32) {
        return Err(wrong(
            "a container in a pod with a user namespace cannot have the node's PID namespace".to_owned(),
        ));
    }
    for mount in &config.mounts {
        let refuse = |why: &str| Err(wrong(format!("mount {:?}: {why}", mount.container_path)));
        let asked = (mount.uid_mappings.as_slice(), mount.gid_mappings.as_slice());
        match (users, asked) {
            (_, ([], [])) => {}
            (None, _) => return refuse("it has ID mappings, and its pod has no user namespace"),
            (Some(users), (uids, gids)) => {
                if (range("uids", uids)?, range("gids", gids)?) != (users.uids, users.gids) {
                    return refuse("its ID mappings are not those of its pod");
                }
            }
        }
        if users.is_some() && mount.propagation == MountPropagation::PropagationBidirectional as i32 {
            return refuse("Bidirectional propagation is not possible in a pod with a user namespace");
        }
    }
    Ok(())
}

/// Only IDs in the pod's range are mapped.
pub(crate) fn check_ids(users: Option<Users>, user: &User) -> Result<(), Status> {
    let Some(users) = users else { return Ok(()) };
    let groups = user.groups.iter().chain([&user.gid]).map(|gid| ("group", *gid, users.gids));
    for (what, id, range) in groups.chain([("user", user.uid, users.uids)]) {
        if !range.has(id) {
            let last = range.length.saturating_sub(1);
            return Err(wrong(format!("{what} ID {id} is not mapped in the user namespace of this pod: 0 to {last}")));
        }
    }
    Ok(())
}

/// The user namespace that a sandbox's process holds.
pub(crate) fn namespace(sandbox: &Sandbox) -> Result<OwnedFd, Status> {
    let path = format!("/proc/{}/ns/user", sandbox.pause_pid());
    let open = File::open(&path);
    // Had the process ended meanwhile, its PID might have been reused.
    if !sandbox.is_ready() {
        return Err(Status::failed_precondition(format!("sandbox {} is not ready", sandbox.id)));
    }
    open.map(OwnedFd::from).map_err(|error| Status::internal(format!("{path}: {error}")))
}

fn wrong(what: String) -> Status {
    Status::invalid_argument(what)
}

#[cfg(test)]
mod tests {
    use keelet_cri::v1::{self, NamespaceMode};
    use keelet_linux::userns::{IdRange, Users};

    use super::{check, check_ids, of};
    use crate::records::User;

    const MAPPING: v1::IdMapping = v1::IdMapping { host_id: 65_536, container_id: 0, length: 65_536 };
    const RANGE: IdRange = IdRange { first: 65_536, length: 65_536 };
    const USERS: Option<Users> = Some(Users { uids: RANGE, gids: RANGE });

    fn asked(mode: NamespaceMode, uids: Vec<v1::IdMapping>, gids: Vec<v1::IdMapping>) -> v1::NamespaceOption {
        let users = v1::UserNamespace { mode: mode.into(), uids, gids };
        v1::NamespaceOption { userns_options: Some(users), ..Default::default() }
    }

    fn sandbox(options: v1::NamespaceOption) -> v1::PodSandboxConfig {
        let security = v1::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        let linux = v1::LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() };
        v1::PodSandboxConfig { linux: Some(linux), ..Default::default() }
    }

    #[test]
    fn a_pod_has_one_range_that_starts_with_its_root() {
        use NamespaceMode::{Container, Node, Pod, Target};
        assert_eq!(of(&sandbox(asked(Pod, vec![MAPPING], vec![MAPPING]))).expect("a range"), USERS);
        assert_eq!(of(&sandbox(asked(Node, Vec::new(), Vec::new()))).expect("the node's"), None);
        assert_eq!(of(&v1::PodSandboxConfig::default()).expect("the node's"), None);
        for mode in [Container, Target] {
            of(&sandbox(asked(mode, vec![MAPPING], vec![MAPPING]))).expect_err("neither POD nor NODE");
        }
        for (uids, why) in [
            (Vec::new(), "0 mappings"),
            (vec![MAPPING, v1::IdMapping { host_id: 500_000, container_id: 65_536, ..MAPPING }], "2 mappings"),
            (vec![v1::IdMapping { container_id: 1, ..MAPPING }], "start with 0"),
            (vec![v1::IdMapping { host_id: 0, ..MAPPING }], "node's root"),
            (vec![v1::IdMapping { length: 0, ..MAPPING }], "empty"),
            (vec![v1::IdMapping { host_id: u32::MAX - 9, ..MAPPING }], "beyond"),
        ] {
            let status = of(&sandbox(asked(Pod, uids.clone(), vec![MAPPING]))).expect_err(why);
            assert!(status.message().contains(why) && status.message().contains("uids"), "{status}");
            let status = of(&sandbox(asked(Pod, vec![MAPPING], uids))).expect_err(why);
            assert!(status.message().contains(why) && status.message().contains("gids"), "{status}");
        }
    }

    #[test]
    fn the_nodes_namespaces_are_not_for_users_of_a_pod() {
        let node = i32::from(NamespaceMode::Node);
        let own = asked(NamespaceMode::Pod, vec![MAPPING], vec![MAPPING]);
        for (name, options) in [
            ("network", v1::NamespaceOption { network: node, ..own.clone() }),
            ("pid", v1::NamespaceOption { pid: node, ..own.clone() }),
            ("ipc", v1::NamespaceOption { ipc: node, ..own.clone() }),
        ] {
            let status = of(&sandbox(options)).expect_err(name);
            assert!(status.message().contains(name), "{status}");
        }
    }

    #[test]
    fn mounts_translate_for_their_own_pod_only() {
        let mount = |uids: Vec<v1::IdMapping>, gids: Vec<v1::IdMapping>| v1::ContainerConfig {
            mounts: vec![v1::Mount {
                container_path: "/data".to_owned(),
                uid_mappings: uids,
                gid_mappings: gids,
                ..Default::default()
            }],
            ..Default::default()
        };
        check(USERS, &mount(vec![MAPPING], vec![MAPPING])).expect("its own");
        check(USERS, &mount(Vec::new(), Vec::new())).expect("none");
        check(None, &mount(Vec::new(), Vec::new())).expect("none");
        let other = v1::IdMapping { host_id: 131_072, ..MAPPING };
        for (users, config) in [
            (None, mount(vec![MAPPING], vec![MAPPING])),
            (USERS, mount(vec![other], vec![other])),
            (USERS, mount(vec![MAPPING], Vec::new())),
        ] {
            check(users, &config).expect_err("not its own");
        }
        let mut shared = mount(vec![MAPPING], vec![MAPPING]);
        shared.mounts[0].propagation = v1::MountPropagation::PropagationBidirectional.into();
        assert!(check(USERS, &shared).expect_err("cannot be").message().contains("\"/data\""));
    }

    #[test]
    fn users_outside_of_the_range_are_named() {
        let user = |uid, gid, group| User { uid, gid, groups: vec![group] };
        check_ids(USERS, &user(65_535, 0, 65_535)).expect("all in it");
        check_ids(None, &user(70_000, 70_000, 70_000)).expect("the node's");
        for (user, what) in [
            (user(65_536, 0, 0), "user ID 65536"),
            (user(0, 65_536, 0), "group ID 65536"),
            (user(0, 0, 70_000), "group ID 70000"),
        ] {
            assert!(check_ids(USERS, &user).expect_err(what).message().contains(what));
        }
    }
}
