//! The feature goes off and on again (SCN-A29).

use keelet_lifecycle::{restart::RestartAllRule, status::Phase};
use keelet_pod::parse_one;
use keelet_sim::{Acknowledging, World, millis, secs};

use super::{
    FOUR, RULE, assert_never_final, condition_changes, counts, four, is_restarting, last, modes, starts, up, up_again,
};

/// Starts the agent anew with the feature on or off.
fn switch(world: &mut World, rule: RestartAllRule) {
    world.kill_agent().run(secs(2));
    world.reconfigure(|settings| settings.rules.restart_all = rule);
    world.start_agent();
    world.run(secs(10));
}

/// A pod that restarts by itself; `source` has the rule and the policy given.
fn pod(policy: &str) -> String {
    four()
        .replace("restartPolicy: Never\n  init", "restartPolicy: Always\n  init")
        .replace(&format!("restartPolicy: Never, {RULE}"), &format!("restartPolicy: {policy}, {RULE}"))
}

/// SCN-A29, RALL-29, SYNC-6: with the feature off a pod that already runs goes on with the rule ignored: its restart policy
/// decides. With the feature on again the rule works again, also for an exit that its container has not got over.
#[test]
fn the_rule_is_ignored_while_the_feature_is_off() {
    for (policy, alone) in [("Always", 1), ("OnFailure", 1), ("Never", 0)] {
        for builder in modes(&pod(policy)) {
            let mut world = builder.build();
            up(&mut world);
            switch(&mut world, RestartAllRule::Ignored);
            world.exit("source", 42).run(secs(30));
            let text = world.timeline_text();
            assert_eq!(counts(&world, FOUR), [0, 0, alone, 0], "{policy}\n{text}");
            assert_eq!(starts(&world, FOUR), [1, 1, 1 + alone as usize, 1], "{policy}\n{text}");
            assert!(condition_changes(&world).iter().all(|restarting| !restarting), "{policy}\n{text}");
            assert_eq!(world.status().phase, Phase::Running, "{policy}\n{text}");
            assert_never_final(&world);
            switch(&mut world, RestartAllRule::Honoured);
            if alone == 0 {
                // Its instance is still the newest: the exit counts now, and all restart, not the trigger alone.
                up_again(&mut world);
                assert_eq!(counts(&world, FOUR), [1; 4], "{policy}\n{}", world.timeline_text());
                assert_eq!(last(&world, "source").exit_code, 42);
                switch(&mut world, RestartAllRule::Ignored);
                switch(&mut world, RestartAllRule::Honoured);
                assert_eq!(counts(&world, FOUR), [1; 4], "it has counted\n{}", world.timeline_text());
                world.settle();
                continue;
            }
            assert_eq!(counts(&world, FOUR), [0, 0, 1, 0], "what is past is past\n{}", world.timeline_text());
            world.exit("source", 42);
            up_again(&mut world);
            assert_eq!(counts(&world, FOUR), [1, 1, 2, 1], "{policy}\n{}", world.timeline_text());
            assert_eq!(last(&world, "source").exit_code, 42);
            world.settle();
        }
    }
}

/// SCN-A29, RALL-29, SYNC-6: with the feature off a new pod with the rule is rejected and says so; one without it runs.
#[test]
fn a_new_pod_with_the_rule_is_rejected_while_the_feature_is_off() {
    let mut world = World::new(1).pod(&four()).build();
    up(&mut world);
    switch(&mut world, RestartAllRule::Ignored);
    let named = |name: &str, spec: &str| {
        let head = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, uid: {name}}}\n");
        parse_one(&format!("{head}spec:\n{spec}")).expect("a valid pod")
    };
    world.add_pod(named("new", &four())).add_pod(named("plain", "  containers: [{name: main, image: app}]\n"));
    world.run(secs(10));
    let rejected = world.status_of("new");
    assert_eq!((rejected.phase, rejected.reason.as_deref()), (Phase::Failed, Some("PodFeatureUnsupported")));
    assert_eq!(world.starts("new/setup"), 0);
    assert_eq!(world.status_of("plain").phase, Phase::Running);
    assert_eq!(world.status_of("web").phase, Phase::Running);
}

/// SCN-A29, RALL-29: the feature goes off while containers are being removed. The restart is given up, and no pod that
/// may restart stays down for it.
#[test]
fn the_feature_goes_off_half_way() {
    let spec = pod("Always");
    let mut world = World::new(1).pod(&spec).cluster().build();
    up(&mut world);
    world.faults(|faults| faults.publisher = Acknowledging::Never);
    world.exit("source", 42).run(millis(100)).calm();
    assert!(is_restarting(&world));
    switch(&mut world, RestartAllRule::Ignored);
    world.run(secs(60));
    let text = world.timeline_text();
    assert_eq!(starts(&world, ["side", "source", "other"]), [1, 2, 1], "{text}");
    assert_eq!(world.status().phase, Phase::Running, "{text}");
    assert!(!is_restarting(&world), "{text}");
    assert_never_final(&world);
    world.settle();
}
