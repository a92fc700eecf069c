use super::*;

fn key(uid: &str) -> TokenKey {
    TokenKey {
        uid: uid.to_owned(),
        namespace: "shop".to_owned(),
        pod: "web".to_owned(),
        account: "default".to_owned(),
        source: TokenSource { audience: String::new(), seconds: 3600 },
    }
}

fn token(requested_ms: i64, seconds: i64) -> Token {
    Token {
        account: "default".to_owned(),
        audience: String::new(),
        asked: 3600,
        text: "t".to_owned(),
        requested_ms,
        seconds,
    }
}

fn tokens(keys: &[TokenKey]) -> Tokens {
    let mut tokens = Tokens::default();
    tokens.refer(keys.iter().cloned().collect(), true, |_| None);
    tokens
}

/// CLU-30: at 80 % of its life, or after a day.
#[test]
fn a_token_is_requested_again_when_most_of_its_life_is_over() {
    for (seconds, after_s) in [(3600, 2880), (600, 480), (86_400, 69_120), (31_536_000, 86_400)] {
        let mut tokens = tokens(&[key("a")]);
        assert_eq!(tokens.next(5_000), Next::Request(key("a")));
        tokens.requested(&key("a"));
        assert_eq!(tokens.next(5_000), Next::Idle, "it is under way");
        assert!(!tokens.received(&key("a"), token(5_000, seconds)), "there was none before");
        let due = 5_000 + after_s * 1000;
        assert_eq!(tokens.next(5_000), Next::Wait(due), "{seconds} s");
        assert_eq!(tokens.next(due), Next::Request(key("a")));
        tokens.requested(&key("a"));
        assert!(tokens.received(&key("a"), token(due, seconds)), "it replaces the one before");
    }
}

/// CLU-30: no new request while the one that an earlier agent has received is good.
#[test]
fn a_token_of_an_earlier_agent_is_used() {
    let mut tokens = Tokens::default();
    tokens.refer(BTreeSet::from([key("a")]), true, |_| Some(token(1_000, 3600)));
    assert_eq!(tokens.next(2_000_000), Next::Wait(2_881_000));
    assert!(matches!(tokens.get(&key("a"), 2_000_000), Some(Ok(found)) if found.requested_ms == 1_000));
    assert!(!token(1_000, 3600).is_good(999), "it is from another boot");
    assert!(token(1_000, 3600).is_good(3_600_999) && !token(1_000, 3600).is_good(3_601_000));
    for (other, same) in [
        (key("b"), true),
        (TokenKey { account: "robot".to_owned(), ..key("a") }, false),
        (TokenKey { source: TokenSource { audience: "vault".to_owned(), seconds: 3600 }, ..key("a") }, false),
        (TokenKey { source: TokenSource { audience: String::new(), seconds: 600 }, ..key("a") }, false),
    ] {
        assert_eq!(token(0, 3600).is_for(&other), same, "{other:?}");
    }
}

/// CLU-30: an API server that fails is asked again after a pause that grows; the old token is used until it expires, then the pod hears why.
#[test]
fn a_request_that_fails_is_repeated_and_the_old_token_is_used_meanwhile() {
    let mut tokens = tokens(&[key("a")]);
    let mut now = 0;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert_eq!(tokens.next(now), Next::Request(key("a")));
        tokens.requested(&key("a"));
        tokens.failed(&key("a"), "403".to_owned(), now, None);
        let Next::Wait(until) = tokens.next(now) else { panic!("no pause") };
        pauses.push(until - now);
        now = until;
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    assert!(matches!(tokens.get(&key("a"), now), Some(Err("403"))));
    tokens.received(&key("a"), token(now, 3600));
    let due = now + 2_880_000;
    tokens.failed(&key("a"), "429".to_owned(), due, Some(Duration::from_secs(60)));
    assert_eq!(tokens.next(due), Next::Wait(due + 60_000), "the API server says when");
    assert!(tokens.get(&key("a"), due).is_some_and(|found| found.is_ok()));
    assert!(matches!(tokens.get(&key("a"), now + 3_600_000), Some(Err("429"))), "it has expired");
}

#[test]
fn few_requests_are_made_at_once_and_missing_tokens_come_first() {
    let all: Vec<_> = (0..9).map(|number| key(&number.to_string())).collect();
    let mut tokens = tokens(&all);
    tokens.received(&key("0"), token(-4_000_000, 3600));
    let mut begun = Vec::new();
    while let Next::Request(next) = tokens.next(0) {
        tokens.requested(&next);
        begun.push(next.uid);
    }
    assert_eq!(begun, ["1", "2", "3", "4", "5"]);
    tokens.received(&key("1"), token(0, 3600));
    assert_eq!(tokens.next(0), Next::Request(key("6")));
}

#[test]
fn tokens_go_with_their_pods() {
    let mut tokens = tokens(&[key("a"), key("b")]);
    tokens.received(&key("a"), token(0, 3600));
    assert_eq!(tokens.refer(BTreeSet::from([key("b")]), false, |_| None), (false, false), "the list is not complete");
    assert_eq!((tokens.pods().contains("a"), tokens.of_pod("a").len()), (true, 1));
    assert_eq!(tokens.refer(BTreeSet::from([key("b")]), true, |_| None), (false, true));
    assert!(!tokens.pods().contains("a") && !tokens.has(&key("a")));
    assert!(!tokens.received(&key("a"), token(0, 3600)), "the answer came too late");
    assert!(tokens.of_pod("a").is_empty());
}

/// Changes the claims of a token, and the answer that it is in.
type Change = dyn Fn(&mut Value, &mut Value);

/// A change, and what comes of the answer: how long the token lasts and when it was requested.
type Case<'a> = (&'a Change, Result<(i64, i64), &'a str>);

/// CLU-30: bound to name and UID of the pod; an answer about another pod, account or audience, or that lasts longer, is refused.
#[test]
fn an_answer_is_refused_unless_it_is_what_was_asked_for() {
    let vault = TokenKey { source: TokenSource { audience: "vault".to_owned(), seconds: 3607 }, ..key("a") };
    let request = vault.request();
    assert_eq!(
        request["spec"]["boundObjectRef"],
        json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "a"})
    );
    assert_eq!(
        (&request["spec"]["audiences"], &request["spec"]["expirationSeconds"]),
        (&json!(["vault"]), &json!(3607))
    );
    assert_eq!(key("a").request()["spec"]["audiences"], json!([]));
    assert_eq!(vault.path(), "/api/v1/namespaces/shop/serviceaccounts/default/token");

    let good = json!({
        "aud": ["vault"], "iat": 1000, "exp": 4607,
        "kubernetes.io": {"namespace": "shop", "pod": {"name": "web", "uid": "a"}, "serviceaccount": {"name": "default"}},
    });
    let answer = |change: &Change| {
        let (mut claims, mut answer) = (good.clone(), request.clone());
        answer["status"] = json!({});
        change(&mut claims, &mut answer);
        if answer["status"]["token"].is_null() {
            answer["status"]["token"] = format!("e30.{}.sig", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string())).into();
        }
        vault.token(&answer, 7).map(|token| (token.seconds, token.requested_ms)).map_err(|error| error.to_string())
    };
    let cases: &[Case<'_>] = &[
        (&|_, _| (), Ok((3607, 7))),
        (&|_, answer| answer["spec"]["expirationSeconds"] = json!(600), Ok((600, 7))),
        (&|_, answer| answer["status"]["token"] = json!("opaque"), Ok((3607, 7))),
        // The API server's own extension, for programs that read their token once.
        (
            &|claims, _| {
                claims["exp"] = json!(31_537_000);
                claims["kubernetes.io"]["warnafter"] = json!(4607);
            },
            Ok((3607, 7)),
        ),
        (&|claims, _| claims["exp"] = json!(4608), Err("it answered with a token for 3608 s; 3607 s were asked for")),
        (
            &|_, answer| answer["spec"]["expirationSeconds"] = json!(3608),
            Err("it answered with a token for 3608 s; 3607 s were asked for"),
        ),
        (&|_, answer| answer["spec"]["expirationSeconds"] = Value::Null, Err("it answered with no token")),
        (&|_, answer| answer["status"]["token"] = json!(""), Err("it answered with no token")),
        (&|_, answer| answer["status"]["token"] = json!("two\nlines"), Err("it answered with no token")),
        (
            &|_, answer| answer["spec"]["boundObjectRef"]["uid"] = json!("b"),
            Err("it answered with a token for \"web\" with UID \"b\""),
        ),
        (
            &|claims, _| claims["kubernetes.io"]["pod"]["uid"] = json!("b"),
            Err("it answered with a token for \"web\" with UID \"b\""),
        ),
        (
            &|_, answer| answer["spec"]["boundObjectRef"] = Value::Null,
            Err("it answered with a token for null with UID null"),
        ),
        (
            &|_, answer| answer["spec"]["audiences"] = json!(["vault", "more"]),
            Err("it answered with a token for the audiences [vault, more]"),
        ),
        (&|claims, _| claims["aud"] = json!("api"), Err("it answered with a token for the audiences [api]")),
        (
            &|claims, _| claims["kubernetes.io"]["serviceaccount"]["name"] = json!("admin"),
            Err("it answered with a token of service account shop/admin"),
        ),
    ];
    for (at, (change, expected)) in cases.iter().enumerate() {
        assert_eq!(answer(change), expected.map_err(str::to_owned), "case {at}");
    }
}
