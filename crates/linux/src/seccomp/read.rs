//! Parsing profile files: the OCI format, and docker's, which adds conditions to rules.
//!
//! Unknown fields are errors. A misspelt `args` would otherwise turn a rule for one argument into a rule for all. docker's conditions are
//! evaluated: without them its default profile would allow every container the calls that need `CAP_SYS_ADMIN`.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompFilterFlag,
    LinuxSeccompOperator, LinuxSyscall,
};
use serde::Deserialize;

use super::{Architecture, Error};
use crate::capabilities::Cap;
use crate::kernel;

/// What the conditions of a rule depend on.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// The container's bounding set.
    pub caps: BTreeSet<Cap>,
    /// The architecture.
    pub architecture: Architecture,
    /// Major and minor version of the kernel.
    pub kernel: (u32, u32),
}

/// Parses a profile. Errors have the line and column, or the field.
pub fn read_profile(json: &[u8], circumstances: &Circumstances) -> Result<LinuxSeccomp, Error> {
    let raw: RawProfile = serde_json::from_slice(json)?;
    let architectures = architectures(raw.architectures, raw.arch_map, circumstances.architecture)?;
    let mut syscalls = Vec::new();
    for (position, syscall) in raw.syscalls.unwrap_or_default().into_iter().enumerate() {
        syscalls.extend(rule(&format!("syscalls[{position}]"), syscall, circumstances)?);
    }
    let mut profile = LinuxSeccomp::default();
    profile.set_default_action(raw.default_action);
    profile.set_default_errno_ret(raw.default_errno_ret);
    profile.set_architectures(architectures);
    profile.set_flags(raw.flags);
    profile.set_listener_path(raw.listener_path);
    profile.set_listener_metadata(raw.listener_metadata);
    profile.set_syscalls(Some(syscalls));
    Ok(profile)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawProfile {
    default_action: LinuxSeccompAction,
    default_errno_ret: Option<u32>,
    architectures: Option<Vec<Arch>>,
    arch_map: Option<Vec<RawArchitecture>>,
    flags: Option<Vec<LinuxSeccompFilterFlag>>,
    listener_path: Option<PathBuf>,
    listener_metadata: Option<String>,
    syscalls: Option<Vec<RawSyscall>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawArchitecture {
    architecture: Arch,
    sub_architectures: Option<Vec<Arch>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawSyscall {
    names: Option<Vec<String>>,
    name: Option<String>,
    action: LinuxSeccompAction,
    errno_ret: Option<u32>,
    args: Option<Vec<RawArg>>,
    #[serde(rename = "comment")]
    _comment: Option<String>,
    includes: Option<RawFilter>,
    excludes: Option<RawFilter>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawArg {
    index: usize,
    value: u64,
    value_two: Option<u64>,
    op: LinuxSeccompOperator,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawFilter {
    caps: Option<Vec<String>>,
    arches: Option<Vec<String>>,
    min_kernel: Option<String>,
}

/// docker lists, for each architecture, the others that its kernels support.
fn architectures(
    listed: Option<Vec<Arch>>,
    map: Option<Vec<RawArchitecture>>,
    here: Architecture,
) -> Result<Option<Vec<Arch>>, Error> {
    let listed = listed.unwrap_or_default();
    let map = map.unwrap_or_default();
    if !listed.is_empty() && !map.is_empty() {
        return Err(Error::field("archMap", "cannot be combined with architectures"));
    }
    let mapped = map.into_iter().filter(|entry| entry.architecture == here.oci()).flat_map(|entry| {
        let others = entry.sub_architectures.unwrap_or_default();
        std::iter::once(entry.architecture).chain(others)
    });
    let all: Vec<Arch> = listed.into_iter().chain(mapped).collect();
    Ok((!all.is_empty()).then_some(all))
}

/// The rule, unless its conditions do not hold.
fn rule(place: &str, raw: RawSyscall, circumstances: &Circumstances) -> Result<Option<LinuxSyscall>, Error> {
    let names = match (raw.names, raw.name) {
        (Some(names), None) => names,
        (None, Some(name)) => vec![name],
        (Some(_), Some(_)) => return Err(Error::field(place, "has both name and names")),
        (None, None) => return Err(Error::field(place, "names is missing")),
    };
    // Both are parsed before either is evaluated: an error in one must not hide behind the other.
    let included = Conditions::read(&format!("{place}.includes"), &raw.includes.unwrap_or_default(), circumstances)?;
    let excluded = Conditions::read(&format!("{place}.excludes"), &raw.excludes.unwrap_or_default(), circumstances)?;
    if excluded.any_holds() || !included.all_hold() {
        return Ok(None);
    }
    let args = raw.args.map(|args| args.iter().map(|arg| arg.to_oci(place)).collect::<Result<_, _>>()).transpose()?;
    let mut rule = LinuxSyscall::default();
    rule.set_names(names);
    rule.set_action(raw.action);
    rule.set_errno_ret(raw.errno_ret);
    rule.set_args(args);
    Ok(Some(rule))
}

/// Which conditions of a filter hold; none for conditions that it does not have.
struct Conditions {
    caps: Vec<bool>,
    arch: Option<bool>,
    kernel: Option<bool>,
}

// === impl Conditions ===

impl Conditions {
    fn read(place: &str, raw: &RawFilter, circumstances: &Circumstances) -> Result<Self, Error> {
        let caps = raw
            .caps
            .iter()
            .flatten()
            .map(|name| {
                let cap = Cap::parse(name).map_err(|error| Error::field(format!("{place}.caps"), error.to_string()))?;
                Ok(circumstances.caps.contains(&cap))
            })
            .collect::<Result<_, Error>>()?;
        let arches = raw.arches.iter().filter(|arches| !arches.is_empty());
        let arch =
            arches.map(|arches| arches.iter().any(|arch| arch == circumstances.architecture.docker_name())).next();
        let kernel = raw
            .min_kernel
            .iter()
            .filter(|version| !version.is_empty())
            .map(|version| {
                let wrong = || {
                    Error::field(
                        format!("{place}.minKernel"),
                        format!("invalid version {version:?}: must be like \"4.8\""),
                    )
                };
                Ok::<_, Error>(circumstances.kernel >= exact_version(version).ok_or_else(wrong)?)
            })
            .next()
            .transpose()?;
        Ok(Self { caps, arch, kernel })
    }

    fn any_holds(&self) -> bool {
        self.parts().any(|holds| holds)
    }

    fn all_hold(&self) -> bool {
        self.parts().all(|holds| holds)
    }

    fn parts(&self) -> impl Iterator<Item = bool> {
        self.caps.iter().copied().chain(self.arch).chain(self.kernel)
    }
}

// === impl RawArg ===

impl RawArg {
    fn to_oci(&self, place: &str) -> Result<LinuxSeccompArg, Error> {
        let builder = LinuxSeccompArgBuilder::default().index(self.index).value(self.value).op(self.op);
        let builder = match self.value_two {
            Some(value) => builder.value_two(value),
            None => builder,
        };
        builder.build().map_err(|error| Error::field(place, error.to_string()))
    }
}

// === impl Circumstances ===

impl Circumstances {
    /// Those of a container with these capabilities on this node.
    pub fn here(caps: BTreeSet<Cap>) -> io::Result<Self> {
        let architecture = Architecture::native().ok_or_else(|| io::Error::other(Error::Architecture))?;
        let invalid = || {
            let message = format!("invalid kernel version {:?}", kernel::release());
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        let kernel = kernel::version().ok_or_else(invalid)?;
        Ok(Self { caps, architecture, kernel })
    }
}

fn exact_version(version: &str) -> Option<(u32, u32)> {
    let (kernel, major) = version.split_once('.')?;
    Some((kernel.parse().ok()?, major.parse().ok()?))
}
