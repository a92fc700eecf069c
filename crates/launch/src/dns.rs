//! The resolver of a pod: where it asks, which domains it tries.

use k8s_openapi::api::core::v1::PodDNSConfig;
use keelet_cri::v1;

use super::Placement;

/// The C library asks no more servers than this.
const MOST_SERVERS: usize = 3;
/// An API server lets no more search domains pass.
const MOST_SEARCHES: usize = 32;
/// The longest line of search domains.
const LONGEST_SEARCH_LINE: usize = 2048;
/// The longest domain; some C libraries abort on a longer one.
const LONGEST_SEARCH: usize = 253;
/// A name with fewer dots is tried in the cluster's domains first.
const CLUSTER_OPTIONS: &str = "ndots:5";

/// Whose resolver a pod starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Nothing,
    Node,
    Cluster,
}

/// The resolver that the pod's policy gives it, with its own additions, cut to what a resolver takes.
pub(super) fn dns_config(placement: &Placement<'_>) -> v1::DnsConfig {
    let mut config = match base(placement) {
        Base::Nothing => v1::DnsConfig::default(),
        Base::Node => of_node(placement),
        Base::Cluster => of_cluster(placement),
    };
    if let Some(own) = placement.spec().and_then(|spec| spec.dns_config.as_ref()) {
        add(&mut config, own);
    }
    fit(&mut config);
    config
}

fn base(placement: &Placement<'_>) -> Base {
    let cluster = if placement.node.cluster_dns.is_empty() { Base::Node } else { Base::Cluster };
    match placement.spec().and_then(|spec| spec.dns_policy.as_deref()) {
        Some("None") => Base::Nothing,
        Some("Default") => Base::Node,
        Some("ClusterFirstWithHostNet") => cluster,
        _ if placement.pod.host_network => Base::Node,
        _ => cluster,
    }
}

/// What the node itself uses. Where that is not to be had, the pod asks itself, and looks nowhere else.
fn of_node(placement: &Placement<'_>) -> v1::DnsConfig {
    if let Some(text) = &placement.node.resolv_conf {
        return parse(text);
    }
    let is_v6 = placement.node.address.as_ref().is_some_and(|address| address.contains(':'));
    let server = if is_v6 { "::1" } else { "127.0.0.1" };
    v1::DnsConfig { servers: vec![server.to_owned()], searches: vec![".".to_owned()], options: Vec::new() }
}

fn of_cluster(placement: &Placement<'_>) -> v1::DnsConfig {
    let of_node = placement.node.resolv_conf.as_deref().map(parse).unwrap_or_default();
    let domain = &placement.node.cluster_domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        let own = format!("{}.svc.{domain}", placement.pod.namespace);
        searches.extend([own, format!("svc.{domain}"), domain.clone()]);
    }
    add_new(&mut searches, of_node.searches);
    v1::DnsConfig { servers: placement.node.cluster_dns.clone(), searches, options: vec![CLUSTER_OPTIONS.to_owned()] }
}

/// Reads a `resolv.conf`: servers add up, the last line of search domains counts, a later option replaces an earlier.
fn parse(text: &str) -> v1::DnsConfig {
    let mut config = v1::DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                let domains = words.filter(|domain| *domain != ".");
                config.searches = domains.map(|domain| domain.strip_suffix('.').unwrap_or(domain).to_owned()).collect();
            }
            Some("options") => words.for_each(|option| set_option(&mut config.options, option.to_owned())),
            _ => {}
        }
    }
    config
}

fn add(config: &mut v1::DnsConfig, own: &PodDNSConfig) {
    add_new(&mut config.servers, own.nameservers.clone().unwrap_or_default());
    add_new(&mut config.searches, own.searches.clone().unwrap_or_default());
    for option in own.options.iter().flatten() {
        let name = option.name.clone().unwrap_or_default();
        let text = match option.value.as_deref() {
            None | Some("") => name,
            Some(value) => format!("{name}:{value}"),
        };
        set_option(&mut config.options, text);
    }
}

fn add_new(list: &mut Vec<String>, more: Vec<String>) {
    for item in more {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

/// Puts an option in the place of the one of the same name.
fn set_option(options: &mut Vec<String>, option: String) {
    let same = |other: &&mut String| option_name(other) == option_name(&option);
    match options.iter_mut().find(same) {
        Some(place) => *place = option,
        None => options.push(option),
    }
}

fn option_name(option: &str) -> &str {
    option.split_once(':').map_or(option, |(name, _)| name)
}

fn fit(config: &mut v1::DnsConfig) {
    config.servers.truncate(MOST_SERVERS);
    config.searches.truncate(MOST_SEARCHES);
    config.searches.retain(|domain| domain.len() <= LONGEST_SEARCH);
    while config.searches.join(" ").len() > LONGEST_SEARCH_LINE {
        config.searches.pop();
    }
}
