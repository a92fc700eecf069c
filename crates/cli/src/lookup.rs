//! Finding a pod in the ledger, by the name that a person gives it. Reads beside a running agent, or after it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Args;
use keelet_agent::{clock::OsClock, doors::Clock};
use keelet_assembly::Paths;
use keelet_ledger::{Gone, Loss, PodRef, Recovered, Settings, Snapshot};
use keelet_lifecycle::{Moment, node::NodeEvidence};
use serde::Deserialize;

use crate::{
    ask::{Connection, PodNotFound, listed},
    output,
};

/// Which pod, and where the ledger is.
#[derive(Debug, Args)]
pub(crate) struct Question {
    /// Namespace of the pod, required if pods in several namespaces have this name
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The agent's --root-dir [default: that of the agent on the socket, else /var/lib/keelet]
    #[arg(long, value_name = "DIR")]
    root_dir: Option<PathBuf>,
    /// The agent's --state-dir [default: that of the agent on the socket, else /run/keelet]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

/// The part of the agent's `owner.json` that is needed here: which two directories belong together.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    root_dir: PathBuf,
    state_dir: PathBuf,
}

/// The file in each of the two directories that names both.
const OWNER: &str = "owner.json";

/// What was found, and when.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) pod: Recovered,
    pub(crate) now: Moment,
}

// === impl Question ===

impl Question {
    /// Where the ledger is: in the directories that were named, else in those of the agent whose socket was named.
    fn paths(&self) -> anyhow::Result<Paths> {
        let given = self.root_dir.is_some() || self.state_dir.is_some();
        if let Some(socket) = self.connection.named().filter(|_| !given) {
            return paths_of(&socket);
        }
        let or = |given: &Option<PathBuf>, usual: &str| given.clone().unwrap_or_else(|| usual.into());
        Ok(Paths { root_dir: or(&self.root_dir, Paths::ROOT), state_dir: or(&self.state_dir, Paths::STATE) })
    }

    /// What is remembered of the node itself, and the time. What is lost of it is said on standard error.
    pub(crate) fn node(&self) -> anyhow::Result<(NodeEvidence, Moment)> {
        let now = OsClock::new().context("cannot read the clock")?.now();
        let settings = self.paths()?.ledger_settings(now.boot_id);
        let (node, losses) = Snapshot::of_node(&settings.durable_root, &settings.volatile_root);
        for loss in losses {
            output::warning(&loss.to_string());
        }
        let place = settings.durable_root.display();
        node.map(|node| (node, now)).with_context(|| {
            format!("nothing is known of the node in {place}: no agent has run here, or it had another --root-dir or --state-dir")
        })
    }

    /// The one pod of that name. What is lost of it is said on standard error.
    pub(crate) fn find(&self, name: &str) -> anyhow::Result<Found> {
        let now = OsClock::new().context("cannot read the clock")?.now();
        let settings = self.paths()?.ledger_settings(now.boot_id);
        let snapshot = Snapshot::take(&settings.durable_root, &settings.volatile_root, now.boot_id);
        let (namespace, place) = (self.namespace.as_deref(), settings.durable_root.display());
        let picked = pick(&snapshot.pods, namespace, name);
        if picked.is_err()
            && let Some(gone) = find_gone(&settings, namespace, name)?
        {
            let at = gone.at.wall.whole_seconds();
            output::note(&format!("note: pod {name} was deleted at {at}; this is its last known state"));
            return Ok(Found { pod: gone.pod, now: gone.at });
        }
        if snapshot.pods.is_empty() {
            let losses: String = snapshot.losses.iter().map(|loss| format!("\n  {loss}")).collect();
            match losses.is_empty() {
                true if !settings.durable_root.exists() && !settings.volatile_root.exists() => {
                    bail!("no ledger in {place}: no agent has run here, or it had another --root-dir or --state-dir")
                }
                true => bail!("no pods in the ledger {place}"),
                false => bail!("cannot read the ledger in {place}:{losses}"),
            }
        }
        let pod = picked?.clone();
        for loss in snapshot.losses.iter().filter(|loss| concerns(loss, &pod)) {
            output::warning(&loss.to_string());
        }
        Ok(Found { pod, now })
    }
}

/// The directories of the agent that has this socket. They are found also after it has gone.
fn paths_of(socket: &Path) -> anyhow::Result<Paths> {
    let directory = socket.parent().unwrap_or(Path::new("."));
    let owner = directory.join(OWNER);
    let told =
        || format!("cannot find the ledger of the agent on {}: cannot read {}", socket.display(), owner.display());
    let text = fs::read(&owner).with_context(told)?;
    let Owner { root_dir, state_dir } = serde_json::from_slice(&text).with_context(told)?;
    Ok(Paths { root_dir, state_dir })
}

/// The newest pod of that name that is gone, if there is one.
fn find_gone(settings: &Settings, namespace: Option<&str>, name: &str) -> anyhow::Result<Option<Gone>> {
    let (gone, losses) = Snapshot::of_gone(&settings.durable_root, &settings.volatile_root);
    for loss in losses {
        output::warning(&loss.to_string());
    }
    let pods: Vec<Recovered> = gone.iter().map(|gone| gone.pod.clone()).collect();
    if !pods.iter().any(|pod| is_called(pod, namespace, name)) {
        return Ok(None);
    }
    let pod = pick(&pods, namespace, name)?;
    Ok(gone.into_iter().rev().find(|gone| gone.pod == *pod))
}

fn is_called(pod: &Recovered, namespace: Option<&str>, name: &str) -> bool {
    let is_named = |known: &PodRef| known.name == name && namespace.is_none_or(|wanted| wanted == known.namespace);
    pod.uid == name || pod.pod.as_ref().is_some_and(is_named)
}

fn concerns(loss: &Loss, pod: &Recovered) -> bool {
    loss.uid.as_ref().is_none_or(|uid| *uid == pod.uid)
}

/// The pod that is meant, or what there is instead.
fn pick<'a>(pods: &'a [Recovered], namespace: Option<&str>, name: &str) -> Result<&'a Recovered, PodNotFound> {
    let matching: Vec<&Recovered> = pods.iter().filter(|pod| is_called(pod, namespace, name)).collect();
    let namespaces: BTreeSet<&str> = matching.iter().map(|pod| namespace_of(pod)).collect();
    if namespaces.len() > 1 {
        return Err(PodNotFound::ambiguous(name, namespaces));
    }
    // A pod that was made anew may not yet have replaced the one before it; the younger one is meant.
    let age = |pod: &&Recovered| pod.evidence.durable.first_seen.map(|seen| seen.wall);
    matching.into_iter().max_by_key(age).ok_or_else(|| not_found(pods, namespace, name))
}

fn namespace_of(pod: &Recovered) -> &str {
    pod.pod.as_ref().map_or("", |known| &known.namespace)
}

/// What to say if there is no such pod.
fn not_found(pods: &[Recovered], namespace: Option<&str>, name: &str) -> PodNotFound {
    let known: BTreeSet<(&str, &str)> =
        pods.iter().filter_map(|pod| pod.pod.as_ref()).map(|pod| (pod.namespace.as_str(), pod.name.as_str())).collect();
    let mut hints = Vec::new();
    let distance = |known: &str| strsim::levenshtein(known, name);
    let near = known.iter().filter(|(_, known)| distance(known) <= name.len().div_ceil(3));
    if let Some((namespace, name)) = near.min_by_key(|(_, known)| distance(known)) {
        hints.push(format!("did you mean {name} -n {namespace}?"));
    }
    // NAMESPACE/NAME is how pods are printed here.
    let first = name.split('/').next().unwrap_or_default();
    if known.iter().any(|(namespace, _)| *namespace == first) {
        hints.push(format!("{first:?} is a namespace: use the name of the pod and -n {first}"));
    }
    let nameless = pods.iter().filter(|pod| pod.pod.is_none()).map(|pod| format!("{} (its name is lost)", pod.uid));
    let all = known.iter().map(|(namespace, name)| format!("{name} -n {namespace}")).chain(nameless);
    hints.push(format!("pods on this node: {}", listed(all.collect())));
    PodNotFound::none(name, namespace, hints)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use keelet_ledger::{Ledger, OsDisk, PodCommit, PodRef, Settings, Snapshot};
    use keelet_lifecycle::{BootId, Evidence, Wall};

    use super::*;

    /// A pod that was made anew stands beside the one before it until that one is gone.
    #[test]
    fn of_two_pods_of_one_name_the_younger_is_meant() {
        let directory = tempfile::tempdir().unwrap();
        let (durable, volatile) = (directory.path().join("durable"), directory.path().join("run"));
        let boot_id = BootId::from_u128(1);
        let at = |ms| Moment { boot_ms: ms, wall: Wall::from_millis(ms), boot_id };
        let settings = Settings::new(&durable as &Path, &volatile as &Path, boot_id);
        let mut ledger: Ledger<OsDisk> = Ledger::open(settings).unwrap().ledger;
        for (uid, seen) in [("a", 1), ("b", 3), ("c", 2)] {
            let pod = PodRef { uid: uid.to_owned(), namespace: "default".to_owned(), name: "web".to_owned() };
            let mut evidence = Evidence::default();
            evidence.durable.first_seen = Some(at(seen));
            let entry = PodCommit { pod: &pod, evidence: &evidence.into(), results: &[], why: None };
            assert!(ledger.commit(&entry, at(5)).unwrap().durable.is_written());
        }
        let pods = Snapshot::take(&durable, &volatile, boot_id).pods;
        let found = |name| pick(&pods, None, name).map(|pod| pod.uid.as_str());
        assert_eq!((found("web"), found("a")), (Ok("b"), Ok("a")), "an older one is found by its UID");
    }
}
