//! The kubelet's API of `keelet agent --kubeconfig`: kubectl through a real API server, and clients that connect directly.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::{Node, Pod};
use keelet_control_plane::{Cluster, IMAGE, Identity, Process, Worker, gone, pods, until};
use keelet_harness::eventually;
use kube::{
    Client,
    api::{DeleteParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

/// The socket of containerd, and an image in it with the same programs. Without them the agent has its embedded runtime.
fn containerd() -> Option<(String, String)> {
    std::env::var("KEELET_E2E_ENDPOINT").ok().zip(std::env::var("KEELET_E2E_IMAGE").ok())
}

fn image_name() -> String {
    containerd().map_or(IMAGE.to_owned(), |(_, image)| image)
}

/// The address of all nodes in the bed.
const ADDRESS: &str = "10.211.1.1";

const PORT: u16 = 10250;

/// A node of the cluster that serves the kubelet's API.
struct Served {
    worker: Worker,
    certificate: (PathBuf, PathBuf),
}

// === impl Served ===

impl Served {
    async fn new(name: &str) -> Self {
        let worker = Worker::new(name).await;
        let certificate = worker.cluster.certificate(name, &format!("IP:{ADDRESS},DNS:{name}")).await;
        Self { worker, certificate }
    }

    fn cluster(&self) -> &Cluster {
        &self.worker.cluster
    }

    fn start(&self, more: &[&str]) -> Process {
        let text = |path: &Path| path.display().to_string();
        let (certificate, key) = (text(&self.certificate.0), text(&self.certificate.1));
        let authority = text(&self.cluster().authority());
        let own = ["--tls-cert-file", &certificate, "--tls-private-key-file", &key, "--client-ca-file", &authority];
        let endpoint = containerd().map(|(endpoint, _)| endpoint);
        let runtime =
            endpoint.iter().flat_map(|endpoint| ["--container-runtime-endpoint", endpoint]).collect::<Vec<_>>();
        self.worker.start(&[&own, runtime.as_slice(), more].concat())
    }

    /// Imports the image of the pods; containerd has its own.
    async fn import(&self) {
        if containerd().is_none() {
            self.worker.import().await;
        }
    }

    /// A client of the node itself, with these credentials: the `user` of a kubeconfig.
    async fn direct(&self, user: Value) -> Client {
        let authority = STANDARD.encode(fs::read(self.cluster().authority()).expect("an authority"));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "node",
            "clusters": [{ "name": "node", "cluster": {
                "server": format!("https://{ADDRESS}:{PORT}"), "certificate-authority-data": authority,
            } }],
            "users": [{ "name": "user", "user": user }],
            "contexts": [{ "name": "node", "context": { "cluster": "node", "user": "user" } }],
        });
        let path = self.worker.path("direct.json");
        fs::write(&path, kubeconfig.to_string()).expect("written");
        Identity { user: "direct".to_owned(), kubeconfig: path.into() }.client().await
    }
}

/// A pod on a node, which does this in its shell.
async fn run_pod(client: &Client, node: &str, name: &str, script: &str, more: Value) {
    let mut pod = json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": image_name(), "imagePullPolicy": "IfNotPresent", "stdin": true,
                "command": ["/bin/sh", "-c", script],
            }],
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    pods(client).create(&PostParams::default(), &pod).await.expect("created");
    until(client, Some("default"), name, "Running", |pod: &Pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
    })
    .await;
}

async fn port_of_node(client: &Client, name: &str, port: i32) {
    until(client, None, name, &format!("serving on {port}"), |node: &Node| {
        let endpoints = node.status.as_ref().and_then(|status| status.daemon_endpoints.as_ref());
        endpoints.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref()).map(|endpoint| endpoint.port) == Some(port)
    })
    .await;
}

/// What a command of kubectl prints; its exit status has to be this one.
async fn kubectl(arguments: &[&str], input: Option<&[u8]>, status: i32) -> (String, String) {
    let mut child = spawn(arguments);
    let mut stdin = child.stdin.take().expect("its input");
    let send = async {
        if let Some(input) = input {
            stdin.write_all(input).await.expect("sent");
        }
        drop(stdin);
    };
    let (done, ()) = tokio::join!(tokio::time::timeout(keelet_harness::patience(), child.wait_with_output()), send);
    let done = done.unwrap_or_else(|_| panic!("kubectl {arguments:?} does not end")).expect("a kubectl");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (out, err) = (text(done.stdout), text(done.stderr));
    assert_eq!(done.status.code(), Some(status), "kubectl {arguments:?}: {out}{err}");
    (out, err)
}

fn spawn(arguments: &[&str]) -> Child {
    let mut command = Command::new("kubectl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("kubectl is in the PATH of the bed")
}

/// Reads lines until one of them is that one.
async fn until_line(lines: &mut (impl tokio::io::AsyncBufRead + Unpin), wanted: &str) {
    let found = async {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).await.expect("readable") == 0 {
                panic!("ended without {wanted:?}: {seen}");
            }
            if line.trim_end() == wanted {
                return;
            }
            seen.push_str(&line);
        }
    };
    tokio::time::timeout(keelet_harness::patience(), found).await.unwrap_or_else(|_| panic!("no line {wanted:?}"));
}

/// CLU-24, CLU-40, CLU-41, CLU-43: kubectl logs, exec with input, output, exit code and a terminal, attach, cp and port-forward, through the real
/// API server.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn kubectl_reaches_into_the_pods_of_the_node() {
    let node = Served::new("reachable").await;
    let admin = node.cluster().admin().client().await;
    let agent = node.start(&[]);
    port_of_node(&admin, "reachable", i32::from(PORT)).await;
    node.import().await;
    let script = "echo one; echo two; while ! test -e /tmp/go; do sleep 0.1; done; echo three; \
                  while read line; do echo \"got $line\"; done; while :; do sleep 1; done";
    run_pod(&admin, "reachable", "tools", script, json!({ "hostNetwork": true })).await;

    // Logs.
    eventually("the first lines", async || {
        let (out, _) = kubectl(&["logs", "tools"], None, 0).await;
        if out == "one\ntwo\n" { Ok(()) } else { Err(out) }
    })
    .await;
    let (last, _) = kubectl(&["logs", "tools", "--tail=1"], None, 0).await;
    assert_eq!(last, "two\n");
    let (cut, _) = kubectl(&["logs", "tools", "--limit-bytes=2"], None, 0).await;
    assert_eq!(cut, "on");
    let (dated, _) = kubectl(&["logs", "tools", "--timestamps"], None, 0).await;
    assert!(dated.lines().all(|line| line.starts_with("20") && line.contains('T')), "{dated}");
    let (_, error) = kubectl(&["logs", "tools", "--previous"], None, 1).await;
    assert!(error.contains("previous terminated container \"main\" in pod \"tools\" not found"), "{error}");

    // A log that is followed, and a command that makes it go on.
    let mut follower = spawn(&["logs", "--follow", "tools"]);
    let mut lines = BufReader::new(follower.stdout.take().expect("its output"));
    until_line(&mut lines, "one").await;
    let (out, _) = kubectl(&["exec", "tools", "--", "touch", "/tmp/go"], None, 0).await;
    assert_eq!(out, "");
    until_line(&mut lines, "three").await;

    // Commands: streams apart, exit codes, input with an end, a terminal.
    let (out, err) = kubectl(&["exec", "tools", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], None, 7).await;
    assert_eq!(out, "out\n");
    assert!(err.contains("err\n") && err.contains("exit code 7"), "{err}");
    let input: String = (0..20_000).map(|number| format!("{number}\n")).collect();
    let (out, _) = kubectl(&["exec", "-i", "tools", "--", "cat"], Some(input.as_bytes()), 0).await;
    assert!(out == input, "{} of {} bytes", out.len(), input.len());
    let terminal = "kubectl exec -it tools -- sh -c 'test -t 0 && test -t 1 && echo a terminal'";
    let shown = Command::new("script").args(["-qec", terminal, "/dev/null"]).stdin(Stdio::null()).output().await;
    let shown = String::from_utf8_lossy(&shown.expect("script").stdout).into_owned();
    assert!(shown.contains("a terminal"), "{shown}");
    let (_, error) = kubectl(&["exec", "tools", "-c", "other", "--", "true"], None, 1).await;
    assert!(error.contains("other"), "{error}");

    // Attach: what is typed reaches the container, and what it says comes back.
    let mut attached = spawn(&["attach", "-i", "tools"]);
    let mut typed = attached.stdin.take().expect("its input");
    let mut said = BufReader::new(attached.stdout.take().expect("its output"));
    typed.write_all(b"hello\n").await.expect("typed");
    until_line(&mut said, "got hello").await;
    until_line(&mut lines, "got hello").await;
    drop((typed, attached, follower));

    // Files there and back.
    let (there, back) = (node.worker.path("there"), node.worker.path("back"));
    fs::write(&there, input.repeat(10)).expect("written");
    kubectl(&["cp", &there, "tools:/tmp/copied"], None, 0).await;
    kubectl(&["cp", "tools:/tmp/copied", &back], None, 0).await;
    assert!(fs::read(&there).expect("there") == fs::read(&back).expect("back"), "the copies differ");

    // A port. With hostNetwork, the loopback of the pod is the node's (CLU-41).
    let echo = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
    let port = echo.local_addr().expect("an address").port();
    let echoes = tokio::spawn(async move {
        while let Ok((mut socket, _)) = echo.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = socket.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    let mut forward = spawn(&["port-forward", "tools", &format!(":{port}")]);
    let mut said = BufReader::new(forward.stdout.take().expect("its output"));
    let mut line = String::new();
    said.read_line(&mut line).await.expect("readable");
    let local: u16 = line
        .strip_prefix("Forwarding from 127.0.0.1:")
        .and_then(|rest| rest.split(' ').next())
        .and_then(|port| port.parse().ok())
        .unwrap_or_else(|| panic!("{line}"));
    for round in 0..3 {
        let mut socket = TcpStream::connect(("127.0.0.1", local)).await.expect("connected");
        let message = format!("round {round} {}", "x".repeat(100_000));
        let (mut read, mut write) = socket.split();
        let mut answer = vec![0; message.len()];
        let (sent, received) = tokio::join!(write.write_all(message.as_bytes()), read.read_exact(&mut answer));
        sent.expect("sent");
        received.expect("received");
        assert!(answer == message.as_bytes(), "round {round}");
    }
    drop(forward);
    echoes.abort();

    // Usage, as kubectl top's sources read it, through the proxy of the API server.
    let raw = async |path: &str| {
        kubectl(&["get", "--raw", &format!("/api/v1/nodes/reachable/proxy/{path}")], None, 0).await.0
    };
    let resource = raw("metrics/resource").await;
    for name in ["node_cpu_usage_seconds_total ", "node_memory_working_set_bytes "] {
        assert!(resource.lines().any(|line| line.starts_with(name)), "{resource}");
    }
    // Debian's containerd reports no usage in the namespaces of the bed; `crictl stats` says the same.
    let may_be_missing = containerd().is_some();
    for name in
        ["container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds"]
    {
        let series = format!("{name}{{container=\"main\",namespace=\"default\",pod=\"tools\"}} ");
        assert!(may_be_missing || resource.lines().any(|line| line.starts_with(&series)), "{series}: {resource}");
    }
    let summary: Value = serde_json::from_str(&raw("stats/summary").await).expect("JSON");
    assert_eq!(summary["node"]["nodeName"], "reachable");
    let of_pod = summary["pods"].as_array().into_iter().flatten().find(|pod| pod["podRef"]["name"] == "tools");
    let working_set = of_pod.map(|pod| pod["containers"][0]["memory"]["workingSetBytes"].as_u64());
    assert!(may_be_missing || working_set.flatten().is_some_and(|bytes| bytes > 0), "{summary}");
    let list: Value = serde_json::from_str(&raw("pods").await).expect("JSON");
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("PodList"), &json!("tools")));
    assert_eq!(raw("healthz").await, "ok");
    let config: Value = serde_json::from_str(&raw("configz").await).expect("JSON");
    assert_eq!(config["kubeletconfig"]["port"], PORT);
    assert!(may_be_missing || raw("metrics/cadvisor").await.contains("container_memory_working_set_bytes{"));
    assert!(raw("metrics/probes").await.contains("# EOF") && raw("metrics").await.contains("kubelet_running_pods"));

    // Deletion of the pod, and an agent without the server.
    pods(&admin).delete("tools", &DeleteParams::default()).await.expect("deleted");
    gone::<Pod>(&admin, Some("default"), "tools").await;
    agent.terminate().await;
    let agent = node.start(&["--port", "0"]);
    port_of_node(&admin, "reachable", 0).await;
    agent.terminate().await;
}

/// CLU-38, CLU-39: clients that connect to the node itself. Neither a certificate of another authority, nor a token for another audience, nor
/// no credentials at all lets a client in; `get nodes/proxy` opens no exec; without the API server nothing new is allowed.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn the_node_lets_in_what_the_cluster_allows_and_nothing_else() {
    let node = Served::new("guarded").await;
    let admin = node.cluster().admin().client().await;
    let agent = node.start(&[]);
    port_of_node(&admin, "guarded", i32::from(PORT)).await;
    node.import().await;
    run_pod(&admin, "guarded", "target", "while :; do sleep 1; done", json!({})).await;
    let ask = async |client: &Client, path: &str| {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        client.send(request).await.map(|answer| answer.status()).map_err(|error| format!("{error:?}"))
    };
    let exec = "/exec/default/target/main?command=touch&command=/tmp/x&output=1&error=1";
    let upgrade = async |client: &Client| {
        let request = Request::get(exec)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
            .header("Sec-WebSocket-Protocol", "v5.channel.k8s.io, v4.channel.k8s.io")
            .body(Body::empty())
            .expect("a request");
        client.send(request).await.expect("an answer").status()
    };

    let anonymous = node.direct(json!({})).await;
    for path in ["/healthz", "/pods", "/metrics", exec, "/none"] {
        assert_eq!(ask(&anonymous, path).await, Ok(StatusCode::UNAUTHORIZED), "{path}");
    }
    let stranger = node.direct(certificate_of_another_authority()).await;
    let refused = ask(&stranger, "/healthz").await.expect_err("no answer at all");
    assert!(refused.contains("UnknownCA"), "{refused}");

    // A certificate of the cluster without any permission, and one with `get nodes/proxy`.
    let user = async |name: &str, groups: &[&str]| {
        let identity = node.cluster().identity(name, groups).await;
        let text = fs::read_to_string(&identity.kubeconfig).expect("a kubeconfig");
        let field = |name: &str| {
            let rest = text.split_once(name).unwrap_or_else(|| panic!("no {name}")).1;
            rest.trim_start_matches(": ").split([',', ' ', '}']).next().unwrap_or_default().to_owned()
        };
        let (certificate, key) = (field("client-certificate-data"), field("client-key-data"));
        json!({ "client-certificate-data": certificate, "client-key-data": key })
    };
    let nothing = node.direct(user("nothing", &[]).await).await;
    assert_eq!(ask(&nothing, "/pods").await, Ok(StatusCode::FORBIDDEN));
    assert_eq!(ask(&nothing, "/metrics/resource").await, Ok(StatusCode::FORBIDDEN));
    for (name, verb, resource) in [
        ("looks", "get", "nodes/proxy"),
        ("runs", "create", "nodes/proxy"),
        ("scrapes", "get", "nodes/metrics"),
        ("lists", "get", "nodes/pods"),
    ] {
        kubectl(
            &["create", "clusterrole", name, &format!("--verb={verb}"), &format!("--resource={resource}")],
            None,
            0,
        )
        .await;
        let (role, of) = (format!("--clusterrole={name}"), format!("--user={name}"));
        let account = if name == "scrapes" { &["--serviceaccount=default:scraper"][..] } else { &[] };
        kubectl(&[&["create", "clusterrolebinding", name, &role, &of], account].concat(), None, 0).await;
    }
    let looks = node.direct(user("looks", &[]).await).await;
    assert_eq!(ask(&looks, "/pods").await, Ok(StatusCode::OK));
    assert_eq!(ask(&looks, "/containerLogs/default/target/main").await, Ok(StatusCode::OK));
    assert_eq!(upgrade(&looks).await, StatusCode::FORBIDDEN, "get nodes/proxy opens no exec");
    for path in ["//exec/default/target/main", "/logs/..%2f..%2fetc/passwd", "/exec%2Fdefault/target/main"] {
        assert_eq!(ask(&looks, path).await, Ok(StatusCode::BAD_REQUEST), "{path}");
    }
    let runs = node.direct(user("runs", &[]).await).await;
    assert_eq!(upgrade(&runs).await, StatusCode::SWITCHING_PROTOCOLS, "create nodes/proxy does");
    let lists = node.direct(user("lists", &[]).await).await;
    assert_eq!(ask(&lists, "/pods").await, Ok(StatusCode::OK), "the fine-grained permission is enough");
    assert_eq!(ask(&lists, "/healthz").await, Ok(StatusCode::FORBIDDEN));

    // Tokens: for the API server, for another audience, and made up.
    kubectl(&["create", "serviceaccount", "scraper"], None, 0).await;
    let token = async |more: &[&str]| {
        let (token, _) = kubectl(&[&["create", "token", "scraper"], more].concat(), None, 0).await;
        json!({ "token": token.trim() })
    };
    let scraper = node.direct(token(&[]).await).await;
    assert_eq!(ask(&scraper, "/metrics/resource").await, Ok(StatusCode::OK));
    assert_eq!(ask(&scraper, "/pods").await, Ok(StatusCode::FORBIDDEN));
    assert_eq!(ask(&scraper, exec).await, Ok(StatusCode::FORBIDDEN));
    let elsewhere = node.direct(token(&["--audience=elsewhere"]).await).await;
    assert_eq!(ask(&elsewhere, "/metrics/resource").await, Ok(StatusCode::UNAUTHORIZED));
    let invented = node.direct(json!({ "token": "invented" })).await;
    assert_eq!(ask(&invented, "/metrics/resource").await, Ok(StatusCode::UNAUTHORIZED));

    // Without the API server: what it said lately holds, and nothing else does.
    let fresh = node.direct(token(&["--duration=20m"]).await).await;
    let admin_of_node = node.direct(user("admin-of-node", &["system:masters"]).await).await;
    node.cluster().kill("kube-apiserver").await;
    assert_eq!(ask(&scraper, "/metrics/resource").await, Ok(StatusCode::OK));
    assert_eq!(ask(&fresh, "/metrics/resource").await, Ok(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(ask(&admin_of_node, "/pods").await, Ok(StatusCode::SERVICE_UNAVAILABLE));
    node.cluster().start("kube-apiserver").await;
    node.cluster().ready().await;
    eventually("a node that asks the API server again", async || match ask(&admin_of_node, "/pods").await {
        Ok(StatusCode::OK) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    pods(&admin).delete("target", &DeleteParams::default()).await.expect("deleted");
    gone::<Pod>(&admin, Some("default"), "target").await;
    agent.terminate().await;
}

/// A client certificate that only its own authority knows.
fn certificate_of_another_authority() -> Value {
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    let key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(authority, KeyPair::generate().expect("a key"));
    let mut client = CertificateParams::default();
    client.distinguished_name.push(DnType::CommonName, "admin");
    client.distinguished_name.push(DnType::OrganizationName, "system:masters");
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = client.signed_by(&key, &issuer).expect("a certificate");
    json!({
        "client-certificate-data": STANDARD.encode(certificate.pem()),
        "client-key-data": STANDARD.encode(key.serialize_pem()),
    })
}
