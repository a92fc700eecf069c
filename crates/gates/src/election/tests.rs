//! Leaders that stop, are killed, freeze, lose answers or have another clock.

use super::*;

mod random;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn candidate(name: &str) -> Candidate {
    Candidate::new(name.to_owned(), Timing::default())
}

/// The lease on an API server.
#[derive(Debug, Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

impl Server {
    /// Does what a candidate wants, if it is a write.
    fn write(&mut self, action: &Action) -> Written {
        let (lease, fits) = match action {
            Action::Create(lease) => (lease, self.lease.is_none()),
            Action::Replace(lease) => (lease, self.lease.as_ref().is_some_and(|found| found.version == lease.version)),
            Action::Read | Action::Wait(_) => panic!("{action:?} is no write"),
        };
        if !fits {
            return Written::Lost;
        }
        self.version += 1;
        let lease = Lease { version: Version::new(&self.version.to_string()), ..lease.clone() };
        self.lease = Some(lease.clone());
        Written::Done(lease)
    }

    /// Lets a candidate do what it wants until it waits: until when, and how often it asked.
    fn serve(&mut self, candidate: &mut Candidate, now: Instant, at: Timestamp) -> Instant {
        for _ in 0..5 {
            match candidate.step(now, at) {
                Action::Wait(until) => return until,
                Action::Read => candidate.saw(self.lease.clone(), now),
                write => {
                    let written = self.write(&write);
                    candidate.wrote(written, now);
                }
            }
        }
        panic!("{candidate:?} never waits");
    }
}

fn leads(candidate: &Candidate, now: Instant) -> bool {
    matches!(candidate.role(now), Role::Leader { .. })
}

/// CTRL-14, CON-33
#[test]
fn the_first_one_leads_and_renews_and_the_second_one_waits() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    assert_eq!(server.serve(&mut a, seconds(1.0), wall(1)), seconds(3.0), "renews two seconds later");
    assert!(leads(&a, seconds(1.0)));
    let lease = server.lease.clone().unwrap();
    assert_eq!((&*lease.holder, lease.duration, lease.transitions), ("a", seconds(15.0), 0));
    assert_eq!((lease.acquired, lease.renewed), (Some(wall(1)), Some(wall(1))));
    assert_eq!(server.serve(&mut b, seconds(1.5), wall(1)), seconds(16.5), "15 s after it first saw the lease");
    assert!(!leads(&b, seconds(1.5)));
    assert_eq!(server.serve(&mut a, seconds(3.0), wall(3)), seconds(5.0));
    let lease = server.lease.clone().unwrap();
    assert_eq!((lease.acquired, lease.renewed, lease.transitions), (Some(wall(1)), Some(wall(3)), 0));
    b.saw(Some(lease), seconds(3.1));
    assert_eq!(b.step(seconds(3.1), wall(3)), Action::Wait(seconds(18.1)), "and again from each renewal on");
}

/// CTRL-14
#[test]
fn a_leader_that_was_killed_is_followed_after_its_lease() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, seconds(0.0), wall(0));
    let until = server.serve(&mut b, seconds(4.0), wall(4));
    assert_eq!(until, seconds(19.0), "the time from when it was seen counts, not what the lease says");
    server.serve(&mut b, until, wall(19));
    assert!(leads(&b, until));
    assert_eq!(server.lease.unwrap().transitions, 1);
}

/// CTRL-14: a graceful stop hands over with the next look at the lease.
#[test]
fn a_leader_that_stops_gives_the_lease_away() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, seconds(0.0), wall(0));
    server.serve(&mut b, seconds(0.0), wall(0));
    let released = a.release(seconds(1.0), wall(1)).unwrap();
    assert!(!leads(&a, seconds(1.0)), "before the release is sent");
    let Written::Done(released) = server.write(&Action::Replace(released)) else { panic!("not released") };
    assert_eq!((&*released.holder, released.duration), ("", seconds(1.0)));
    b.saw(Some(released), seconds(1.01));
    server.serve(&mut b, seconds(1.01), wall(1));
    assert!(leads(&b, seconds(1.01)));
    assert_eq!(b.release(seconds(30.0), wall(30)), None, "not after its time is over");
    assert_eq!(candidate("c").release(seconds(0.0), wall(0)), None, "one that does not lead has nothing to give");
}

/// CTRL-14, GN-5: a process that stood still does not write on its old lease.
#[test]
fn a_leader_that_froze_has_lost_its_lease_before_another_one_has_it() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, seconds(0.0), wall(0));
    assert!(leads(&a, seconds(9.9)) && !leads(&a, seconds(10.0)), "it may not write 10 s after its last renewal");
    let until = server.serve(&mut b, seconds(0.0), wall(0));
    server.serve(&mut b, until, wall(15));
    assert!(leads(&b, until));
    server.serve(&mut a, seconds(15.5), wall(15));
    assert!(!leads(&a, seconds(15.5)), "its renewal is refused, because the lease changed");
}

/// A frozen leader whose lease nobody wanted takes it again, with the version as its guard.
#[test]
fn a_leader_that_froze_alone_leads_again() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    server.serve(&mut a, seconds(0.0), wall(0));
    assert!(!leads(&a, seconds(12.0)));
    server.serve(&mut a, seconds(12.0), wall(12));
    assert!(leads(&a, seconds(12.0)), "at once: others would have to wait for its lease, it does not");
    assert_eq!(server.lease.unwrap().transitions, 0);
}

/// GN-5: the time of a leader counts from before it asked.
#[test]
fn an_answer_that_comes_late_gives_no_more_time() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    a.saw(None, seconds(0.0));
    let write = a.step(seconds(0.0), wall(0));
    let written = server.write(&write);
    a.wrote(written, seconds(9.0));
    assert_eq!(a.role(seconds(9.0)), Role::Leader { until: seconds(10.0) });
    let mut b = candidate("b");
    b.saw(None, seconds(0.0));
    let write = b.step(seconds(0.0), wall(0));
    b.wrote(Server::default().write(&write), seconds(11.0));
    assert_eq!(b.role(seconds(11.0)), Role::Follower, "it is over before it began");
}

/// A write that was applied and whose answer was lost.
#[test]
fn a_lost_answer_is_found_by_reading() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    a.saw(None, seconds(0.0));
    let write = a.step(seconds(0.0), wall(0));
    server.write(&write);
    a.wrote(Written::Unknown, seconds(5.0));
    assert!(!leads(&a, seconds(5.0)));
    let Action::Wait(again) = a.step(seconds(5.0), wall(5)) else { panic!("it asks again at once") };
    assert!(again > seconds(5.2) && again < seconds(5.6), "{again:?}");
    assert_eq!(a.step(again, wall(5)), Action::Read);
    a.saw(server.lease.clone(), again);
    assert_eq!(a.role(again), Role::Leader { until: seconds(10.0) }, "from when it was asked for");
    let renewal = a.step(again, wall(6));
    a.wrote(server.write(&renewal), again);
    assert!(leads(&a, again + seconds(9.0)));
}

/// Wall clocks may say what they like.
#[test]
fn clocks_of_others_do_not_matter() {
    for skew in [-86_400, 86_400] {
        let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
        server.serve(&mut a, seconds(0.0), wall(skew));
        assert_eq!(server.serve(&mut b, seconds(1.0), wall(1)), seconds(16.0), "neither sooner nor later");
        server.serve(&mut a, seconds(2.0), wall(skew + 2));
        b.saw(server.lease.clone(), seconds(2.0));
        assert_eq!(b.step(seconds(16.0), wall(16)), Action::Wait(seconds(17.0)));
    }
}

/// An old state of the lease, from a cache, does not make a leader step down.
#[test]
fn a_stale_read_says_nothing() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, seconds(0.0), wall(0));
    let stale = server.lease.clone();
    server.serve(&mut b, seconds(0.0), wall(0));
    server.serve(&mut b, seconds(15.0), wall(15));
    assert!(leads(&b, seconds(15.0)));
    b.saw(stale, seconds(15.1));
    assert!(leads(&b, seconds(15.1)));
    assert_eq!(b.step(seconds(15.1), wall(15)), Action::Wait(seconds(17.0)));
}

/// CTRL-14: an API server that was restored from a backup has an older lease. It is read again at a moderate pace, and believed after the
/// duration of a lease; then the one that it names is waited for as ever. One read that lags changes nothing.
#[test]
fn a_lease_from_a_backup_is_believed_after_a_while() {
    for holder in ["a", "gone"] {
        let (mut server, mut a) = (Server { version: 50, ..Server::default() }, candidate("a"));
        server.serve(&mut a, seconds(0.0), wall(0));
        let newest = server.lease.clone();
        let restored = Lease {
            version: Version::new("7"),
            holder: holder.to_owned(),
            duration: seconds(15.0),
            ..Lease::default()
        };
        (server.lease, server.version) = (Some(restored), 7);
        let (mut now, mut steps) = (seconds(2.0), 0);
        while !leads(&a, now) || now < seconds(10.0) {
            now = now.max(server.serve(&mut a, now, wall(2)));
            steps += 1;
            assert!(steps < 100 && now < seconds(60.0), "{now:?} {a:?}");
        }
        assert!(now > seconds(17.0), "not at once");
        assert_eq!(server.lease.map(|lease| lease.holder).as_deref(), Some("a"));

        let mut b = candidate("b");
        b.saw(newest.clone(), seconds(0.0));
        for at in [1.0, 30.0, 59.0] {
            b.could_not_read(seconds(at));
            b.saw(Some(Lease { version: Version::new("7"), ..Lease::default() }), seconds(at + 0.5));
            assert!(matches!(b.step(seconds(at + 0.5), wall(0)), Action::Wait(_)), "no loop");
            b.saw(newest.clone(), seconds(at + 0.8));
        }
        assert_eq!(b.lease(), newest.as_ref());
    }
}

/// A watch that ends, or a read that fails, does not make a follower wait from the beginning.
#[test]
fn a_lease_that_turns_out_unchanged_is_known_since_it_was_first_seen() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, seconds(0.0), wall(0));
    server.serve(&mut b, seconds(1.0), wall(1));
    b.could_not_read(seconds(12.0));
    b.could_not_read(seconds(13.0));
    assert_eq!(server.serve(&mut b, seconds(14.0), wall(14)), seconds(16.0));
}

#[test]
fn a_lease_that_was_deleted_is_created_again() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    server.serve(&mut a, seconds(0.0), wall(0));
    server.lease = None;
    let renewal = a.step(seconds(2.0), wall(2));
    a.wrote(server.write(&renewal), seconds(2.0));
    assert!(leads(&a, seconds(2.0)), "it still has its time");
    server.serve(&mut a, seconds(3.0), wall(3));
    assert_eq!(server.lease.as_ref().map(|lease| &*lease.holder), Some("a"));
    assert!(leads(&a, seconds(12.0)));
}

/// GN-5: the others wait: the one that held it may still write.
#[test]
fn a_lease_that_was_deleted_is_not_taken_from_its_holder() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, seconds(0.0), wall(0));
    server.serve(&mut b, seconds(1.0), wall(1));
    server.lease = None;
    b.saw(None, seconds(2.0));
    assert_eq!(b.step(seconds(2.0), wall(2)), Action::Wait(seconds(17.0)));
    assert!(matches!(b.step(seconds(17.0), wall(17)), Action::Create(_)));
}

#[test]
fn a_leader_steps_down_when_it_sees_another_holder() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    server.serve(&mut a, seconds(0.0), wall(0));
    let stolen = Lease { holder: "kubectl".to_owned(), version: Version::new("9"), ..server.lease.clone().unwrap() };
    a.saw(Some(stolen), seconds(1.0));
    assert!(!leads(&a, seconds(1.0)));
}

#[test]
fn candidates_do_not_retry_in_step() {
    let pauses: std::collections::BTreeSet<_> =
        (0..20).map(|number| candidate(&format!("pod-{number}")).pause()).collect();
    assert!(pauses.len() > 10, "{pauses:?}");
    assert!(pauses.iter().all(|pause| (seconds(0.25)..seconds(0.5)).contains(pause)));
}

#[test]
fn times_that_do_not_go_together_are_refused() {
    let default = Timing::default();
    assert_eq!(Timing::new(default.duration, default.renew_deadline, default.retry), Ok(default));
    let timing = |duration, deadline, retry| Timing::new(seconds(duration), seconds(deadline), seconds(retry)).err();
    for duration in [0.0, 0.5, 15.5] {
        assert_eq!(
            timing(duration, 0.4, 0.1),
            Some(BadTiming::Duration(seconds(duration))),
            "the lease has whole seconds"
        );
    }
    assert!(matches!(timing(10.0, 10.0, 2.0), Some(BadTiming::Deadline { .. })), "both would lead");
    assert!(matches!(timing(15.0, 10.0, 5.1), Some(BadTiming::Retry { .. })), "one failure would be too many");
    assert!(matches!(timing(15.0, 10.0, 0.0), Some(BadTiming::Retry { .. })));
    assert_eq!(timing(2.0, 1.9, 0.95), None);
}
