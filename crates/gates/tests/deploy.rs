//! What is in `deploy/gates` fits the controller: its rights, its metrics, its place.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use keelet_gates::{
    controller::{Election, LeaseOptions, Options, RuleObjects},
    election::Timing,
    engine::Mode,
    metrics::Metrics,
    settings::Settings,
};
use serde_json::{Value, json};

fn text(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn objects(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn of_kind(objects: &[Value], kind: &str) -> Vec<Value> {
    objects.iter().filter(|object| object["kind"] == kind).cloned().collect()
}

/// What the controller does, deployed so.
fn options() -> Options {
    Options {
        settings: Settings::default(),
        mode: Mode::Act,
        election: Election::Lease(Box::new(LeaseOptions {
            namespace: "kube-system".to_owned(),
            name: "keelet-gates".to_owned(),
            identity: "any".to_owned(),
            timing: Timing::default(),
        })),
        rules: RuleObjects::Auto,
    }
}

/// Namespace, group, resource, name and verb.
type Right = (String, String, String, String, String);

fn words(value: &Value) -> Vec<String> {
    value
        .as_array()
        .unwrap_or_else(|| panic!("a list: {value}"))
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

fn granted(objects: &[Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for role in objects.iter().filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role") {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            let names =
                if rule["resourceNames"].is_null() { vec![String::new()] } else { words(&rule["resourceNames"]) };
            for (group, resource) in words(&rule["apiGroups"]).into_iter().zip(words(&rule["resources"])) {
                for (name, verb) in
                    names.iter().flat_map(|name| words(&rule["verbs"]).into_iter().map(move |verb| (name, verb)))
                {
                    rights.insert((namespace.to_owned(), group.clone(), resource.clone(), name.clone(), verb));
                }
            }
        }
    }
    rights
}

/// CTRL-18, PEER-28: the roles grant what the controller asks for, verb by verb, and nothing else.
#[test]
fn roles_grant_exactly_what_the_controller_needs() {
    let objects = objects("deploy/gates/base/rbac.yaml");
    let mut needed = BTreeSet::new();
    for permission in options().permissions() {
        for verb in &permission.verbs {
            needed.insert((
                permission.namespace.clone().unwrap_or_default(),
                permission.group.to_owned(),
                permission.resource.to_owned(),
                permission.name.clone().unwrap_or_default(),
                (*verb).to_owned(),
            ));
        }
    }
    assert_eq!(granted(&objects), needed);
    // Every role is bound, once, to the account of the deployment.
    let account = of_kind(&objects, "ServiceAccount")[0]["metadata"].clone();
    let subject = json!([{"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}]);
    let at = |object: &Value, kind: &Value| (kind.clone(), object["metadata"]["namespace"].clone());
    let roles: BTreeMap<_, _> = objects
        .iter()
        .filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role")
        .map(|role| (at(role, &role["kind"]).1.to_string(), role["metadata"]["name"].clone()))
        .collect();
    let bindings = objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Binding"));
    let bound: BTreeMap<_, _> = bindings
        .map(|binding| {
            assert_eq!(binding["subjects"], subject);
            (at(binding, &binding["kind"]).1.to_string(), binding["roleRef"]["name"].clone())
        })
        .collect();
    assert_eq!(bound, roles);
    let deployment = &of_kind(&self::objects("deploy/gates/base/deployment.yaml"), "Deployment")[0];
    assert_eq!(deployment["spec"]["template"]["spec"]["serviceAccountName"], account["name"]);
}

/// GN-9, PEER-28: it runs before the gates that it manages, without rights on its machine, and not alone.
#[test]
fn the_deployment_tolerates_gates_and_has_no_rights_on_its_node() {
    let objects = objects("deploy/gates/base/deployment.yaml");
    let deployment = &of_kind(&objects, "Deployment")[0];
    let pod = &deployment["spec"]["template"]["spec"];
    let tolerates = |toleration: &Value| {
        let all = toleration["key"].is_null() && toleration["operator"] == "Exists";
        all && (toleration["effect"] == "NoSchedule" || toleration["effect"].is_null())
    };
    assert!(
        pod["tolerations"].as_array().unwrap().iter().any(tolerates),
        "no toleration of gates: {}",
        pod["tolerations"]
    );
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0];
    assert_eq!(
        container["securityContext"],
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    for field in ["hostNetwork", "hostPID", "hostIPC", "volumes"] {
        assert!(pod[field].is_null(), "{field}");
    }
    let probes = ["livenessProbe", "readinessProbe"].map(|probe| container[probe]["httpGet"]["path"].clone());
    assert_eq!(probes, ["/healthz", "/readyz"]);
    let budget = &of_kind(&objects, "PodDisruptionBudget")[0];
    assert_eq!(budget["spec"]["minAvailable"], 1);
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"], deployment["spec"]["selector"]["matchLabels"]);
}

/// Names of metrics in a text: words with one of our prefixes.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = ["readiness_gate_controller_", "keelet_gates_", "node_readiness_"];
    words.filter(|word| ours.iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned).collect()
}

/// The series of a metric.
fn series(name: &str, kind: &str) -> Vec<String> {
    match kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["bucket", "count", "sum"].iter().map(|part| format!("{name}_{part}")).collect(),
        _ => vec![name.to_owned()],
    }
}

/// The series that the controller exposes. A metric with labels is not exposed before it is used, so it is looked up in the source.
fn exposed() -> BTreeSet<String> {
    let text = Metrics::new().encode();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut all: BTreeSet<_> = types.flat_map(|(name, kind)| series(name, kind)).collect();
    let source = include_str!("../src/metrics.rs");
    for line in source.lines() {
        let Some((field, family)) = line.trim().split_once(": Family<") else { continue };
        let kind = family.split([',', '>']).nth(1).expect("a family has labels and a kind").trim().to_lowercase();
        let field = field.rsplit(' ').next().expect("a field");
        let made = [format!(" {field}: add("), format!(" {field}: family(")];
        let made = made.iter().find_map(|made| source.split_once(made)).unwrap_or_else(|| panic!("{field} is made"));
        let name = made.1.split('"').nth(1).expect("a name");
        all.extend(series(name, &kind));
    }
    all
}

/// METR-7, PEER-21: every metric that the board, the alerts or the guide names exists.
#[test]
fn every_metric_that_is_named_exists() {
    let exposed = exposed();
    assert!(exposed.contains("readiness_gate_controller_taints_removed_total"), "{exposed:?}");
    for path in ["deploy/gates/monitoring/alerts.yaml", "deploy/gates/monitoring/board.json"] {
        let named = metrics_in(&text(path));
        assert!(named.len() >= 5, "{path} names {named:?}");
        let unknown: Vec<_> = named.difference(&exposed).collect();
        assert!(unknown.is_empty(), "{path} names metrics that do not exist: {unknown:?}");
    }
    // The guide may name a histogram without its parts.
    let base = |name: &String| {
        ["_bucket", "_count", "_sum"].iter().find_map(|part| name.strip_suffix(part)).map(str::to_owned)
    };
    let known: BTreeSet<_> = exposed.iter().cloned().chain(exposed.iter().filter_map(base)).collect();
    let named = metrics_in(&text("docs/gates.md"));
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(named.len() >= 5 && unknown.is_empty(), "docs/gates.md names metrics that do not exist: {unknown:?}");
}

/// METR-7: the buckets have the objective of the KEP as a limit, in the spelling of the alerts.
#[test]
fn the_alert_on_the_objective_uses_a_bucket_that_exists() {
    let buckets = Metrics::new().encode();
    let latency = "readiness_gate_controller_taint_removal_latency_seconds_bucket";
    for path in ["deploy/gates/monitoring/alerts.yaml", "deploy/gates/monitoring/board.json"] {
        let text = text(path).replace("\\\"", "\"");
        let named: BTreeSet<_> =
            text.split(latency).skip(1).filter_map(|rest| rest.strip_prefix("{le=\"")?.split('"').next()).collect();
        assert_eq!(named, BTreeSet::from(["10.0"]), "{path}");
        for le in named {
            assert!(buckets.contains(&format!("{latency}{{le=\"{le}\"}}")), "{le}");
        }
    }
}

/// CTRL-15, CTRL-21: every alert has a line in the guide that says what to do.
#[test]
fn every_alert_has_a_line_in_the_runbook() {
    let guide = text("docs/gates.md");
    let rules = &objects("deploy/gates/monitoring/alerts.yaml")[0];
    let alerts = rules["spec"]["groups"][0]["rules"].as_array().unwrap();
    assert!(alerts.len() >= 3);
    for alert in alerts {
        let name = alert["alert"].as_str().unwrap();
        assert_eq!(alert["annotations"]["runbook"], format!("docs/gates.md#{}", name.to_lowercase()));
        assert!(guide.contains(&format!("\n### {name}\n")), "docs/gates.md has no heading {name}");
    }
}

/// CTRL-20, GATE-23: in every example the component that opens a gate tolerates it, and the reporter writes its condition.
#[test]
fn components_in_examples_tolerate_the_gate_that_they_open() {
    for name in ["cni", "gpu-driver", "security-agent"] {
        let path = format!("examples/gates/{name}.yaml");
        let objects = objects(&path);
        let pod = &of_kind(&objects, "DaemonSet")[0]["spec"]["template"]["spec"];
        let reporter =
            pod["containers"].as_array().unwrap().iter().find(|container| container["name"] == "reporter").unwrap();
        let condition =
            reporter["env"].as_array().unwrap().iter().find(|variable| variable["name"] == "CONDITION").unwrap();
        let gate = condition["value"].as_str().unwrap().rsplit('/').next().unwrap();
        let key = format!("readiness.k8s.io/{gate}");
        assert!(
            pod["tolerations"].as_array().unwrap().iter().any(|toleration| toleration["key"] == *key),
            "{path}: {key}"
        );
        assert!(text(&path).contains(&format!("--register-with-taints={key}=:NoSchedule")), "{path}");
        let user = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
        assert!(user["tolerations"].is_null(), "{path}: a workload that tolerates the gate shows nothing");
    }
}
