//! Links about what a container or a pod waits for, and about its way out.

use keelet_lifecycle::{
    Subject,
    evidence::EndingCause,
    operation::{OpKey, Operation},
    status::{ConditionType, ContainerState, Truth},
};
use keelet_pod::Role;

use super::{
    Link,
    chain::{Chain, Way},
};
use crate::{
    sentence,
    words::{quoted, short_id, time_ago, times},
};

// === impl Chain ===

impl Chain<'_, '_> {
    /// What a container waits for whose turn has not come, or whose start is under way.
    pub(super) fn pending(&self, container: &str, way: Way<'_>) -> Vec<Link> {
        let volatile = &self.known.evidence.volatile;
        let under_way = volatile.pending.iter().filter(|pending| pending.operation.container() == Some(container));
        let mut links: Vec<Link> = under_way
            .filter_map(|pending| {
                let what = match &pending.operation {
                    Operation::EnsureImage { image, .. } => format!("image {image:?} is being fetched"),
                    Operation::Launch { .. } | Operation::StartCreated { .. } => "it is being started".to_owned(),
                    _ => return None,
                };
                let text = format!("{what} since {}", time_ago(pending.since, self.now));
                Some(Link::evidence(text).at(pending.since))
            })
            .collect();
        let status = self.known.status();
        let no_sandbox = status.and_then(|status| status.condition(&ConditionType::PodReadyToStartContainers));
        if links.is_empty() && no_sandbox.is_some_and(|condition| condition.status == Truth::False) {
            links.push(self.part(Subject::Condition(ConditionType::PodReadyToStartContainers), way));
        }
        if links.is_empty()
            && let Some(ahead) = self.first_ahead(container)
        {
            links.push(self.part(ahead, way));
        }
        if links.is_empty() && self.known.evidence.durable.ending.is_some() {
            links.push(self.ending(way));
        }
        if links.is_empty()
            && let Some(seen) = self.known.evidence.durable.first_seen
        {
            let text = format!("the pod is on this node since {}, and its start is next", time_ago(seen, self.now));
            links.push(Link::evidence(text).at(seen));
        }
        if links.is_empty() { vec![Link::missing("nothing is recorded that tells what it waits for")] } else { links }
    }

    /// The first container before this one that holds it up.
    pub(super) fn first_ahead(&self, container: &str) -> Option<Subject> {
        let spec = self.known.spec.as_ref()?;
        let ahead = spec.init_containers.iter().take_while(|ahead| ahead.name != container);
        ahead.into_iter().find_map(|ahead| {
            let status = self.known.container_status(&ahead.name)?;
            match ahead.role {
                Role::Sidecar if status.started == Some(true) => None,
                Role::Sidecar if matches!(status.state, ContainerState::Running(_)) => {
                    Some(Subject::Started(ahead.name.clone()))
                }
                _ if status.ready => None,
                _ => Some(Subject::State(ahead.name.clone())),
            }
        })
    }

    pub(super) fn sandbox(&self, id: Option<&str>) -> Link {
        match id {
            Some(id) => Link::evidence(format!("sandbox {} is ready", short_id(id))),
            None => {
                let message = self
                    .known
                    .status()
                    .and_then(|status| status.condition(&ConditionType::PodReadyToStartContainers)?.message.clone());
                let mut link = Link::evidence(message.unwrap_or_else(|| "no sandbox is usable".to_owned()));
                for retry in &self.known.evidence.volatile.retries {
                    let what = match retry.key {
                        OpKey::NewSandbox => "creating one",
                        OpKey::Volumes => "mounting volumes",
                        _ => continue,
                    };
                    let failed = times(retry.failures);
                    let text = format!("{what} failed {failed}{}", quoted(&retry.failure.message));
                    link.because.push(Link::evidence(text));
                }
                link
            }
        }
    }

    pub(super) fn ending(&self, way: Way<'_>) -> Link {
        let Some(ending) = &self.known.evidence.durable.ending else {
            return Link::missing("why the pod is terminating is not recorded");
        };
        let since = time_ago(ending.since, self.now);
        let cause = sentence::ending_cause(&ending.cause);
        let link = match &ending.cause {
            EndingCause::Deleted => Link::evidence(format!("the pod is terminating since {since}: {cause}")),
            EndingCause::NotRebuilt => Link::evidence(format!("the pod is over since {since}: {cause}")),
            EndingCause::Rejected => {
                let status = self.known.status();
                let message = status.and_then(|status| status.message.clone()).unwrap_or_default();
                Link::evidence(format!("the pod was rejected at {since}{}", quoted(&message)))
            }
            EndingCause::InitFailed { container } => {
                let part = self.part(Subject::State(container.clone()), way);
                Link::conclusion(format!("the pod is over since {since}: {cause}"), vec![part])
            }
            EndingCause::Finished => {
                let text = format!("the pod is over since {since}: {cause}");
                let status = self.known.status();
                let names = status.map(|status| status.container_statuses.iter().map(|c| c.name.clone()));
                let states = names.into_iter().flatten().map(Subject::State);
                let parts: Vec<Link> =
                    states.filter(|state| !way.contains(state)).map(|state| self.part(state, way)).collect();
                if parts.is_empty() { Link::evidence(text) } else { Link::conclusion(text, parts) }
            }
        };
        link.at(ending.since)
    }
}
