//! What files ask for, and which file asks for it: the agent together with its source of manifests.

use std::sync::Arc;

use keelet_agent::source::{Content, Listing, Manifests};
use keelet_lifecycle::status::ConditionType;
use keelet_pod::{Features, Pod, Strictness};
use keelet_sim::{World, secs};

fn web(image: &str) -> Content {
    let probe = "readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 2}";
    let pod = format!(
        "kind: Pod\nmetadata: {{name: web}}\nspec:\n  containers:\n  - {{name: main, image: {image}, {probe}}}\n"
    );
    Content::Bytes(format!("apiVersion: v1\n{pod}").into_bytes())
}

fn manifests() -> Manifests {
    Manifests::new("/m", Features::default(), Strictness::Strict)
}

/// The source of an agent that starts on this ledger.
fn next_source(world: &World) -> Manifests {
    let copies = world.ledger().into_iter().filter_map(|pod| Pod::from_json(pod.copy?, &Features::default()).ok());
    manifests().beside(copies.map(Arc::new))
}

fn look(manifests: &mut Manifests, files: &[(&str, &Content)]) -> Listing {
    manifests.merge(files.iter().map(|(name, content)| ((*name).to_owned(), (*content).clone())).collect());
    manifests.listing()
}

/// NODE-1: a manifest is copied beside itself, before and behind it, and renamed, with and without an agent. Nothing is
/// started anew, and no status says anything else.
#[test]
fn copied_and_renamed_manifests_restart_nothing() {
    let text = web("app");
    let mut world = World::new(1).build();
    let mut source = manifests();
    world.set_listing(&look(&mut source, &[("m.yaml", &text)]));
    assert!(world.run_until(secs(20), |world| world.holds(ConditionType::Ready)), "{}", world.timeline_text());
    let (before, instance) = (world.status(), world.running("main"));
    let steps: [&[(&str, &Content)]; 6] = [
        &[("a.yaml", &text), ("m.yaml", &text)],
        &[("m.yaml", &text), ("z.yaml", &text)],
        &[("z.yaml", &text)],
        &[("b.yaml", &text)],
        &[("a.yaml", &web("other")), ("b.yaml", &text)],
        &[("a.yaml", &web("other")), ("c.yaml", &text)],
    ];
    for files in steps {
        let listing = look(&mut source, files);
        world.set_listing(&listing).run(secs(40));
        let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
        assert_eq!(world.starts("main"), 1, "{names:?} restarted the pod\n{}", world.timeline_text());
        // The next agent knows whose pod it is.
        world.kill_agent();
        source = next_source(&world);
        let listing = look(&mut source, files);
        world.set_listing(&listing).start_agent().run(secs(10));
        assert_eq!(
            world.starts("main"),
            1,
            "{names:?} and an agent restart restarted the pod\n{}",
            world.timeline_text()
        );
        assert_eq!(world.status(), before, "{names:?}");
    }
    assert_eq!(world.running("main"), instance);
    // Its file is gone, and the other one was there all the time.
    world.set_listing(&look(&mut source, &[("a.yaml", &web("other"))])).run(secs(60));
    assert_eq!(world.container("main").image_id, "sha256:other", "{}", world.timeline_text());
}

/// NODE-4: an agent that starts before its source speaks goes on with the spec that was wanted last.
#[test]
fn the_copy_of_a_changed_spec_is_kept_for_the_next_agent() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").build();
    world.run(secs(20));
    world.set_image("main", "app:v2").run(secs(20));
    assert_eq!(world.container("main").image_id, "sha256:app:v2", "{}", world.timeline_text());
    world.kill_agent().start_agent_without_source().run(secs(20));
    assert_eq!(
        (world.container("main").image_id, world.starts("main")),
        ("sha256:app:v2".to_owned(), 2),
        "the next agent went back to an older spec\n{}",
        world.timeline_text()
    );
    world.exit("main", 1).run(secs(60));
    assert_eq!(world.container("main").image_id, "sha256:app:v2", "after a restart\n{}", world.timeline_text());
}
