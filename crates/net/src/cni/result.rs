//! Results and errors of plugins.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use crate::names::POD_INTERFACE;

/// The addresses of the pod's interface, in the order of the result.
pub(crate) fn addresses(result: &Value) -> Vec<IpAddr> {
    let interfaces = result.get("interfaces").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let entries = result.get("ips").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let of_pod = |entry: &&Value| match entry.get("interface").and_then(Value::as_u64) {
        // An address without an interface belongs to the pod.
        None => true,
        Some(index) => usize::try_from(index)
            .ok()
            .and_then(|index| interfaces.get(index)?.get("name")?.as_str())
            .is_none_or(|name| name == POD_INTERFACE),
    };
    let read = |entry: &Value| parse(entry.get("address")?.as_str()?);
    let found: Vec<IpAddr> = entries.iter().filter(of_pod).filter_map(read).collect();
    if !found.is_empty() {
        return found;
    }
    // Versions before 0.3.0 have one address per family.
    ["ip4", "ip6"].iter().filter_map(|family| parse(result.get(family)?.get("ip")?.as_str()?)).collect()
}

fn parse(text: &str) -> Option<IpAddr> {
    text.parse::<IpNet>().map(|net| net.addr()).or_else(|_| text.parse()).ok()
}

/// Everything that a failed plugin printed: message, code, details and standard error.
pub(crate) fn failure(output: &[u8], errors: &[u8], exit: &str) -> String {
    let mut parts = Vec::new();
    match serde_json::from_slice::<Value>(output) {
        Ok(answer) if answer.get("msg").is_some() || answer.get("code").is_some() => {
            let text = |field: &str| answer.get(field).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
            parts.push(match answer.get("code").and_then(Value::as_u64) {
                Some(code) => format!("{} (code {code})", text("msg")),
                None => text("msg"),
            });
            parts.extend(Some(text("details")).filter(|details| !details.is_empty()));
        }
        _ => {
            parts.push(exit.to_owned());
            let text = String::from_utf8_lossy(output).trim().to_owned();
            parts.extend(Some(text).filter(|text| !text.is_empty()).map(|text| format!("stdout: {text}")));
        }
    }
    let text = String::from_utf8_lossy(errors).trim().to_owned();
    parts.extend(Some(text).filter(|text| !text.is_empty()).map(|text| format!("stderr: {text}")));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ips(text: &[&str]) -> Vec<IpAddr> {
        text.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    #[test]
    fn the_addresses_of_the_pods_interface_are_parsed() {
        let result = json!({
            "interfaces": [{"name": "cni0"}, {"name": "veth1"}, {"name": "eth0", "sandbox": "/proc/1/ns/net"}],
            "ips": [
                {"address": "10.1.0.5/16", "interface": 2},
                {"address": "10.9.0.1/16", "interface": 0},
                {"address": "fd00::5/64"},
            ],
        });
        assert_eq!(addresses(&result), ips(&["10.1.0.5", "fd00::5"]));
    }

    #[test]
    fn results_of_old_versions_are_parsed() {
        let result = json!({"ip4": {"ip": "10.1.0.5/16"}, "ip6": {"ip": "fd00::5/64"}});
        assert_eq!(addresses(&result), ips(&["10.1.0.5", "fd00::5"]));
    }

    #[test]
    fn invalid_results_have_no_addresses() {
        for result in [json!(null), json!([]), json!({"ips": 3}), json!({"ips": [{"address": "x"}, 7]})] {
            assert_eq!(addresses(&result), ips(&[]), "{result}");
        }
    }

    #[test]
    fn a_failure_has_everything_that_the_plugin_printed() {
        let output = br#"{"cniVersion":"1.0.0","code":11,"msg":"try again","details":"the pool is busy"}"#;
        assert_eq!(
            failure(output, b"a line\n", "exit status: 1"),
            "try again (code 11); the pool is busy; stderr: a line"
        );
        assert_eq!(failure(b"", b"", "exit status: 2"), "exit status: 2");
        assert_eq!(failure(b"oops\n", b"", "signal: 9"), "signal: 9; stdout: oops");
    }
}
