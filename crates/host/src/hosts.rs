//! The hosts file of a pod. Pure.

use k8s_openapi::api::core::v1;

/// The names every host has for itself.
const LOCAL: &str = "127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
";

/// The longest name of a host.
const LONGEST_HOSTNAME: usize = 63;

/// The text of a pod's hosts file: the pod's own name at its addresses, or the node's own file for a pod in the node's
/// network; and the aliases that the pod asks for.
pub(super) fn hosts_file(pod: &v1::Pod, ips: &[String], nodes: Option<&str>) -> String {
    let mut text = match nodes {
        Some(nodes) => format!("# Kubernetes-managed hosts file (host network).\n{nodes}"),
        None => {
            let name = hostname(pod);
            let own: String = ips.iter().map(|ip| format!("{ip}\t{name}\n")).collect();
            format!("# Kubernetes-managed hosts file.\n{LOCAL}{own}")
        }
    };
    let aliases: Vec<_> = pod.spec.iter().flat_map(|spec| spec.host_aliases.iter().flatten()).collect();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        text.push_str(&format!("{}\t{names}\n", alias.ip));
    }
    text
}

/// What a pod is called in its own network.
fn hostname(pod: &v1::Pod) -> &str {
    let asked_for = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref()).filter(|name| !name.is_empty());
    let name = asked_for.or(pod.metadata.name.as_deref()).unwrap_or_default();
    name[..name.floor_char_boundary(LONGEST_HOSTNAME)].trim_end_matches(['-', '.'])
}

#[cfg(test)]
mod tests {
    use keelet_pod::parse_one;

    use super::*;

    fn pod(spec: &str) -> std::sync::Arc<v1::Pod> {
        let manifest = format!(
            "apiVersion: v1
kind: Pod
metadata: {{ name: web }}
spec:
  containers: [{{ name: main, image: nginx }}]
{spec}"
        );
        parse_one(&manifest).unwrap().source
    }

    #[test]
    fn a_pod_knows_itself_at_all_its_addresses() {
        let text = hosts_file(&pod(""), &["10.0.0.7".to_owned(), "fd00::7".to_owned()], None);
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"), "{text}");
        assert!(text.ends_with("ip6-allrouters\n10.0.0.7\tweb\nfd00::7\tweb\n"), "{text}");
        let text = hosts_file(&pod("  hostname: front\n"), &["10.0.0.7".to_owned()], None);
        assert!(text.ends_with("10.0.0.7\tfront\n"), "{text}");
    }

    #[test]
    fn aliases_follow() {
        let aliases = "  hostAliases: [{ ip: 10.1.1.1, hostnames: [db, db.local] }]\n";
        let text = hosts_file(&pod(aliases), &["10.0.0.7".to_owned()], None);
        assert!(text.ends_with("10.0.0.7\tweb\n\n# Entries added by HostAliases.\n10.1.1.1\tdb\tdb.local\n"), "{text}");
    }

    #[test]
    fn in_the_nodes_network_the_nodes_names_hold() {
        let text = hosts_file(&pod("  hostNetwork: true\n"), &["192.0.2.1".to_owned()], Some("192.0.2.1\tnode\n"));
        assert_eq!(text, "# Kubernetes-managed hosts file (host network).\n192.0.2.1\tnode\n");
    }

    #[test]
    fn a_long_name_is_cut_to_what_a_host_can_be_called() {
        let mut long = v1::Pod::default();
        long.metadata.name = Some(format!("{}-{}", "a".repeat(62), "b".repeat(62)));
        assert_eq!(hostname(&long), "a".repeat(62));
    }
}
