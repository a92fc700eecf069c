//! Several candidates with chance against them: at most one leads at any time, and one does when the faults are over.

use proptest::{collection::vec, prelude::*};

use super::*;

/// What happens to a candidate in one turn.
#[derive(Clone, Copy, Debug)]
enum Luck {
    /// Requests are answered at once.
    Fine,
    /// The write is applied, and the answer is lost.
    AnswerLost,
    /// The request does not arrive.
    RequestLost,
    /// The write is applied, and the answer comes after this many milliseconds.
    Slow(u64),
    /// It stops and gives the lease away.
    Stops,
    /// It is killed, and a new process with another name begins.
    Killed,
    /// It does nothing in this turn.
    Frozen,
}

fn luck() -> impl Strategy<Value = Luck> {
    prop_oneof![
        8 => Just(Luck::Fine),
        2 => Just(Luck::AnswerLost),
        2 => Just(Luck::RequestLost),
        2 => (1..20_000_u64).prop_map(Luck::Slow),
        1 => Just(Luck::Stops),
        1 => Just(Luck::Killed),
        3 => Just(Luck::Frozen),
    ]
}

/// A candidate in a process, whose monotonic clock began at some other time.
struct Process {
    candidate: Candidate,
    began: Duration,
    skew: i64,
    /// An answer that has not arrived yet, and when it will.
    pending: Option<(Duration, Written)>,
    restarts: u32,
}

impl Process {
    fn own_time(&self, now: Duration) -> Instant {
        now + self.began
    }

    fn wall(&self, now: Duration) -> Timestamp {
        let millis = 1_700_000_000_000 + self.skew * 1000 + i64::try_from(now.as_millis()).unwrap();
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn turn(&mut self, server: &mut Server, now: Duration, luck: Luck) {
        let (own, wall) = (self.own_time(now), self.wall(now));
        match (luck, self.pending.take()) {
            (Luck::Frozen, pending) => return self.pending = pending,
            (Luck::Killed, _) => {
                self.restarts += 1;
                let name = format!("{}-{}", self.candidate.identity(), self.restarts);
                return self.candidate = Candidate::new(name, Timing::default());
            }
            (_, Some((at, written))) if now < at => return self.pending = Some((at, written)),
            (_, Some((_, written))) => self.candidate.wrote(written, own),
            (Luck::Stops, None) => {
                if let Some(released) = self.candidate.release(own, wall) {
                    server.write(&Action::Replace(released));
                }
                return;
            }
            (_, None) => {}
        }
        match self.candidate.step(own, wall) {
            Action::Wait(_) => {}
            Action::Read if matches!(luck, Luck::Fine) => self.candidate.saw(server.lease.clone(), own),
            Action::Read => self.candidate.could_not_read(own),
            write => match luck {
                Luck::RequestLost => self.candidate.wrote(Written::Unknown, own),
                Luck::AnswerLost => {
                    server.write(&write);
                    self.candidate.wrote(Written::Unknown, own);
                }
                Luck::Slow(millis) => {
                    self.pending = Some((now + Duration::from_millis(millis), server.write(&write)));
                }
                _ => {
                    let written = server.write(&write);
                    self.candidate.wrote(written, own);
                }
            },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// CTRL-14, GN-5
    #[test]
    fn at_most_one_leads_and_one_does_in_the_end(
        count in 2..6_usize,
        turns in vec((0..6_usize, 0..3000_u64, luck()), 0..200),
    ) {
        let mut server = Server::default();
        let mut processes: Vec<Process> = (0..count)
            .map(|index| Process {
                candidate: candidate(&format!("pod-{index}")),
                began: Duration::from_secs(1000 * u64::try_from(index).unwrap()),
                skew: [0, 7200, -7200, 31_536_000, -60][index % 5],
                pending: None,
                restarts: 0,
            })
            .collect();
        let leaders = |processes: &[Process], now| {
            processes.iter().filter(|process| leads(&process.candidate, process.own_time(now))).count()
        };
        let mut now = Duration::ZERO;
        for (index, millis, luck) in turns {
            now += Duration::from_millis(millis);
            prop_assert!(leaders(&processes, now) <= 1);
            processes[index % count].turn(&mut server, now, luck);
            prop_assert!(leaders(&processes, now) <= 1);
        }
        let end = now + Duration::from_secs(40);
        while now < end {
            now += Duration::from_millis(500);
            for process in &mut processes {
                process.turn(&mut server, now, Luck::Fine);
                if let Some(lease) = server.lease.clone() {
                    process.candidate.saw(Some(lease), process.own_time(now));
                }
            }
            prop_assert!(leaders(&processes, now) <= 1);
        }
        prop_assert_eq!(leaders(&processes, now), 1);
    }
}
