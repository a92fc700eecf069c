use std::{cell::RefCell, rc::Rc};

use keelet_lifecycle::status::{Condition, ConditionType, Phase, Truth};
use keelet_pod::Features;
use serde_json::json;

use super::*;

/// A pod's task that writes down what it hears.
#[derive(Clone, Debug, Default)]
struct Task(Rc<RefCell<Vec<String>>>);

impl Listener for Task {
    fn acknowledge(&self, version: u64) {
        self.0.borrow_mut().push(format!("seen {version}"));
    }

    fn known(&self, known: Known) {
        self.0.borrow_mut().push(format!("{known:?}"));
    }
}

impl Task {
    fn heard(&self) -> Vec<String> {
        self.0.take()
    }
}

const NOW: Duration = Duration::from_secs(100);

/// The API server has these pods.
fn pods(names: &[&str]) -> Pods {
    let mut pods = Pods::new(Features::default());
    pods.list_begins();
    for name in names {
        pods.changed(object(name, &json!({ "phase": "Pending" })), "worker").unwrap();
    }
    pods.list_ends();
    pods
}

fn object(name: &str, status: &Value) -> Value {
    json!({
        "metadata": { "namespace": "default", "name": name, "uid": name, "resourceVersion": "1" },
        "spec": { "nodeName": "worker", "containers": [{ "name": "main", "image": "app:1" }] },
        "status": status,
    })
}

fn status(ready: bool) -> PodStatus {
    let ready = Condition {
        kind: ConditionType::Ready,
        status: Truth::from(ready),
        reason: None,
        message: None,
        last_transition_time: None,
        observed_generation: None,
    };
    PodStatus { phase: Phase::Running, conditions: vec![ready], ..PodStatus::default() }
}

fn call(next: Next) -> Box<Call> {
    match next {
        Next::Call(call) => call,
        other => panic!("{other:?}"),
    }
}

fn refused(code: u16) -> ApiError {
    ApiError::Refused { code, reason: String::new(), message: String::new(), retry_after: None }
}

/// CLU-8: a newer status replaces one that waits, and one of a pod is in flight at a time.
#[test]
fn of_a_pod_only_the_newest_status_waits() {
    let (pods, task) = (pods(&["a"]), Task::default());
    let mut outbox = Outbox::default();
    outbox.publish("a", 1, &status(false), task.clone());
    outbox.publish("a", 2, &status(false), task.clone());
    let sent = call(outbox.next(&pods, None, NOW));
    assert_eq!((sent.path.as_str(), sent.version), ("/api/v1/namespaces/default/pods/a/status", Some(2)));
    outbox.publish("a", 3, &status(true), task.clone());
    assert!(matches!(outbox.next(&pods, None, NOW), Next::Idle), "the second waits for the answer to the first");
    outbox.finished(&sent, Ok(()), NOW);
    assert_eq!(task.heard(), ["seen 2"]);
    let sent = call(outbox.next(&pods, None, NOW));
    assert_eq!(sent.version, Some(3));
    outbox.finished(&sent, Ok(()), NOW);
    assert!(outbox.is_empty());
}

/// KEEP-10, CLU-8: a status that the API server has is acknowledged without a request.
#[test]
fn a_status_that_is_there_is_acknowledged_without_a_request() {
    let (mut pods, task) = (pods(&["a"]), Task::default());
    let stored = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    pods.changed(object("a", &stored), "worker").unwrap();
    let mut outbox = Outbox::default();
    outbox.publish("a", 7, &status(true), task.clone());
    assert!(matches!(outbox.next(&pods, None, NOW), Next::Idle));
    assert_eq!((task.heard(), outbox.is_empty()), (vec!["seen 7".to_owned()], true));
}

/// CLU-8: Ready transitions go first, the others in the order in which they came, and a few are in flight at once.
#[test]
fn a_change_of_ready_goes_first() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let (pods, task) = (pods(&names), Task::default());
    let mut outbox = Outbox::default();
    for name in names {
        outbox.publish(name, 1, &status(name == "g"), task.clone());
    }
    let sent: Vec<_> = (0..IN_FLIGHT).map(|_| call(outbox.next(&pods, None, NOW)).uid).collect();
    assert_eq!(sent, ["g", "a", "b", "c", "d"]);
    assert!(matches!(outbox.next(&pods, None, NOW), Next::Idle));
}

/// CLU-1: before the API server is reached nothing is sent; then each task hears of its copy and publishes again.
#[test]
fn nothing_is_sent_before_the_copies_are_known() {
    let (mut known, task) = (Pods::new(Features::default()), Task::default());
    let mut outbox = Outbox::default();
    outbox.ask("a", task.clone());
    outbox.publish("a", 1, &status(true), task.clone());
    assert!(matches!(outbox.next(&known, None, NOW), Next::Idle));
    known.list_begins();
    known.list_ends();
    outbox.reached(&known);
    assert_eq!((task.heard(), outbox.is_empty()), (vec!["NoCopy".to_owned()], true));
}

/// CLU-14: an object is deleted after the last status, with its UID as a precondition.
#[test]
fn an_object_is_deleted_after_its_last_status() {
    let (pods, task) = (pods(&["a"]), Task::default());
    let mut outbox = Outbox::default();
    outbox.publish("a", 1, &status(false), task);
    outbox.delete("a");
    let first = call(outbox.next(&pods, None, NOW));
    assert!(matches!(first.request, Request::PatchStatus(_)));
    outbox.finished(&first, Ok(()), NOW);
    let second = call(outbox.next(&pods, None, NOW));
    assert_eq!(second.request, Request::Delete(json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": "a" } })));
    assert_eq!(second.path, "/api/v1/namespaces/default/pods/a");
    outbox.finished(&second, Ok(()), NOW);
    assert!(outbox.is_empty());
}

/// CLU-13, CLU-45: what each answer leads to. Nothing is repeated in a hot loop.
#[test]
fn what_an_answer_leads_to() {
    let cases = [
        (ApiError::NoAnswer("x".to_owned()), Some(100)),
        (refused(500), Some(100)),
        (refused(403), Some(10_000)),
        (
            ApiError::Refused {
                code: 429,
                reason: String::new(),
                message: String::new(),
                retry_after: Some(Duration::from_secs(7)),
            },
            Some(7000),
        ),
        (refused(409), Some(100)),
        (refused(404), None),
        (refused(422), None),
    ];
    for (error, again) in cases {
        let (pods, task) = (pods(&["a"]), Task::default());
        let mut outbox = Outbox::default();
        outbox.publish("a", 1, &status(true), task.clone());
        let sent = call(outbox.next(&pods, None, NOW));
        outbox.finished(&sent, Err(&error), NOW);
        let next = match outbox.next(&pods, None, NOW) {
            Next::Wait(until) => Some((until - NOW).as_millis()),
            Next::Idle => None,
            Next::Call(call) => panic!("{error}: {call:?}"),
        };
        assert_eq!(next, again, "{error}");
        // A task that waits for its status hears that there is nothing to wait for if the object is gone, and nothing if it was rejected.
        let heard = if error.code().is_some_and(|code| code == 404) { vec!["seen 1"] } else { vec![] };
        assert_eq!(task.heard(), heard, "{error}");
    }
}

/// CLU-14: a deletion that is not answered, or rejected by whatever reviews requests, is repeated after a pause; it is given up only if the
/// object is gone.
#[test]
fn a_rejected_deletion_is_repeated_after_a_pause() {
    let cases = [(400, Some(10_000)), (403, Some(10_000)), (409, Some(100)), (413, Some(10_000)), (422, Some(10_000))];
    for (code, again) in cases.into_iter().chain([(500, Some(100)), (404, None)]) {
        let pods = pods(&["a"]);
        let mut outbox = Outbox::<Task>::default();
        outbox.delete("a");
        let sent = call(outbox.next(&pods, None, NOW));
        outbox.finished(&sent, Err(&refused(code)), NOW);
        let next = match outbox.next(&pods, None, NOW) {
            Next::Wait(until) => Some((until - NOW).as_millis()),
            Next::Idle => None,
            Next::Call(call) => panic!("{code}: sent again at once: {call:?}"),
        };
        assert_eq!(next, again, "{code}");
        if let Some(pause) = again {
            let later = NOW + Duration::from_millis(u64::try_from(pause).unwrap());
            assert!(matches!(call(outbox.next(&pods, None, later)).request, Request::Delete(_)), "{code}");
        }
    }
}

/// Pauses grow, and a newer status does not shorten them.
#[test]
fn pauses_grow_while_nothing_is_answered() {
    let (pods, task) = (pods(&["a"]), Task::default());
    let mut outbox = Outbox::default();
    let mut now = NOW;
    let mut pauses = Vec::new();
    for version in 1..=9 {
        outbox.publish("a", version, &status(true), task.clone());
        let sent = call(outbox.next(&pods, None, now));
        outbox.finished(&sent, Err(&ApiError::NoAnswer(String::new())), now);
        let Next::Wait(until) = outbox.next(&pods, None, now) else { panic!("it waits") };
        pauses.push((until - now).as_millis());
        now = until;
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
}

/// A pod that the agent cannot run is rejected once, by name.
#[test]
fn a_pod_that_cannot_run_is_rejected() {
    let pods = pods(&["a"]);
    let mut outbox = Outbox::<Task>::default();
    outbox.reject("a", "spec.containers: none");
    let sent = call(outbox.next(&pods, None, NOW));
    let Request::PatchStatus(patch) = &sent.request else { panic!("{sent:?}") };
    assert_eq!(patch["status"]["phase"], "Failed");
    assert_eq!(patch["status"]["message"], "Pod was rejected: spec.containers: none");
    outbox.reject("a", "spec.containers: none");
    outbox.finished(&sent, Ok(()), NOW);
    assert!(outbox.is_empty());
}
