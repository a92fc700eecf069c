//! What pods of a real cluster carry: config maps and secrets, in variables and volumes, tokens, and where services are.

use std::{fs, path::Path, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD as STANDARD};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret, Service};
use keelet_control_plane::{IMAGE, Worker, audit, gone, is_ready, pods, ready_node, until};
use keelet_harness::eventually;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A value that must not be found anywhere but in the pod.
const VALUE: &str = "s3cret-vAlue-4711";

/// A pod on this node whose container runs a script. More fields of the spec and of the container are added.
fn pod(name: &str, node: &str, script: &str, spec: &Value, container: &Value) -> Pod {
    let mut main = json!({
        "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", format!("trap 'exit 0' TERM; {script}")],
        "readinessProbe": { "exec": { "command": ["/bin/sh", "-c", "true"] }, "periodSeconds": 1 },
    });
    merge(&mut main, container);
    let mut all = json!({
        "nodeSelector": { "kubernetes.io/hostname": node },
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 1,
        "containers": [main],
    });
    merge(&mut all, spec);
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": all })).expect("a pod")
}

fn merge(object: &mut Value, more: &Value) {
    for (key, value) in more.as_object().expect("fields") {
        object[key] = value.clone();
    }
}

async fn create_config_map(client: &Client, name: &str, data: Value) {
    let object = json!({ "metadata": { "name": name }, "data": data });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &serde_json::from_value(object).expect("a config map")).await.expect("created");
}

async fn create_secret(client: &Client, name: &str, data: Value) {
    let object = json!({ "metadata": { "name": name }, "stringData": data });
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(object).expect("a secret")).await.expect("created");
}

/// What an instance of the pod's container has written.
fn output(worker: &Worker, pod: &Pod, attempt: u32) -> String {
    let (name, uid) = (pod.metadata.name.as_deref().unwrap_or(""), pod.metadata.uid.as_deref().unwrap_or(""));
    let path = format!("{}/default_{name}_{uid}/main/{attempt}.log", worker.path("logs"));
    fs::read_to_string(path).unwrap_or_default()
}

async fn says(worker: &Worker, pod: &Pod, attempt: u32, words: &str) {
    eventually(&format!("output with {words:?}"), async || {
        let output = output(worker, pod, attempt);
        if output.contains(words) { Ok(()) } else { Err(output) }
    })
    .await;
}

/// Waits for an event of the pod.
async fn wait_for_event(client: &Client, pod: &str, reason: &str, words: &str) {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let of_pod = ListParams::default().fields(&format!("involvedObject.name={pod},reason={reason}"));
    eventually(&format!("an event {reason} with {words:?}"), async || {
        let found = events.list(&of_pod).await.map_err(|error| error.to_string())?;
        let messages: Vec<_> = found.items.into_iter().filter_map(|event| event.message).collect();
        if messages.iter().any(|message| message.contains(words)) { Ok(()) } else { Err(messages.join("\n")) }
    })
    .await;
}

async fn delete(client: &Client, name: &str) {
    pods(client).delete(name, &DeleteParams::default()).await.expect("deleted");
    gone::<Pod>(client, Some("default"), name).await;
}

/// CLU-31: variables and volumes from a config map and a secret; a volume follows a change; each object is watched by name; the value of
/// the secret is in no log, event or file of the agent but on tmpfs.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_pod_carries_config_maps_and_secrets_and_its_volumes_follow_changes() {
    let worker = Worker::new("carrier").await;
    let admin = worker.cluster.admin().client().await;
    let agent = worker.start(&[]);
    ready_node(&admin, "carrier").await;
    worker.import().await;
    create_config_map(&admin, "paint", json!({ "COLOR": "red" })).await;
    create_secret(&admin, "keys", json!({ "key": VALUE })).await;
    let script = "echo \"started $COLOR $KEY $(cat /keys/key) $(cat /absent/* 2>&1)\"; \
                  while :; do echo \"now $(cat /paint/COLOR)\"; sleep 1; done";
    let spec = json!({ "volumes": [
        { "name": "paint", "configMap": { "name": "paint" } },
        { "name": "keys", "projected": { "sources": [{ "secret": { "name": "keys" } }] } },
        { "name": "absent", "secret": { "secretName": "nowhere", "optional": true } },
    ]});
    let container = json!({
        "envFrom": [{ "configMapRef": { "name": "paint" } }, { "secretRef": { "name": "nowhere", "optional": true } }],
        "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "key" } } }],
        "volumeMounts": [
            { "name": "paint", "mountPath": "/paint" }, { "name": "keys", "mountPath": "/keys" },
            { "name": "absent", "mountPath": "/absent" },
        ],
    });
    let carrying = pod("carrying", "carrier", script, &spec, &container);
    pods(&admin).create(&PostParams::default(), &carrying).await.expect("a pod");
    let carrying = until(&admin, Some("default"), "carrying", "Ready", is_ready).await;
    says(&worker, &carrying, 0, &format!("started red {VALUE} {VALUE} cat: ")).await;
    says(&worker, &carrying, 0, "now red").await;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "default");
    let blue = json!({ "data": { "COLOR": "blue" } });
    maps.patch("paint", &PatchParams::default(), &Patch::Merge(blue)).await.expect("changed");
    says(&worker, &carrying, 0, "now blue").await;

    // The value is where it has to be, and nowhere else. What the runtime starts a container with, variables among it, is in the state
    // directory, which is on tmpfs on a node.
    let (root, state) = (worker.path("root"), worker.path("state/ledger"));
    let found = tokio::process::Command::new("grep").args(["-rl", "--devices=skip", VALUE, &root, &state]).output();
    let found = String::from_utf8(found.await.expect("grep").stdout).expect("text");
    assert!(found.contains("kubernetes.io~projected/keys"), "grep finds what is there: {found}");
    let unexpected: Vec<_> = found.lines().filter(|file| !is_on_tmpfs(file)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    assert!(!agent.log().contains(VALUE), "the log has it");
    delete(&admin, "carrying").await;
    // Watches are in the audit log when they have ended.
    eventually("the watches end with the pod", async || {
        let entries = audit::entries(&worker.cluster.audit_log(), "system:node:carrier");
        let kinds = ["secrets", "configmaps"];
        let objects = entries.iter().filter(|entry| kinds.contains(&entry.object_ref.resource.as_str()));
        let allowed = objects.filter(|entry| entry.stage == "ResponseComplete" && entry.response_status.code == 200);
        let mut asked: Vec<_> = allowed.map(|entry| format!("{} {}", entry.verb, entry.object_ref.name)).collect();
        asked.sort();
        if asked == ["watch keys", "watch nowhere", "watch paint"] { Ok(()) } else { Err(format!("{asked:?}")) }
    })
    .await;
    agent.terminate().await;
}

/// Whether a file is on a file system in memory.
fn is_on_tmpfs(path: &str) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let of_path = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind) = (fields.next()?, fields.next()?);
        fs::canonicalize(path).ok()?.starts_with(place).then(|| (place.len(), kind.to_owned()))
    });
    of_path.max().is_some_and(|(_, kind)| kind == "tmpfs")
}

/// CLU-29, CLU-30: what every pod has: a token that the API server takes, its certificate authority, and where it is. The next agent
/// requests no token.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_pod_has_a_token_of_its_own_and_an_agent_restart_requests_no_other() {
    let worker = Worker::new("trusted").await;
    let admin = worker.cluster.admin().client().await;
    let agent = worker.start(&[]);
    ready_node(&admin, "trusted").await;
    worker.import().await;
    let services: Api<Service> = Api::namespaced(admin.clone(), "default");
    let service = json!({ "metadata": { "name": "my-db" }, "spec": { "ports": [{ "name": "sql", "port": 5432 }] } });
    let service = serde_json::from_value(service).expect("a service");
    let service = services.create(&PostParams::default(), &service).await.expect("created");
    let address = service.spec.and_then(|spec| spec.cluster_ip).expect("an address");
    let script = "cd /var/run/secrets/kubernetes.io/serviceaccount; echo \"space $(cat namespace) db $MY_DB_SERVICE_HOST:$MY_DB_SERVICE_PORT_SQL \
                  api $KUBERNETES_SERVICE_HOST\"; echo \"token $(cat token) end\"; cat ca.crt; while :; do sleep 1; done";
    let spec =
        json!({ "automountServiceAccountToken": true, "securityContext": { "runAsUser": 4711, "runAsGroup": 4712 } });
    let trusted = pod("trusting", "trusted", script, &spec, &json!({}));
    pods(&admin).create(&PostParams::default(), &trusted).await.expect("a pod");
    let trusted = until(&admin, Some("default"), "trusting", "Ready", is_ready).await;
    let api: Service = services.get("kubernetes").await.expect("the service of the API server");
    let api = api.spec.and_then(|spec| spec.cluster_ip).expect("an address");
    says(&worker, &trusted, 0, &format!("space default db {address}:5432 api {api}")).await;
    says(&worker, &trusted, 0, "END CERTIFICATE").await;
    let written = output(&worker, &trusted, 0);
    let token = written.split("token ").nth(1).and_then(|rest| rest.split(" end").next()).expect("a token").to_owned();
    let uid = trusted.metadata.uid.clone().expect("a UID");
    let who = user_of_token(&worker, &token).await.expect("the API server takes the token");
    assert_eq!(who["username"], "system:serviceaccount:default:default");
    assert_eq!(who["extra"]["authentication.kubernetes.io/pod-uid"], json!([uid]));

    let requests = || {
        let entries = audit::entries(&worker.cluster.audit_log(), "system:node:trusted");
        entries
            .iter()
            .filter(|entry| entry.object_ref.subresource == "token" && entry.response_status.code == 201)
            .count()
    };
    eventually("one request for a token", async || match requests() {
        1 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
    agent.kill().await;
    let agent = worker.start(&[]);
    // The next agent works once a new pod is Ready.
    let other =
        pod("bare", "trusted", "while :; do sleep 1; done", &json!({ "enableServiceLinks": false }), &json!({}));
    pods(&admin).create(&PostParams::default(), &other).await.expect("a pod");
    until(&admin, Some("default"), "bare", "Ready", is_ready).await;
    assert_eq!(requests(), 1, "an agent restart requests no token");
    let memory = format!("{}/cluster/tokens/{uid}", worker.path("state"));
    assert!(fs::exists(&memory).expect("a look"), "it is remembered");
    delete(&admin, "trusting").await;
    eventually("the token goes with its pod", async || {
        if fs::exists(&memory).unwrap_or(true) { Err("it is there") } else { Ok(()) }
    })
    .await;
    eventually("the API server refuses the token of a pod that is gone", async || {
        match user_of_token(&worker, &token).await {
            Ok(who) => Err(who.to_string()),
            Err(kube::Error::Api(status)) if status.code == 401 => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
    delete(&admin, "bare").await;
    assert!(!agent.log().contains(&token), "the log has it");
    agent.terminate().await;
}

/// The user that the API server takes the holder of a token for.
async fn user_of_token(worker: &Worker, token: &str) -> Result<Value, kube::Error> {
    let client = worker.cluster.with_token(token).await;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("Content-Type", "application/json")
        .body(review.to_string().into_bytes())
        .expect("a request");
    let review: Value = client.request(request).await?;
    Ok(review["status"]["userInfo"].clone())
}

/// CLU-33: an image of a registry that asks for a password, which is in a pull secret of the pod; without it the pod waits.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn an_image_is_pulled_with_the_secret_of_its_pod() {
    let worker = Worker::new("puller").await;
    let admin = worker.cluster.admin().client().await;
    let registry = Registry::start(&worker.image().await).await;
    // No image is of that registry: this is how a node is told that the host speaks plain HTTP.
    let plain = format!("unused.invalid=http://{}", registry.host);
    let agent = worker.start(&["--registry-mirror", &plain]);
    ready_node(&admin, "puller").await;
    let image = format!("{}/private/shell:1", registry.host);
    let of_image = |secrets: &[&str]| {
        let secrets: Vec<_> = secrets.iter().map(|name| json!({ "name": name })).collect();
        (json!({ "imagePullSecrets": secrets }), json!({ "image": image }))
    };
    let (spec, container) = of_image(&["absent"]);
    let stranger = pod("stranger", "puller", "while :; do sleep 1; done", &spec, &container);
    pods(&admin).create(&PostParams::default(), &stranger).await.expect("a pod");
    wait_for_event(&admin, "stranger", "FailedToRetrieveImagePullSecret", "image pull secrets (absent)").await;
    wait_for_event(&admin, "stranger", "Failed", "unauthorised").await;
    let config = json!({ "auths": { registry.host.as_str(): { "username": "puller", "password": VALUE } } });
    let secret = json!({
        "metadata": { "name": "registry" }, "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": config.to_string() },
    });
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "default");
    let secret = serde_json::from_value(secret).expect("a secret");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    let (spec, container) = of_image(&["registry"]);
    let guest = pod("guest", "puller", "while :; do sleep 1; done", &spec, &container);
    pods(&admin).create(&PostParams::default(), &guest).await.expect("a pod");
    until(&admin, Some("default"), "guest", "Ready", is_ready).await;
    assert!(!agent.log().contains(VALUE), "the log has the password");
    for name in ["stranger", "guest"] {
        delete(&admin, name).await;
    }
    agent.terminate().await;
}

/// A registry with one image, behind a password.
struct Registry {
    host: String,
    serving: JoinHandle<()>,
}

// === impl Registry ===

impl Registry {
    /// Serves the files that an archive of an image was made of.
    async fn start(archive: &Path) -> Self {
        let file = |name: &str| fs::read(archive.with_file_name(name)).expect("a file of the image");
        let (config, layer) = (file("config.json"), file("layer.tar"));
        let described =
            |kind: &str, bytes: &[u8]| json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described("application/vnd.oci.image.config.v1+json", &config),
            "layers": [described("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        let content = Arc::new([manifest.to_string().into_bytes(), config, layer]);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let host = listener.local_addr().expect("an address").to_string();
        let serving = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(answer(connection, Arc::clone(&content)));
            }
        });
        Self { host, serving }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Answers one request, and closes the connection.
async fn answer(mut connection: TcpStream, content: Arc<[Vec<u8>; 3]>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let password = format!("basic {}", STANDARD.encode(format!("puller:{VALUE}")));
    let knows = head.lines().any(|line| {
        let (name, value) = line.split_once(": ").unwrap_or_default();
        name.eq_ignore_ascii_case("authorization") && value.replacen("Basic", "basic", 1) == password
    });
    let found = match path {
        "/v2/" => Some(&b"{}"[..]),
        path if path.contains("/manifests/") => Some(&content[0][..]),
        path => content.iter().find(|blob| path.ends_with(&digest(blob))).map(|blob| &blob[..]),
    };
    let (status, body) = match found {
        _ if !knows => ("401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"test\"", &b""[..]),
        Some(body) => ("200 OK", body),
        None => ("404 Not Found", &b""[..]),
    };
    let kind = if path.contains("/manifests/") {
        "application/vnd.oci.image.manifest.v1+json"
    } else {
        "application/octet-stream"
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        digest(body),
        body.len()
    );
    let _ = connection.write_all(answer.as_bytes()).await;
    let body = if head.starts_with("HEAD") { &[] } else { body };
    let _ = connection.write_all(body).await;
}

/// CLU-31: a pod waits for what is missing with the reason, and continues when it is there.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_pod_waits_for_what_is_missing_and_continues_when_it_is_there() {
    let worker = Worker::new("waiting").await;
    let admin = worker.cluster.admin().client().await;
    let agent = worker.start(&[]);
    ready_node(&admin, "waiting").await;
    worker.import().await;
    let spec = json!({ "volumes": [{ "name": "late", "configMap": { "name": "late" } }] });
    let container = json!({
        "envFrom": [{ "secretRef": { "name": "later" } }],
        "volumeMounts": [{ "name": "late", "mountPath": "/late" }],
    });
    let script = "echo \"started $WORD $(cat /late/word)\"; while :; do sleep 1; done";
    let patient = pod("patient", "waiting", script, &spec, &container);
    let patient = pods(&admin).create(&PostParams::default(), &patient).await.expect("a pod");
    wait_for_event(&admin, "patient", "FailedMount", "volume \"late\" : configmap \"late\" not found").await;
    create_config_map(&admin, "late", json!({ "word": "first" })).await;
    until(&admin, Some("default"), "patient", "waiting for the secret", |pod: &Pod| {
        let status = serde_json::to_value(&pod.status).expect("JSON");
        let waiting = status.pointer("/containerStatuses/0/state/waiting").cloned().unwrap_or_default();
        waiting["reason"] == "CreateContainerConfigError" && waiting["message"] == "secret \"later\" not found"
    })
    .await;
    create_secret(&admin, "later", json!({ "WORD": "second" })).await;
    until(&admin, Some("default"), "patient", "Ready", is_ready).await;
    says(&worker, &patient, 0, "started second first").await;
    delete(&admin, "patient").await;
    agent.terminate().await;
}

/// CLU-19: the API server is away, the agent is restarted, a container restarts: it has the variables that were last seen.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_container_restarts_without_the_api_server_under_a_new_agent_with_what_was_last_seen() {
    let worker = Worker::new("lonely").await;
    let admin = worker.cluster.admin().client().await;
    let agent = worker.start(&[]);
    ready_node(&admin, "lonely").await;
    worker.import().await;
    create_secret(&admin, "kept", json!({ "key": VALUE })).await;
    let script = "turn=$(cat /work/turn); echo \"started $KEY $(cat /kept/key)\"; \
                  while test \"$(cat /work/turn)\" = \"$turn\"; do sleep 1; done";
    let spec = json!({ "volumes": [{ "name": "work", "emptyDir": {} }, { "name": "kept", "secret": { "secretName": "kept" } }] });
    let container = json!({
        "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "kept", "key": "key" } } }],
        "volumeMounts": [{ "name": "work", "mountPath": "/work" }, { "name": "kept", "mountPath": "/kept" }],
    });
    pods(&admin)
        .create(&PostParams::default(), &pod("turning", "lonely", script, &spec, &container))
        .await
        .expect("a pod");
    let turning = until(&admin, Some("default"), "turning", "Ready", is_ready).await;
    let started = format!("started {VALUE} {VALUE}");
    says(&worker, &turning, 0, &started).await;
    worker.cluster.kill("kube-apiserver").await;
    agent.kill().await;
    let agent = worker.start(&[]);
    let uid = turning.metadata.uid.clone().expect("a UID");
    let turn = format!("{}/pods/{uid}/volumes/kubernetes.io~empty-dir/work/turn", worker.path("root"));
    fs::write(turn, "2").expect("written");
    says(&worker, &turning, 1, &started).await;
    worker.cluster.start("kube-apiserver").await;
    worker.cluster.ready().await;
    until(&admin, Some("default"), "turning", "Ready again", |pod: &Pod| {
        let status = serde_json::to_value(&pod.status).expect("JSON");
        status.pointer("/containerStatuses/0/restartCount") == Some(&json!(1)) && is_ready(pod)
    })
    .await;
    delete(&admin, "turning").await;
    let left = format!("{}/cluster/objects/secret/default/kept", worker.path("state"));
    eventually("the memory of the secret goes with its pod", async || {
        if fs::exists(&left).unwrap_or(true) { Err("it is there") } else { Ok(()) }
    })
    .await;
    agent.terminate().await;
}
