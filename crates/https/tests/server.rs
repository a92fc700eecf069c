//! The server with real TLS on loopback, before an agent on a simulated runtime. The API server says what each test lets it say.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use keelet_agent::{Agent, Doors, Extent, Settings, Wanted, clock::OsClock, doors::Clock, source::Listing};
use keelet_api::Api;
use keelet_host::{Layout, OsHost};
use keelet_https::{
    Certificates, Guard, Listening, MinVersion, ReviewSettings, Reviews, ServingCertificate, TlsSettings, serve,
};
use keelet_launch::NodeFacts;
use keelet_lifecycle::status::ContainerState;
use keelet_pod::{Features, parse_one};
use keelet_serve::{Debugging, KubeletApi, KubeletSettings, Local};
use kube::client::Body;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// It only ends a test that failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// An authority, and the text of its certificate.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key.
struct Pair {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

/// A running server.
struct Server {
    directory: TempDir,
    authority: Authority,
    address: SocketAddr,
    listening: Listening,
    /// What the API server has been asked.
    asked: Arc<Mutex<Vec<Value>>>,
    agent: Arc<Agent>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn server(&self) -> Pair {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    fn client(&self, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key");
        Pair { certificate: params.signed_by(&key, &self.issuer).expect("a certificate"), key }
    }
}

impl Server {
    async fn start() -> Self {
        Self::with(MinVersion::Tls12).await
    }

    async fn with(min_version: MinVersion) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (authority, path) = (Authority::new("clients and servers"), directory.path().to_owned());
        fs::write(path.join("ca.crt"), &authority.pem).expect("written");
        let serving = ServingCertificate::Files { certificate: path.join("own.crt"), key: path.join("own.key") };
        let tls = TlsSettings { serving, client_ca: Some(path.join("ca.crt")), min_version };
        let server = authority.server();
        write(&path, &server);
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let reviews = Reviews::new(api(Arc::clone(&asked)), "node".to_owned(), ReviewSettings::default());
        let local = local(&path).await;
        let agent = Arc::clone(&local.agent);
        let kubelet = KubeletApi::new(
            local,
            KubeletSettings { debugging: Debugging::Served, configuration: json!({ "port": 10250 }) },
        );
        let guard = Guard::new(Certificates::load(tls).expect("certificates"), reviews, kubelet);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let listening = Listening::default();
        let of_server = listening.clone();
        tokio::spawn(async move { serve(listener, Arc::new(guard), &of_server).await });
        Self { directory, authority, address, listening, asked, agent }
    }

    /// A connection of a client with that certificate.
    async fn connect(&self, pair: Option<&Pair>) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_with(pair, &[&rustls::version::TLS13, &rustls::version::TLS12]).await
    }

    async fn connect_with(
        &self,
        pair: Option<&Pair>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let own = rustls::pki_types::pem::PemObject::from_pem_slice(self.authority.pem.as_bytes()).expect("PEM");
        roots.add(own).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
        let config = config.with_root_certificates(roots);
        let config = match pair {
            None => config.with_no_client_auth(),
            Some(Pair { certificate, key }) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
                config.with_client_auth_cert(vec![certificate.der().clone()], key).expect("a certificate")
            }
        };
        let socket = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, socket).await
    }

    /// The status of an answer, or that there is none.
    async fn ask(&self, pair: Option<&Pair>, path: &str, token: Option<&str>) -> Option<StatusCode> {
        let stream = self.connect(pair).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let answer = timeout(PATIENCE, sender.send_request(request(path, token))).await.expect("in time").ok()?;
        let status = answer.status();
        let _ = answer.into_body().collect().await;
        Some(status)
    }

    /// An answer of which no more is read than its head, for as long as the value exists.
    async fn open(&self, path: &str) -> (StatusCode, Response<Incoming>) {
        let stream = self.connect(Some(&self.authority.client(|_| {}))).await.expect("a connection");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        let answer = timeout(PATIENCE, sender.send_request(request(path, None))).await.expect("in time");
        let answer = answer.expect("an answer");
        (answer.status(), answer)
    }

    /// Runs these pods, each of which has written a line.
    async fn run(&self, names: &[&str]) {
        let manifest = |name: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{containers: [{{name: main, image: a}}]}}\n"
            )
        };
        let pods: Vec<_> =
            names.iter().map(|name| Arc::new(parse_one(&manifest(name)).expect("a valid pod"))).collect();
        let wanted = pods.iter().map(|pod| (pod.uid.clone(), Wanted::new(Arc::clone(pod)))).collect();
        self.agent.set_pods(wanted, Extent::Complete);
        let runs = |uid: &str| {
            let statuses = self.agent.board().statuses();
            let status = statuses.get(uid).and_then(|published| published.status.container("main"));
            status.is_some_and(|status| matches!(status.state, ContainerState::Running(_)))
        };
        for pod in pods {
            let running = async {
                while !runs(&pod.uid) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(PATIENCE, running).await.expect("it runs");
            let directory = self.directory.path().join(format!("logs/shop_{}_{}/main", pod.name, pod.uid));
            fs::create_dir_all(&directory).expect("a directory");
            fs::write(directory.join("0.log"), "2026-01-01T00:00:00Z stdout F hello\n").expect("written");
        }
    }

    /// The certificate that the server shows now.
    async fn shown(&self) -> CertificateDer<'static> {
        let stream = self.connect(None).await.expect("a connection");
        stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone().into_owned()
    }
}

fn write(directory: &std::path::Path, Pair { certificate, key }: &Pair) {
    // As an operator's tool does it: under another name first.
    for (name, text) in [("own.crt", certificate.pem()), ("own.key", key.serialize_pem())] {
        let aside = directory.join("aside");
        fs::write(&aside, text).expect("written");
        fs::rename(&aside, directory.join(name)).expect("renamed");
    }
}

fn request(path: &str, token: Option<&str>) -> Request<Empty<Bytes>> {
    let request = Request::get(path).header(header::HOST, "node");
    let request = match token {
        Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
        None => request,
    };
    request.body(Empty::new()).expect("a request")
}

/// An API server: `token-of-NAME` is NAME's token, and each user may get `nodes/SUBRESOURCE` for the name of the user, and jane everything. It
/// fails to say what the user `away` may do, and never says what users `undecided-...` may do.
fn api(asked: Arc<Mutex<Vec<Value>>>) -> Api {
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = Arc::clone(&asked);
        async move {
            let body = request.into_body().collect_bytes().await.expect("a body");
            let review: Value = serde_json::from_slice(&body).expect("JSON");
            let spec = &review["spec"];
            let status = if review["kind"] == "TokenReview" {
                let name = spec["token"].as_str().and_then(|token| token.strip_prefix("token-of-"));
                json!({ "authenticated": name.is_some(), "user": { "username": name.unwrap_or_default() } })
            } else {
                let attributes = &spec["resourceAttributes"];
                if spec["user"].as_str().is_some_and(|user| user.starts_with("undecided")) {
                    std::future::pending::<()>().await;
                }
                if spec["user"] == "away" {
                    let body = Body::from(br#"{"kind":"Status","message":"etcd at 192.0.2.9 is away"}"#.to_vec());
                    let failed = Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR).body(body);
                    return Ok::<_, std::convert::Infallible>(failed.expect("a response"));
                }
                let granted = attributes["verb"] == "get" && attributes["subresource"] == spec["user"];
                json!({ "allowed": granted || spec["user"] == "jane" })
            };
            asked.lock().expect("not poisoned").push(review.clone());
            let body = Body::from(json!({ "status": status }).to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(Response::new(body))
        }
    });
    Api::new(kube::Client::new(service, "default"))
}

async fn local(path: &std::path::Path) -> Arc<Local> {
    let clock = Arc::new(OsClock::new().expect("a clock"));
    let ledger = keelet_ledger::Settings::new(path.join("durable"), path.join("volatile"), clock.now().boot_id);
    let layout = Layout::new(path, path.join("logs"));
    let facts = NodeFacts { name: "node".to_owned(), ..NodeFacts::default() };
    let host = Arc::new(OsHost::new(layout.clone()));
    let doors = Doors::on_this_machine(keelet_sim::bare_runtime(1), clock, host).expect("a thread");
    let settings = Settings { facts: facts.into(), ..Settings::new(Features::default(), ledger) };
    let agent = Arc::new(Agent::start(doors, settings).await.expect("an agent"));
    let all = Listing { complete: true, readable: true, pods: BTreeMap::new(), ..Listing::default() };
    let (_, desired) = watch::channel(Arc::new(all));
    Arc::new(Local { agent, layout, desired: Arc::new(desired), images: None })
}

/// CLU-38: a client certificate has to be of the authority, valid now and for clients; a client with any other one is refused.
#[tokio::test]
async fn a_client_certificate_has_to_be_of_the_authority_valid_and_for_clients() {
    let server = Server::start().await;
    let ask = async |pair: &Pair| server.ask(Some(pair), "/healthz", None).await;
    assert_eq!(ask(&server.authority.client(|_| {})).await, Some(StatusCode::OK));
    let past = rcgen::date_time_ymd(2020, 1, 1);
    assert_eq!(ask(&server.authority.client(|params| params.not_after = past)).await, None, "expired");
    let future = rcgen::date_time_ymd(2999, 1, 1);
    assert_eq!(ask(&server.authority.client(|params| params.not_before = future)).await, None, "not valid yet");
    let for_servers = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    assert_eq!(ask(&server.authority.client(for_servers)).await, None, "for servers");
    let for_nothing = |params: &mut CertificateParams| params.extended_key_usages.clear();
    assert_eq!(ask(&server.authority.client(for_nothing)).await, Some(StatusCode::UNAUTHORIZED), "without clientAuth");
    assert_eq!(ask(&Authority::new("clients and servers").client(|_| {})).await, None, "of another authority");
    let own_word = |params: &mut CertificateParams| params.distinguished_name = rcgen::DistinguishedName::new();
    assert_eq!(ask(&server.authority.client(own_word)).await, Some(StatusCode::UNAUTHORIZED), "without a name");
    assert!(server.asked.lock().expect("not poisoned").iter().all(|review| review["spec"]["user"] == "jane"));
}

/// CLU-38, CLU-39
#[tokio::test]
async fn without_a_certificate_a_token_decides_and_without_both_nothing_is_said() {
    let server = Server::start().await;
    let ask = async |path: &str, token: Option<&str>| server.ask(None, path, token).await.expect("an answer");
    for path in ["/healthz", "/pods", "/exec/a/b/c", "/none", "//", "/%2e%2e"] {
        assert_eq!(ask(path, None).await, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(ask(path, Some("invented")).await, StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(ask("/healthz", Some("token-of-healthz")).await, StatusCode::OK);
    assert_eq!(ask("/pods", Some("token-of-healthz")).await, StatusCode::FORBIDDEN);
    assert_eq!(ask("/pods", Some("token-of-proxy")).await, StatusCode::OK, "nodes/proxy is enough for pods");
    assert_eq!(ask("/metrics", Some("token-of-proxy")).await, StatusCode::FORBIDDEN, "and not for metrics");
    assert_eq!(ask("/exec/a/b/c?command=x&output=1", Some("token-of-proxy")).await, StatusCode::FORBIDDEN);
    assert_eq!(
        ask("/exec/a/b/c?command=x&output=1", Some("token-of-jane")).await,
        StatusCode::BAD_REQUEST,
        "no upgrade"
    );
    assert_eq!(ask("/none", Some("token-of-jane")).await, StatusCode::NOT_FOUND);
    assert_eq!(ask("//healthz", Some("token-of-jane")).await, StatusCode::BAD_REQUEST);
}

/// CLU-38: what a connection was let in for ends with the authority that vouched for it.
#[tokio::test]
async fn a_connection_outlives_neither_its_certificate_nor_its_authority() {
    let server = Server::start().await;
    let client = server.authority.client(|_| {});
    let stream = server.connect(Some(&client)).await.expect("a connection");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let first = sender.send_request(request("/healthz", None)).await.expect("an answer");
    assert_eq!(first.status(), StatusCode::OK);
    first.into_body().collect().await.expect("read");
    fs::write(server.directory.path().join("ca.crt"), Authority::new("another").pem).expect("written");
    let ended = async {
        loop {
            match sender.send_request(request("/healthz", None)).await {
                Ok(answer) if answer.status() == StatusCode::OK => drop(answer.into_body().collect().await),
                Ok(answer) => return answer.status(),
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert_eq!(timeout(PATIENCE, ended).await.expect("in time"), StatusCode::UNAUTHORIZED);
}

/// CLU-43
#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart_and_a_broken_one_is_not() {
    let server = Server::start().await;
    let first = server.shown().await;
    let path: PathBuf = server.directory.path().into();
    fs::write(path.join("own.crt"), "nonsense").expect("written");
    let look = async |until: &dyn Fn(&CertificateDer<'static>) -> bool| {
        let looking = async {
            loop {
                let shown = server.shown().await;
                if until(&shown) {
                    return shown;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, looking).await.expect("in time")
    };
    // Long enough for the files to be looked at again: the old certificate is still served.
    let began = tokio::time::Instant::now();
    look(&|shown| {
        assert_eq!(*shown, first);
        began.elapsed() > Duration::from_millis(1500)
    })
    .await;
    let second = server.authority.server();
    write(&path, &second);
    look(&|shown| shown == second.certificate.der()).await;
}

/// CLU-43
#[tokio::test]
async fn versions_of_tls_begin_with_the_oldest_that_is_allowed() {
    let (tls12, tls13) = (&rustls::version::TLS12, &rustls::version::TLS13);
    let usual = Server::start().await;
    let strict = Server::with(MinVersion::Tls13).await;
    for (server, version, works) in
        [(&usual, tls12, true), (&usual, tls13, true), (&strict, tls12, false), (&strict, tls13, true)]
    {
        assert_eq!(server.connect_with(None, &[version]).await.is_ok(), works, "{version:?}");
    }
    assert_eq!(usual.listening.port(), Some(usual.address.port()));
}

/// CLU-43: a certificate that cannot be used is an error that names its file; one of our own is made only where that was asked for.
#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let (one, other) = (Authority::new("a").server(), Authority::new("a").server());
    fs::write(path("own.crt"), one.certificate.pem()).expect("written");
    fs::write(path("own.key"), one.key.serialize_pem()).expect("written");
    fs::write(path("other.key"), other.key.serialize_pem()).expect("written");
    fs::write(path("empty"), "").expect("written");
    let load = |certificate: &str, key: &str, authority: Option<&str>| {
        let serving = ServingCertificate::Files { certificate: path(certificate), key: path(key) };
        let tls = TlsSettings { serving, client_ca: authority.map(path), min_version: MinVersion::Tls12 };
        Certificates::load(tls).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(load("own.crt", "own.key", Some("own.crt")), Ok(()));
    for (certificate, key, authority, words) in [
        ("none", "own.key", None, "cannot read "),
        ("empty", "own.key", None, "no certificate in "),
        ("own.crt", "empty", None, "no private key in "),
        ("own.crt", "other.key", None, "cannot use the certificate in "),
        ("own.crt", "own.key", Some("empty"), "no certificate in "),
    ] {
        let error = load(certificate, key, authority).expect_err(words);
        let place = directory.path().display().to_string();
        assert!(error.starts_with(words) && error.contains(&place), "{error}");
    }
    let own = ServingCertificate::SelfSigned(vec!["node".to_owned(), "192.0.2.7".to_owned()]);
    let tls = TlsSettings { serving: own, client_ca: None, min_version: MinVersion::Tls12 };
    let shown = format!("{:?}", Certificates::load(tls).expect("a certificate of our own"));
    assert!(shown.contains("[secret key elided]"), "the key is not printed: {shown}");
}

/// CLU-42: connections that say nothing make room for each other, and never take the place of a client that is known.
#[tokio::test]
async fn silent_connections_do_not_keep_clients_out() {
    let server = Server::start().await;
    let client = server.authority.client(|_| {});
    let known = server.connect(Some(&client)).await.expect("a connection");
    let (mut sender, connection) = http1::handshake(TokioIo::new(known)).await.expect("HTTP");
    tokio::spawn(connection);
    let first = sender.send_request(request("/healthz", None)).await.expect("an answer");
    first.into_body().collect().await.expect("read");
    let mut silent = Vec::new();
    more_descriptors();
    for _ in 0..200 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 2], 0).into()).expect("an address of its own");
        silent.push(socket.connect(server.address).await.expect("a connection"));
    }
    let closed = |socket: &TcpStream| {
        let read = socket.try_read(&mut [0]);
        !read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let oldest = async {
        while !silent[..8].iter().all(closed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, oldest).await.expect("the oldest are closed");
    assert!(!silent[8..].iter().any(closed), "and the youngest are not");
    assert_eq!(server.ask(Some(&client), "/healthz", None).await, Some(StatusCode::OK), "a new client is served");
    let again = sender.send_request(request("/healthz", None)).await.expect("an answer");
    assert_eq!(again.status(), StatusCode::OK, "a known one still is");
}

/// A process has 1,024 by default, and both ends of all connections are in this one.
fn more_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("more descriptors");
}

/// CLU-42: each pod of a cluster has a token. Users that may ask for nothing hold nothing of those that may, also while that is not decided.
#[tokio::test]
async fn users_without_permission_leave_the_shares_of_others_alone() {
    let server = Server::start().await;
    more_descriptors();
    let client = server.authority.client(|_| {});
    assert_eq!(server.ask(Some(&client), "/healthz", None).await, Some(StatusCode::OK), "what it may do is known");
    let mut waiting = Vec::new();
    for user in 0..256 {
        let stream = server.connect(None).await.expect("a connection");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        waiting.push(tokio::spawn(async move { drop(connection.await) }));
        let token = format!("token-of-undecided-{}", user % 2);
        waiting.push(tokio::spawn(async move { drop(sender.send_request(request("/pods", Some(&token))).await) }));
    }
    assert_eq!(server.ask(Some(&client), "/healthz", None).await, Some(StatusCode::OK));
}

/// CLU-42
#[tokio::test]
async fn endless_heads_are_given_up() {
    let server = Server::start().await;
    let mut stream = server.connect(Some(&server.authority.client(|_| {}))).await.expect("a connection");
    let flood = async {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: node\r\n").await?;
        let mut sent = 0;
        while sent < 64 << 20 {
            stream.write_all(format!("x-{sent}: {}\r\n", "x".repeat(1000)).as_bytes()).await?;
            sent += 1000;
        }
        Ok::<_, std::io::Error>(sent)
    };
    timeout(PATIENCE, flood).await.expect("in time").expect_err("the connection is closed long before");
    assert_eq!(server.ask(Some(&server.authority.client(|_| {})), "/healthz", None).await, Some(StatusCode::OK));
}

/// CLU-42: through an API server all users are one. A pod's share of sessions leaves the rest to other pods; a log that is followed is one.
#[tokio::test]
async fn a_pod_holds_its_share_of_sessions() {
    let server = Server::start().await;
    server.run(&["web", "db"]).await;
    let follow = "/containerLogs/shop/web/main?follow=true";
    let mut open = Vec::new();
    for _ in 0..32 {
        let (status, answer) = server.open(follow).await;
        assert_eq!(status, StatusCode::OK, "{}", open.len());
        open.push(answer);
    }
    for path in [follow, "/exec/shop/web/main?command=x&output=1", "/exec/shop/web/u/main", "/portForward/shop/web"] {
        let (status, answer) = server.open(path).await;
        let said = answer.into_body().collect().await.expect("read").to_bytes();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{path}: {said}");
        assert!(said.contains("pod shop/web: 32 are open"), "{path}: {said}");
    }
    assert_eq!(server.open("/containerLogs/shop/db/main?follow=true").await.0, StatusCode::OK, "another pod");
    assert_eq!(server.open("/healthz").await.0, StatusCode::OK, "what is no session");
    drop(open.pop());
    let free = async {
        while server.open("/containerLogs/shop/web/main").await.0 != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, free).await.expect("one was closed");
}

/// CLU-42: the kernel asks a client that says nothing whether it is there.
#[tokio::test]
async fn a_client_that_vanishes_is_noticed() {
    let server = Server::start().await;
    let _stream = server.connect(Some(&server.authority.client(|_| {}))).await.expect("a connection");
    let port = format!("0100007F:{:04X}", server.address.port());
    // Address, peer, state (01: established), queues, timer (01: something is sent, 02: keepalive) and when it is due.
    let timer = || {
        let table = fs::read_to_string("/proc/self/net/tcp").expect("connections");
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let connection = lines.find(|fields| fields[1] == port && fields[3] == "01").expect("the connection");
        connection[5].split(':').next().unwrap_or_default().to_owned()
    };
    let sent = async {
        while timer() == "01" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, sent).await.expect("what was sent arrives");
    assert_eq!(timer(), "02");
}

/// CLU-38: what an API server says while it fails is not for its clients, who may be strangers.
#[tokio::test]
async fn an_api_server_that_fails_is_not_quoted_to_clients() {
    let server = Server::start().await;
    let stream = server.connect(None).await.expect("a connection");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let answer = sender.send_request(request("/metrics", Some("token-of-away"))).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let said = answer.into_body().collect().await.expect("read").to_bytes();
    assert_eq!(said, "the API server does not say whether this request is allowed; retry later");
}
