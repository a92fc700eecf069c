//! Containers: identity, annotations, command, signal.

use keelet_cri::v1::{NamespaceMode, Signal};
use serde_json::{Value, json};

use super::*;

/// STAT-8
#[test]
fn a_container_is_known_by_the_kubelets_names() {
    let config = Place::with("labels: {app: web}", "", "").launch();
    let identity = config.metadata.expect("metadata");
    assert_eq!((&*identity.name, identity.attempt), ("main", 3));
    let image = config.image.expect("an image");
    assert_eq!((&*image.image, &*image.user_specified_image), ("sha256:feed", "app:1"));
    assert_eq!(config.log_path, "main/3.log");
    let labels = [
        ("io.kubernetes.container.name", "main"),
        ("io.kubernetes.pod.name", "web"),
        ("io.kubernetes.pod.namespace", "shop"),
        ("io.kubernetes.pod.uid", "u-1"),
    ];
    assert_eq!(config.labels, map(labels));
    let hash = config.annotations["io.kubernetes.container.hash"].clone();
    let annotations = [
        ("io.kubernetes.container.hash", hash.as_str()),
        ("io.kubernetes.container.restartCount", "3"),
        ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
        ("io.kubernetes.container.terminationMessagePolicy", "File"),
        ("io.kubernetes.pod.terminationGracePeriod", "30"),
    ];
    assert_eq!(config.annotations, map(annotations));
}

/// The kubelet's own vector.
#[test]
fn the_hash_is_written_in_lower_hex() {
    let mut place = Place::container("");
    place.pod.containers[0].hash = 0x8e45_cbd0;
    assert_eq!(place.launch().annotations["io.kubernetes.container.hash"], "8e45cbd0");
}

#[test]
fn a_container_carries_what_its_end_needs() {
    let container = "terminationMessagePath: /tmp/last\nterminationMessagePolicy: FallbackToLogsOnError\n\
        ports: [{name: http, containerPort: 80, hostPort: 8080}]\n\
        lifecycle: {preStop: {httpGet: {port: http, path: /bye}}}";
    let spec = "terminationGracePeriodSeconds: 7";
    let metadata = "deletionTimestamp: 2030-01-01T00:00:00Z\ndeletionGracePeriodSeconds: 5";
    let annotations = Place::with(metadata, spec, container).launch().annotations;
    let json_of = |name: &str| serde_json::from_str::<Value>(&annotations[name]).expect("JSON");
    assert_eq!(annotations["io.kubernetes.container.terminationMessagePath"], "/tmp/last");
    assert_eq!(annotations["io.kubernetes.container.terminationMessagePolicy"], "FallbackToLogsOnError");
    assert_eq!(annotations["io.kubernetes.pod.terminationGracePeriod"], "7");
    assert_eq!(annotations["io.kubernetes.pod.deletionGracePeriod"], "5");
    assert_eq!(
        json_of("io.kubernetes.container.ports"),
        json!([{"name": "http", "hostPort": 8080, "containerPort": 80, "protocol": "TCP"}])
    );
    assert_eq!(
        json_of("io.kubernetes.container.preStopHandler"),
        json!({"httpGet": {"path": "/bye", "port": "http", "scheme": "HTTP"}})
    );
}

#[test]
fn command_and_arguments_are_expanded_and_the_rest_is_passed_on() {
    let config = Place::container(
        "command: [run, --name=$(NAME), $$(NAME)]\nargs: [$(NAME)-$(MISSING), $]\nworkingDir: /srv\nstdin: true\n\
         stdinOnce: true\ntty: true\nenv: [{name: NAME, value: web}]",
    )
    .launch();
    assert_eq!(config.command, ["run", "--name=web", "$(NAME)"]);
    assert_eq!(config.args, ["web-$(MISSING)", "$"]);
    assert_eq!(config.working_dir, "/srv");
    assert!(config.stdin && config.stdin_once && config.tty);
    let plain = Place::container("").launch();
    assert!(plain.command.is_empty() && plain.args.is_empty() && plain.working_dir.is_empty());
    assert!(!plain.stdin && !plain.stdin_once && !plain.tty);
}

#[test]
fn the_stop_signal_is_named_as_on_the_wire() {
    let cases = [
        ("", Signal::RuntimeDefault),
        ("SIGTERM", Signal::Sigterm),
        ("SIGUSR1", Signal::Sigusr1),
        ("SIGRTMIN", Signal::Sigrtmin),
        ("SIGRTMIN+15", Signal::Sigrtminplus15),
        ("SIGRTMAX-1", Signal::Sigrtmaxminus1),
    ];
    for (name, signal) in cases {
        let lifecycle = if name.is_empty() { String::new() } else { format!("lifecycle: {{stopSignal: {name}}}") };
        let place = Place::with("", "os: {name: linux}", &lifecycle);
        assert_eq!(place.launch().stop_signal(), signal, "{name}");
    }
}

#[test]
fn an_ephemeral_container_joins_the_one_it_targets() {
    let spec = "ephemeralContainers:\n- name: debug\n  image: tools\n  targetContainerName: main\n  stdin: true\n  \
        securityContext: {runAsUser: 7}\n  command: [sh, -c, $(WHO)]\n  env: [{name: WHO, value: me}]";
    let mut place = Place::spec(spec);
    let error = place.try_launch("debug").expect_err("no target");
    assert!(error.message.contains("\"main\", which does not run"), "{error}");
    place.target = Some("c-1".to_owned());
    let config = place.try_launch("debug").expect("a container");
    assert_eq!(config.command, ["sh", "-c", "me"]);
    assert!(config.stdin);
    let context = config.linux.and_then(|linux| linux.security_context).expect("a security context");
    assert_eq!(context.run_as_user.map(|id| id.value), Some(7));
    let options = context.namespace_options.expect("namespaces");
    assert_eq!((options.pid(), &*options.target_id), (NamespaceMode::Target, "c-1"));

    let mut shared = Place::spec(&format!("shareProcessNamespace: true\n{spec}"));
    shared.target = Some("c-1".to_owned());
    let config = shared.try_launch("debug").expect("a container");
    let options = config.linux.and_then(|linux| linux.security_context?.namespace_options).expect("namespaces");
    assert_eq!((options.pid(), &*options.target_id), (NamespaceMode::Pod, ""));
}
