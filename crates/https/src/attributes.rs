//! What a client has to be allowed, by what it asks for. Pure.

use http::Method;
use keelet_serve::{Action, Area, BadPath};

/// What is asked for, and which of these permissions on the Node object allows it: any of them is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What is asked for.
    pub action: Action,
    /// The verb.
    pub verb: &'static str,
    /// Subresources of the node, the finest first.
    pub subresources: &'static [&'static str],
}

// === impl Demand ===

impl Demand {
    /// What a request asks for. The verb is that of the action where the action has one: a command is run by a GET that upgrades as well as
    /// by a POST, so `get` must not be enough for it.
    pub fn of(method: &Method, path: &str) -> Result<Self, BadPath> {
        let action = Action::of(path)?;
        let verb = match action {
            Action::Exec(_) | Action::Attach(_) | Action::PortForward(_) | Action::Run => "create",
            _ => verb(method),
        };
        Ok(Self { verb, subresources: subresources(&action), action })
    }
}

/// The verb of a method; one that no rule grants for methods that nothing here answers.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "unknown",
    }
}

fn subresources(action: &Action) -> &'static [&'static str] {
    match action {
        Action::Pods | Action::RunningPods | Action::Unknown(Area::Pods) => &["pods", "proxy"],
        Action::Healthz => &["healthz", "proxy"],
        Action::Configz => &["configz", "proxy"],
        Action::Unknown(Area::Configz) => &["configz"],
        Action::Metrics(_) | Action::Unknown(Area::Metrics) => &["metrics"],
        Action::Summary | Action::Unknown(Area::Stats) => &["stats"],
        Action::NodeLogs => &["log"],
        Action::Unknown(Area::Checkpoint) => &["checkpoint"],
        Action::Unknown(Area::Statusz) => &["statusz"],
        Action::ContainerLogs(_)
        | Action::Exec(_)
        | Action::Attach(_)
        | Action::PortForward(_)
        | Action::Run
        | Action::Unknown(Area::Elsewhere) => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-39
    #[test]
    fn a_request_needs_the_permission_of_its_action() {
        for (method, path, verb, subresources) in [
            ("GET", "/containerLogs/a/b/c", "get", &["proxy"][..]),
            ("GET", "/exec/a/b/c", "create", &["proxy"]),
            ("POST", "/exec/a/b/c", "create", &["proxy"]),
            ("GET", "/exec/a/b/u/c", "create", &["proxy"]),
            ("GET", "/attach/a/b/c", "create", &["proxy"]),
            ("GET", "/portForward/a/b", "create", &["proxy"]),
            ("GET", "/run/a/b/c", "create", &["proxy"]),
            ("POST", "/run/a/b/c", "create", &["proxy"]),
            ("GET", "/pods", "get", &["pods", "proxy"]),
            ("GET", "/runningpods/", "get", &["pods", "proxy"]),
            ("GET", "/healthz", "get", &["healthz", "proxy"]),
            ("GET", "/configz", "get", &["configz", "proxy"]),
            ("GET", "/flagz", "get", &["configz"]),
            ("GET", "/metrics", "get", &["metrics"]),
            ("GET", "/metrics/cadvisor", "get", &["metrics"]),
            ("POST", "/metrics/resource", "create", &["metrics"]),
            ("GET", "/stats/summary", "get", &["stats"]),
            ("GET", "/logs/syslog", "get", &["log"]),
            ("POST", "/checkpoint/a/b/c", "create", &["checkpoint"]),
            ("GET", "/", "get", &["proxy"]),
            ("HEAD", "/pods", "get", &["pods", "proxy"]),
            ("PUT", "/other", "update", &["proxy"]),
            ("PATCH", "/other", "patch", &["proxy"]),
            ("DELETE", "/other", "delete", &["proxy"]),
            ("OPTIONS", "/pods", "unknown", &["pods", "proxy"]),
        ] {
            let demand = Demand::of(&method.parse().expect("a method"), path).expect(path);
            assert_eq!((demand.verb, demand.subresources), (verb, subresources), "{method} {path}");
        }
    }

    /// CLU-39
    #[test]
    fn a_path_in_disguise_has_no_permission_at_all() {
        for path in [
            "//exec/a/b/c",
            "/exec%2Fa/b/c",
            "/logs/..%2f..%2fetc",
            "/metrics/../exec/a/b/c",
            "/metrics/%2e%2e/exec/a/b/c",
        ] {
            assert!(Demand::of(&Method::GET, path).is_err(), "{path}");
        }
    }
}
