//! Reviews by an API server of which each test says what it answers.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use http::{Request, Response, StatusCode};
use kube::client::Body;

use super::*;

/// An API server that counts what it is asked, and answers with the newest text.
struct Server {
    asked: AtomicUsize,
    last: Mutex<Value>,
    answer: Mutex<(StatusCode, String)>,
    /// Whether it takes requests and does not answer.
    silent: AtomicBool,
}

impl Server {
    fn new(answer: Value) -> Arc<Self> {
        let answer = Mutex::new((StatusCode::CREATED, answer.to_string()));
        Arc::new(Self { asked: AtomicUsize::new(0), last: Mutex::default(), answer, silent: AtomicBool::new(false) })
    }

    fn says(&self, status: StatusCode, answer: &str) {
        *self.answer.lock().expect("not poisoned") = (status, answer.to_owned());
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn last(&self, pointer: &str) -> Value {
        self.last.lock().expect("not poisoned").pointer(pointer).cloned().unwrap_or_default()
    }

    fn reviews(self: &Arc<Self>, settings: ReviewSettings) -> Reviews {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move {
                server.asked.fetch_add(1, Ordering::Relaxed);
                if server.silent.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                let body = request.into_body().collect_bytes().await.expect("a body");
                *server.last.lock().expect("not poisoned") = serde_json::from_slice(&body).expect("JSON");
                let (status, text) = server.answer.lock().expect("not poisoned").clone();
                let response = Response::builder().status(status).body(Body::from(text.into_bytes()));
                Ok::<_, std::convert::Infallible>(response.expect("a response"))
            }
        });
        Reviews::new(Api::new(kube::Client::new(service, "default")), "worker".to_owned(), settings)
    }
}

fn token_of(user: &str) -> Value {
    json!({ "status": { "authenticated": true, "user": { "username": user, "groups": ["g"], "extra": { "k": ["v"] } } } })
}

fn access(allowed: bool) -> Value {
    json!({ "status": { "allowed": allowed } })
}

fn demand(method: http::Method, path: &str) -> Demand {
    Demand::of(&method, path).expect("a path")
}

fn jane() -> Arc<User> {
    Arc::new(User { username: "jane".to_owned(), groups: vec!["ops".to_owned()], ..User::default() })
}

/// CLU-38
#[tokio::test(start_paused = true)]
async fn a_token_is_reviewed_once_for_as_long_as_the_answer_lasts() {
    let server = Server::new(token_of("jane"));
    let reviews = server.reviews(ReviewSettings::default());
    for _ in 0..3 {
        let user = reviews.user("secret").await.expect("an answer").expect("a user");
        assert_eq!((user.username.as_str(), user.groups.len()), ("jane", 2), "all users are in system:authenticated");
    }
    assert_eq!((server.asked(), server.last("/spec/token")), (1, json!("secret")));
    assert_eq!(server.last("/spec/audiences"), Value::Null, "tokens for the API server itself");
    server.says(StatusCode::CREATED, r#"{"status":{"authenticated":false,"error":"invalid audience"}}"#);
    tokio::time::advance(ReviewSettings::default().token_lasts).await;
    assert_eq!(reviews.user("secret").await, Ok(None));
    assert_eq!(reviews.user("secret").await, Ok(None));
    assert_eq!(server.asked(), 2, "that a token stands for no user is kept for a moment too");
    tokio::time::advance(UNKNOWN_TOKEN_LASTS).await;
    assert_eq!((reviews.user("secret").await, server.asked()), (Ok(None), 3));
}

/// CLU-38: without the API server nothing is known, so that nothing is allowed. Its silence is not kept.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_closes_the_door() {
    let server = Server::new(json!({}));
    let reviews = server.reviews(ReviewSettings::default());
    for (status, text) in [
        (StatusCode::INTERNAL_SERVER_ERROR, "{}"),
        (StatusCode::FORBIDDEN, r#"{"kind":"Status","reason":"Forbidden"}"#),
        (StatusCode::OK, "<html>a proxy</html>"),
        (StatusCode::OK, "{}"),
        (StatusCode::OK, &format!("{}{}", token_of("jane"), " ".repeat(LONGEST_ANSWER))),
        (StatusCode::OK, &format!("{}{}", access(true), " ".repeat(LONGEST_ANSWER))),
    ] {
        server.says(status, text);
        reviews.user("secret").await.expect_err(text);
        reviews.allows(&jane(), &demand(http::Method::GET, "/metrics")).await.expect_err(text);
    }
    assert_eq!(server.asked(), 12);
    server.says(StatusCode::CREATED, &token_of("jane").to_string());
    assert!(reviews.user("secret").await.expect("an answer").is_some(), "it answers again");
}

/// CLU-38
#[tokio::test(start_paused = true)]
async fn tokens_can_be_switched_off_and_absurd_ones_are_not_sent() {
    let server = Server::new(token_of("jane"));
    let off = server.reviews(ReviewSettings { tokens: false, ..ReviewSettings::default() });
    assert_eq!(off.user("secret").await, Ok(None));
    let on = server.reviews(ReviewSettings::default());
    assert_eq!((on.user("").await, on.user(&"x".repeat(LONGEST_TOKEN + 1)).await), (Ok(None), Ok(None)));
    assert_eq!(server.asked(), 0);
}

/// CLU-39
#[tokio::test(start_paused = true)]
async fn the_action_is_what_is_reviewed() {
    let server = Server::new(access(true));
    let reviews = server.reviews(ReviewSettings::default());
    assert_eq!(reviews.allows(&jane(), &demand(http::Method::GET, "/exec/a/b/c")).await, Ok(true));
    assert_eq!(
        server.last("/spec/resourceAttributes"),
        json!({ "verb": "create", "group": "", "version": "v1", "resource": "nodes", "subresource": "proxy", "name": "worker" })
    );
    assert_eq!((server.last("/spec/user"), server.last("/spec/groups")), (json!("jane"), json!(["ops"])));
}

/// CLU-38, CLU-39: fine-grained first, then `nodes/proxy`; a refusal is kept for a shorter time than a permission.
#[tokio::test(start_paused = true)]
async fn permissions_are_kept_each_for_its_time() {
    let settings = ReviewSettings::default();
    let server = Server::new(access(false));
    let reviews = server.reviews(settings);
    let pods = demand(http::Method::GET, "/pods");
    for _ in 0..2 {
        assert_eq!(reviews.allows(&jane(), &pods).await, Ok(false));
    }
    assert_eq!((server.asked(), server.last("/spec/resourceAttributes/subresource")), (2, json!("proxy")));
    server.says(StatusCode::CREATED, &access(true).to_string());
    assert_eq!(reviews.allows(&jane(), &pods).await, Ok(false), "still what was said");
    tokio::time::advance(settings.denied_lasts).await;
    assert_eq!(reviews.allows(&jane(), &pods).await, Ok(true));
    assert_eq!((server.asked(), server.last("/spec/resourceAttributes/subresource")), (3, json!("pods")));
    server.says(StatusCode::CREATED, r#"{"status":{"allowed":true,"denied":true}}"#);
    tokio::time::advance(settings.denied_lasts).await;
    assert_eq!(reviews.allows(&jane(), &pods).await, Ok(true));
    let other = Arc::new(User { groups: vec!["other".to_owned()], ..(*jane()).clone() });
    assert_eq!(reviews.allows(&other, &pods).await, Ok(false), "another user, and a denial wins");
    tokio::time::advance(settings.allowed_lasts).await;
    assert_eq!(reviews.allows(&jane(), &pods).await, Ok(false), "no permission outlives its time");
}

/// What is logged, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// CLU-38, CLU-42: clients that retry do not fill the log, whatever the API server answers.
#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_when_it_begins_and_when_it_ends() {
    let log = Log::default();
    let of_writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || of_writer.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let server = Server::new(json!({}));
    server.says(StatusCode::INTERNAL_SERVER_ERROR, r#"{"kind":"Status","message":"etcd at 192.0.2.9 is away"}"#);
    let reviews = server.reviews(ReviewSettings::default());
    for request in 0..50 {
        reviews.user(&format!("invented-{request}")).await.expect_err("away");
        reviews.allows(&jane(), &demand(http::Method::GET, "/metrics")).await.expect_err("away");
    }
    server.says(StatusCode::CREATED, &access(true).to_string());
    assert_eq!(reviews.allows(&jane(), &demand(http::Method::GET, "/metrics")).await, Ok(true));
    let text = String::from_utf8(log.0.lock().expect("not poisoned").clone()).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("WARN") && lines[0].contains("etcd at 192.0.2.9 is away"), "{text}");
    assert!(lines[1].contains("the API server reviews requests again") && lines[1].contains("refused=100"), "{text}");
}

/// CLU-42: strangers with invented tokens wait for each other, and not known users for them.
#[tokio::test(start_paused = true)]
async fn strangers_take_no_turn_of_known_users() {
    let server = Server::new(access(true));
    let reviews = Arc::new(server.reviews(ReviewSettings::default()));
    server.silent.store(true, Ordering::Relaxed);
    let strangers: Vec<_> = (0..64)
        .map(|stranger| {
            let reviews = Arc::clone(&reviews);
            tokio::spawn(async move { reviews.user(&format!("invented-{stranger}")).await })
        })
        .collect();
    while server.asked() < REVIEWS {
        tokio::task::yield_now().await;
    }
    server.silent.store(false, Ordering::Relaxed);
    let (jane, metrics) = (jane(), demand(http::Method::GET, "/metrics"));
    let allowed = timeout(Duration::from_millis(1), reviews.allows(&jane, &metrics));
    assert_eq!(allowed.await.expect("it waits for strangers"), Ok(true));
    drop(strangers);
}
