//! Authorization: rules, reviews, tokens.

use keelet_sim_api::{Grant, Identity, SimApi};
use serde_json::{Value, json};

use super::{create, node, pod, secs, simulate};

#[test]
fn nothing_is_allowed_that_no_rule_allows() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, "/api/v1/nodes", &node("n1"));
        let user = Identity::service_account("keelet", "gates");
        let act = |method: &str, path: &str| {
            api.act_as(
                "gates",
                &user,
                method,
                path,
                "application/merge-patch+json",
                &json!({ "metadata": { "name": "x" } }),
            )
        };
        let (code, status) = act("PATCH", "/api/v1/nodes/n1");
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "nodes \"n1\" is forbidden: User \"system:serviceaccount:keelet:gates\" cannot patch resource \"nodes\" in API group \"\" at the cluster scope",
            "details": { "name": "n1", "kind": "nodes" },
        });
        assert_eq!((code, status), (403, expected));
        api.grant([
            Grant::to_user(&user.user).verbs(&["get", "list", "watch"]).on("", &["nodes"]),
            Grant::to_user(&user.user).verbs(&["patch"]).on("", &["nodes/status"]),
            Grant::to_group("system:serviceaccounts:keelet")
                .verbs(&["create"])
                .on("coordination.k8s.io", &["leases"])
                .within("keelet"),
        ]);
        assert_eq!(act("GET", "/api/v1/nodes/n1").0, 200);
        assert_eq!(act("GET", "/api/v1/nodes").0, 200);
        assert_eq!(act("PATCH", "/api/v1/nodes/n1").0, 403, "the status is a resource of its own");
        assert_ne!(act("PATCH", "/api/v1/nodes/n1/status").0, 403);
        let (code, status) = act("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases");
        assert_eq!(code, 403);
        assert_eq!(
            status["message"],
            "leases.coordination.k8s.io is forbidden: User \"system:serviceaccount:keelet:gates\" cannot create resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"default\""
        );
        assert_eq!(
            act("POST", "/apis/coordination.k8s.io/v1/namespaces/keelet/leases").0,
            404,
            "allowed, but there is no such namespace"
        );
        api.revoke_all();
        assert_eq!(act("GET", "/api/v1/nodes").0, 403);
    });
}

#[test]
fn reviews_say_what_is_allowed() {
    simulate(async {
        let api = SimApi::new(1);
        let user = Identity::user("jane", &["dev"]);
        api.grant([Grant::to_group("dev").verbs(&["get"]).on("", &["pods"])]);
        let ask = |verb: &str| {
            let review = json!({ "spec": { "resourceAttributes": { "verb": verb, "resource": "pods", "namespace": "default" } } });
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            api.grant([Grant::to_user("jane")
                .verbs(&["create"])
                .on("authorization.k8s.io", &["selfsubjectaccessreviews"])]);
            api.act_as("jane", &user, "POST", path, "", &review)
        };
        let (code, review) = ask("get");
        assert_eq!((code, &review["status"]), (201, &json!({ "allowed": true })));
        assert_eq!(ask("delete").1["status"], json!({ "allowed": false }));
        let about = json!({ "spec": { "user": "bob", "groups": ["dev"], "resourceAttributes": { "verb": "get", "resource": "pods" } } });
        let (_, review) = api.act("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", &about);
        assert_eq!(review["status"], json!({ "allowed": true }));
    });
}

#[test]
fn tokens_are_bound_and_expire() {
    simulate(async {
        let api = SimApi::new(1);
        let web = create(&api, "/api/v1/namespaces/default/pods", &pod("web"));
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let request = json!({ "spec": { "audiences": ["a"], "expirationSeconds": 600,
            "boundObjectRef": { "kind": "Pod", "apiVersion": "v1", "name": "web", "uid": web["metadata"]["uid"] } } });
        let (code, token) = api.act("POST", path, &request);
        assert_eq!((code, &token["status"]["expirationTimestamp"]), (201, &json!("2027-01-15T08:10:00Z")));
        let review = |audience: &str| {
            let review = json!({ "spec": { "token": token["status"]["token"], "audiences": [audience] } });
            api.act("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &review).1["status"].clone()
        };
        assert_eq!(review("a")["user"]["username"], "system:serviceaccount:default:default");
        assert_eq!(review("b").get("authenticated"), None);
        tokio::time::sleep(secs(601)).await;
        assert_eq!(review("a").get("authenticated"), None);
        let mut other = request.clone();
        other["spec"]["boundObjectRef"]["uid"] = "other".into();
        assert_eq!(api.act("POST", path, &other).0, 409);
        assert_eq!(api.act("POST", path, &json!({ "spec": { "expirationSeconds": 5 } })).0, 422);
        let node = Identity::node("n1");
        assert_eq!(api.act_as("n1", &node, "POST", path, "", &request).0, 403, "the pod is not on that node");
        assert_eq!(api.act("GET", path, &Value::Null).0, 405);
    });
}
