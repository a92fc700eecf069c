//! Several sources of pods, and what they do wrong: not complete, listing anew, two pods of one name, updates at any time.

use std::sync::Arc;

use keelet_agent::Extent::{Complete, Partial, Relisting};
use keelet_pod::{Pod, parse_one};
use keelet_sim::{SimSource, World, millis, secs};

fn pod(name: &str, uid: &str, image: &str) -> Arc<Pod> {
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, uid: {uid}}}\nspec:\n  containers:\n  \
         - {{name: main, image: {image}}}\n"
    );
    Arc::new(parse_one(&manifest).unwrap_or_else(|problems| panic!("{problems}")))
}

/// A world in which two sources have had a pod running each, with an agent that has just been restarted and has opened both.
fn restarted(files: &Arc<Pod>, api: &Arc<Pod>) -> (World, SimSource, SimSource) {
    let mut world = World::new(1).without_agent().build();
    let open = |world: &mut World| {
        world.start_agent_without_source().run(millis(10));
        (world.open_source(), world.open_source())
    };
    let (first, second) = open(&mut world);
    world.say(&first, &[files], Complete).say(&second, &[api], Complete).run(secs(20));
    world.kill_agent().run(secs(2));
    let (first, second) = open(&mut world);
    (world, first, second)
}

/// CLU-16: one source is complete at once, the other one for minutes not, and then lists anew. Nothing of either is stopped.
#[test]
fn a_source_that_is_not_complete_costs_no_pod() {
    let (web, db) = (pod("web", "u1", "app"), pod("db", "u2", "app"));
    let (mut world, files, api) = restarted(&web, &db);
    world.say(&files, &[&web], Complete).say(&api, &[], Partial).run(secs(300));
    world.say(&api, &[], Relisting).run(secs(120)).say(&api, &[&db], Complete).run(secs(120));
    world.say(&api, &[], Relisting).run(secs(120)).say(&api, &[&db], Complete).run(secs(60));
    let text = world.timeline_text();
    assert_eq!((world.starts("web/main"), world.starts("db/main")), (1, 1), "{text}");
    assert!(world.has_remains("db") && world.has_remains("web"), "{text}");
    // Once it is complete without it, the pod goes.
    world.say(&api, &[], Complete);
    assert!(world.run_until(secs(60), |world| !world.has_remains("db")), "{}", world.timeline_text());
    assert_eq!(world.starts("web/main"), 1);
}

/// CLU-17: two sources name two pods of one full name. The one that runs stays, the other one waits until it is gone.
#[test]
fn a_name_that_two_sources_give_is_the_running_pods() {
    let (web, db, other) = (pod("web", "u1", "app"), pod("db", "u2", "app"), pod("web", "u0", "app"));
    let (mut world, files, api) = restarted(&web, &db);
    world.say(&api, &[&db, &other], Complete).say(&files, &[&web], Complete).run(secs(120));
    let made = |world: &World, uid: &str| world.timeline_text().contains(&format!("status  {uid} "));
    assert!(!made(&world, "u0"), "{}", world.timeline_text());
    world.say(&files, &[], Complete);
    assert!(world.run_until(secs(60), |world| made(world, "u0")), "{}", world.timeline_text());
}

/// An update that comes while its source lists anew, or twice, is heeded once and restarts what it changes, nothing else.
#[test]
fn an_update_in_the_middle_of_a_listing_is_heeded_once() {
    let (web, db, newer) = (pod("web", "u1", "app"), pod("db", "u2", "app"), pod("db", "u2", "app:2"));
    let (mut world, files, api) = restarted(&web, &db);
    world.say(&files, &[&web], Complete).say(&api, &[&db], Complete).run(secs(60));
    world.say(&api, &[&newer], Relisting).run(secs(1)).say(&api, &[&newer], Relisting);
    world.say(&files, &[&web], Partial).run(secs(60)).say(&api, &[&newer], Complete).run(secs(60));
    let text = world.timeline_text();
    assert_eq!((world.starts("web/main"), world.starts("db/main")), (1, 2), "{text}");
}
