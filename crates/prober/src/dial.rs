//! Connections over the machine's own network.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{net::TcpStream, task::spawn_blocking};

use crate::{
    door::{Connection, Dial},
    shortage,
    turns::Turns,
};

/// Names that are resolved at a time. A lookup holds a thread until the resolver answers, half a minute if its servers are
/// dead, whether or not the attempt still waits. The pool that these threads are from has 512, and the disk needs some.
const LOOKUPS: usize = 16;
/// How long a lookup waits for its turn: half of the shortest timeout that a pod can ask for.
const PATIENCE: Duration = Duration::from_millis(500);

/// Resolves a name, and blocks meanwhile.
type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Dials over TCP, through no proxy. Addresses of a name are tried in order.
///
/// `SO_LINGER` is left alone. On Linux it shortens no TIME_WAIT, and with it set `close` waits for the other side, also
/// on a non-blocking socket: milliseconds on loopback, the whole linger time with a peer that is gone. A thread that
/// serves other pods cannot afford that.
#[derive(Clone)]
pub struct TcpDial {
    lookup: Arc<Lookup>,
    /// Shared out between pods as attempts are: names that one pod has, however slow, are not in the way of another's.
    lookups: Turns,
}

// === impl TcpDial ===

impl TcpDial {
    fn with_lookup(lookup: Arc<Lookup>) -> Self {
        Self { lookup, lookups: Turns::new(LOOKUPS) }
    }

    async fn addresses(&self, pod: &str, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let turn = self.lookups.turn(pod, PATIENCE).await.ok_or_else(shortage::no_lookup_free)?;
        let (lookup, host) = (Arc::clone(&self.lookup), host.to_owned());
        // The thread has the turn, not the attempt: an attempt can give up, a thread in the resolver cannot.
        let found = spawn_blocking(move || {
            let _turn = turn;
            lookup(&host, port)
        });
        found.await.map_err(io::Error::other)?
    }
}

impl Default for TcpDial {
    fn default() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "called on a thread that is there for it, a bounded number at a time"
        )]
        let lookup = |host: &str, port: u16| Ok((host, port).to_socket_addrs()?.collect());
        Self::with_lookup(Arc::new(lookup))
    }
}

impl fmt::Debug for TcpDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpDial").finish_non_exhaustive()
    }
}

impl Dial for TcpDial {
    fn connect<'a>(&'a self, pod: &'a str, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let mut failed = None;
            for address in self.addresses(pod, host, port).await? {
                match TcpStream::connect(address).await {
                    Ok(stream) => {
                        // A request is one small write; waiting for more to send would only delay it.
                        stream.set_nodelay(true)?;
                        return Ok(Box::new(stream) as Box<dyn Connection>);
                    }
                    Err(error) => failed = Some(better(failed.take(), error)),
                }
            }
            Err(failed.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"))))
        })
    }
}

/// What is told of a name with several addresses: what one of them answered is worth more than that another one could not
/// be asked; of equals the last.
fn better(known: Option<io::Error>, new: io::Error) -> io::Error {
    match known {
        Some(known) if shortage::is_ours(&new) && !shortage::is_ours(&known) => known,
        _ => new,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::net::TcpListener;

    use super::*;

    /// A resolver that answers for `localhost` at once, and for other names when it is told to.
    #[derive(Default)]
    struct Slow {
        asked: AtomicUsize,
        open: Mutex<bool>,
        opened: Condvar,
    }

    // === impl Slow ===

    impl Slow {
        fn dial(self: &Arc<Self>) -> TcpDial {
            let slow = Arc::clone(self);
            TcpDial::with_lookup(Arc::new(move |host, port| {
                if host != "localhost" {
                    slow.asked.fetch_add(1, Ordering::Relaxed);
                    let open = slow.open.lock().unwrap_or_else(PoisonError::into_inner);
                    drop(slow.opened.wait_while(open, |open| !*open).unwrap_or_else(PoisonError::into_inner));
                }
                Ok(vec![([127, 0, 0, 1], port).into()])
            }))
        }

        fn answer(&self) {
            *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.opened.notify_all();
        }
    }

    /// PROBE-48: lookups of one pod take a bounded number of threads, also when its attempts gave up long ago, and another
    /// pod's name is resolved meanwhile.
    #[tokio::test]
    async fn slow_names_of_one_pod_hold_few_threads_and_no_other_pod_up() {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let port = server.local_addr().expect("bound").port();
        let slow = Arc::new(Slow::default());
        let dial = slow.dial();
        let mut lookups = tokio::task::JoinSet::new();
        for number in 0..40 {
            let dial = dial.clone();
            lookups
                .spawn(async move { dial.connect("hostile", &format!("slow-{number}.example"), port).await.map(drop) });
        }
        // Those that have a thread hang there; all others are told that there is none for them.
        let mut told = Vec::new();
        let all_told = async {
            while told.len() < 40 - LOOKUPS / 4 {
                told.extend(lookups.join_next().await);
            }
        };
        let all_told = tokio::time::timeout(Duration::from_secs(60), all_told).await;
        lookups.abort_all();
        let asked = slow.asked.load(Ordering::Relaxed);
        let other = dial.connect("honest", "localhost", port).await.map(drop);
        // Before anything is asserted: the threads outlive the test otherwise.
        slow.answer();
        for lookup in told {
            let error = lookup.expect("no panic").expect_err("no answer");
            assert!(shortage::is_ours(&error), "{error}");
        }
        assert_eq!(asked, LOOKUPS / 4, "threads that one pod's names hold");
        assert!(all_told.is_ok(), "an attempt waits for a lookup for ever");
        assert!(other.is_ok(), "{other:?}");
    }

    /// PROBE-47: an address that refuses is an answer, whatever became of the others.
    #[test]
    fn one_address_that_answers_counts_more_than_one_that_cannot_be_asked() {
        use rustix::io::Errno;
        for (tried, told) in [
            (&[Errno::CONNREFUSED][..], Errno::CONNREFUSED),
            (&[Errno::ADDRNOTAVAIL], Errno::ADDRNOTAVAIL),
            (&[Errno::CONNREFUSED, Errno::ADDRNOTAVAIL], Errno::CONNREFUSED),
            (&[Errno::ADDRNOTAVAIL, Errno::CONNREFUSED], Errno::CONNREFUSED),
            (&[Errno::ADDRNOTAVAIL, Errno::CONNREFUSED, Errno::MFILE], Errno::CONNREFUSED),
            (&[Errno::HOSTUNREACH, Errno::CONNREFUSED], Errno::CONNREFUSED),
        ] {
            let kept = tried.iter().fold(None, |kept, errno| Some(better(kept, (*errno).into())));
            let kept = kept.and_then(|error: io::Error| error.raw_os_error());
            assert_eq!(kept, Some(told.raw_os_error()), "{tried:?}");
        }
    }

    /// PROBE-31.
    #[tokio::test]
    async fn a_name_without_an_address_says_so() {
        let none = TcpDial::with_lookup(Arc::new(|_, _| Ok(Vec::new())));
        let error = none.connect("pod", "name.example", 80).await.err().expect("no address");
        assert_eq!(error.to_string(), "name.example has no address");
    }
}
