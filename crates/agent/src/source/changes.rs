//! What a new listing changes, for the log: which file made, changed or removed which pod. Pure.

use std::{collections::BTreeMap, sync::Arc};

use keelet_pod::Pod;

use super::{
    Listing,
    manifests::{manifest_of, name_of},
};

/// The pods that the log has reported, by `namespace/name`.
#[derive(Clone, Debug, Default)]
pub(super) struct Reported {
    pods: BTreeMap<String, ReportedPod>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ReportedPod {
    uid: String,
    file: Option<String>,
    /// Whether a listing of this agent had it.
    listed: bool,
}

/// What a file did to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// `namespace/name`.
    pub(super) pod: String,
    pub(super) kind: ChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// There was no pod of that name.
    Made { file: Option<String>, uid: String },
    /// A new pod replaces the one of that name.
    Changed { file: Option<String>, uid: String, replaces: String },
    /// The pod stays; another file asks for it.
    Moved { from: Option<String>, to: Option<String>, uid: String },
    /// No file asks for it.
    Removed { file: Option<String>, uid: String },
}

// === impl Reported ===

impl Reported {
    /// Pods that an earlier agent left running: its log has reported them.
    pub(super) fn beside(recovered: &[Arc<Pod>]) -> Self {
        let entry =
            |pod: &Arc<Pod>| ReportedPod { uid: pod.uid.clone(), file: manifest_of(pod).cloned(), listed: false };
        Self { pods: recovered.iter().map(|pod| (name_of(pod), entry(pod))).collect() }
    }

    /// Takes a listing, and returns what is new about it.
    pub(super) fn update(&mut self, listing: &Listing) -> Vec<Change> {
        let mut old = std::mem::take(&mut self.pods);
        let mut changes = Vec::new();
        for (uid, pod) in &listing.pods {
            let name = name_of(pod);
            let before = old.remove(&name);
            let file = listing.files.get(uid).cloned();
            let kind = match before {
                None => Some(ChangeKind::Made { file: file.clone(), uid: uid.clone() }),
                Some(ReportedPod { uid: replaces, .. }) if replaces != *uid => {
                    Some(ChangeKind::Changed { file: file.clone(), uid: uid.clone(), replaces })
                }
                // One without a file is held for the file that it is of.
                Some(ReportedPod { file: from, .. }) if file.is_some() && from != file => {
                    Some(ChangeKind::Moved { from, to: file.clone(), uid: uid.clone() })
                }
                Some(_) => None,
            };
            changes.extend(kind.map(|kind| Change { pod: name.clone(), kind }));
            let file = file.or_else(|| manifest_of(pod).cloned());
            self.pods.insert(name, ReportedPod { uid: uid.clone(), file, listed: true });
        }
        for (pod, entry) in old {
            if entry.listed || listing.complete {
                changes.push(Change { pod, kind: ChangeKind::Removed { file: entry.file, uid: entry.uid } });
            } else {
                self.pods.insert(pod, entry);
            }
        }
        changes
    }
}

// === impl Change ===

impl Change {
    pub(super) fn log(&self) {
        let pod = &self.pod;
        let path = |file: &Option<String>| file.clone().unwrap_or_else(|| "unknown".to_owned());
        match &self.kind {
            ChangeKind::Made { file, uid } => {
                tracing::info!(pod, uid, file = path(file), "manifest added: creating pod")
            }
            ChangeKind::Changed { file, uid, replaces } => {
                tracing::info!(pod, uid, replaces, file = path(file), "manifest changed: replacing pod");
            }
            ChangeKind::Moved { from, to, uid } => {
                let (file, before) = (path(to), path(from));
                tracing::info!(pod, uid, file, before, "manifest renamed: keeping pod");
            }
            ChangeKind::Removed { file, uid } => {
                tracing::info!(pod, uid, file = path(file), "manifest removed: deleting pod");
            }
        }
    }
}
