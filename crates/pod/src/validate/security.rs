//! `securityContext` of pods and containers.

use k8s_openapi::api::core::v1;

use crate::{
    path::FieldPath,
    problem::{forbidden, invalid, required},
    review::Review,
};

use super::{one_of, within};

const PROFILE_TYPES: [&str; 3] = ["RuntimeDefault", "Unconfined", "Localhost"];

/// Checks the security context of a pod.
pub(super) fn check_pod(context: &v1::PodSecurityContext, path: &FieldPath, review: &mut Review<'_>) {
    for (field, value) in
        [("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group), ("fsGroup", context.fs_group)]
    {
        id(value, &path.field(field), review);
    }
    for (index, group) in context.supplemental_groups.iter().flatten().enumerate() {
        id(Some(*group), &path.field("supplementalGroups").index(index), review);
    }
    let change = context.fs_group_change_policy.as_deref();
    one_of(review, &path.field("fsGroupChangePolicy"), change, &["OnRootMismatch", "Always"]);
    let groups = context.supplemental_groups_policy.as_deref();
    one_of(review, &path.field("supplementalGroupsPolicy"), groups, &["Merge", "Strict"]);
    profiles(context.seccomp_profile.as_ref(), context.app_armor_profile.as_ref(), path, review);
}

/// Checks the security context of a container.
pub(super) fn check_container(
    context: &v1::SecurityContext,
    spec: &v1::PodSpec,
    path: &FieldPath,
    review: &mut Review<'_>,
) {
    id(context.run_as_user, &path.field("runAsUser"), review);
    id(context.run_as_group, &path.field("runAsGroup"), review);
    profiles(context.seccomp_profile.as_ref(), context.app_armor_profile.as_ref(), path, review);
    let proc_mount = path.field("procMount");
    one_of(review, &proc_mount, context.proc_mount.as_deref(), &["Default", "Unmasked"]);
    if context.proc_mount.as_deref() == Some("Unmasked") && spec.host_users != Some(false) {
        review.object(&proc_mount, forbidden("Unmasked needs hostUsers to be false"));
    }
    if context.allow_privilege_escalation == Some(false) {
        let path = path.field("allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            review.object(&path, invalid(false, "cannot be false when privileged is true"));
        }
        let added = context.capabilities.iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        if added.into_iter().any(|capability| capability == "SYS_ADMIN" || capability == "CAP_SYS_ADMIN") {
            review.object(&path, invalid(false, "cannot be false when the capability SYS_ADMIN is added"));
        }
    }
}

fn profiles(
    seccomp: Option<&v1::SeccompProfile>,
    app_armor: Option<&v1::AppArmorProfile>,
    path: &FieldPath,
    review: &mut Review<'_>,
) {
    if let Some(profile) = seccomp {
        let path = path.field("seccompProfile");
        check_profile(&profile.type_, profile.localhost_profile.as_deref(), &path, review);
    }
    if let Some(profile) = app_armor {
        let path = path.field("appArmorProfile");
        check_profile(&profile.type_, profile.localhost_profile.as_deref(), &path, review);
    }
}

/// A file name is required for type Localhost and forbidden otherwise.
fn check_profile(kind: &str, file: Option<&str>, path: &FieldPath, review: &mut Review<'_>) {
    one_of(review, &path.field("type"), Some(kind), &PROFILE_TYPES);
    let path = path.field("localhostProfile");
    match (kind, file) {
        ("Localhost", None | Some("")) => review.object(&path, required("must be set when type is Localhost")),
        ("Localhost", Some(_)) | (_, None) => {}
        (_, Some(_)) => review.object(&path, forbidden("may only be set when type is Localhost")),
    }
}

fn id(value: Option<i64>, path: &FieldPath, review: &mut Review<'_>) {
    if let Some(value) = value {
        within(review, path, value, 0, i32::MAX.into());
    }
}
