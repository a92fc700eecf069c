//! What a listing of files means, without a directory.

use super::*;
use crate::Extent;

fn manifests() -> Manifests {
    Manifests::new("/m", Features::default(), Strictness::Strict)
}

fn bytes(text: impl Into<String>) -> Content {
    Content::Bytes(text.into().into_bytes())
}

fn scan(manifests: &mut Manifests, files: impl IntoIterator<Item = (&'static str, Content)>) -> Listing {
    manifests.merge(files.into_iter().map(|(name, content)| (name.to_owned(), content)).collect());
    manifests.listing()
}

#[test]
fn nothing_is_known_before_the_first_scan() {
    assert_eq!(manifests().listing(), Listing::default());
    assert!(!Listing::default().complete);
    let empty = scan(&mut manifests(), []);
    assert!(empty.complete && empty.pods.is_empty());
}

#[test]
fn each_file_brings_its_pods_and_takes_them_with_it() {
    let mut m = manifests();
    let both = format!("{}---\n{}", manifest("b", "1"), manifest("c", "1"));
    let listing = scan(&mut m, [("a.yaml", bytes(manifest("a", "1"))), ("bc.yaml", bytes(both))]);
    assert_eq!(pods(&listing), ["a=1", "b=1", "c=1"]);
    let files: Vec<&str> = listing.files.values().map(String::as_str).collect();
    assert_eq!(files.iter().filter(|file| **file == "/m/bc.yaml").count(), 2, "{files:?}");
    assert!(listing.pods.keys().eq(listing.files.keys()), "each pod has its file");
    assert!(listing.complete && listing.problems.is_empty(), "{listing:?}");
    assert!(listing.pods.iter().all(|(uid, pod)| *uid == pod.uid));
    let listing = scan(&mut m, [("a.yaml", bytes(manifest("a", "1")))]);
    assert_eq!(pods(&listing), ["a=1"]);
}

#[test]
fn changed_content_is_a_new_pod_and_changed_layout_is_not() {
    let mut m = manifests();
    let uid = |listing: &Listing| listing.pods.keys().next().unwrap().clone();
    let first = uid(&scan(&mut m, [("a.yaml", bytes(manifest("a", "1")))]));
    let comment = format!("# hello\n{}", manifest("a", "1"));
    assert_eq!(uid(&scan(&mut m, [("a.yaml", bytes(comment))])), first);
    assert_ne!(uid(&scan(&mut m, [("a.yaml", bytes(manifest("a", "2")))])), first);
    assert_eq!(uid(&scan(&mut m, [("b.yaml", bytes(manifest("a", "1")))])), first, "the file is not part of it");
}

/// `name=image of file` of every pod with a UID, to see that neither pod nor file changed.
fn owners(listing: &Listing) -> Vec<(String, String)> {
    let mut owners: Vec<_> =
        listing.pods.values().map(|pod| (pod.uid.clone(), manifest_of(pod).cloned().unwrap_or_default())).collect();
    owners.sort();
    owners
}

/// NODE-1: a copy beside the file that runs a pod changes nothing, whichever of the two sorts first.
#[test]
fn a_manifest_copied_beside_itself_changes_nothing() {
    let text = || bytes(manifest("web", "1"));
    let mut m = manifests();
    let first = scan(&mut m, [("m.yaml", text())]);
    for copy in ["a.yaml", "z.yaml"] {
        let listing = scan(&mut m, [("m.yaml", text()), (copy, text())]);
        assert_eq!(owners(&listing), owners(&first), "{copy} beside m.yaml");
        let expected = format!("/m/{copy}: pod default/web ignored: /m/m.yaml already has a pod of that name");
        assert_eq!(problems(&listing), [expected]);
        // Edited, it is still the copy: the file that runs the pod keeps it.
        let listing = scan(&mut m, [("m.yaml", text()), (copy, bytes(manifest("web", "2")))]);
        assert_eq!(owners(&listing), owners(&first), "{copy} with another image beside m.yaml");
        // The file that runs the pod is edited while its copy is as it was, and back.
        let listing = scan(&mut m, [("m.yaml", bytes(manifest("web", "3"))), (copy, text())]);
        assert_eq!(pods(&listing), ["web=3"], "m.yaml is the file of the pod, not {copy}");
        scan(&mut m, [("m.yaml", text())]);
    }
}

/// NODE-1: the pod goes on under its UID, and the new file is the one that asks for it.
#[test]
fn a_renamed_manifest_keeps_its_pod() {
    let text = || bytes(manifest("web", "1"));
    let other = || bytes(manifest("web", "other"));
    let mut m = manifests();
    let uid = owners(&scan(&mut m, [("m.yaml", text())]))[0].0.clone();
    // Also beside a file with another pod of that name, which sorts first and waited until now.
    scan(&mut m, [("a.yaml", other()), ("m.yaml", text())]);
    let listing = scan(&mut m, [("a.yaml", other()), ("z.yaml", text())]);
    assert_eq!(owners(&listing), [(uid.clone(), "/m/z.yaml".to_owned())]);
    assert_eq!(listing.files[&uid], "/m/z.yaml");
    // In two steps: copied, then the old one removed.
    scan(&mut m, [("b.yaml", text()), ("z.yaml", text())]);
    let listing = scan(&mut m, [("b.yaml", text())]);
    assert_eq!((owners(&listing), problems(&listing)), (vec![(uid, "/m/b.yaml".to_owned())], vec![]));
}

/// NODE-1: the next agent knows which file had the pod.
#[test]
fn the_file_that_ran_a_pod_keeps_it_over_an_agent_restart() {
    let text = || bytes(manifest("web", "1"));
    for copy in [text(), bytes(manifest("web", "2"))] {
        let left = left("m.yaml", manifest("web", "1"));
        let uid = left.uid.clone();
        let listing = scan(&mut manifests().beside([left]), [("a.yaml", copy), ("m.yaml", text())]);
        assert_eq!(owners(&listing), [(uid, "/m/m.yaml".to_owned())]);
    }
    // Renamed while no agent was there, beside another one of its name.
    let left = left("m.yaml", manifest("web", "1"));
    let uid = left.uid.clone();
    let files = [("a.yaml", bytes(manifest("web", "2"))), ("z.yaml", text())];
    let listing = scan(&mut manifests().beside([left]), files);
    assert_eq!(owners(&listing), [(uid, "/m/z.yaml".to_owned())]);
}

/// NODE-2: a ledger of keelet 0.1 with a UID of content and path, as it is on disk, and the manifest it is of.
#[test]
fn a_pod_with_a_uid_of_the_old_rule_keeps_it() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/uid-of-path");
    let boot_id = keelet_lifecycle::BootId::default();
    let snapshot = keelet_ledger::Snapshot::take(&fixture.join("durable"), &fixture.join("volatile"), boot_id);
    let copy = snapshot.pods.into_iter().next().expect("a pod in the ledger").copy.expect("a copy");
    let pod = Arc::new(Pod::from_json(copy, &Features::default()).expect("a valid copy"));
    let uid = "ed02275d907d9dcdf6a1348f242fb0fa";
    assert_eq!(pod.uid, uid, "the fixture");
    let text = || bytes(fs::read_to_string(fixture.join("web.yaml")).expect("the manifest"));
    let start = || {
        let m = Manifests::new("/srv/keelet/manifests", Features::default(), Strictness::Strict);
        m.beside([Arc::clone(&pod)])
    };
    for name in ["web.yaml", "renamed.yaml"] {
        let mut m = start();
        for _ in 0..2 {
            let listing = scan(&mut m, [(name, text())]);
            assert_eq!((owners(&listing).len(), problems(&listing)), (1, vec![]), "{name}");
            assert!(listing.pods.contains_key(uid), "the pod that runs keeps its UID: {:?}", owners(&listing));
            assert_eq!(listing.pods[uid].source.metadata.uid.as_deref(), Some(uid), "in every copy of it");
        }
        // Whatever is changed in it makes a new pod, as ever.
        let Content::Bytes(old) = text() else { unreachable!("a file") };
        let new = String::from_utf8(old).expect("text").replace("busybox", "busybox:2");
        let listing = scan(&mut m, [(name, bytes(new))]);
        assert!(listing.pods.len() == 1 && !listing.pods.contains_key(uid), "{name}: {listing:?}");
    }
    // A UID that is written down asks for another pod.
    let Content::Bytes(old) = text() else { unreachable!("a file") };
    let numbered = String::from_utf8(old).expect("text").replacen("metadata:", "metadata:\n  uid: \"7\"", 1);
    let listing = scan(&mut start(), [("web.yaml", bytes(numbered))]);
    assert!(listing.pods.keys().eq(["7"]), "{:?}", owners(&listing));
}

/// NODE-3: for the log.
#[test]
fn changes_name_the_file_that_made_changed_or_removed_a_pod() {
    let (one, two) = (manifest("web", "1"), manifest("web", "2"));
    let uid = |text: &str| keelet_pod::parse_one(text).expect("valid").uid;
    let (first, second) = (uid(&one), uid(&two));
    let file = |name: &str| Some(format!("/m/{name}.yaml"));
    let (mut m, mut told) = (manifests(), Reported::default());
    let mut change = |m: &mut Manifests, files: Vec<(&'static str, Content)>| {
        let mut changes = told.update(&scan(m, files));
        let last = changes.pop();
        assert!(changes.is_empty() && last.iter().all(|change| change.pod == "default/web"), "{changes:?} {last:?}");
        last.map(|change| change.kind)
    };
    let made = ChangeKind::Made { file: file("a"), uid: first.clone() };
    assert_eq!(change(&mut m, vec![("a.yaml", bytes(one.clone()))]), Some(made));
    assert_eq!(change(&mut m, vec![("a.yaml", bytes(one.clone()))]), None);
    let moved = ChangeKind::Moved { from: file("a"), to: file("b"), uid: first.clone() };
    assert_eq!(change(&mut m, vec![("b.yaml", bytes(one.clone()))]), Some(moved));
    let changed = ChangeKind::Changed { file: file("b"), uid: second.clone(), replaces: first.clone() };
    assert_eq!(change(&mut m, vec![("b.yaml", bytes(two))]), Some(changed));
    let changed = ChangeKind::Changed { file: file("c"), uid: first.clone(), replaces: second };
    assert_eq!(change(&mut m, vec![("c.yaml", bytes(one.clone()))]), Some(changed));
    assert_eq!(change(&mut m, vec![]), Some(ChangeKind::Removed { file: file("c"), uid: first.clone() }));
    // A pod that an earlier agent left: its removal is reported, and not before that is sure.
    let left = [left("a.yaml", one)];
    let mut m = manifests().with_lost_copies().beside(left.clone());
    let mut told = Reported::beside(&left);
    assert_eq!(told.update(&scan(&mut m, [("b.yaml", bytes("Not a manifest."))])), []);
    let removed = told.update(&scan(&mut m, []));
    assert_eq!(
        removed.into_iter().map(|change| change.kind).collect::<Vec<_>>(),
        [ChangeKind::Removed { file: file("a"), uid: first }]
    );
}

/// API-10, API-19: probes, rules and restart policies of a living pod do not change: a manifest that changes one of
/// them is another pod.
#[test]
fn changed_probes_rules_or_policies_are_a_new_pod() {
    let version = |more: &str| manifest("a", "1").replace("image: \"1\"", &format!("image: \"1\"{more}"));
    let probe = |period: u32| format!(", livenessProbe: {{ tcpSocket: {{ port: 1 }}, periodSeconds: {period} }}");
    let rule = |code: u32| {
        let codes = format!("exitCodes: {{ operator: In, values: [{code}] }}");
        format!(", restartPolicy: Never, restartPolicyRules: [{{ action: Restart, {codes} }}]")
    };
    let versions = ["", &probe(1), &probe(2), ", restartPolicy: Never", ", restartPolicy: Always", &rule(1), &rule(2)];
    let mut m = manifests();
    let mut uids = std::collections::BTreeSet::new();
    for more in versions {
        let listing = scan(&mut m, [("a.yaml", bytes(version(more)))]);
        assert_eq!((pods(&listing), problems(&listing)), (vec!["a=1".to_owned()], vec![]), "{more:?}");
        uids.extend(listing.pods.into_keys());
    }
    assert_eq!(uids.len(), versions.len(), "each is a pod of its own");
}

/// A manifest with a UID of its own.
fn numbered(name: &str, image: &str) -> String {
    manifest(name, image).replace("metadata: {", "metadata: { uid: \"7\",")
}

fn changed(file: &str, pod: &str, runs: &str) -> String {
    format!(
        "{file}: pod {pod} rejected: its metadata.uid \"7\" is that of a running pod with another spec, and the spec \
         of a pod cannot change. Set another metadata.uid, or none, and keelet makes one from the content; or remove the \
         file until the running pod is deleted (still running by an older version: {runs})"
    )
}

/// API-10, API-19: also under a UID that the manifest names.
#[test]
fn a_living_pod_does_not_change_under_its_uid() {
    let mut m = manifests();
    assert_eq!(pods(&scan(&mut m, [("a.yaml", bytes(numbered("a", "1")))])), ["a=1"]);
    let refused = vec![changed("/m/a.yaml", "default/a", "default/a")];
    for image in ["2", "2", "3"] {
        let listing = scan(&mut m, [("a.yaml", bytes(numbered("a", image)))]);
        assert_eq!((pods(&listing), problems(&listing)), (vec!["a=1".to_owned()], refused.clone()), "{image}");
        assert!(listing.complete && listing.problems[0].severity() == keelet_pod::Severity::Error);
    }
    // Under another name, and in another file.
    let listing = scan(&mut m, [("b.yaml", bytes(numbered("b", "1")))]);
    let expected = vec![changed("/m/b.yaml", "default/b", "default/a")];
    assert_eq!((pods(&listing), problems(&listing)), (vec!["a=1".to_owned()], expected));
    // In another file, beside the one that asks for it.
    let listing = scan(&mut m, [("0.yaml", bytes(numbered("b", "1"))), ("a.yaml", bytes(numbered("a", "1")))]);
    let expected = changed("/m/0.yaml", "default/b", "").replace(" (still running by an older version: )", "");
    assert_eq!((pods(&listing), problems(&listing)), (vec!["a=1".to_owned()], vec![expected]));
    // As it was, and then gone.
    let listing = scan(&mut m, [("a.yaml", bytes(format!("# hello\n{}", numbered("a", "1"))))]);
    assert_eq!((pods(&listing), problems(&listing)), (vec!["a=1".to_owned()], vec![]));
    scan(&mut m, [("a.yaml", bytes(numbered("a", "2")))]);
    assert!(scan(&mut m, []).pods.is_empty());
    let listing = scan(&mut m, [("a.yaml", bytes(numbered("a", "2")))]);
    assert_eq!((pods(&listing), problems(&listing)), (vec!["a=2".to_owned()], vec![]));
    // None of its own, or another one: another pod.
    for text in [manifest("a", "3"), numbered("a", "4").replace('7', "8")] {
        assert!(scan(&mut m, [("a.yaml", bytes(text))]).problems.is_empty());
    }
    assert_eq!(pods(&m.listing()), ["a=4"]);
}

/// API-10, API-19: what an earlier agent ran is read from its copy, as the ledger keeps it.
#[test]
fn a_pod_that_an_earlier_agent_left_does_not_change_either() {
    let copy = |text: &str| {
        let pod = keelet_pod::parse_one(text).expect("valid");
        let copy = pod.to_json().expect("JSON");
        Arc::new(Pod::from_json(copy, &Features::default()).expect("valid"))
    };
    let beside = |text: &str| manifests().beside([copy(text)]);
    let mut m = beside(&numbered("a", "1"));
    let listing = scan(&mut m, [("a.yaml", bytes(numbered("a", "2")))]);
    let refused = vec![changed("/m/a.yaml", "default/a", "default/a")];
    assert_eq!((pods(&listing), problems(&listing)), (vec!["a=1".to_owned()], refused.clone()));
    let listing = scan(&mut m, [("a.yaml", bytes(numbered("a", "1")))]);
    assert_eq!((pods(&listing), problems(&listing)), (vec!["a=1".to_owned()], vec![]));
    // The source cannot know yet whether the pod is still wanted.
    let mut m = beside(&numbered("a", "1"));
    scan(&mut m, [("b.yaml", bytes(invalid("b")))]);
    let listing = scan(&mut m, [("a.yaml", bytes(numbered("a", "2"))), ("b.yaml", bytes(invalid("b")))]);
    assert_eq!((pods(&listing), &problems(&listing)[0]), (vec!["a=1".to_owned()], &refused[0]));
    // Now the source knows: the pod is not wanted.
    let mut m = beside(&numbered("a", "1"));
    scan(&mut m, []);
    assert_eq!(pods(&scan(&mut m, [("a.yaml", bytes(numbered("a", "2")))])), ["a=2"]);
    // A copy is what was read: no example differs from its own.
    for text in
        [include_str!("../../../../../examples/full.yaml"), include_str!("../../../../../examples/restart-all.yaml")]
    {
        let text = text.replacen("metadata:", "metadata:\n  uid: \"7\"", 1);
        let listing = scan(&mut beside(&text), [("a.yaml", bytes(text.clone()))]);
        assert_eq!((listing.pods.len(), problems(&listing)), (1, vec![]));
    }
}

#[test]
fn a_file_that_turns_invalid_keeps_its_pod_and_says_why() {
    let mut m = manifests();
    scan(&mut m, [("a.yaml", bytes(manifest("a", "1")))]);
    let listing = scan(&mut m, [("a.yaml", bytes(invalid("a")))]);
    assert_eq!(pods(&listing), ["a=1"]);
    let [problem] = problems(&listing).try_into().unwrap();
    assert!(problem.starts_with("/m/a.yaml:5:"), "{problem}");
    assert!(problem.contains("spec.containers[0].name: Invalid value: \"Not a name\": "), "{problem}");
    assert!(problem.ends_with(" (still running by an older version: default/a)"), "{problem}");
    assert!(listing.complete, "nothing is unknown");
    let listing = scan(&mut m, [("a.yaml", bytes(manifest("a", "2")))]);
    assert_eq!(pods(&listing), ["a=2"]);
    assert!(listing.problems.is_empty());
    assert!(scan(&mut m, []).pods.is_empty(), "once its file is gone, it goes");
}

/// A pod that a file asked an earlier agent for, as the ledger keeps it.
fn left(file: &'static str, text: String) -> Arc<Pod> {
    let listing = scan(&mut manifests(), [(file, bytes(text))]);
    let copy = listing.pods.values().next().expect("a pod").to_json().expect("JSON");
    Arc::new(Pod::from_json(copy, &Features::default()).expect("valid"))
}

#[test]
fn a_file_that_was_never_valid_keeps_what_it_asked_an_earlier_agent_for() {
    let contents = [bytes(invalid("a")), bytes(""), Content::Busy, Content::Unreadable("no".to_owned())];
    for content in contents {
        let mut m = manifests().beside([left("a.yaml", manifest("a", "1")), left("b.yaml", manifest("b", "1"))]);
        let mut scans = || scan(&mut m, [("a.yaml", content.clone()), ("c.yaml", bytes(manifest("c", "1")))]);
        for _ in 0..2 {
            let listing = scans();
            assert_eq!(pods(&listing), ["a=1", "c=1"], "{content:?}");
            assert!(listing.complete, "b is not wanted, whatever is in the file of a: {content:?}");
            let kept: Vec<_> = listing.problems.iter().flat_map(|problem| &problem.kept).collect();
            assert!(content == Content::Busy || kept == ["default/a"], "{kept:?}");
        }
        // The same as before, or another one in its place.
        for image in ["1", "2"] {
            let listing = scan(&mut m.clone(), [("a.yaml", bytes(manifest("a", image)))]);
            assert_eq!((pods(&listing), problems(&listing)), (vec![format!("a={image}")], vec![]));
            assert!(listing.pods.keys().eq(listing.files.keys()) && listing.complete);
        }
        assert_eq!(pods(&scan(&mut m.clone(), [("d.yaml", bytes(manifest("a", "2")))])), ["a=2"]);
        assert!(scan(&mut m, []).pods.is_empty(), "once its file is gone, it goes");
    }
}

/// The first file of a name wins, also while it cannot be read.
#[test]
fn another_file_does_not_take_the_place_of_one_that_is_broken() {
    for (broken, other) in [("a.yaml", "b.yaml"), ("b.yaml", "a.yaml")] {
        let mut m = manifests().beside([left(broken, manifest("web", "1"))]);
        let scans = || [(broken, bytes(invalid("web"))), (other, bytes(manifest("web", "2")))];
        for _ in 0..2 {
            let listing = scan(&mut m, scans());
            assert_eq!((pods(&listing), listing.complete), (vec!["web=1".to_owned()], true), "{broken}");
            let left_out = format!("/m/{other}: pod default/web ignored: ");
            assert!(problems(&listing).iter().any(|problem| problem.starts_with(&left_out)), "{listing:?}");
        }
    }
}

/// A pod with a UID of its own stays the same when its file is renamed, and belongs to the new one from then on.
#[test]
fn a_pod_goes_with_its_file() {
    let mut m = manifests().beside([left("a.yaml", numbered("a", "1"))]);
    let copy = |listing: &Listing| listing.pods["7"].to_json().expect("JSON");
    let moved = copy(&scan(&mut m, [("b.yaml", bytes(numbered("a", "1")))]));
    let moved = Arc::new(Pod::from_json(moved, &Features::default()).expect("valid"));
    let mut m = manifests().beside([moved]);
    assert_eq!(pods(&scan(&mut m, [("b.yaml", bytes(invalid("a")))])), ["a=1"]);
}

#[test]
fn a_file_that_is_no_manifest_keeps_nothing_that_is_not_its_own() {
    let readme = || [("README", bytes("Put manifests here."))];
    let mut m = manifests().beside([left("a.yaml", manifest("a", "1"))]);
    let listing = scan(&mut m, readme());
    assert!(listing.pods.is_empty() && listing.complete && listing.problems[0].kept.is_empty(), "{listing:?}");
    assert_eq!(listing.extent(), Extent::Unreadable, "it may ask for pods that no ledger knows");
    // The file of a pod that does not name it is unknown: the pod is from an agent that did not record the file.
    let silent = Arc::new(keelet_pod::parse_one(&manifest("a", "1")).expect("valid"));
    let mut m = manifests().beside([silent]);
    let listing = scan(&mut m, readme());
    assert_eq!((pods(&listing), listing.complete), (vec!["a=1".to_owned()], true));
    assert!(problems(&listing)[0].ends_with("(still running by an older version: default/a)"), "{listing:?}");
    assert!(scan(&mut m, []).pods.is_empty());
    assert_eq!(scan(&mut m, []).extent(), Extent::Complete);
    // So is the file of a lost pod: any file may have asked for it.
    let mut m = manifests().with_lost_copies();
    assert_eq!(scan(&mut m, readme()).extent(), Extent::Partial);
    assert_eq!(scan(&mut m, []).extent(), Extent::Complete);
    // A file that was valid once asks for what it asked for then.
    scan(&mut m, [("a.yaml", bytes(manifest("a", "1")))]);
    assert_eq!(scan(&mut m, [("a.yaml", bytes(invalid("a")))]).extent(), Extent::Complete);
}

#[test]
fn of_several_documents_the_valid_ones_are_taken() {
    let mut m = manifests();
    let two = |b: String| bytes(format!("{}---\n{b}", manifest("a", "2")));
    scan(&mut m, [("x.yaml", bytes(format!("{}---\n{}", manifest("a", "1"), manifest("b", "1"))))]);
    let listing = scan(&mut m, [("x.yaml", two(invalid("b")))]);
    assert_eq!(pods(&listing), ["a=2", "b=1"]);
    assert_eq!(listing.problems[0].kept, ["default/b"]);
    let listing = scan(&mut m, [("x.yaml", two(manifest("b", "2")))]);
    assert_eq!(pods(&listing), ["a=2", "b=2"]);
    // Without an older version the valid one runs, and the rest is unknown.
    let listing = scan(&mut manifests(), [("x.yaml", two(invalid("b")))]);
    assert_eq!(pods(&listing), ["a=2"]);
    // With one of an earlier agent's it goes on.
    let before = format!("{}---\n{}", manifest("b", "1"), manifest("a", "1"));
    let copies = scan(&mut manifests(), [("x.yaml", bytes(before))]).pods.into_values();
    let listing = scan(&mut manifests().beside(copies), [("x.yaml", two(invalid("b")))]);
    assert_eq!(pods(&listing), ["a=2", "b=1"]);
    assert_eq!(listing.problems[0].kept, ["default/b"]);
}

#[test]
fn what_cannot_be_read_now_keeps_its_pod() {
    let mut m = manifests();
    scan(&mut m, [("a.yaml", bytes(manifest("a", "1")))]);
    let listing = scan(&mut m, [("a.yaml", Content::Unreadable("permission denied".to_owned()))]);
    assert_eq!(pods(&listing), ["a=1"]);
    let expected = "/m/a.yaml: cannot read: permission denied (still running by an older version: default/a)";
    assert_eq!(problems(&listing), [expected]);
    let listing = scan(&mut m, [("a.yaml", Content::Busy)]);
    assert_eq!(pods(&listing), ["a=1"]);
    // The same content as before the trouble is read again.
    let listing = scan(&mut m, [("a.yaml", bytes(manifest("a", "1")))]);
    assert_eq!((pods(&listing), problems(&listing)), (vec!["a=1".to_owned()], vec![]));
    let listing = scan(&mut m, [("a.yaml", Content::NotAFile("a directory"))]);
    assert!(listing.pods.is_empty() && listing.complete, "no file asks for it any more");
    assert_eq!(problems(&listing), ["/m/a.yaml: ignored: a directory, not a regular file"]);
}

/// Of two that come at once; one that runs a pod already keeps it.
#[test]
fn of_two_pods_of_one_name_the_first_file_wins() {
    let mut m = manifests();
    let files = || [("b.yaml", bytes(manifest("web", "b"))), ("a.yaml", bytes(manifest("web", "a")))];
    let listing = scan(&mut m, files());
    assert_eq!(pods(&listing), ["web=a"]);
    let expected = "/m/b.yaml: pod default/web ignored: /m/a.yaml already has a pod of that name";
    assert_eq!(problems(&listing), [expected]);
    assert!(listing.complete);
    assert_eq!(pods(&scan(&mut m, files().into_iter().take(1))), ["web=b"], "the first one went");
    let elsewhere = manifest("web", "c").replace("name: web", "name: web, namespace: other");
    let listing = scan(&mut m, [("a.yaml", bytes(manifest("web", "a"))), ("c.yaml", bytes(elsewhere))]);
    assert_eq!(pods(&listing), ["web=a", "web=c"], "another namespace is another pod");
}

#[test]
fn of_two_documents_of_one_name_the_first_wins() {
    let twice = format!("{}---\n{}", manifest("web", "1"), manifest("web", "2"));
    let listing = scan(&mut manifests(), [("a.yaml", bytes(twice))]);
    assert_eq!(pods(&listing), ["web=1"]);
    assert!(problems(&listing)[0].contains("Duplicate value: \"default/web\""), "{:?}", problems(&listing));
}

#[test]
fn of_two_pods_of_one_uid_the_first_file_wins() {
    let with_uid = |name| bytes(manifest(name, "1").replace("metadata: {", "metadata: { uid: same,"));
    let listing = scan(&mut manifests(), [("a.yaml", with_uid("a")), ("b.yaml", with_uid("b"))]);
    assert_eq!(pods(&listing), ["a=1"]);
    let expected = "/m/b.yaml: pod default/b ignored: /m/a.yaml already has a pod with the UID same";
    assert_eq!(problems(&listing), [expected]);
}

#[test]
fn a_directory_that_vanishes_stops_nothing() {
    let mut m = manifests();
    scan(&mut m, [("a.yaml", bytes(manifest("a", "1")))]);
    m.lose("it does not exist");
    let listing = m.listing();
    assert_eq!(pods(&listing), ["a=1"]);
    assert!(!listing.complete);
    let expected = "/m: cannot list: it does not exist (still running by an older version: default/a)";
    assert_eq!(problems(&listing), [expected]);
    assert!(scan(&mut m, []).pods.is_empty(), "it is back, and empty");
}
