//! What an earlier agent left running, for a directory of manifests that is held against it.

use std::sync::Arc;

use keelet_ledger::{Recovered, Settings, Snapshot};
use keelet_pod::{Features, Pod, Trust};

use super::ManifestDir;

// === impl ManifestDir ===

impl ManifestDir {
    /// Beside what the ledger says is running. To be asked before an agent opens the ledger.
    pub fn recovering(self, ledger: &Settings, features: &Features) -> Self {
        let (pods, lost_copies) = recovered(ledger, features);
        let source = self.beside(pods);
        if lost_copies { source.with_lost_copies() } else { source }
    }
}

/// The pods that an earlier agent left running, as it knew them, without those that have to go, and whether there are more of
/// which no copy can be read. The agent reports what cannot be used of the ledger when it opens the ledger.
fn recovered(ledger: &Settings, features: &Features) -> (Vec<Arc<Pod>>, bool) {
    let pods = Snapshot::take(&ledger.durable_root, &ledger.volatile_root, ledger.boot_id).pods;
    let stays = |pod: &Recovered| !pod.evidence.durable.ending.as_ref().is_some_and(|ending| ending.deleted);
    let left: Vec<_> = pods.into_iter().filter(stays).collect();
    let expected = left.len();
    let copies = left.into_iter().filter_map(|pod| Pod::from_json(pod.copy?, features).ok());
    let copies: Vec<_> = copies.map(Arc::new).collect();
    let lost = copies.len() < expected;
    // Those of an API server are that one's business.
    (copies.into_iter().filter(|pod| pod.trust == Trust::Node).collect(), lost)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keelet_ledger::{Ledger, PodCommit, PodRef};
    use keelet_lifecycle::{
        BootId, Evidence, Moment, Wall,
        evidence::{Ending, EndingCause},
    };

    use super::*;

    /// Manifests are held against what runs and stays: a pod on its way out is not among it, and one whose copy is lost is told
    /// apart from none.
    #[test]
    fn pods_on_their_way_out_are_not_recovered() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = |boot_id| Settings::new(directory.path().join("root"), directory.path().join("state"), boot_id);
        let boot_id = BootId::from_u128(1);
        let now = Moment { boot_ms: 1, wall: Wall::from_millis(1), boot_id };
        let names = || {
            let (pods, lost) = recovered(&ledger(boot_id), &Features::default());
            (pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>(), lost)
        };
        let remember = |name: &str, deleted: bool, copy: bool| {
            let manifest = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, uid: {name}}}\nspec: {{containers: [{{name: c, image: app}}]}}\n"
            );
            let pod = keelet_pod::parse_one(&manifest).unwrap();
            let reference = PodRef { uid: pod.uid.clone(), namespace: pod.namespace.clone(), name: pod.name.clone() };
            let mut evidence = Evidence::default();
            let grace = Duration::ZERO;
            evidence.durable.ending =
                deleted.then_some(Ending { cause: EndingCause::Deleted, since: now, grace, deleted });
            let mut ledger = Ledger::open(ledger(boot_id)).unwrap().ledger;
            let entry = PodCommit { pod: &reference, evidence: &evidence.into(), results: &[], why: None };
            assert!(ledger.commit(&entry, now).unwrap().durable.is_written());
            if copy {
                assert!(ledger.keep_pod(&reference, &pod.to_json().unwrap(), now).unwrap().is_written());
            }
        };
        remember("stays", false, true);
        remember("leaves", true, true);
        assert_eq!(names(), (vec!["stays".to_owned()], false));
        remember("lost", false, false);
        assert_eq!(names(), (vec!["stays".to_owned()], true), "there is one more, and no copy of it");
    }
}
