//! From files to a listing. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use keelet_pod::{Features, MANIFEST, Origin, Pod, Strictness, read_manifest};

use super::{Listing, SourceProblem, Trouble};

/// What a scan showed of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// All that is in it.
    Bytes(Vec<u8>),
    /// A process is writing to it.
    Busy,
    /// It cannot be read, and why.
    Unreadable(String),
    /// It is something else, such as a directory.
    NotAFile(&'static str),
}

/// What is known of each file of a directory, from all scans so far.
#[derive(Clone, Debug)]
pub struct Manifests {
    directory: PathBuf,
    features: Features,
    strictness: Strictness,
    /// By name, so the first of two that come at once and are at odds is always the same.
    files: BTreeMap<String, File>,
    /// What runs by the newest listing, by UID.
    running: BTreeMap<String, Arc<Pod>>,
    /// What an earlier agent left running, by UID, and no file has asked for yet.
    recovered: BTreeMap<String, Arc<Pod>>,
    /// Whether an earlier agent left more than that, of unknown content.
    lost_copies: bool,
    /// Why the directory could not be listed the last time.
    lost: Option<String>,
    listed: bool,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// What was read last, to see whether it changed. Manifests are small.
    bytes: Option<Vec<u8>>,
    /// The pods it asks for.
    pods: Vec<Arc<Pod>>,
    /// Those among them that it asked for in an older version only.
    kept: Vec<String>,
    troubles: Vec<Trouble>,
    knowledge: Knowledge,
}

/// Whether there could be more in a file than is known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Knowledge {
    /// No version of it was wholly valid so far.
    #[default]
    Partial,
    /// Some version was, this one or an older one.
    Whole,
}

// === impl Manifests ===

impl Manifests {
    /// Nothing is known yet.
    pub fn new(directory: impl Into<PathBuf>, features: Features, strictness: Strictness) -> Self {
        Self {
            directory: directory.into(),
            features,
            strictness,
            files: BTreeMap::new(),
            running: BTreeMap::new(),
            recovered: BTreeMap::new(),
            lost_copies: false,
            lost: None,
            listed: false,
        }
    }

    /// Pods that run already, from an earlier agent.
    pub fn beside(self, recovered: impl IntoIterator<Item = Arc<Pod>>) -> Self {
        Self { recovered: recovered.into_iter().map(|pod| (pod.uid.clone(), pod)).collect(), ..self }
    }

    /// An earlier agent left more pods than those, and their copies cannot be read.
    pub fn with_lost_copies(self) -> Self {
        Self { lost_copies: true, ..self }
    }

    /// Takes a scan of the directory: all files that are in it now. Whatever is not among them is gone.
    pub fn merge(&mut self, files: Vec<(String, Content)>) {
        let mut old = std::mem::take(&mut self.files);
        for (name, content) in files {
            let file = old.remove(&name).unwrap_or_default();
            let file = self.merge_file(&name, file, content);
            self.files.insert(name, file);
        }
        self.lost = None;
        self.listed = true;
        let listing = self.listing();
        // What a complete listing does not have is not wanted any more. What it has without a file is held.
        let settled = |uid: &String| {
            if listing.pods.contains_key(uid) { listing.files.contains_key(uid) } else { listing.complete }
        };
        self.recovered.retain(|uid, _| !settled(uid));
        self.running = listing.pods;
    }

    /// Takes a scan that failed: the directory cannot be listed. That says nothing about the pods.
    pub fn lose(&mut self, why: impl Into<String>) {
        self.lost = Some(why.into());
    }

    /// What should run.
    pub fn listing(&self) -> Listing {
        let known = self.files.values().all(|file| file.knowledge == Knowledge::Whole);
        let complete = self.listed && self.lost.is_none() && (known || !self.lost_copies);
        let mut listing = Listing { complete, readable: self.listed && known, ..Listing::default() };
        let mut held = self.held();
        if let Some(why) = &self.lost {
            listing.problems.push(SourceProblem {
                file: self.directory.display().to_string(),
                trouble: Trouble::NoDirectory(why.clone()),
                kept: self.files.values().flat_map(|file| &file.pods).map(|pod| name_of(pod)).collect(),
            });
        }
        // What runs or is held has its name already, whichever file comes first.
        let mut names = self.owners();
        names.extend(held.iter().flat_map(|(file, pods)| pods.iter().map(|pod| (name_of(pod), *file))));
        let mut uids: BTreeMap<&String, &String> = BTreeMap::new();
        for (name, file) in &self.files {
            let path = self.path(name);
            let problem = |trouble| SourceProblem { file: path.clone(), trouble, kept: Vec::new() };
            let held = held.remove(name).unwrap_or_default();
            // Said once, with the first.
            let mut kept: Vec<_> = file.kept.iter().cloned().chain(held.iter().map(|pod| name_of(pod))).collect();
            listing.pods.extend(held.into_iter().map(|pod| (pod.uid.clone(), Arc::clone(pod))));
            let troubles = file.troubles.iter().cloned();
            listing.problems.extend(troubles.map(|t| SourceProblem { kept: std::mem::take(&mut kept), ..problem(t) }));
            for asked in &file.pods {
                if let Some(first) = names.get(&name_of(asked)).filter(|first| **first != name) {
                    let (pod, first) = (name_of(asked), self.path(first));
                    listing.problems.push(problem(Trouble::SameName { pod, first }));
                    continue;
                }
                if let Some(first) = uids.get(&asked.uid) {
                    let (uid, first) = (asked.uid.clone(), self.path(first));
                    listing.problems.push(problem(Trouble::SameUid { pod: name_of(asked), uid, first }));
                    continue;
                }
                let living = self.living(asked);
                // As it is asked for now: its file may have got another name.
                let pod = if is_same(living, asked) { asked } else { living };
                if !is_same(pod, asked) {
                    let trouble = Trouble::Changed { pod: name_of(asked), uid: asked.uid.clone() };
                    // It may be another file that asks for what runs.
                    let unchanged = self.asks_for(pod);
                    let kept = if unchanged { Vec::new() } else { vec![name_of(pod)] };
                    listing.problems.push(SourceProblem { kept, ..problem(trouble) });
                    if unchanged {
                        continue;
                    }
                }
                names.insert(name_of(pod), name);
                uids.insert(&pod.uid, name);
                listing.files.insert(pod.uid.clone(), path.clone());
                listing.pods.insert(pod.uid.clone(), Arc::clone(pod));
            }
        }
        listing
    }

    /// The pod as it runs, if it does. The probes and rules of a living pod do not change, so whatever else a file
    /// says under its UID has to wait until it is gone. Only a UID that was written down can come to this: one that is
    /// made from the content is another one for another content. API-10, API-19.
    fn living<'a>(&'a self, asked: &'a Arc<Pod>) -> &'a Arc<Pod> {
        self.running.get(&asked.uid).or_else(|| self.recovered.get(&asked.uid)).unwrap_or(asked)
    }

    /// The file that each pod belongs to which runs, by `namespace/name`: the one that it is of already, else one that asks for
    /// exactly what runs, which is what a renamed file does. A name without an owner is free for the first that asks.
    fn owners(&self) -> BTreeMap<String, &String> {
        let mut asking: BTreeMap<String, Vec<(&String, &Arc<Pod>)>> = BTreeMap::new();
        for (file, pod) in self.files.iter().flat_map(|(name, file)| file.pods.iter().map(move |pod| (name, pod))) {
            asking.entry(name_of(pod)).or_default().push((file, pod));
        }
        let mut owners = BTreeMap::new();
        for living in self.recovered.values().chain(self.running.values()) {
            let name = name_of(living);
            let Some(asking) = asking.get(&name) else { continue };
            let own = asking.iter().find(|(file, _)| manifest_of(living) == Some(&self.path(file)));
            if let Some((file, _)) = own.or_else(|| asking.iter().find(|(_, asked)| is_same(asked, living))) {
                owners.insert(name, *file);
            }
        }
        owners
    }

    /// A pod of a manifest that gives no UID: under the UID that it runs with, if exactly this pod runs. An earlier keelet made
    /// UIDs by another rule.
    fn as_it_runs(&self, asked: Pod) -> Pod {
        let mut running = self.running.values().chain(self.recovered.values());
        let same =
            |living: &&Arc<Pod>| living.name == asked.name && is_same(living, &asked.clone().with_uid(&living.uid));
        match running.find(same) {
            Some(living) => asked.with_uid(&living.uid),
            None => asked,
        }
    }

    fn asks_for(&self, pod: &Arc<Pod>) -> bool {
        self.files.values().flat_map(|file| &file.pods).any(|asked| is_same(asked, pod))
    }

    /// Pods of an earlier agent that a file may still ask for, if it could only be read, by the name of the file. A
    /// file holds those that it once asked for, and those whose file is unknown. One that has given way to another of
    /// its name in its own file is not held.
    fn held(&self) -> BTreeMap<&String, Vec<&Arc<Pod>>> {
        let asked = || self.files.values().flat_map(|file| &file.pods);
        let uids: BTreeSet<_> = asked().map(|pod| &pod.uid).collect();
        let mut held: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for pod in self.recovered.values().filter(|pod| !uids.contains(&pod.uid)) {
            let whose = manifest_of(pod);
            let replaces =
                |new: &Arc<Pod>| name_of(new) == name_of(pod) && (whose.is_none() || manifest_of(new) == whose);
            if asked().any(replaces) {
                continue;
            }
            let may_ask = |name: &str| whose.is_none_or(|file| *file == self.path(name));
            let mut unknown = self.files.iter().filter(|(_, file)| file.knowledge == Knowledge::Partial);
            if let Some((name, _)) = unknown.find(|(name, _)| may_ask(name)) {
                held.entry(name).or_default().push(pod);
            }
        }
        held
    }

    fn merge_file(&self, name: &str, old: File, content: Content) -> File {
        match content {
            Content::Bytes(bytes) if old.bytes.as_ref() == Some(&bytes) => old,
            Content::Bytes(bytes) => self.read(name, old, bytes),
            Content::Busy => old,
            Content::Unreadable(why) => File {
                bytes: None,
                kept: old.pods.iter().map(|pod| name_of(pod)).collect(),
                troubles: vec![Trouble::Unreadable(why)],
                ..old
            },
            Content::NotAFile(what) => {
                File { troubles: vec![Trouble::NotAFile(what)], knowledge: Knowledge::Whole, ..File::default() }
            }
        }
    }

    fn read(&self, name: &str, old: File, bytes: Vec<u8>) -> File {
        let path = self.path(name);
        let origin = Origin::file(path.clone());
        let report = read_manifest(&bytes, &origin, self.strictness, &self.features);
        let is_valid = report.is_ok();
        let identified = |pod: Pod| if report.derived_uids.contains(&pod.uid) { self.as_it_runs(pod) } else { pod };
        let pods = report.pods.into_iter().map(|pod| Arc::new(with_manifest(identified(pod), Some(&path))));
        let mut pods: Vec<_> = pods.collect();
        let mut kept = Vec::new();
        if !is_valid {
            // Which of the older pods the invalid part is about is unknown.
            let unnamed = |old: &Arc<Pod>| !pods.iter().any(|new| name_of(new) == name_of(old));
            let stay: Vec<_> = old.pods.into_iter().filter(unnamed).collect();
            kept = stay.iter().map(|pod| name_of(pod)).collect();
            pods.extend(stay);
        }
        let complaints = report.errors.into_iter().chain(report.warnings);
        let mut troubles: Vec<_> = complaints.map(|problem| Trouble::Manifest(Box::new(problem))).collect();
        if report.omitted > 0 {
            troubles.push(Trouble::Omitted(report.omitted));
        }
        let knowledge = if is_valid { Knowledge::Whole } else { old.knowledge };
        File { bytes: Some(bytes), pods, kept, troubles, knowledge }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

/// Whether two are the same pod, whichever file asks for it: a file can get another name.
fn is_same(one: &Pod, other: &Pod) -> bool {
    let bare = |pod: &Pod| with_manifest(pod.clone(), None);
    one == other || bare(one) == bare(other)
}

/// The file that asks for a pod, or asked for it last.
pub(super) fn manifest_of(pod: &Pod) -> Option<&String> {
    pod.source.metadata.annotations.as_ref()?.get(MANIFEST)
}

/// The pod with that file as the one that asks for it, or with none. The ledger keeps it with the pod's copy, so the next agent
/// knows whose pods a file is about that it cannot read.
fn with_manifest(mut pod: Pod, file: Option<&str>) -> Pod {
    let annotations = &mut Arc::make_mut(&mut pod.source).metadata.annotations;
    let mut all = annotations.take().unwrap_or_default();
    match file {
        Some(file) => all.insert(MANIFEST.to_owned(), file.to_owned()),
        None => all.remove(MANIFEST),
    };
    *annotations = Some(all).filter(|all| !all.is_empty());
    pod
}

/// `namespace/name`.
pub(super) fn name_of(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}
