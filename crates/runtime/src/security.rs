//! The user that a container runs as and what it may do, looked up in its image.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use keelet_cri::v1::{self, SecurityProfile, SupplementalGroupsPolicy, security_profile::ProfileType};
use keelet_image::{Image, resolve_user};
use keelet_linux::{
    capabilities::{self, Cap},
    seccomp::{self, Architecture},
};
use oci_spec::runtime::{LinuxCapabilities, LinuxSeccomp};
use tonic::Status;

use crate::records::User;

/// What was found out.
#[derive(Debug)]
pub(crate) struct Security {
    pub(crate) user: User,
    pub(crate) home: String,
    pub(crate) capabilities: LinuxCapabilities,
    pub(crate) seccomp: Option<LinuxSeccomp>,
}

pub(crate) fn of(config: &v1::ContainerConfig, image: &Image, rootfs: &Path) -> Result<Security, Status> {
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default();
    refuse_labels(&context, Path::new(SELINUX).exists())?;
    if let Some(device) = config.cdi_devices.first() {
        let name = &device.name;
        return Err(Status::unimplemented(format!(
            "CDI device {name:?} is not supported: the embedded runtime has no CDI"
        )));
    }
    let (user, home) = user(&context, &image.config.user, rootfs)?;
    let wanted = context.capabilities.clone().unwrap_or_default();
    let wrong = |error: capabilities::UnknownCapability| Status::invalid_argument(error.to_string());
    let asked = capabilities::effective_set(&wanted.add_capabilities, &wanted.drop_capabilities, context.privileged)
        .map_err(wrong)?;
    let ambient =
        wanted.add_ambient_capabilities.iter().map(|name| Cap::parse(name)).collect::<Result<BTreeSet<_>, _>>();
    let bounding = capabilities::node_bounding().map_err(|error| Status::internal(format!("capabilities: {error}")))?;
    let capabilities::Granted { granted, left_out } = capabilities::cap_to(&asked, &bounding);
    // A request for the usual ones, or for all, gets what there is, which needs no warning.
    let named: BTreeSet<_> = wanted.add_capabilities.iter().filter_map(|name| Cap::parse(name).ok()).collect();
    let left_out: BTreeSet<_> = left_out.intersection(&named).collect();
    if !left_out.is_empty() && !context.privileged {
        let container = config.metadata.as_ref().map(|metadata| metadata.name.as_str()).unwrap_or_default();
        tracing::warn!(container, capabilities = ?left_out, "dropping added capabilities that keelet does not have itself");
    }
    Ok(Security {
        user,
        home,
        capabilities: capabilities::to_oci(&granted, &ambient.map_err(wrong)?),
        seccomp: profile(&context, &granted)?,
    })
}

/// Where a kernel that enforces labels shows its policy.
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// A profile or label that is asked for by name and not applied would be a broken promise. Without SELinux labels mean
/// nothing, here as everywhere.
fn refuse_labels(context: &v1::LinuxContainerSecurityContext, selinux: bool) -> Result<(), Status> {
    if let Some(SecurityProfile { localhost_ref, .. }) =
        app_armor(context).filter(|asked| asked.profile_type == ProfileType::Localhost as i32)
    {
        return Err(Status::unimplemented(format!(
            "AppArmor profile {localhost_ref:?} is not supported: the embedded runtime sets no profiles"
        )));
    }
    if selinux && context.selinux_options.is_some() {
        return Err(Status::unimplemented("SELinux options are not supported: the embedded runtime sets no labels"));
    }
    Ok(())
}

#[expect(deprecated, reason = "clients may still use it")]
fn app_armor(context: &v1::LinuxContainerSecurityContext) -> Option<SecurityProfile> {
    context.apparmor.clone().or_else(|| older(&context.apparmor_profile))
}

#[expect(deprecated, reason = "clients may still use it")]
fn seccomp(context: &v1::LinuxContainerSecurityContext) -> Option<SecurityProfile> {
    context.seccomp.clone().or_else(|| older(&context.seccomp_profile_path))
}

/// A profile as it was named before there were kinds of them.
fn older(text: &str) -> Option<SecurityProfile> {
    let (kind, name) = match text {
        "" => return None,
        "unconfined" => (ProfileType::Unconfined, ""),
        "runtime/default" | "docker/default" => (ProfileType::RuntimeDefault, ""),
        other => (ProfileType::Localhost, other.trim_start_matches("localhost/")),
    };
    Some(SecurityProfile { profile_type: kind.into(), localhost_ref: name.to_owned() })
}

/// The request's user over the image's; groups of the image unless the request forbids them.
fn user(context: &v1::LinuxContainerSecurityContext, of_image: &str, rootfs: &Path) -> Result<(User, String), Status> {
    let spec = match (&context.run_as_user, context.run_as_username.as_str()) {
        (Some(user), _) => user.value.to_string(),
        (None, "") => of_image.to_owned(),
        (None, name) => name.to_owned(),
    };
    if context.run_as_group.is_some() && context.run_as_user.is_none() && context.run_as_username.is_empty() {
        return Err(Status::invalid_argument("a group is given without a user"));
    }
    let found = resolve_user(rootfs, &spec).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let number = |value: i64, what: &str| {
        u32::try_from(value).map_err(|_| Status::invalid_argument(format!("{value} is not a {what}")))
    };
    let gid = match &context.run_as_group {
        Some(group) => number(group.value, "group ID")?,
        None => found.gid,
    };
    let strict = context.supplemental_groups_policy == SupplementalGroupsPolicy::Strict as i32;
    let mut groups: BTreeSet<u32> = if strict { BTreeSet::new() } else { found.groups.into_iter().collect() };
    groups.insert(gid);
    for group in &context.supplemental_groups {
        groups.insert(number(*group, "group ID")?);
    }
    Ok((User { uid: found.uid, gid, groups: groups.into_iter().collect() }, found.home))
}

/// The filter of system calls. A privileged container has none, as everywhere.
fn profile(
    context: &v1::LinuxContainerSecurityContext,
    granted: &BTreeSet<Cap>,
) -> Result<Option<LinuxSeccomp>, Status> {
    let Some(asked) = seccomp(context).filter(|_| !context.privileged) else { return Ok(None) };
    match ProfileType::try_from(asked.profile_type) {
        Ok(ProfileType::Unconfined) => Ok(None),
        Ok(ProfileType::RuntimeDefault) => {
            let machine = Architecture::native()
                .ok_or_else(|| Status::unimplemented("seccomp filters are not supported on this architecture"))?;
            Ok(Some(seccomp::default_profile(granted, machine)))
        }
        Ok(ProfileType::Localhost) => {
            let path = &asked.localhost_ref;
            let wrong = |error: &dyn std::fmt::Display| {
                Status::invalid_argument(format!("invalid seccomp profile {path:?}: {error}"))
            };
            let text = fs::read(path.trim_start_matches("localhost/")).map_err(|error| wrong(&error))?;
            let circumstances = seccomp::Circumstances::here(granted.clone()).map_err(|error| wrong(&error))?;
            seccomp::read_profile(&text, &circumstances).map(Some).map_err(|error| wrong(&error))
        }
        Err(_) => Err(Status::invalid_argument(format!("invalid type of seccomp profile: {}", asked.profile_type))),
    }
}

/// A path below a directory, without leaving it through links.
pub(crate) fn below(dir: &Path, part: &str) -> io::Result<PathBuf> {
    if part.is_empty() {
        return Ok(dir.to_owned());
    }
    let whole = fs::canonicalize(dir.join(part.trim_start_matches('/')))?;
    let dir = fs::canonicalize(dir)?;
    if whole.starts_with(&dir) {
        Ok(whole)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} leads out of the image", part)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use keelet_cri::v1::{
        LinuxContainerSecurityContext as Context, SeLinuxOption, SecurityProfile, security_profile::ProfileType,
    };

    use super::{profile, refuse_labels};

    fn named(kind: ProfileType, name: &str) -> Option<SecurityProfile> {
        Some(SecurityProfile { profile_type: kind.into(), localhost_ref: name.to_owned() })
    }

    #[test]
    #[expect(deprecated, reason = "clients may still use it")]
    fn profiles_and_labels_that_the_runtime_does_not_set_are_refused() {
        let refused =
            |context: Context, selinux| refuse_labels(&context, selinux).err().map(|why| why.message().to_owned());
        let profile = |apparmor| Context { apparmor, ..Context::default() };
        let why = refused(profile(named(ProfileType::Localhost, "strict")), false).expect("a profile");
        assert!(why.contains("AppArmor profile \"strict\""), "{why}");
        let older = |name: &str| Context { apparmor_profile: name.to_owned(), ..Context::default() };
        assert!(refused(older("localhost/strict"), false).expect("a profile").contains("\"strict\""));
        for kind in [ProfileType::RuntimeDefault, ProfileType::Unconfined] {
            assert_eq!(refused(profile(named(kind, "")), false), None);
        }
        for context in [older("runtime/default"), older("unconfined"), older("")] {
            assert_eq!(refused(context, true), None);
        }
        let label = || Context { selinux_options: Some(SeLinuxOption::default()), ..Context::default() };
        assert!(refused(label(), true).expect("labels").contains("SELinux"));
        assert_eq!(refused(label(), false), None);
    }

    #[test]
    #[expect(deprecated, reason = "clients may still use it")]
    fn the_older_name_of_a_seccomp_profile_counts_unless_there_is_a_newer() {
        let context = |path: &str, seccomp| {
            let seccomp_profile_path = path.to_owned();
            profile(&Context { seccomp_profile_path, seccomp, ..Context::default() }, &BTreeSet::new())
        };
        let default = context("", named(ProfileType::RuntimeDefault, "")).expect("a profile");
        assert!(default.is_some());
        assert_eq!(context("runtime/default", None).expect("a profile"), default);
        assert_eq!(context("unconfined", None).expect("none"), None);
        assert_eq!(context("", None).expect("none"), None);
        assert_eq!(context("runtime/default", named(ProfileType::Unconfined, "")).expect("none"), None);
        let why = context("localhost//no/such/profile", None).expect_err("no such file");
        assert!(why.message().contains("/no/such/profile"), "{why}");
    }
}
