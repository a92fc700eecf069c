//! Pulling from valid and from faulty registries.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use keelet_image::{Auth, Error, Image, Progress, PullOptions, RegistryProblem, Store};

use crate::build::*;
use crate::registry::{Door, ENDLESS, Fault, Registry};

fn run(test: impl Future<Output = ()>) {
    if !is_root() {
        return;
    }
    // Another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// Content that does not compress to nothing.
fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

fn sample(layers: u32) -> Sample {
    Sample::new(
        (0..layers).map(|n| tar(vec![Raw::new(b'0', &format!("f{n}")).content(&noise(n + 1, 100_000))])).collect(),
    )
}

fn options(registry: &Registry) -> PullOptions {
    let mut options = PullOptions::default();
    options.plain_http.insert(registry.host.clone());
    options.read_timeout = Duration::from_secs(5);
    options
}

async fn pull(store: &Store, registry: &Registry, auth: Option<Auth>) -> Result<Image, Error> {
    store.pull(&format!("{}/team/app:v1", registry.host), auth, &options(registry), |_| {}).await
}

fn tmp_is_empty(root: &Path) -> bool {
    fs::read_dir(root.join("tmp")).unwrap().next().is_none()
}

#[test]
fn an_image_is_pulled_three_layers_at_a_time_and_never_again() {
    run(async {
        let registry = Registry::start().await;
        let sample = sample(6);
        registry.put("team/app", "v1", &sample);
        registry.with(|state| (state.slow, state.together) = (Duration::from_millis(20), 3));
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let told = Mutex::new(Vec::new());
        let reference = format!("{}/team/app:v1", registry.host);
        let image = store
            .pull(&reference, None, &options(&registry), |progress| told.lock().unwrap().push(progress))
            .await
            .unwrap();
        assert_eq!((image.id.as_str(), image.tags.as_slice()), (sample.id().as_str(), &[reference.clone()][..]));
        let digest = sha256(&sample.manifest_json());
        assert_eq!(image.digests, [format!("{}/team/app@{digest}", registry.host)]);
        assert_eq!(fs::read(top_layer(place.path(), &image).join("f5")).unwrap(), noise(6, 100_000));
        let told = told.into_inner().unwrap();
        let bytes = sample.blobs().iter().map(|blob| blob.len() as u64).sum();
        assert_eq!(told[0], Progress::Resolved { digest: digest.clone(), layers: 6, bytes });
        assert_eq!(told.iter().filter(|step| matches!(step, Progress::Unpacked { .. })).count(), 6);
        assert_eq!(
            told.iter().filter(|step| matches!(step, Progress::Fetched { done, total, .. } if done == total)).count(),
            6
        );
        assert_eq!(registry.with(|state| state.at_once.1), 3, "layers at once");
        assert_eq!(registry.blob_requests(), 7);
        assert!(tmp_is_empty(place.path()));

        pull(&store, &registry, None).await.unwrap();
        assert_eq!(registry.blob_requests(), 7, "nothing is fetched again");
        let pinned = format!("{}/team/app@{digest}", registry.host);
        assert_eq!(store.pull(&pinned, None, &options(&registry), |_| {}).await.unwrap().id, image.id);
        assert_eq!(registry.blob_requests(), 7, "nor for its digest");

        // Another image on the same layers fetches what it has of its own.
        let mut grown = sample.clone();
        grown.layers.push(tar(vec![Raw::file("own", "own")]));
        registry.put("team/app", "v1", &grown);
        let newer = pull(&store, &registry, None).await.unwrap();
        assert_eq!(registry.blob_requests(), 9, "its configuration and one layer");
        assert_eq!(newer.id, grown.id());
        assert!(store.find(&image.id).unwrap().unwrap().tags.is_empty(), "the tag moved");
    });
}

/// IMG-5: another caller pulled the image on the node; the registry decides who else may use it.
#[test]
fn the_registry_is_asked_for_a_present_image_even_by_its_digest() {
    run(async {
        let registry = Registry::start().await;
        let sample = sample(1);
        registry.put("team/app", "v1", &sample);
        registry.with(|state| state.door = Some(Door::Basic));
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let auth = || Some(Auth::Basic { username: "NAME".into(), password: "PASSWORD".into() });
        pull(&store, &registry, auth()).await.unwrap();
        let digest = sha256(&sample.manifest_json());
        for reference in [format!("{}/team/app:v1", registry.host), format!("{}/team/app@{digest}", registry.host)] {
            let taken = store.pull(&reference, None, &options(&registry), |_| {}).await;
            let error = taken.expect_err(&format!("{reference} was given to a caller without credentials"));
            assert!(matches!(&error, Error::Registry { problem: RegistryProblem::Unauthorised, .. }), "{error}");
            store.pull(&reference, auth(), &options(&registry), |_| {}).await.unwrap();
        }
    });
}

/// Callers run pulls on any thread.
#[test]
fn a_pull_may_move_between_threads() {
    fn takes_send(_: impl Future<Output = Result<Image, Error>> + Send) {}
    let place = tempfile::tempdir().unwrap();
    takes_send(store(place.path()).pull("app", None, &PullOptions::default(), |_| {}));
}

#[test]
fn a_registry_may_require_authentication() {
    run(async {
        for door in [Door::Basic, Door::Bearer] {
            let registry = Registry::start().await;
            registry.put("team/app", "v1", &sample(1));
            registry.with(|state| state.door = Some(door));
            let place = tempfile::tempdir().unwrap();
            let store = store(place.path());
            let good = Auth::Basic { username: "NAME".into(), password: "PASSWORD".into() };
            let bad = Auth::Basic { username: "NAME".into(), password: "wrong".into() };
            for auth in [None, Some(bad)] {
                let error = pull(&store, &registry, auth).await.unwrap_err();
                assert!(matches!(&error, Error::Registry { problem: RegistryProblem::Unauthorised, .. }), "{error}");
                let text = error.to_string();
                assert!(
                    text.contains(&registry.host) && text.contains("team/app:v1") && text.contains("unauthorised"),
                    "{text}"
                );
                assert!(!text.contains("wrong"), "{text}");
            }
            pull(&store, &registry, Some(good)).await.unwrap();

            let config = place.path().join("config.json");
            let content = serde_json::json!({"auths": {registry.host.as_str(): {"auth": "TkFNRTpQQVNTV09SRA=="}}});
            fs::write(&config, content.to_string()).unwrap();
            store.remove(&format!("{}/team/app:v1", registry.host)).unwrap();
            let mut options = options(&registry);
            options.docker_config = Some(config);
            store.pull(&format!("{}/team/app:v1", registry.host), None, &options, |_| {}).await.unwrap();
        }
    });
}

#[test]
fn failures_say_where_what_and_why_and_leave_nothing() {
    run(async {
        let sample = sample(3);
        let blob = sha256(&sample.blobs()[2]);
        let config = sample.id();
        for (case, digest, fault, problem, part) in [
            ("wrong layer", &blob, Fault::Wrong, RegistryProblem::BadAnswer, "the content has the digest"),
            ("wrong configuration", &config, Fault::Wrong, RegistryProblem::BadAnswer, "the content has the digest"),
            ("broken layer", &blob, Fault::Broken, RegistryProblem::Unreachable, "connection lost after"),
            ("short layer", &blob, Fault::Short, RegistryProblem::BadAnswer, "bytes"),
            ("long layer", &blob, Fault::Long, RegistryProblem::BadAnswer, "larger than its"),
            ("missing layer", &blob, Fault::Missing, RegistryProblem::NotFound, "no such blob"),
            ("missing configuration", &config, Fault::Missing, RegistryProblem::NotFound, "no such blob"),
        ] {
            let registry = Registry::start().await;
            registry.put("team/app", "v1", &sample);
            registry.with(|state| state.faults.insert(digest.clone(), fault));
            let place = tempfile::tempdir().unwrap();
            let store = store(place.path());
            let before = listing(place.path());
            let error = pull(&store, &registry, None).await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(&error, Error::Registry { problem: found, .. } if *found == problem), "{case}: {text}");
            assert!(
                text.contains(part) && text.contains(&registry.host) && text.contains("team/app:v1"),
                "{case}: {text}"
            );
            assert_eq!(listing(place.path()), before, "{case}");
        }
    });
}

/// No response is kept beyond its size limit.
#[test]
fn an_endless_response_is_cut_off() {
    run(async {
        for (part, status, problem) in [
            ("/manifests/", 200, RegistryProblem::BadAnswer),
            ("/manifests/", 404, RegistryProblem::NotFound),
            ("/manifests/", 503, RegistryProblem::Unreachable),
            ("/token", 200, RegistryProblem::BadAnswer),
            ("/token", 401, RegistryProblem::Unauthorised),
            ("/blobs/", 200, RegistryProblem::BadAnswer),
            ("/blobs/", 404, RegistryProblem::NotFound),
        ] {
            let registry = Registry::start().await;
            registry.put("team/app", "v1", &sample(1));
            registry.with(|state| {
                state.endless = Some((part, status));
                state.door = (part == "/token").then_some(Door::Bearer);
            });
            let place = tempfile::tempdir().unwrap();
            let error = pull(&store(place.path()), &registry, None).await.unwrap_err();
            assert!(
                matches!(&error, Error::Registry { problem: found, .. } if *found == problem),
                "{part} {status}: {error}"
            );
            assert!(error.to_string().len() < 2048, "{part} {status}: {} bytes of error", error.to_string().len());
            let taken = registry.with(|state| state.taken);
            assert!((1..ENDLESS / 4).contains(&taken), "{part} {status}: {taken} bytes were taken");
        }
    });
}

/// A token expires after minutes, a pull may take hours.
#[test]
fn an_expired_token_is_renewed() {
    run(async {
        let registry = Registry::start().await;
        registry.put("team/app", "v1", &sample(2));
        registry.with(|state| (state.door, state.uses) = (Some(Door::Bearer), Some(2)));
        let place = tempfile::tempdir().unwrap();
        let auth = Auth::Basic { username: "NAME".into(), password: "PASSWORD".into() };
        pull(&store(place.path()), &registry, Some(auth)).await.unwrap();
        assert!(registry.with(|state| state.log.iter().filter(|path| *path == "/token").count()) > 1);
    });
}

/// CVE-2020-15157: a host to which a registry redirects gets no credentials, however it asks.
#[test]
fn a_password_is_sent_to_the_registry_only() {
    run(async {
        for door in [Door::Basic, Door::Bearer] {
            let (registry, other) = (Registry::start().await, Registry::start().await);
            registry.put("team/app", "v1", &sample(1));
            registry.with(|state| (state.door, state.elsewhere) = (Some(Door::Bearer), Some(other.host.clone())));
            other.with(|state| state.door = Some(door));
            let place = tempfile::tempdir().unwrap();
            let auth = Auth::Basic { username: "NAME".into(), password: "PASSWORD".into() };
            pull(&store(place.path()), &registry, Some(auth)).await.unwrap_err();
            assert!(other.with(|state| !state.log.is_empty()), "it was asked");
            assert_eq!(other.with(|state| state.told.clone()), Vec::<String>::new());
        }
    });
}

#[test]
fn a_lost_connection_is_resumed() {
    run(async {
        let registry = Registry::start().await;
        let sample = sample(2);
        registry.put("team/app", "v1", &sample);
        registry.with(|state| state.faults.insert(sha256(&sample.blobs()[1]), Fault::BrokenOnce));
        let place = tempfile::tempdir().unwrap();
        let image = pull(&store(place.path()), &registry, None).await.unwrap();
        assert_eq!(fs::read(top_layer(place.path(), &image).join("f1")).unwrap(), noise(2, 100_000));
        assert_eq!(registry.blob_requests(), 4);
    });
}

#[test]
fn a_missing_image_and_an_unreachable_registry_are_different_errors() {
    run(async {
        let registry = Registry::start().await;
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let problem = |error: Error| match error {
            Error::Registry { problem, .. } => problem,
            other => panic!("{other}"),
        };
        assert_eq!(problem(pull(&store, &registry, None).await.unwrap_err()), RegistryProblem::NotFound);
        for (status, expected) in [
            (429, RegistryProblem::TooManyRequests),
            (403, RegistryProblem::Unauthorised),
            (500, RegistryProblem::BadAnswer),
            (503, RegistryProblem::Unreachable),
        ] {
            registry.with(|state| state.status = Some(status));
            assert_eq!(problem(pull(&store, &registry, None).await.unwrap_err()), expected, "{status}");
        }
        let closed = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().to_string()
        };
        let mut options = PullOptions::default();
        options.plain_http.insert(closed.clone());
        let error = store.pull(&format!("{closed}/app"), None, &options, |_| {}).await.unwrap_err();
        assert!(error.to_string().contains(&closed), "{error}");
        assert_eq!(problem(error), RegistryProblem::Unreachable);
        // Plain HTTP is used only if the options allow it.
        registry.with(|state| state.status = None);
        let error = store
            .pull(&format!("{}/team/app:v1", registry.host), None, &PullOptions::default(), |_| {})
            .await
            .unwrap_err();
        assert_eq!(problem(error), RegistryProblem::Unreachable);
    });
}

#[test]
fn mirrors_are_tried_first_and_the_registry_when_they_fail() {
    run(async {
        let (mirror, registry) = (Registry::start().await, Registry::start().await);
        let sample = sample(1);
        mirror.put("team/app", "v1", &sample);
        registry.put("team/app", "v1", &sample);
        let mut options = options(&registry);
        options.plain_http.insert(mirror.host.clone());
        options.mirrors.insert(registry.host.clone(), vec![mirror.host.clone()]);
        let reference = format!("{}/team/app:v1", registry.host);
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let secret = Auth::Basic { username: "NAME".into(), password: "PASSWORD".into() };
        mirror.with(|state| state.door = Some(Door::Basic));
        store.pull(&reference, Some(secret.clone()), &options, |_| {}).await.unwrap();
        assert_eq!(mirror.blob_requests(), 0, "a mirror does not get the registry's credentials");
        assert_eq!(registry.blob_requests(), 2);

        store.remove(&reference).unwrap();
        mirror.with(|state| state.door = None);
        let image = store.pull(&reference, None, &options, |_| {}).await.unwrap();
        assert_eq!((mirror.blob_requests(), registry.blob_requests()), (2, 2));
        assert_eq!(image.tags[0], reference, "the image has its own name");

        store.remove(&reference).unwrap();
        mirror.with(|state| state.status = Some(503));
        registry.with(|state| state.manifests.clear());
        let error = store.pull(&reference, None, &options, |_| {}).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("registry {}", registry.host)) && error.contains(&mirror.host), "{error}");
    });
}

#[test]
fn a_mirror_of_every_registry_comes_after_those_of_one() {
    run(async {
        let (every, own) = (Registry::start().await, Registry::start().await);
        let sample = sample(1);
        every.put("team/app", "v1", &sample);
        let mut options = options(&every);
        options.plain_http.insert(own.host.clone());
        options.mirrors.insert("registry.test".to_owned(), vec![own.host.clone()]);
        options.mirrors.insert("*".to_owned(), vec![every.host.clone()]);
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let image = store.pull("registry.test/team/app:v1", None, &options, |_| {}).await.unwrap();
        assert_eq!(image.tags, ["registry.test/team/app:v1"]);
        own.put("team/app", "v2", &sample);
        store
            .pull("registry.test/team/app:v2", None, &options, |_| {})
            .await
            .expect("the mirror of this registry has it");
    });
}

#[test]
fn the_image_for_this_machine_is_pulled_from_an_index() {
    run(async {
        let registry = Registry::start().await;
        let sample = sample(1);
        registry.put("team/app", "other", &sample);
        let platform = keelet_image::Platform::of_this_machine();
        let index = serde_json::to_vec(&serde_json::json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [
            {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": format!("sha256:{}", "0".repeat(64)), "size": 1, "platform": {"os": "linux", "architecture": "s390x"}},
            {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": sha256(&sample.manifest_json()), "size": 1, "platform": {"os": "linux", "architecture": platform.architecture}},
        ]})).unwrap();
        registry.with(|state| state.manifests.insert("team/app:v1".into(), index.clone()));
        let place = tempfile::tempdir().unwrap();
        let image = pull(&store(place.path()), &registry, None).await.unwrap();
        assert_eq!(image.id, sample.id());
        assert_eq!(image.digests, [format!("{}/team/app@{}", registry.host, sha256(&index))]);
    });
}

#[test]
fn an_abandoned_pull_leaves_nothing_and_can_be_repeated() {
    run(async {
        let registry = Registry::start().await;
        let sample = sample(4);
        registry.put("team/app", "v1", &sample);
        registry.with(|state| state.faults.insert(sha256(&sample.blobs()[3]), Fault::Stuck));
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let before = listing(place.path());
        let (seen, mut unpacked) = tokio::sync::mpsc::channel(16);
        let reference = format!("{}/team/app:v1", registry.host);
        let given_options = options(&registry);
        let pulling = store.pull(&reference, None, &given_options, move |progress| {
            if matches!(progress, Progress::Unpacked { .. }) {
                let _ = seen.try_send(());
            }
        });
        tokio::select! {
            result = pulling => panic!("ended: {:?}", result.map(|image| image.id)),
            () = async { for _ in 0..3 { unpacked.recv().await; } } => {}
        }
        // The unpacked layers are removed in the background.
        for _ in 0..6000 {
            if tmp_is_empty(place.path()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(listing(place.path()), before, "dropped");
        registry.with(|state| state.faults.clear());
        pull(&store, &registry, None).await.unwrap();
        assert_eq!(store.list().unwrap().len(), 1);
    });
}

/// IMG-3
#[test]
fn a_pull_without_progress_fails() {
    run(async {
        let registry = Registry::start().await;
        let sample = sample(1);
        registry.put("team/app", "v1", &sample);
        registry.with(|state| state.faults.insert(sha256(&sample.blobs()[0]), Fault::Stuck));
        let place = tempfile::tempdir().unwrap();
        let mut options = options(&registry);
        options.progress_timeout = Duration::from_secs(2);
        let error = store(place.path())
            .pull(&format!("{}/team/app:v1", registry.host), None, &options, |_| {})
            .await
            .unwrap_err();
        assert!(matches!(&error, Error::Registry { problem: RegistryProblem::Stalled, .. }), "{error}");
        assert!(error.to_string().ends_with("no progress: no data received for 2 s"), "{error}");
        assert!(tmp_is_empty(place.path()));
    });
}

#[test]
fn a_hostile_layer_from_a_registry_is_refused_and_leaves_nothing() {
    run(async {
        let registry = Registry::start().await;
        let sample = Sample::new(vec![tar(vec![Raw::file("fine", "x")]), tar(vec![Raw::file("../evil", "x")])]);
        registry.put("team/app", "v1", &sample);
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let before = listing(place.path());
        let error = pull(&store, &registry, None).await.unwrap_err().to_string();
        assert!(error.contains("entry \"../evil\"") && error.contains(&registry.host), "{error}");
        assert_eq!(listing(place.path()), before);
    });
}

#[test]
fn certificates_are_checked_and_own_ones_can_be_trusted() {
    run(async {
        let (registry, certificate) = Registry::start_tls().await;
        let sample = sample(1);
        registry.put("team/app", "v1", &sample);
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let reference = format!("{}/team/app:v1", registry.host);
        let mut options = PullOptions::default();
        let error = store.pull(&reference, None, &options, |_| {}).await.unwrap_err();
        assert!(matches!(&error, Error::Registry { problem: RegistryProblem::Unreachable, .. }), "{error}");
        assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
        options.extra_roots.push(certificate);
        assert_eq!(store.pull(&reference, None, &options, |_| {}).await.unwrap().id, sample.id());
        options.extra_roots = vec![b"not a certificate".to_vec()];
        assert!(store.pull("127.0.0.1:1/app", None, &options, |_| {}).await.is_err());
    });
}
