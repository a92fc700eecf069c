//! keelet's own annotations.

use std::time::Duration;

use keelet_pod::Pod;

use crate::common::{clean, refused, warned};

fn annotated(key: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations: {{{key}: \"{value}\"}}\nspec:\n  \
         terminationGracePeriodSeconds: 20\n  \
         initContainers: [{{name: side, image: a, restartPolicy: Always, readinessProbe: {{tcpSocket: {{port: 1}}}}}}]\n  \
         containers:\n  - name: main\n    image: a\n    livenessProbe: {{tcpSocket: {{port: 1}}}}\n    \
         startupProbe: {{tcpSocket: {{port: 1}}}}\n"
    )
}

/// CON-15, CON-16
#[test]
fn restart_all_grace_fits_into_the_grace_period() {
    let key = "keelet.dev/restart-all-grace-period-seconds";
    for seconds in [0, 1, 20] {
        let pod = clean(&annotated(key, &seconds.to_string()));
        assert_eq!(pod.restart_all_grace, Duration::from_secs(seconds));
    }
    let path = format!("metadata.annotations[{key}]");
    let words = "must be a whole number from 0 to terminationGracePeriodSeconds (20)";
    for value in ["21", "-1", "+1", "1.5", "x", "", " 1", "99999999999999999999999"] {
        refused(&annotated(key, value), &path, words);
    }
}

/// PROBE-51
#[test]
fn eager_probes_are_on_unless_the_pod_says_otherwise() {
    let key = "keelet.dev/eager-probes";
    for (value, expected) in [("true", true), ("false", false)] {
        assert_eq!(clean(&annotated(key, value)).eager_probes, expected);
    }
    assert!(clean(&annotated("example.com/whatever", "1")).eager_probes);
    for value in ["", "no", "False", "0", " true"] {
        refused(&annotated(key, value), &format!("metadata.annotations[{key}]"), "must be true or false");
    }
}

#[test]
fn probe_periods_have_a_floor() {
    let period = |pod: &Pod| pod.containers[0].liveness.as_ref().unwrap().period;
    let key = "keelet.dev/probe-period-ms.main.liveness";
    let path = format!("metadata.annotations[{key}]");
    for (value, millis) in [("100", 100), ("250", 250), ("15000", 15_000), ("2147483647000", 2_147_483_647_000)] {
        assert_eq!(period(&clean(&annotated(key, value))), Duration::from_millis(millis));
    }
    let words = "must be a whole number of milliseconds from 100 to 2147483647000";
    for value in ["99", "0", "-100", "100.5", "1s", "", "2147483647001"] {
        refused(&annotated(key, value), &path, words);
    }
}

#[test]
fn probe_periods_name_a_container_and_a_probe() {
    let key = |target: &str| format!("keelet.dev/probe-period-ms.{target}");
    let pod = clean(&annotated(&key("side.readiness"), "500"));
    assert_eq!(pod.init_containers[0].readiness.as_ref().unwrap().period, Duration::from_millis(500));
    let pod = clean(&annotated(&key("main.startup"), "500"));
    assert_eq!(pod.containers[0].startup.as_ref().unwrap().period, Duration::from_millis(500));
    assert_eq!(pod.containers[0].liveness.as_ref().unwrap().period, Duration::from_secs(10));
    for (target, words) in [
        ("other.liveness", "Not found: \"other\": the pod has no such container"),
        ("main.readiness", "Not found: \"readiness\": container \"main\" has no such probe"),
        ("main.Liveness", "Invalid value: \"Liveness\": must be startup, readiness or liveness"),
        ("main", "must be <container>.<startup|readiness|liveness>"),
    ] {
        refused(&annotated(&key(target), "500"), &format!("metadata.annotations[{}]", key(target)), words);
    }
}

#[test]
fn unknown_annotations_of_ours_are_warned_about() {
    let key = "keelet.dev/restart-all-grace-seconds";
    warned(&annotated(key, "1"), &format!("metadata.annotations[{key}]"), "unknown annotation");
    // Written by the agent, and copied with the pod.
    clean(&annotated("keelet.dev/manifest", "/m/web.yaml"));
    clean(&annotated("example.com/whatever", "1"));
}
