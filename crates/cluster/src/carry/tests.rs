//! The watches on a simulated API server, with the node authorizer.

use std::time::Duration;

use keelet_api::Api;
use keelet_launch::Data;
use keelet_lifecycle::{Moment, Wall};
use keelet_pod::Features;
use keelet_sim_api::{Fate, Identity, Partition, SimApi, Verb};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::*;

/// A node in a simulated cluster, whose agents come and go.
struct Bed {
    sim: SimApi,
    directory: tempfile::TempDir,
    clock: Arc<dyn Clock>,
    carried: Carried,
}

/// Time since boot, as tokio has it.
#[derive(Debug)]
struct TestClock(Instant);

// === impl TestClock ===

impl Clock for TestClock {
    fn now(&self) -> Moment {
        let boot_ms = i64::try_from(self.0.elapsed().as_millis()).expect("not so long") + 60_000;
        let boot_id = "6f5c0a9e-3c36-4f4b-9d1c-2f1f2a3b4c5d".parse().expect("a boot ID");
        Moment { boot_ms, wall: Wall::from_millis(boot_ms), boot_id }
    }
}

// === impl Bed ===

impl Bed {
    fn new() -> Self {
        let sim = SimApi::new(1);
        let directory = tempfile::tempdir().expect("a directory");
        let clock: Arc<dyn Clock> = Arc::new(TestClock(Instant::now()));
        let carried = Carried::with(Memory::without_mount(directory.path().to_owned()), Arc::clone(&clock));
        sim.act("POST", "/api/v1/nodes", &json!({"metadata": {"name": "n1"}}));
        Self { sim, directory, clock, carried }
    }

    /// The next agent of the same node.
    fn restart(&mut self) {
        self.carried = Carried::with(Memory::without_mount(self.directory.path().to_owned()), Arc::clone(&self.clock));
    }

    fn api(&self) -> Api {
        Api::new(kube::Client::new(self.sim.connect("agent", Identity::node("n1")), "default"))
    }

    /// Runs the watches until something is done.
    async fn run<T>(&self, until: impl Future<Output = T>) -> T {
        let api = self.api();
        tokio::select! {
            biased;
            () = self.carried.run(&api) => unreachable!("it runs for ever"),
            done = until => done,
        }
    }

    fn create(&self, resource: &str, object: Value) -> Value {
        let (code, created) = self.sim.act("POST", &format!("/api/v1/namespaces/default/{resource}"), &object);
        assert_eq!(code, 201, "{created}");
        created
    }

    fn change(&self, path: &str, patch: Value) {
        let (code, answer) = self.sim.act("PATCH", &format!("/api/v1/namespaces/default/{path}"), &patch);
        assert_eq!(code, 200, "{answer}");
    }

    /// A pod of this node that gets its variables from a secret, and has a config map that may be absent.
    fn pod(&self, name: &str, node: &str) -> Arc<Pod> {
        let created = self.create(
            "pods",
            json!({
                "metadata": {"name": name},
                "spec": {
                    "nodeName": node, "automountServiceAccountToken": false,
                    "containers": [{"name": "main", "image": "x", "envFrom": [{"secretRef": {"name": "keys"}}]}],
                    "volumes": [{"name": "v", "configMap": {"name": "conf", "optional": true}}],
                },
            }),
        );
        let pod = serde_json::from_value(created).expect("a pod");
        Arc::new(Pod::from_api(pod, &Features::default()).expect("a pod"))
    }

    /// The requests of agents so far that are about a resource, with how they were answered.
    fn requests(&self, resource: &str) -> Vec<(Option<Verb>, Option<u16>)> {
        let log = self.sim.log();
        let of_agents = log.requests().filter(|(client, request)| *client == "agent" && request.resource == resource);
        of_agents.map(|(_, request)| (request.verb, request.code)).collect()
    }

    fn secret(&self, pod: &Pod) -> Result<Option<Data>, String> {
        self.carried.find(pod, ObjectKind::Secret, "keys").map_err(|error| error.to_string())
    }

    fn config_map(&self, pod: &Pod) -> Result<Option<Data>, String> {
        self.carried.find(pod, ObjectKind::ConfigMap, "conf").map_err(|error| error.to_string())
    }
}

fn keys(value: &str) -> Value {
    json!({"metadata": {"name": "keys"}, "stringData": {"k": value}})
}

fn data(value: &str) -> Result<Option<Data>, String> {
    Ok(Some(Data::from([("k".to_owned(), value.as_bytes().to_vec())])))
}

impl Bed {
    /// A pod of this node with nothing but what the API server mounts into it.
    fn plain_pod(&self, name: &str) -> Arc<Pod> {
        let spec = json!({"nodeName": "n1", "containers": [{"name": "main", "image": "x"}]});
        let created = self.create("pods", json!({"metadata": {"name": name}, "spec": spec}));
        let pod = serde_json::from_value(created).expect("a pod");
        Arc::new(Pod::from_api(pod, &Features::default()).expect("a pod"))
    }

    fn token(&self, pod: &Pod) -> Result<String, String> {
        let token = self.carried.token(pod, &TokenSource { audience: String::new(), seconds: 3607 });
        token.map(|token| String::from_utf8(token).expect("text")).map_err(|error| error.to_string())
    }
}

/// CLU-30: one request for a pod, none at an agent restart, the next one at 80 % of the life; the token goes with the pod.
#[tokio::test(start_paused = true)]
async fn a_token_is_requested_once_and_again_when_it_is_due() {
    let mut bed = Bed::new();
    let pod = bed.plain_pod("web");
    let first = bed
        .run(async {
            bed.carried.set_pods([&pod], true);
            bed.carried.settled(&pod).await;
            bed.token(&pod).expect("a token")
        })
        .await;
    let review = json!({"spec": {"token": first}});
    let (_, review) = bed.sim.act("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &review);
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:default:default");
    bed.restart();
    bed.run(async {
        sleep(Duration::from_secs(1000)).await;
        assert_eq!(bed.token(&pod), Ok(first.clone()), "before the API server has been reached");
        bed.carried.set_pods([&pod], true);
        bed.carried.settled(&pod).await;
        assert_eq!(bed.token(&pod), Ok(first.clone()));
        sleep(Duration::from_secs(1880)).await;
        assert_eq!(bed.requests("serviceaccounts/token").len(), 1, "it is still good");
        timeout(Duration::from_secs(10), bed.carried.changed()).await.expect("volumes get the new one");
        assert_eq!(bed.requests("serviceaccounts/token").len(), 2);
        let second = bed.token(&pod).expect("a token");
        assert_ne!(second, first);

        bed.sim.faults("agent", |faults| faults.partition = Partition::Refused);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(bed.token(&pod), Ok(second), "it is good until it expires");
        sleep(Duration::from_secs(10)).await;
        let error = bed.token(&pod).expect_err("expired");
        assert!(error.starts_with("no token of service account default/default: "), "{error}");
        bed.sim.faults("agent", |faults| faults.partition = Partition::Open);
        timeout(Duration::from_secs(60), bed.carried.changed()).await.expect("a new one");
        assert!(bed.token(&pod).is_ok());
        assert_eq!(bed.carried.0.memory.recall_tokens(&pod.uid).len(), 1);
        bed.carried.set_pods([], true);
        assert!(bed.carried.0.memory.recall_tokens(&pod.uid).is_empty(), "the token goes with its pod");
        let asked = bed.requests("serviceaccounts/token").len();
        sleep(Duration::from_secs(7200)).await;
        assert_eq!(bed.requests("serviceaccounts/token").len(), asked, "the pod is gone");
    })
    .await;
}

/// CLU-29: the first start of a pod waits for the list; the next agent knows what was last seen.
#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_list_of_services() {
    let mut bed = Bed::new();
    let pod = bed.plain_pod("web");
    bed.create("services", json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}}));
    bed.sim.faults("agent", |faults| faults.seal(Verb::Watch, "services", Fate::Error(503), 1));
    let host = |bed: &Bed| {
        let variables = bed.carried.services(&pod).map_err(|error| error.to_string())?;
        Ok::<_, String>(variables.into_iter().find(|(name, _)| name == "DB_SERVICE_HOST").map(|(_, value)| value))
    };
    assert_eq!(
        host(&bed),
        Err("services have not been read from the API server yet: it has not been reached yet".to_owned())
    );
    let first = bed
        .run(async {
            sleep(Duration::from_secs(60)).await;
            assert!(bed.requests("services").is_empty(), "without a pod no service is needed");
            bed.carried.set_pods([&pod], true);
            while host(&bed).is_err() {
                bed.carried.settled(&pod).await;
            }
            host(&bed)
        })
        .await;
    assert!(matches!(&first, Ok(Some(_))), "{first:?}");
    bed.restart();
    bed.carried.away("connection refused".to_owned());
    assert_eq!(host(&bed), first);
    bed.restart();
    bed.run(async {
        bed.carried.set_pods([], true);
        assert!(host(&bed).is_err(), "no pod of this namespace is here any more");
    })
    .await;
}

/// CLU-30, CLU-31: what an agent restart with fifty pods costs.
#[tokio::test(start_paused = true)]
async fn an_agent_restart_with_fifty_pods_costs_two_watches_and_no_token() {
    let mut bed = Bed::new();
    let pods: Vec<_> = (0..50).map(|number| bed.plain_pod(&format!("web-{number}"))).collect();
    let all_have_all = async |bed: &Bed| {
        bed.carried.set_pods(&pods, true);
        for pod in &pods {
            while bed.token(pod).is_err() {
                bed.carried.settled(pod).await;
            }
        }
    };
    bed.run(all_have_all(&bed)).await;
    assert_eq!(bed.requests("serviceaccounts/token").len(), 50);
    let before = bed.sim.log().requests().count();
    bed.restart();
    bed.run(async {
        all_have_all(&bed).await;
        sleep(Duration::from_secs(120)).await;
    })
    .await;
    let log = bed.sim.log();
    let mut asked: Vec<_> =
        log.requests().skip(before).map(|(_, request)| (request.verb, &*request.resource)).collect();
    asked.sort();
    assert_eq!(asked, [(Some(Verb::Watch), "configmaps"), (Some(Verb::Watch), "services")]);
}

/// CLU-31: each object is watched by name with one request; a change reaches volumes; without a pod nothing is watched.
#[tokio::test(start_paused = true)]
async fn objects_are_watched_one_by_one_while_a_pod_refers_to_them() {
    let bed = Bed::new();
    bed.create("secrets", keys("1"));
    let (pod, twin) = (bed.pod("web", "n1"), bed.pod("twin", "n1"));
    bed.run(async {
        bed.carried.set_pods([&pod, &twin], true);
        bed.carried.settled(&pod).await;
        assert_eq!((bed.secret(&pod), bed.config_map(&pod)), (data("1"), Ok(None)));
        assert!(timeout(Duration::from_secs(1), bed.carried.changed()).await.is_err(), "nothing has changed");
        bed.change("secrets/keys", json!({"stringData": {"k": "2"}}));
        bed.carried.changed().await;
        assert_eq!(bed.secret(&pod), data("2"));
        bed.create("configmaps", json!({"metadata": {"name": "conf"}, "data": {"k": "3"}}));
        bed.carried.changed().await;
        assert_eq!(bed.config_map(&pod), data("3"));
        let streamed = [(Some(Verb::Watch), Some(200))];
        assert_eq!((bed.requests("secrets"), bed.requests("configmaps")), (streamed.to_vec(), streamed.to_vec()));

        bed.carried.set_pods([&twin], true);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(bed.secret(&twin), data("2"), "another pod refers to it");
        bed.carried.set_pods([], true);
        bed.change("secrets/keys", json!({"stringData": {"k": "4"}}));
        sleep(Duration::from_secs(3600)).await;
        let asked = (bed.requests("secrets").len(), bed.requests("configmaps").len());
        assert_eq!(asked, (1, 1), "no pod refers to them");
        let error = bed.secret(&pod).expect_err("forgotten");
        assert!(error.contains("it has no such pod"), "{error}");
    })
    .await;
}

/// CLU-31: the authorizer refuses an object until it has seen the pod; the pod waits with what the server said, and recovers by itself.
#[tokio::test(start_paused = true)]
async fn a_refused_object_is_asked_for_again_until_it_is_there() {
    let bed = Bed::new();
    bed.create("secrets", keys("1"));
    let pod = bed.pod("web", "");
    bed.run(async {
        bed.carried.set_pods([&pod], true);
        let waits = Instant::now();
        bed.carried.settled(&pod).await;
        assert_eq!(waits.elapsed(), PATIENCE, "it may be allowed any moment");
        let error = bed.secret(&pod).expect_err("not allowed");
        assert!(
            error.starts_with("cannot read secret default/keys from the API server: secrets \"keys\" is forbidden"),
            "{error}"
        );
        assert!(error.ends_with("(403 Forbidden)"), "{error}");
        let optional = bed.config_map(&pod).expect_err("not allowed");
        assert!(
            optional.contains("configmaps \"conf\" is forbidden"),
            "what may be absent is not taken for absent: {optional}"
        );
        let bind = json!({"metadata": {"name": "web"}, "target": {"name": "n1"}});
        bed.create("pods/web/binding", bind);
        timeout(Duration::from_secs(20), async {
            while bed.secret(&pod).is_err() {
                bed.carried.settled(&pod).await;
            }
        })
        .await
        .expect("it recovers");
        assert_eq!(bed.secret(&pod), data("1"));
    })
    .await;
}

/// CLU-19, CLU-31: an agent that starts without the API server has what was last seen, absence included; later it sees what changed.
#[tokio::test(start_paused = true)]
async fn what_was_last_seen_is_there_after_an_agent_restart_without_the_api_server() {
    let mut bed = Bed::new();
    bed.create("secrets", keys("1"));
    let pod = bed.pod("web", "n1");
    bed.run(async {
        bed.carried.set_pods([&pod], true);
        bed.carried.settled(&pod).await;
    })
    .await;
    bed.sim.faults("agent", |faults| faults.partition = Partition::Refused);
    bed.restart();
    let stranger = bed.pod("stranger", "n1");
    bed.run(async {
        bed.carried.away("connection refused".to_owned());
        timeout(Duration::from_millis(1), bed.carried.settled(&pod)).await.expect("there is nothing to wait for");
        assert_eq!((bed.secret(&pod), bed.config_map(&pod)), (data("1"), Ok(None)));
        let error = bed.carried.find(&stranger, ObjectKind::Secret, "other").expect_err("never seen").to_string();
        assert_eq!(error, "cannot read secret default/other from the API server: connection refused");
    })
    .await;
    bed.change("secrets/keys", json!({"stringData": {"k": "2"}}));
    bed.sim.faults("agent", |faults| faults.partition = Partition::Open);
    bed.run(async {
        bed.carried.set_pods([&pod], true);
        bed.carried.changed().await;
        assert_eq!(bed.secret(&pod), data("2"));
    })
    .await;
    bed.restart();
    bed.run(async {
        bed.carried.set_pods([&pod], true);
        bed.carried.settled(&pod).await;
        assert!(
            timeout(Duration::from_secs(1), bed.carried.changed()).await.is_err(),
            "an agent restart changes no volume"
        );
        bed.carried.set_pods([], true);
        sleep(Duration::from_secs(1)).await;
    })
    .await;
    bed.restart();
    assert!(bed.secret(&pod).is_err(), "what no pod refers to is forgotten");
}

/// CLU-31: one request, and none again.
#[tokio::test(start_paused = true)]
async fn an_immutable_object_is_read_once() {
    let bed = Bed::new();
    bed.create("secrets", json!({"metadata": {"name": "keys"}, "stringData": {"k": "1"}, "immutable": true}));
    let pod = bed.pod("web", "n1");
    bed.run(async {
        bed.carried.set_pods([&pod], true);
        bed.carried.settled(&pod).await;
        sleep(Duration::from_secs(7200)).await;
        assert_eq!(bed.secret(&pod), data("1"));
        assert_eq!(bed.requests("secrets").len(), 1);
    })
    .await;
}

/// CLU-31, CLU-50: an API server that is away for an hour, and faults of all kinds, take nothing away and end by themselves.
#[tokio::test(start_paused = true)]
async fn what_is_known_stays_known_through_an_outage() {
    let bed = Bed::new();
    bed.create("secrets", keys("1"));
    let pod = bed.pod("web", "n1");
    bed.run(async {
        bed.sim.faults("agent", |faults| {
            faults.seal(Verb::Watch, "secrets", Fate::Page(502), 1);
            faults.seal(Verb::Watch, "secrets", Fate::TooManyRequests(1), 1);
        });
        bed.carried.set_pods([&pod], true);
        while bed.secret(&pod).is_err() {
            bed.carried.settled(&pod).await;
        }
        for partition in [Partition::Refused, Partition::Silent] {
            bed.sim.faults("agent", |faults| faults.partition = partition);
            sleep(Duration::from_secs(3600)).await;
            assert!(bed.secret(&pod).is_ok());
            let value = format!("{partition:?}");
            bed.change("secrets/keys", json!({"stringData": {"k": value}}));
            bed.sim.faults("agent", |faults| faults.partition = Partition::Open);
            timeout(Duration::from_secs(120), bed.carried.changed()).await.expect("it is seen");
            assert_eq!(bed.secret(&pod), data(&value));
        }
    })
    .await;
}

/// CLU-31: the thread that plans pods asks whether waiting would tell more. The answer is in memory: no file is read for it.
#[tokio::test(start_paused = true)]
async fn whether_all_is_known_is_told_without_a_file() {
    let mut bed = Bed::new();
    bed.create("secrets", keys("1"));
    let pod = bed.pod("web", "n1");
    bed.run(async {
        bed.carried.set_pods([&pod], true);
        bed.carried.settled(&pod).await;
    })
    .await;
    bed.restart();
    bed.sim.faults("agent", |faults| faults.partition = Partition::Refused);
    bed.run(async {
        bed.carried.set_pods([&pod], true);
        sleep(Duration::from_secs(10)).await;
        std::fs::remove_dir_all(bed.directory.path()).expect("removed");
        let waits = Instant::now();
        bed.carried.settled(&pod).await;
        assert_eq!(waits.elapsed(), Duration::ZERO, "it looked for a file, and waited when it found none");
    })
    .await;
}

/// CLU-31: a file that takes its time holds up neither the thread that plans pods nor a pod that reads what it refers to.
#[tokio::test]
async fn no_file_is_read_while_the_state_is_locked() {
    let bed = Bed::new();
    let pod = bed.plain_pod("web");
    let tokens = bed.directory.path().join("tokens");
    std::fs::create_dir_all(&tokens).expect("a directory");
    let fifo = tokens.join(&pod.uid);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    let carried = bed.carried.clone();
    let reader = std::thread::spawn(move || carried.set_pods([&pod], true));
    // It opens once it has a reader, which reads until it is closed.
    let open = || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty())
    };
    let writer = loop {
        match open() {
            Ok(writer) => break writer,
            Err(_) => std::thread::yield_now(),
        }
    };
    let locked = bed.carried.0.state.try_lock().is_err();
    drop(writer);
    reader.join().expect("no panic");
    assert!(!locked, "the file is read with the state locked");
}
