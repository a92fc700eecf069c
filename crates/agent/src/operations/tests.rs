use std::{num::NonZeroUsize, sync::Arc, time::Duration};

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
            "gone" => Ok(None),
            _ => {
                let object = ObjectName { kind, namespace: "default".to_owned(), name: name.to_owned() };
                Err(ObjectError::Unavailable { object, why: "it has not answered yet".to_owned() })
            }
        }
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
