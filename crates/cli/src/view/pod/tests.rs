//! What kubectl prints for such pods.

use serde_json::{Value, json};

use super::*;

fn waiting(reason: &str) -> Value {
    json!({ "waiting": { "reason": reason } })
}

fn running() -> Value {
    json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
}

fn ended(code: i32, reason: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:01:00Z" } })
}

fn container(name: &str, state: Value, ready: bool) -> Value {
    json!({ "name": name, "state": state, "ready": ready, "started": ready, "restartCount": 0 })
}

fn restarted(mut container: Value, count: u32) -> Value {
    container["restartCount"] = json!(count);
    container["lastState"] = ended(1, "Error");
    container
}

struct Case {
    status: Value,
    inits: Vec<Value>,
    containers: usize,
    leaving: bool,
}

fn case(phase: &str, containers: Vec<Value>) -> Case {
    Case {
        containers: containers.len(),
        status: json!({ "phase": phase, "containerStatuses": containers, "conditions": [] }),
        inits: Vec::new(),
        leaving: false,
    }
}

impl Case {
    fn inits(mut self, inits: Vec<(Value, bool)>) -> Self {
        self.status["initContainerStatuses"] = inits.iter().map(|(status, _)| status.clone()).collect();
        let spec = |(status, sidecar): &(Value, bool)| {
            let mut spec = json!({ "name": status["name"], "image": "app" });
            if *sidecar {
                spec["restartPolicy"] = json!("Always");
            }
            spec
        };
        self.inits = inits.iter().map(spec).collect();
        self
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.status[field] = value;
        self
    }

    fn leaving(self) -> Self {
        Self { leaving: true, ..self }
    }

    fn view(self) -> PodView {
        let names = (0..self.containers).map(|index| json!({ "name": format!("c{index}"), "image": "app" }));
        let mut pod = json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u" },
            "spec": { "containers": names.collect::<Vec<_>>(), "initContainers": self.inits },
            "status": self.status,
        });
        if self.leaving {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:02:00Z");
        }
        PodView::read(pod).unwrap()
    }

    fn words(self) -> (String, String) {
        let summary = self.view().summary();
        (format!("{}/{}", summary.ready, summary.total), summary.status)
    }
}

fn condition(kind: &str) -> Value {
    json!([{ "type": kind, "status": "True" }])
}

#[test]
fn a_pod_is_summed_up_as_kubectl_does() {
    let up = || container("c0", running(), true);
    let cases = [
        (case("Pending", vec![container("c0", waiting("ContainerCreating"), false)]), ("0/1", "ContainerCreating")),
        (case("Pending", vec![container("c0", waiting("ErrImagePull"), false)]), ("0/1", "ErrImagePull")),
        (case("Running", vec![up()]), ("1/1", "Running")),
        (case("Running", vec![container("c0", running(), false)]), ("0/1", "Running")),
        (case("Running", vec![up(), container("c1", waiting("CrashLoopBackOff"), false)]), ("1/2", "CrashLoopBackOff")),
        // The first container's word counts: they are looked at from the last to the first.
        (
            case(
                "Failed",
                vec![container("c0", ended(1, "Error"), false), container("c1", ended(0, "Completed"), false)],
            ),
            ("0/2", "Error"),
        ),
        (case("Succeeded", vec![container("c0", ended(0, "Completed"), false)]), ("0/1", "Completed")),
        (case("Failed", vec![container("c0", ended(137, "OOMKilled"), false)]), ("0/1", "OOMKilled")),
        (case("Failed", vec![container("c0", ended(3, ""), false)]), ("0/1", "ExitCode:3")),
        (case("Running", vec![container("c0", ended(0, "Completed"), false), up()]), ("1/2", "NotReady")),
        (
            case("Running", vec![container("c0", ended(0, "Completed"), false), up()])
                .with("conditions", condition("Ready")),
            ("1/2", "Running"),
        ),
        (case("Failed", Vec::new()).with("reason", json!("Evicted")), ("0/0", "Evicted")),
        (case("Running", vec![up()]).leaving(), ("1/1", "Terminating")),
        (case("Failed", vec![container("c0", ended(1, "Error"), false)]).leaving(), ("0/1", "Error")),
        (case("Pending", Vec::new()), ("0/0", "Pending")),
    ];
    for (index, (case, (ready, status))) in cases.into_iter().enumerate() {
        assert_eq!(case.words(), (ready.to_owned(), status.to_owned()), "case {index}");
    }
}

#[test]
fn a_pod_that_starts_up_shows_its_init_containers() {
    let done = || (container("i0", ended(0, "Completed"), true), false);
    let pending = || case("Pending", vec![container("c0", waiting("PodInitializing"), false)]);
    let cases = [
        (
            pending().inits(vec![
                (container("i0", running(), false), false),
                (container("i1", waiting("PodInitializing"), false), false),
            ]),
            "Init:0/2",
        ),
        (pending().inits(vec![done(), (container("i1", waiting("PodInitializing"), false), false)]), "Init:1/2"),
        (pending().inits(vec![(container("i0", waiting("CrashLoopBackOff"), false), false)]), "Init:CrashLoopBackOff"),
        (pending().inits(vec![(container("i0", ended(1, "Error"), false), false)]), "Init:Error"),
        (pending().inits(vec![(container("i0", ended(7, ""), false), false)]), "Init:ExitCode:7"),
        (pending().inits(vec![done()]), "PodInitializing"),
        // A sidecar that has started does not hold the pod up.
        (
            pending().inits(vec![(container("s0", running(), true), true), (container("i1", running(), false), false)]),
            "Init:1/2",
        ),
    ];
    for (index, (case, status)) in cases.into_iter().enumerate() {
        assert_eq!(case.words().1, status, "case {index}");
    }
}

#[test]
fn sidecars_count_as_containers() {
    let pod = case("Running", vec![container("c0", running(), true)])
        .inits(vec![(container("s0", running(), true), true), (container("i1", ended(0, "Completed"), true), false)]);
    assert_eq!(pod.words(), ("2/2".to_owned(), "Running".to_owned()));
}

#[test]
fn restarts_are_those_of_the_containers_that_go_on() {
    let now = "2026-01-01T00:01:20Z";
    let now: Wall = serde_json::from_value(json!(now)).unwrap();
    let pod = case("Running", vec![restarted(container("c0", running(), true), 3)])
        .inits(vec![(restarted(container("i0", ended(0, "Completed"), true), 5), false)]);
    assert_eq!(pod.view().summary().restarts(now), "3 (20s ago)");
    let starting = case("Pending", vec![container("c0", waiting("PodInitializing"), false)])
        .inits(vec![(restarted(container("i0", running(), false), 5), false)]);
    assert_eq!(starting.view().summary().restarts(now), "5 (20s ago)");
    let quiet = case("Running", vec![container("c0", running(), true)]);
    assert_eq!(quiet.view().summary().restarts(now), "0");
}
