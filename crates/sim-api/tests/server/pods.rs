//! Pods: what is filled in, what may change, which states follow which.

use keelet_sim_api::SimApi;
use serde_json::{Value, json};

use super::{create, pod, simulate};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn a_pod_gets_its_defaults() {
    simulate(async {
        let api = SimApi::new(1);
        let mut given =
            json!({ "metadata": { "name": "web" }, "spec": { "containers": [{ "name": "main", "image": "web" }] } });
        given["spec"]["containers"][0]["readinessProbe"] = json!({ "httpGet": { "port": 80 } });
        given["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1", "memory": "1Gi" } });
        let web = create(&api, PODS, &given);
        let main = &web["spec"]["containers"][0];
        assert_eq!((&main["imagePullPolicy"], &main["terminationMessagePolicy"]), (&json!("Always"), &json!("File")));
        let probe = json!({
            "httpGet": { "path": "/", "port": 80, "scheme": "HTTP" },
            "failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1,
        });
        assert_eq!(main["readinessProbe"], probe);
        assert_eq!(
            (&main["resources"]["requests"]["cpu"], &web["status"]["qosClass"]),
            (&json!("1"), &json!("Guaranteed"))
        );
        let spec = &web["spec"];
        for (key, value) in [
            ("restartPolicy", json!("Always")),
            ("dnsPolicy", json!("ClusterFirst")),
            ("terminationGracePeriodSeconds", json!(30)),
            ("serviceAccountName", json!("default")),
            ("serviceAccount", json!("default")),
            ("priority", json!(0)),
            ("preemptionPolicy", json!("PreemptLowerPriority")),
            ("enableServiceLinks", json!(true)),
        ] {
            assert_eq!(spec[key], value, "{key}");
        }
        assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(2));
        let volume = spec["volumes"][0]["name"].as_str().unwrap_or("");
        assert!(volume.starts_with("kube-api-access-") && main["volumeMounts"][0]["name"] == volume, "{web}");
        assert_eq!(web["metadata"]["generation"], 1);
    });
}

#[test]
fn a_pod_without_what_it_needs_is_refused() {
    simulate(async {
        let api = SimApi::new(1);
        let table = [
            (json!({ "containers": [] }), 422),
            (json!({ "containers": [{ "name": "A b", "image": "i" }] }), 422),
            (json!({ "containers": [{ "name": "a" }] }), 422),
            (json!({ "containers": [{ "name": "a", "image": "i" }, { "name": "a", "image": "i" }] }), 422),
            (json!({ "containers": [{ "name": "a", "image": "i" }], "restartPolicy": "Maybe" }), 422),
            (json!({ "containers": [{ "name": "a", "image": "i" }], "serviceAccountName": "ghost" }), 403),
            (json!({ "containers": [{ "name": "a", "image": "i" }], "priorityClassName": "ghost" }), 403),
        ];
        for (spec, code) in table {
            let (got, status) = api.act("POST", PODS, &json!({ "metadata": { "name": "web" }, "spec": spec }));
            assert_eq!(got, code, "{status}");
        }
    });
}

/// Of a pod's spec, images, tolerations and the deadline may change, and little else.
#[test]
fn most_of_a_spec_does_not_change() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, PODS, &pod("web"));
        let path = format!("{PODS}/web");
        let strategic = |patch: &Value| {
            let admin = keelet_sim_api::Identity::admin();
            api.act_as("admin", &admin, "PATCH", &path, "application/strategic-merge-patch+json", patch)
        };
        let (code, changed) = strategic(&json!({ "spec": { "containers": [{ "name": "main", "image": "web:2" }] } }));
        assert_eq!((code, &changed["metadata"]["generation"]), (200, &json!(2)));
        assert_eq!(strategic(&json!({ "spec": { "activeDeadlineSeconds": 60 } })).0, 200);
        assert_eq!(strategic(&json!({ "spec": { "activeDeadlineSeconds": 90 } })).0, 422);
        assert_eq!(strategic(&json!({ "spec": { "activeDeadlineSeconds": null } })).0, 422);
        let mut tolerations = changed["spec"]["tolerations"].clone();
        if let Value::Array(list) = &mut tolerations {
            list.push(json!({ "key": "x", "operator": "Exists" }));
        }
        assert_eq!(strategic(&json!({ "spec": { "tolerations": tolerations } })).0, 200);
        assert_eq!(strategic(&json!({ "spec": { "tolerations": [] } })).0, 422, "one of them is not the server's own");
        let (code, status) = strategic(&json!({ "spec": { "containers": [{ "name": "main", "command": ["x"] }] } }));
        assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!("spec")));
        assert_eq!(strategic(&json!({ "spec": { "nodeName": "n1" } })).0, 422);
        assert_eq!(strategic(&json!({ "spec": { "containers": [{ "name": "more", "image": "i" }] } })).0, 422);
        let (_, same) = strategic(&json!({ "metadata": { "labels": { "a": "b" } } }));
        assert_eq!(same["metadata"]["generation"], 4, "labels do not count");
    });
}

/// A container that ended and may not restart stays ended.
#[test]
fn ended_containers_stay_ended_unless_they_restart() {
    simulate(async {
        let api = SimApi::new(1);
        let rules = json!([{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }]);
        let all = json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [88] } }]);
        let table = [
            ("Always", Value::Null, Value::Null, 0, 200),
            ("OnFailure", Value::Null, Value::Null, 0, 422),
            ("OnFailure", Value::Null, Value::Null, 1, 200),
            ("Never", Value::Null, Value::Null, 1, 422),
            ("Always", json!("Never"), Value::Null, 1, 422),
            ("Never", json!("Never"), rules.clone(), 42, 200),
            ("Never", json!("Never"), rules, 43, 422),
            ("Never", json!("Never"), all, 1, 200),
        ];
        for (index, (policy, own, rules, code, expected)) in table.into_iter().enumerate() {
            let mut given = pod(&format!("p{index}"));
            given["spec"]["restartPolicy"] = policy.into();
            given["spec"]["containers"][0]["restartPolicy"] = own;
            given["spec"]["containers"][0]["restartPolicyRules"] = rules;
            create(&api, PODS, &given);
            let path = format!("{PODS}/p{index}/status");
            let state =
                |state: Value| json!({ "status": { "containerStatuses": [{ "name": "main", "state": state }] } });
            assert_eq!(api.act("PATCH", &path, &state(json!({ "terminated": { "exitCode": code } }))).0, 200);
            let (got, status) = api.act("PATCH", &path, &state(json!({ "running": {} })));
            assert_eq!(got, expected, "{index} {status}");
        }
    });
}

#[test]
fn the_status_keeps_what_a_client_leaves_out() {
    simulate(async {
        let api = SimApi::new(1);
        let mut given = pod("web");
        given["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u" }]);
        create(&api, PODS, &given);
        let path = format!("{PODS}/web/status");
        let update = json!({
            "metadata": { "name": "web", "ownerReferences": [] },
            "spec": { "nodeName": "n9" },
            "status": { "phase": "Running", "podIP": "10.0.0.1", "observedGeneration": 1,
                "conditions": [{ "type": "Ready", "status": "True", "observedGeneration": 1 }] },
        });
        let (code, web) = api.act("PUT", &path, &update);
        assert_eq!((code, &web["status"]["qosClass"], web["spec"].get("nodeName")), (200, &json!("BestEffort"), None));
        assert_eq!(web["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1));
        assert_eq!(web["status"]["podIPs"], json!([{ "ip": "10.0.0.1" }]));
        let less = json!({ "metadata": { "name": "web" }, "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "False" }] } });
        let (_, web) = api.act("PUT", &path, &less);
        assert_eq!(
            (&web["status"]["observedGeneration"], &web["status"]["conditions"][0]["observedGeneration"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(api.act("PATCH", &path, &json!({ "status": { "qosClass": "Guaranteed" } })).0, 422);
        assert_eq!(
            api.act("PATCH", &path, &json!({ "status": { "conditions": [{ "type": "a b", "status": "True" }] } })).0,
            422
        );
    });
}

#[test]
fn a_pod_is_bound_once() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, PODS, &pod("web"));
        let bind = |node: &str| {
            api.act("POST", &format!("{PODS}/web/binding"), &json!({ "target": { "kind": "Node", "name": node } }))
        };
        assert_eq!(bind("n1").0, 201);
        let (_, web) = api.act("GET", &format!("{PODS}/web"), &Value::Null);
        assert_eq!(
            (&web["spec"]["nodeName"], &web["status"]["conditions"][0]["type"]),
            (&json!("n1"), &json!("PodScheduled"))
        );
        let (code, status) = bind("n2");
        assert_eq!(
            (code, &status["message"]),
            (
                409,
                &json!(
                    "Operation cannot be fulfilled on pods/binding \"web\": pod web is already assigned to node \"n1\""
                )
            )
        );
    });
}
