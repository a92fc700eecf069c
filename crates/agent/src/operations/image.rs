//! Having an image on the node.

use keelet_cri::{ErrorKind, v1::AuthConfig};
use keelet_launch::{Objects, pull_credentials, pull_secrets};
use keelet_lifecycle::{Severity, operation::OpResult};
use keelet_pod::{DIRECTORY_IMAGE, PullPolicy};
use tokio::sync::SemaphorePermit;

use super::{Work, failed};

/// Credentials that are tried for one image, the most specific first. Pods have one or two; a secret has room for thousands, each of which would
/// be a pull.
const CREDENTIALS: usize = 16;

// === impl Work ===

impl Work {
    /// Has the image on the node, as the pull policy says (BACK-10, EVT-4).
    pub(super) async fn ensure_image(&self, container: &str, image: &str) -> OpResult {
        let Some(spec) = self.pod.container(container) else { return OpResult::Cancelled };
        let runtime = &self.shared.runtime;
        if spec.pull_policy != PullPolicy::Always {
            match runtime.image_status(image).await {
                Ok(Some(_)) => {
                    let message = format!("Container image {image:?} already present on machine");
                    self.emit(Some(container), "Pulled", message);
                    return OpResult::Done;
                }
                Ok(None) if spec.pull_policy == PullPolicy::Never => {
                    let message = format!("Container image {image:?} is not present with pull policy of Never");
                    return failed("ErrImageNeverPull", message);
                }
                Ok(None) => {}
                Err(error) => return failed("ImageInspectError", format!("cannot inspect image {image:?}: {error}")),
            }
        }
        // There is nothing to pull of a directory of the node; the runtime only checks whether it is there.
        let is_directory = image.starts_with(DIRECTORY_IMAGE);
        match self.pull(container, image, is_directory).await {
            Ok(_) if is_directory => OpResult::Done,
            Ok(_) => {
                self.emit(Some(container), "Pulled", format!("Successfully pulled image {image:?}"));
                OpResult::Done
            }
            Err(error) if error.kind == ErrorKind::Unavailable => {
                failed("RegistryUnavailable", format!("cannot pull image {image:?}: {error}"))
            }
            Err(error) => failed("ErrImagePull", format!("cannot pull image {image:?}: {error}")),
        }
    }

    /// Pulls with what the pod's secrets have for the image, one after the other, or as the runtime does by itself if they have nothing. Each attempt
    /// waits for its permit: a slow registry with many credentials takes one permit after another, and other pulls get theirs in between.
    async fn pull(&self, container: &str, image: &str, is_directory: bool) -> Result<String, keelet_cri::Error> {
        let runtime = &self.shared.runtime;
        let mut credentials = self.credentials(container, image).await.into_iter().take(CREDENTIALS);
        let permit = self.pull_permit().await;
        if !is_directory {
            self.emit(Some(container), "Pulling", format!("Pulling image {image:?}"));
        }
        let mut pulled = runtime.pull_image(image, credentials.next(), None).await;
        drop(permit);
        for next in credentials {
            match pulled {
                // Other credentials change nothing about a runtime that is away.
                Err(error) if error.kind != ErrorKind::Unavailable => {}
                ended => return ended,
            }
            let _permit = self.pull_permit().await;
            pulled = runtime.pull_image(image, Some(next), None).await;
        }
        pulled
    }

    /// A permit to pull, where the node limits how many there are at once.
    async fn pull_permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed; if it were, the pull would only miss its limit.
        self.shared.pulls.as_ref()?.acquire().await.ok()
    }

    /// What the pod's pull secrets have for an image. One that is not there may not be needed: the pull is attempted without it.
    async fn credentials(&self, container: &str, image: &str) -> Vec<AuthConfig> {
        let wanted = pull_secrets(&self.pod);
        if wanted.is_empty() {
            return Vec::new();
        }
        let (found, why) = match self.shared.host.objects(&self.pod, &wanted).await {
            Ok(found) => (found, String::new()),
            Err(error) => (Objects::default(), format!(": {error}")),
        };
        let missing: Vec<_> = wanted.iter().filter(|secret| found.get(secret.kind, &secret.name).is_none()).collect();
        if !missing.is_empty() {
            let names = missing.iter().map(|secret| secret.name.as_str()).collect::<Vec<_>>().join(", ");
            let message = format!(
                "Unable to retrieve some image pull secrets ({names}); attempting to pull the image may not succeed{why}"
            );
            self.say(Some(container), "FailedToRetrieveImagePullSecret", Severity::Warning, message);
        }
        pull_credentials(image, wanted.iter().filter_map(|secret| found.get(secret.kind, &secret.name)))
    }
}
