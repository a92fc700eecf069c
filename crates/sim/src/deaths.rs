//! The same sequence of events again and again, with the agent killed before and after each of its effects.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use crate::{
    process::{Death, InFlight, said},
    world::{World, WorldBuilder},
};

/// A service manager starts the agent again after this long.
const REVIVAL: Duration = Duration::from_secs(2);

/// Plays a sequence of events once undisturbed, then kills the agent before and after each of its effects, with the
/// calls under way carried out and lost. It is started again two seconds later. Returns how many deaths were tried.
///
/// `build` says what is in the world, `drive` lets things happen, and once the world has come to rest, `check` looks at
/// it.
///
/// # Panics
///
/// If a promise is broken or `check` panics, naming the death.
pub fn for_each_death(build: impl Fn() -> WorldBuilder, drive: impl Fn(&mut World), check: impl Fn(&World)) -> u64 {
    for_some_deaths(|_| true, build, drive, check)
}

/// Like [`for_each_death`], but only for the effects that are chosen by their number, counted from one.
///
/// # Panics
///
/// If a promise is broken or `check` panics, naming the death.
pub fn for_some_deaths(
    choose: impl Fn(u64) -> bool,
    build: impl Fn() -> WorldBuilder,
    drive: impl Fn(&mut World),
    check: impl Fn(&World),
) -> u64 {
    let times = {
        let mut world = build().build();
        drive(&mut world);
        let times = world.effect_times();
        check(world.settle());
        times
    };
    let mut tried = 0;
    for (index, time) in times.iter().enumerate() {
        let number = index as u64 + 1;
        if !choose(number) {
            continue;
        }
        // Between two effects at the same instant nothing happens that a dead agent would leave behind.
        let same_instant = index > 0 && times[index - 1] == *time;
        let deaths =
            if same_instant { &[Death::After(number)][..] } else { &[Death::Before(number), Death::After(number)] };
        for death in deaths {
            tried += 1;
            let left_calls = play(&build, &drive, &check, *death, InFlight::Applied);
            if left_calls {
                tried += 2;
                play(&build, &drive, &check, *death, InFlight::Lost);
                play(&build, &drive, &check, *death, InFlight::GivenUp);
            }
        }
    }
    tried
}

/// Plays the sequence with a death in it; whether calls were under way then.
fn play(
    build: impl Fn() -> WorldBuilder,
    drive: impl Fn(&mut World),
    check: impl Fn(&World),
    death: Death,
    in_flight: InFlight,
) -> bool {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let mut world = build().reviving(REVIVAL).dying(death, in_flight).build();
        drive(&mut world);
        check(world.settle());
        world.left_calls()
    }));
    played.unwrap_or_else(|panic| {
        panic!("the agent died {death:?}, with calls under way {in_flight:?}\n{}", said(&*panic))
    })
}
