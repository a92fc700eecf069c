//! Reading what plugins answer.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use crate::names::POD_INTERFACE;

/// The addresses of the pod's interface, in the order of the answer.
pub(crate) fn addresses(result: &Value) -> Vec<IpAddr> {
    let interfaces = result.get("interfaces").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let entries = result.get("ips").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let of_pod = |entry: &&Value| match entry.get("interface").and_then(Value::as_u64) {
        // An address without an interface is the pod's.
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

/// What a plugin says when it fails, with all of it: code, message, details, and what it wrote beside.
pub(crate) fn failure(output: &[u8], errors: &[u8], how_it_ended: &str) -> String {
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
            parts.push(how_it_ended.to_owned());
            let said = String::from_utf8_lossy(output).trim().to_owned();
            parts.extend(Some(said).filter(|said| !said.is_empty()).map(|said| format!("stdout: {said}")));
        }
    }
    let beside = String::from_utf8_lossy(errors).trim().to_owned();
    parts.extend(Some(beside).filter(|beside| !beside.is_empty()).map(|beside| format!("stderr: {beside}")));
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
    fn the_addresses_of_the_pods_interface_are_read() {
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
    fn old_answers_are_read() {
        let result = json!({"ip4": {"ip": "10.1.0.5/16"}, "ip6": {"ip": "fd00::5/64"}});
        assert_eq!(addresses(&result), ips(&["10.1.0.5", "fd00::5"]));
    }

    #[test]
    fn answers_without_sense_have_no_addresses() {
        for result in [json!(null), json!([]), json!({"ips": 3}), json!({"ips": [{"address": "x"}, 7]})] {
            assert_eq!(addresses(&result), ips(&[]), "{result}");
        }
    }

    #[test]
    fn a_failure_has_all_that_was_said() {
        let output = br#"{"cniVersion":"1.0.0","code":11,"msg":"try again","details":"the pool is busy"}"#;
        assert_eq!(
            failure(output, b"a line\n", "exit status: 1"),
            "try again (code 11); the pool is busy; stderr: a line"
        );
        assert_eq!(failure(b"", b"", "exit status: 2"), "exit status: 2");
        assert_eq!(failure(b"oops\n", b"", "signal: 9"), "signal: 9; stdout: oops");
    }
}
