//! Device rules of a container's cgroup, on both versions.

use std::{fs, io};

use keelet_linux::{cgroup::Mounts, device_filter};
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType, Spec};

/// Sets the rules of the configuration.
///
/// On cgroup v2 they are a program that libcontainer does not attach. On v1 libcontainer appends rules of its own, which allow more than
/// was requested; so the requested ones are written once more.
pub(super) fn apply(cgroups: &Mounts, spec: &Spec) -> io::Result<()> {
    let Some(linux) = spec.linux() else { return Ok(()) };
    let rules = linux.resources().as_ref().and_then(|resources| resources.devices().clone()).unwrap_or_default();
    let Some(path) = linux.cgroups_path() else { return Ok(()) };
    let Some(dir) = cgroups.directory("devices", &path.to_string_lossy()) else { return Ok(()) };
    match cgroups {
        Mounts::V2(_) => device_filter::attach(&dir, &rules),
        Mounts::V1(_) => rules.iter().try_for_each(|rule| {
            let name = if rule.allow() { "devices.allow" } else { "devices.deny" };
            fs::write(dir.join(name), line(rule))
        }),
    }
}

/// A rule as `devices.allow` and `devices.deny` take it.
fn line(rule: &LinuxDeviceCgroup) -> String {
    let number =
        |number: Option<i64>| number.filter(|number| *number >= 0).map_or("*".to_owned(), |number| number.to_string());
    let kind = match rule.typ().unwrap_or_default() {
        LinuxDeviceType::B => "b",
        LinuxDeviceType::C | LinuxDeviceType::U => "c",
        _ => "a",
    };
    let access = rule.access().clone().unwrap_or_else(|| "rwm".to_owned());
    format!("{kind} {}:{} {access}", number(rule.major()), number(rule.minor()))
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{LinuxDeviceCgroupBuilder, LinuxDeviceType};

    use super::line;

    #[test]
    fn device_rules_are_written_as_the_kernel_reads_them() {
        let all = LinuxDeviceCgroupBuilder::default().allow(false).access("rwm").build().expect("a rule");
        assert_eq!(line(&all), "a *:* rwm");
        let one =
            LinuxDeviceCgroupBuilder::default().allow(true).typ(LinuxDeviceType::B).major(8).minor(-1).access("r");
        assert_eq!(line(&one.build().expect("a rule")), "b 8:* r");
    }
}
