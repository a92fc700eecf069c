//! What the commands read: the rules, one node, or all of them.

use anyhow::{Result, anyhow, bail};
use keelet_gates::{
    api::{Permission, has_group},
    decide::{self, Circumstances, Decision, decide},
    node::{Detail, Interest, Node, Reader, Version},
    rule::{self, Rule, Rules},
    settings::{Enforcement, Room, Settings},
};
use keelet_serve::escaped;
use serde::Deserialize;
use serde_json::Value;

use super::{
    cluster::{Cluster, may},
    writers::Writers,
};
use crate::{ask, output};

/// Nodes in a page of a list: what kubectl asks for.
const PAGE: usize = 500;

/// What is known of a cluster beside its nodes.
#[derive(Debug)]
pub(super) struct Survey<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) settings: Settings,
    pub(super) rules: Rules,
    reader: Reader,
    room: Room,
}

/// A node and who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) node: Node,
    pub(super) writers: Writers,
}

/// All nodes that were asked for.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) nodes: Vec<Seen>,
    /// A watch continues from here.
    pub(super) version: Version,
}

#[derive(Debug, Deserialize)]
struct RuleList {
    #[serde(default)]
    items: Vec<Value>,
}

// === impl Survey ===

impl<'a> Survey<'a> {
    /// Reads the rules, and how many nodes are held if that matters.
    pub(super) async fn begin(cluster: &'a Cluster, settings: Settings) -> Result<Self> {
        let rules = read_rules(cluster).await?;
        let interest = Interest { prefixes: settings.prefixes.clone(), labels: rules.labels(), detail: Detail::Full };
        let mut survey = Self { cluster, settings, rules, reader: Reader::new(interest), room: Room::Free };
        let adds = |spec: &rule::Spec| spec.mode == rule::Mode::Continuous && !spec.dry_run;
        if survey.settings.enforcement == Enforcement::Continuous || survey.rules.specs().any(|(_, spec)| adds(spec)) {
            let all = survey.list("").await?.nodes;
            let held = all.iter().filter(|seen| decide::is_held(&seen.node)).count();
            survey.room = survey.settings.max_held.room(held, all.len());
        }
        Ok(survey)
    }

    /// Lists nodes: all, or those that a query (`labelSelector=...`) selects.
    pub(super) async fn list(&mut self, query: &str) -> Result<Listed> {
        let mut nodes = Vec::new();
        let mut next = String::new();
        loop {
            let more = if next.is_empty() { String::new() } else { format!("&continue={}", escaped(&next)) };
            let path = format!("/api/v1/nodes?limit={PAGE}{}{query}{more}", if query.is_empty() { "" } else { "&" });
            let json = self.cluster.must_get(may("list", "nodes"), &path).await?;
            let page = self.reader.page(&json)?;
            let writers = Writers::of_list(&json);
            nodes.extend(page.items.into_iter().zip(writers).map(|(node, writers)| Seen { node, writers }));
            match page.next {
                Some(token) => next = token,
                None => return Ok(Listed { nodes, version: page.version }),
            }
        }
    }

    /// Reads one node, with or without `node/` before its name.
    pub(super) async fn node(&mut self, name: &str) -> Result<Seen> {
        let name = without_kind(name)?;
        match self.cluster.get(&format!("/api/v1/nodes/{}", escaped(name))).await {
            Ok(json) => Ok(self.seen(&json)?),
            Err(error) if error.is_not_found() => Err(self.not_found(name).await),
            Err(error) => Err(self.cluster.explained(may("get", "nodes"), &error)),
        }
    }

    /// A node as the API wrote it.
    pub(super) fn seen(&mut self, json: &[u8]) -> Result<Seen> {
        Ok(Seen { node: self.reader.node(json)?, writers: Writers::of_node(json) })
    }

    pub(super) fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// What the controller would decide now.
    pub(super) fn decide(&self, node: &Node, now: jiff::Timestamp) -> Decision {
        // A command has seen nothing but what there is now.
        let with = Circumstances { rules: &self.rules, settings: &self.settings, seen: &[], room: self.room, now };
        decide(node, &with)
    }

    /// What to say if there is no such node: which there are.
    async fn not_found(&mut self, name: &str) -> anyhow::Error {
        let Ok(Listed { nodes, .. }) = self.list("").await else { return anyhow!("node {name:?} not found") };
        let names: Vec<String> = nodes.iter().map(|seen| seen.node.name.to_string()).collect();
        if names.is_empty() {
            return anyhow!("node {name:?} not found: the cluster {} has no nodes", self.cluster.url);
        }
        let near = names.iter().map(|known| (strsim::levenshtein(known, name), known)).min();
        let near = near.filter(|(distance, _)| *distance <= name.len().div_ceil(3));
        let meant = near.map(|(_, known)| format!("; did you mean {known}?")).unwrap_or_default();
        anyhow!("node {name:?} not found{meant}; nodes of {}: {}", self.cluster.url, ask::listed(names))
    }
}

async fn read_rules(cluster: &Cluster) -> Result<Rules> {
    let path = format!("/apis/{}/v1alpha1/nodereadinessrules", rule::GROUP);
    let may = Permission::of_cluster(&["list"], rule::GROUP, "nodereadinessrules");
    let json = match cluster.get(&path).await {
        Ok(json) => json,
        Err(error) if error.is_not_found() => {
            // A cluster without the other project's definition; or a page, or another version of it.
            return Ok(match has_group(&cluster.api, &path).await {
                Ok(false) => Rules::default(),
                Ok(true) => unread("the API server has the group, and not this version"),
                Err(error) => unread(&error.to_string()),
            });
        }
        Err(error) if error.is_forbidden() => {
            return Ok(unread(&keelet_gates::api::Denied(vec![may]).to_string()));
        }
        Err(error) => return Err(cluster.explained(may, &error)),
    };
    let list: RuleList = serde_json::from_slice(&json)?;
    Ok(Rules::new(list.items.into_iter().map(Rule::read).collect::<Result<Vec<_>, _>>()?))
}

/// Rules that cannot be read: their taints are left alone.
fn unread(why: &str) -> Rules {
    output::warning(&format!("NodeReadinessRule objects are left out: {why}"));
    Rules::off()
}

/// The name alone, of `node/web` as kubectl writes it.
pub(super) fn without_kind(text: &str) -> Result<&str> {
    match text.split_once('/') {
        None if text.is_empty() => bail!("invalid node \"\": expected a name"),
        None => Ok(text),
        Some(("node" | "nodes" | "no", name)) if !name.is_empty() && !name.contains('/') => Ok(name),
        Some(_) => bail!("invalid node {text:?}: use node/NAME or NAME"),
    }
}
