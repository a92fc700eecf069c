//! Parsing profile files.

use serde_json::json;

use super::*;

fn read(json: &Value, caps: &[Cap]) -> LinuxSeccomp {
    read_profile(json.to_string().as_bytes(), &circumstances(caps)).unwrap()
}

fn error_of(text: &str) -> String {
    read_profile(text.as_bytes(), &circumstances(&[])).unwrap_err().to_string()
}

#[test]
fn the_oci_form_is_read_as_it_is() {
    let json = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "architectures": ["SCMP_ARCH_X86_64"],
        "flags": ["SECCOMP_FILTER_FLAG_LOG"],
        "syscalls": [
            { "names": ["read", "write"], "action": "SCMP_ACT_ALLOW", "args": [] },
            { "names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [
                { "index": 0, "value": 2_114_060_288_u64, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" },
            ] },
        ],
    });
    assert_eq!(read(&json, &[]), profile(json));
}

#[test]
fn dockers_conditions_are_evaluated() {
    let rule = |name: &str, conditions: Value| {
        let mut rule = json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": null, "comment": "why" });
        rule.as_object_mut().unwrap().extend(conditions.as_object().unwrap().clone());
        rule
    };
    let json = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [
            { "architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"] },
            { "architecture": "SCMP_ARCH_AARCH64", "subArchitectures": null },
        ],
        "syscalls": [
            rule("mount", json!({ "includes": { "caps": ["CAP_SYS_ADMIN"] } })),
            rule("bpf", json!({ "includes": { "caps": ["CAP_SYS_ADMIN", "CAP_BPF"] } })),
            rule("clone", json!({ "excludes": { "caps": ["CAP_SYS_ADMIN"] } })),
            rule("arch_prctl", json!({ "includes": { "arches": ["amd64", "x32"] } })),
            rule("cacheflush", json!({ "includes": { "arches": ["arm64"] } })),
            rule("fork", json!({ "excludes": { "arches": ["amd64"] } })),
            rule("ptrace", json!({ "includes": { "minKernel": "4.8" } })),
            rule("seccomp", json!({ "includes": { "minKernel": "6.10" } })),
            rule("kcmp", json!({ "excludes": { "minKernel": "6.1" } })),
            { "name": "read", "action": "SCMP_ACT_ALLOW" },
        ],
    });
    let names = |caps: &[Cap]| -> String {
        let profile = read(&json, caps);
        let rules = profile.syscalls().as_ref().unwrap();
        rules.iter().flat_map(|rule| rule.names().clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&[]), "clone arch_prctl ptrace read");
    assert_eq!(names(&[Cap::SYS_ADMIN]), "mount arch_prctl ptrace read");
    assert_eq!(names(&[Cap::SYS_ADMIN, Cap::BPF]), "mount bpf arch_prctl ptrace read");
    let architectures = [Arch::ScmpArchX86_64, Arch::ScmpArchX86];
    assert_eq!(read(&json, &[]).architectures().as_deref(), Some(&architectures[..]));
}

#[test]
fn errors_have_their_position() {
    let misspelt = error_of(
        "{\"defaultAction\": \"SCMP_ACT_ERRNO\",\n \"syscalls\": [{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ALLOW\", \"arg\": []}]}",
    );
    assert!(misspelt.contains("`arg`") && misspelt.contains("line 2"), "{misspelt}");
    let action = error_of("{\"defaultAction\": \"SCMP_ACT_ALOW\"}");
    assert!(
        action.contains("SCMP_ACT_ALOW") && action.contains("SCMP_ACT_ALLOW") && action.contains("line 1"),
        "{action}"
    );
    assert!(error_of("{}").contains("defaultAction"));
    assert!(error_of("").contains("line 1 column 0"));
    let rule = |rule: Value| error_of(&json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [rule] }).to_string());
    assert_eq!(rule(json!({ "action": "SCMP_ACT_ALLOW" })), "syscalls[0]: names is missing");
    assert_eq!(
        rule(json!({ "name": "a", "names": ["a"], "action": "SCMP_ACT_ALLOW" })),
        "syscalls[0]: has both name and names"
    );
    let kernel = rule(json!({ "name": "a", "action": "SCMP_ACT_ALLOW", "includes": { "minKernel": "4.8.1" } }));
    assert_eq!(kernel, "syscalls[0].includes.minKernel: invalid version \"4.8.1\": must be like \"4.8\"");
    let cap = rule(json!({ "name": "a", "action": "SCMP_ACT_ALLOW", "excludes": { "caps": ["CAP_X"] } }));
    assert!(cap.starts_with("syscalls[0].excludes.caps: unknown capability \"CAP_X\""), "{cap}");
    let negative = rule(
        json!({ "name": "a", "action": "SCMP_ACT_ALLOW", "args": [{ "index": 0, "value": -1, "op": "SCMP_CMP_EQ" }] }),
    );
    assert!(negative.contains("-1"), "{negative}");
    let both = json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86"], "archMap": [{ "architecture": "SCMP_ARCH_X86_64" }] });
    assert!(error_of(&both.to_string()).starts_with("archMap: "));
}

#[test]
fn this_machine_has_circumstances() {
    assert!(Circumstances::here([Cap::KILL].into()).unwrap().kernel >= (4, 8));
}
