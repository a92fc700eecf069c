//! Having an image on the node.

use keelet_cri::ErrorKind;
use keelet_lifecycle::operation::OpResult;
use keelet_pod::{DIRECTORY_IMAGE, PullPolicy};

use super::{Work, failed};

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
                    self.tell(Some(container), "Pulled", message);
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
        // The semaphore is never closed; if it were, the pull would only miss its limit.
        let _permit = match &self.shared.pulls {
            Some(pulls) => pulls.acquire().await.ok(),
            None => None,
        };
        // There is nothing to pull of a directory of the node; the runtime only looks whether it is there.
        let is_directory = image.starts_with(DIRECTORY_IMAGE);
        if !is_directory {
            self.tell(Some(container), "Pulling", format!("Pulling image {image:?}"));
        }
        match runtime.pull_image(image, None, None).await {
            Ok(_) if is_directory => OpResult::Done,
            Ok(_) => {
                self.tell(Some(container), "Pulled", format!("Successfully pulled image {image:?}"));
                OpResult::Done
            }
            Err(error) if error.kind == ErrorKind::Unavailable => {
                failed("RegistryUnavailable", format!("cannot pull image {image:?}: {error}"))
            }
            Err(error) => failed("ErrImagePull", format!("cannot pull image {image:?}: {error}")),
        }
    }
}
