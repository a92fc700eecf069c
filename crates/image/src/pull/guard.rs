//! Where a registry may redirect the node.
//!
//! A registry names other hosts, for tokens and for blobs. A remote registry must not reach services that only this
//! node can reach: on its loopback interface, or on a link (where clouds serve a node's credentials). Unless the
//! registry itself is there, such addresses are refused, as literals, by name, and in redirects.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Url};

/// What a registry may reach through this node.
#[derive(Clone)]
pub(super) struct Guard(Arc<Registry>);

struct Registry {
    /// its host, without a port
    host: String,
    /// Whether the registry itself is on this node or its links. For a name that is known after its lookup, which comes
    /// before any response of the registry.
    is_near: AtomicBool,
    /// hosts of the proxies in the environment, which the operator trusts
    proxies: Vec<String>,
}

/// A host that was refused.
#[derive(Debug, thiserror::Error)]
#[error("refusing to connect to {host}: it is loopback or link-local, and the registry {registry} is not")]
pub(super) struct Refused {
    host: String,
    registry: String,
}

/// The usual limit of HTTP clients.
const MOST_REDIRECTS: usize = 10;

/// Whether only this node, or a host on the same link, has this address. The unspecified address means the node too.
fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local() || address.octets()[0] == 0,
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local() || address.is_unspecified(),
    }
}

/// The address of a host that is not a name.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// The hosts of proxies that HTTP clients take from the environment.
fn proxies() -> Vec<String> {
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let urls = names.iter().filter_map(|name| std::env::var(name).ok());
    let hosts = urls.filter_map(|url| {
        let url = if url.contains("://") { url } else { format!("http://{url}") };
        Some(Url::parse(&url).ok()?.host_str()?.to_owned())
    });
    hosts.collect()
}

// === impl Guard ===

impl Guard {
    /// For a registry's host, with or without a port.
    pub(super) fn new(registry: &str) -> Self {
        let url = Url::parse(&format!("https://{registry}"));
        let host = url.ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| registry.to_owned());
        let is_near = is_localhost(&host) || literal(&host).is_some_and(is_near);
        Self(Arc::new(Registry { host, is_near: AtomicBool::new(is_near), proxies: proxies() }))
    }

    pub(super) fn apply(&self, builder: ClientBuilder) -> ClientBuilder {
        let guard = self.clone();
        let policy = Policy::custom(move |attempt| {
            if attempt.previous().len() > MOST_REDIRECTS {
                return attempt.error("too many redirects");
            }
            match guard.check(attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(refused) => attempt.error(refused),
            }
        });
        builder.redirect(policy).dns_resolver(self.clone())
    }

    /// Whether the registry may send the node to a URL. Names are checked again when they are resolved.
    pub(super) fn check(&self, url: &Url) -> Result<(), Refused> {
        let host = url.host_str().unwrap_or_default();
        let is_refused = is_localhost(host) || literal(host).is_some_and(is_near);
        if is_refused && !self.0.is_near.load(Ordering::Relaxed) { Err(self.refused(host)) } else { Ok(()) }
    }

    fn refused(&self, host: &str) -> Refused {
        Refused { host: host.to_owned(), registry: self.0.host.clone() }
    }

    /// The addresses of a name that may be used.
    fn choose(&self, name: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refused> {
        let all_near = !found.is_empty() && found.iter().all(|address| is_near(address.ip()));
        if name.eq_ignore_ascii_case(&self.0.host) {
            // The host is in the image reference itself.
            self.0.is_near.fetch_or(all_near, Ordering::Relaxed);
            return Ok(found);
        }
        if self.0.is_near.load(Ordering::Relaxed) || self.0.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name))
        {
            return Ok(found);
        }
        if all_near {
            return Err(self.refused(name));
        }
        Ok(found.into_iter().filter(|address| !is_near(address.ip())).collect())
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let chosen = guard.choose(name.as_str(), found)?;
            Ok(Box::new(chosen.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect()
    }

    /// IMG-4
    #[test]
    fn a_remote_registry_cannot_redirect_to_loopback_or_a_link() {
        let far = ["registry.example", "registry.example:5000", "192.0.2.1:5000", "[2001:db8::1]:5000"];
        let near = ["localhost:5000", "127.0.0.1:5000", "[::1]:5000", "169.254.1.1", "x.localhost"];
        let local = [
            "http://127.0.0.1:8080/token",
            "http://127.1.2.3/",
            "http://2130706433/",
            "http://0x7f.1/",
            "https://localhost/",
            "https://LOCALHOST./",
            "http://a.localhost/",
            "http://0.0.0.0/",
            "http://169.254.169.254/latest/meta-data",
            "http://[::1]/",
            "http://[::]/",
            "http://[fe80::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:169.254.169.254]/",
        ];
        for url in local {
            let parsed = Url::parse(url).unwrap();
            for registry in far {
                assert!(Guard::new(registry).check(&parsed).is_err(), "{registry} may redirect to {url}");
            }
            for registry in near {
                assert!(Guard::new(registry).check(&parsed).is_ok(), "{registry} is there itself: {url}");
            }
        }
        for url in ["https://auth.example/token", "http://192.0.2.7/", "http://10.0.0.1/", "http://[2001:db8::2]/"] {
            assert!(Guard::new("registry.example").check(&Url::parse(url).unwrap()).is_ok(), "{url}");
        }
    }

    /// IMG-4: names are judged by their addresses.
    #[test]
    fn a_name_that_resolves_to_loopback_is_refused_unless_the_registry_is_there() {
        let guard = Guard::new("registry.example:5000");
        let found = |texts: &[&str]| guard.choose("auth.example", addresses(texts)).ok();
        assert_eq!(found(&["127.0.0.1"]), None);
        assert_eq!(found(&["169.254.169.254", "fe80::1"]), None);
        assert_eq!(found(&["192.0.2.1", "127.0.0.1"]), Some(addresses(&["192.0.2.1"])), "the others may be used");
        let own = addresses(&["192.0.2.1", "127.0.0.1"]);
        assert_eq!(guard.choose("registry.example", own.clone()).unwrap(), own);
        assert_eq!(found(&["127.0.0.1"]), None, "one address of many does not make the registry local");
        guard.choose("registry.example", addresses(&["127.0.0.1", "::1"])).unwrap();
        assert_eq!(found(&["127.0.0.1"]), Some(addresses(&["127.0.0.1"])), "the registry is there itself");
    }
}
