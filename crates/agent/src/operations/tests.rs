use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use keelet_host::{ObjectError, ObjectName, ObjectStore};
use keelet_launch::{Data, ObjectKind};
use keelet_lifecycle::{
    Event,
    operation::{OpId, OpResult, Operation},
};
use keelet_pod::{Pod, Trust};
use tokio::sync::oneshot;
use tonic::Code;

use super::{Executor, run};
use crate::{
    Agent,
    bed::{Bed, pass, pod, pod_of},
    slot::{Slot, Wanted},
};

/// An operation of a pod that can be cancelled, and what became of it.
struct Started {
    cancel: Option<oneshot::Sender<()>>,
    slot: Arc<Slot>,
}

impl Started {
    fn new(agent: &Agent, pod: Arc<Pod>, operation: Operation) -> Self {
        let slot = Arc::new(Slot::default());
        let work = Executor::new(Arc::clone(&agent.shared), Arc::clone(&slot)).for_operation(&Wanted::new(pod), None);
        let (cancel, cancelled) = oneshot::channel();
        tokio::spawn(run(work, OpId(1), operation, cancelled));
        Self { cancel: Some(cancel), slot }
    }

    /// Cancels it, and lets it take notice.
    async fn cancel(&mut self) {
        self.cancel = None;
        pass(Duration::from_millis(1)).await;
    }

    async fn result(&self) -> OpResult {
        self.result_and_events().await.0
    }

    /// The result, and the events that came before it.
    async fn result_and_events(&self) -> (OpResult, Vec<Event>) {
        let mut events = Vec::new();
        loop {
            let mut taken = self.slot.take();
            events.append(&mut taken.events);
            if let Some(finished) = taken.finished.pop() {
                return (finished.result, events);
            }
            self.slot.changed().await;
        }
    }
}

/// A pod that goes away while its container is created must not have it run: what is created is not started.
#[tokio::test(start_paused = true)]
async fn a_launch_that_is_cancelled_after_create_does_not_start() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    bed.runtime.hold("CreateContainer");
    let launch = Operation::Launch { container: "main".to_owned(), attempt: 0, sandbox: "sandbox-1".to_owned() };
    let mut started = Started::new(&agent, pod("web", "a"), launch);
    bed.runtime.called("CreateContainer").await;
    started.cancel().await;
    bed.runtime.release("CreateContainer");
    let result = started.result().await;
    assert_eq!(bed.runtime.calls("StartContainer"), Vec::<String>::new(), "it was started although it was cancelled");
    assert_eq!(result, OpResult::Cancelled);
}

/// A pod that goes away while its sandbox is made has to know of the sandbox: the operation ends when it is there.
#[tokio::test(start_paused = true)]
async fn a_sandbox_that_is_being_made_is_waited_for_when_cancelled() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    bed.runtime.hold("RunPodSandbox");
    let mut started = Started::new(&agent, pod("web", "a"), Operation::CreateSandbox { attempt: 0 });
    bed.runtime.called("RunPodSandbox").await;
    started.cancel().await;
    assert!(started.slot.take().finished.is_empty(), "it ended before the runtime has said whether there is a sandbox");
    bed.runtime.release("RunPodSandbox");
    assert_eq!(started.result().await, OpResult::Done);
}

/// No more images are pulled at once than the node allows.
#[tokio::test(start_paused = true)]
async fn pulls_run_one_after_the_other() {
    let mut bed = Bed::new();
    bed.parallel_pulls = NonZeroUsize::new(1);
    let agent = bed.agent().await;
    bed.runtime.hold("PullImage");
    let pull = |uid: &str| {
        let web = pod_of(&format!(
            "metadata: {{name: {uid}, uid: {uid}}}\nspec: {{containers: [{{name: main, image: {uid}, imagePullPolicy: Always}}]}}\n"
        ));
        let operation = Operation::EnsureImage { container: "main".to_owned(), image: uid.to_owned() };
        Started::new(&agent, web, operation)
    };
    let (first, second) = (pull("first"), pull("second"));
    bed.runtime.called("PullImage").await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(bed.runtime.calls("PullImage"), ["PullImage first"], "two pulls are under way");
    bed.runtime.release("PullImage");
    assert_eq!((first.result().await, second.result().await), (OpResult::Done, OpResult::Done));
    assert_eq!(bed.runtime.calls("PullImage"), ["PullImage first", "PullImage second"]);
}

/// Two pull secrets, of which the first has an old password; every other object cannot be read.
#[derive(Debug)]
struct PullSecrets;

impl ObjectStore for PullSecrets {
    fn find(&self, _: &Pod, kind: ObjectKind, name: &str) -> Result<Option<Data>, ObjectError> {
        let config = format!(r#"{{"auths": {{"reg.example": {{"username": "{name}", "password": "x"}}}}}}"#);
        match name {
            "old" | "new" => Ok(Some(Data::from([(".dockerconfigjson".to_owned(), config.into_bytes())]))),
            "many" => {
                // As many patterns as there are ways to write stars: all of them are for this registry.
                let hosts = (0..64).map(|number| {
                    let part =
                        |at: usize, text: &str| if number >> at & 1 == 0 { text.to_owned() } else { "*".to_owned() };
                    let parts = ["a", "b", "c", "d", "reg", "example"].iter().enumerate();
                    parts.map(|(at, text)| part(at, text)).collect::<Vec<_>>().join(".")
                });
                let auths: Vec<_> =
                    hosts.map(|host| format!(r#""{host}": {{"username": "u", "password": "x"}}"#)).collect();
                let config = format!(r#"{{"auths": {{{}}}}}"#, auths.join(", "));
                Ok(Some(Data::from([(".dockerconfigjson".to_owned(), config.into_bytes())])))
            }
            "gone" => Ok(None),
            _ => {
                let object = ObjectName { kind, namespace: "default".to_owned(), name: name.to_owned() };
                Err(ObjectError::Unavailable { object, why: "it has not answered yet".to_owned() })
            }
        }
    }
}

/// Objects that are never known for pods that have pull secrets.
#[derive(Debug)]
struct NeverSettled;

impl ObjectStore for NeverSettled {
    fn find(&self, _: &Pod, _: ObjectKind, _: &str) -> Result<Option<Data>, ObjectError> {
        Ok(None)
    }

    fn settled<'a>(&'a self, _: &'a Pod) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }
}

/// CLU-33: the credentials of a pod's secrets are tried one after the other, for their registry only; a secret that is missing is told, and
/// the pull attempted without it. Pods of manifests have the credentials of the node.
#[tokio::test(start_paused = true)]
async fn pulls_use_the_secrets_of_the_pod() {
    for (trust, secrets, image, refused, pulls, told) in [
        (Trust::Cluster, "{name: old}, {name: new}", "reg.example/app", "", ["reg.example/app as old"].as_slice(), ""),
        (
            Trust::Cluster,
            "{name: old}, {name: new}",
            "reg.example/app",
            "reg.example/app as old",
            &["reg.example/app as old", "reg.example/app as new"],
            "",
        ),
        (Trust::Cluster, "{name: old}", "other.example/app", "", &["other.example/app"], ""),
        (Trust::Node, "{name: old}", "reg.example/app", "", &["reg.example/app"], ""),
        (
            Trust::Cluster,
            "{name: gone}, {name: new}",
            "reg.example/app",
            "",
            &["reg.example/app as new"],
            "Unable to retrieve some image pull secrets (gone); attempting to pull the image may not succeed",
        ),
        (
            Trust::Cluster,
            "{name: away}",
            "reg.example/app",
            "",
            &["reg.example/app"],
            "Unable to retrieve some image pull secrets (away); attempting to pull the image may not succeed: cannot read secret \
             default/away from the API server: it has not answered yet",
        ),
    ] {
        let mut bed = Bed::new();
        bed.objects = Arc::new(PullSecrets);
        let agent = bed.agent().await;
        if !refused.is_empty() {
            bed.runtime.fail(&format!("PullImage {refused}"), Some(Code::PermissionDenied));
        }
        let web = pod_of(&format!(
            "metadata: {{name: web, uid: a}}\nspec: {{imagePullSecrets: [{secrets}], containers: [{{name: main, image: {image}, imagePullPolicy: Always}}]}}\n"
        ));
        let web = Arc::new(Pod { trust, ..Pod::clone(&web) });
        let operation = Operation::EnsureImage { container: "main".to_owned(), image: image.to_owned() };
        let started = Started::new(&agent, web, operation);
        let (result, events) = started.result_and_events().await;
        let pulls: Vec<_> = pulls.iter().map(|pull| format!("PullImage {pull}")).collect();
        assert_eq!((result, bed.runtime.calls("PullImage")), (OpResult::Done, pulls), "{secrets} {image}");
        let warned = events.iter().find(|event| event.reason == "FailedToRetrieveImagePullSecret");
        assert_eq!(warned.map_or("", |event| event.message.as_str()), told, "{secrets}");
    }
}

/// A pod of the cluster that pulls an image with these secrets.
fn pulling(agent: &Agent, name: &str, image: &str, secrets: &str) -> Started {
    let pod = pod_of(&format!(
        "metadata: {{name: {name}, uid: {name}}}\nspec: {{imagePullSecrets: [{secrets}], containers: [{{name: main, image: {image}, \
         imagePullPolicy: Always}}]}}\n"
    ));
    let pod = Arc::new(Pod { trust: Trust::Cluster, ..Pod::clone(&pod) });
    Started::new(agent, pod, Operation::EnsureImage { container: "main".to_owned(), image: image.to_owned() })
}

/// CLU-33: a pull that tries one credential after the other takes its turn for each of them, and other pulls come in between.
#[tokio::test(start_paused = true)]
async fn a_pull_with_many_credentials_does_not_hold_up_others() {
    let mut bed = Bed::new();
    bed.parallel_pulls = NonZeroUsize::new(1);
    bed.objects = Arc::new(PullSecrets);
    let agent = bed.agent().await;
    let slow = "PullImage reg.example/app as old";
    bed.runtime.hold(slow);
    bed.runtime.fail(slow, Some(Code::PermissionDenied));
    let first = pulling(&agent, "web", "reg.example/app", "{name: old}, {name: new}");
    bed.runtime.called(slow).await;
    let second = pulling(&agent, "db", "other.example/db", "");
    pass(Duration::from_secs(1)).await;
    bed.runtime.release(slow);
    assert_eq!((first.result().await, second.result().await), (OpResult::Done, OpResult::Done));
    assert_eq!(
        bed.runtime.calls("PullImage"),
        [slow, "PullImage other.example/db", "PullImage reg.example/app as new"]
    );
}

/// CLU-33: a secret that is waited for takes no turn of other pulls.
#[tokio::test(start_paused = true)]
async fn a_pull_that_waits_for_its_secrets_does_not_hold_up_others() {
    let mut bed = Bed::new();
    bed.parallel_pulls = NonZeroUsize::new(1);
    bed.objects = Arc::new(NeverSettled);
    let agent = bed.agent().await;
    let waiting = pulling(&agent, "web", "reg.example/app", "{name: old}");
    pass(Duration::from_secs(1)).await;
    assert_eq!(pulling(&agent, "db", "other.example/db", "").result().await, OpResult::Done);
    drop(waiting);
}

/// CLU-33: a secret has room for thousands of credentials, each of which would be a pull.
#[tokio::test(start_paused = true)]
async fn only_so_many_credentials_are_tried() {
    let mut bed = Bed::new();
    bed.objects = Arc::new(PullSecrets);
    let agent = bed.agent().await;
    bed.runtime.fail("PullImage", Some(Code::PermissionDenied));
    let result = pulling(&agent, "web", "a.b.c.d.reg.example/app", "{name: many}").result().await;
    assert!(matches!(result, OpResult::Failed(_)), "{result:?}");
    assert_eq!(bed.runtime.calls("PullImage").len(), 16);
}

/// EVT-4: a directory of the node that stands for an image is looked at, not pulled.
#[tokio::test(start_paused = true)]
async fn no_pull_is_reported_for_a_directory_of_the_node() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    for (image, told) in [("rootfs:/", vec![]), ("app:1", vec!["Pulling", "Pulled"])] {
        let web = pod_of(&format!(
            "metadata: {{name: web, uid: a}}\nspec: {{containers: [{{name: main, image: '{image}', imagePullPolicy: Always}}]}}\n"
        ));
        let operation = Operation::EnsureImage { container: "main".to_owned(), image: image.to_owned() };
        let started = Started::new(&agent, web, operation);
        let (result, events) = started.result_and_events().await;
        let reasons: Vec<&str> = events.iter().map(|event| event.reason).collect();
        assert_eq!((result, reasons), (OpResult::Done, told), "{image}");
    }
}
