use super::*;

/// Requests that many permits for a pod; returns how many were granted at once.
fn ask(permits: &mut Fair, pod: &str, times: usize) -> usize {
    (0..times).filter(|_| permits.ask(pod) == Asked::Granted).count()
}

/// PROBE-46.
#[test]
fn a_pod_has_its_cap_and_cannot_take_the_reserve() {
    // The limit, how many permits each pod requests, and how many each gets.
    for (limit, asks, gets) in [
        (64, &[66][..], &[16][..]),
        (64, &[66, 1, 1, 3], &[16, 1, 1, 3]),
        // Three pods at their caps leave the reserve, from which every other pod gets one permit.
        (64, &[66, 66, 66, 66, 66, 2], &[16, 16, 16, 1, 1, 1]),
        (8, &[5, 5, 5, 5, 5], &[2, 2, 2, 1, 1]),
        (4, &[9, 9, 9, 9, 9], &[1, 1, 1, 1, 0]),
        (2, &[9, 9, 9], &[1, 1, 0]),
        (1, &[9, 9], &[1, 0]),
        (0, &[9, 9], &[1, 0]),
    ] {
        let mut permits = Fair::new(limit);
        let got: Vec<_> =
            asks.iter().enumerate().map(|(pod, times)| ask(&mut permits, &pod.to_string(), *times)).collect();
        assert_eq!(got, gets, "{asks:?} of {limit}");
    }
}

/// PROBE-46.
#[test]
fn a_free_permit_goes_to_the_pod_that_holds_the_fewest() {
    let mut permits = Fair::new(8);
    for (pod, got) in [("a", 2), ("b", 2), ("c", 2), ("d", 1), ("e", 1)] {
        assert_eq!(ask(&mut permits, pod, 2), got, "{pod}");
    }
    let Asked::Waits(newcomer) = permits.ask("f") else { panic!("all permits are held") };
    // "d" and "e" have waited longer, but hold one each.
    assert_eq!(permits.end("a", true), [newcomer]);
    // Two are free now, and both are the reserve: "d" and "e" hold one each, so they keep waiting.
    assert_eq!(permits.end("b", true), []);
    assert_eq!(permits.end("b", true), []);
    assert_eq!(permits.end("c", true).len(), 1, "the third free permit is no longer the reserve");
}

/// PROBE-46: the permits of a pod are granted in the order of its requests.
#[test]
fn permits_of_one_pod_are_granted_in_order() {
    let mut permits = Fair::new(8);
    assert_eq!(ask(&mut permits, "a", 2), 2);
    let tickets: Vec<_> = (0..3)
        .map(|_| match permits.ask("a") {
            Asked::Waits(ticket) => ticket,
            Asked::Granted => panic!("over its cap"),
        })
        .collect();
    permits.withdraw("a", tickets[1]);
    assert_eq!(permits.end("a", true), [tickets[0]]);
    assert_eq!(permits.end("a", true), [tickets[2]]);
}

/// PROBE-46: an attempt that takes too long stops delaying others, and still counts for its pod.
#[test]
fn a_permit_that_is_given_back_is_for_others() {
    let mut permits = Fair::new(4);
    for pod in ["a", "b", "c", "d"] {
        assert_eq!(ask(&mut permits, pod, 1), 1);
    }
    let (Asked::Waits(own), Asked::Waits(other)) = (permits.ask("a"), permits.ask("e")) else {
        panic!("all permits are held")
    };
    assert_eq!(permits.give_back("a"), [other], "the pod of the slow attempt is at its cap");
    assert_eq!(permits.end("b", true), []);
    assert_eq!(permits.end("a", false), [own]);
}

/// PROBE-46: the rules hold in any order of events.
#[test]
fn the_rules_hold_in_any_order_of_events() {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum State {
        Waits(Ticket),
        Holds,
        GaveBack,
    }
    for seed in 1..200_u64 {
        let mut random = seed;
        let mut next = |below: usize| {
            // xorshift, so that the test needs no crate for random numbers.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % u64::try_from(below).unwrap()).unwrap()
        };
        let limit = 1 + next(20);
        let cap = (limit / 4).max(1);
        let mut permits = Fair::new(limit);
        let mut attempts: Vec<(String, State)> = Vec::new();
        for step in 0..300 {
            let mut granted = Vec::new();
            if attempts.is_empty() || next(5) < 2 {
                let pod = next(7).to_string();
                let state = match permits.ask(&pod) {
                    Asked::Granted => State::Holds,
                    Asked::Waits(ticket) => State::Waits(ticket),
                };
                attempts.push((pod, state));
            } else {
                let chosen = next(attempts.len());
                match attempts[chosen].clone() {
                    (pod, State::Holds) if next(3) == 0 => {
                        attempts[chosen].1 = State::GaveBack;
                        granted = permits.give_back(&pod);
                    }
                    (pod, state) => {
                        attempts.remove(chosen);
                        match state {
                            State::Waits(ticket) => permits.withdraw(&pod, ticket),
                            State::Holds => granted = permits.end(&pod, true),
                            State::GaveBack => granted = permits.end(&pod, false),
                        }
                    }
                }
            }
            for ticket in granted {
                let waiting = attempts.iter_mut().find(|(_, state)| *state == State::Waits(ticket));
                waiting.unwrap_or_else(|| panic!("{ticket:?} is not waiting")).1 = State::Holds;
            }
            let context = format!("seed {seed}, step {step}, limit {limit}: {attempts:?}");
            let held = attempts.iter().filter(|(_, state)| *state == State::Holds).count();
            assert!(held <= limit, "more permits held than the limit; {context}");
            for pod in (0..7).map(|pod| pod.to_string()) {
                let of = |wanted: fn(&State) -> bool| {
                    attempts.iter().filter(|(other, state)| *other == pod && wanted(state)).count()
                };
                let under_way = of(|state| !matches!(state, State::Waits(_)));
                let holds = of(|state| *state == State::Holds);
                assert!(under_way <= cap, "pod {pod} is over its cap; {context}");
                let waits = of(|state| matches!(state, State::Waits(_))) > 0;
                let free = limit - held;
                let reserve = if holds == 0 { 0 } else { limit / 4 };
                let may = under_way < cap && free > reserve;
                assert!(!(waits && may), "pod {pod} waits although a permit is free; {context}");
            }
        }
        // Waiting attempts end first, so that nothing is granted any more.
        attempts.sort_by_key(|(_, state)| !matches!(state, State::Waits(_)));
        for (pod, state) in attempts {
            match state {
                State::Waits(ticket) => permits.withdraw(&pod, ticket),
                State::Holds => drop(permits.end(&pod, true)),
                State::GaveBack => drop(permits.end(&pod, false)),
            }
        }
        assert!(permits.pods.is_empty(), "state is kept for pods without attempts: {permits:?}");
        assert_eq!((permits.taken, permits.waiting), (0, 0));
    }
}
