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
    permits::Permits,
    shortage,
};

/// The number of concurrent name lookups. A lookup holds a thread until the resolver answers, up to half a minute if
/// its servers are down, even if the attempt has given up. The thread pool has 512 threads, and disk access needs some
/// of them.
const LOOKUPS: usize = 16;
/// How long a lookup waits for its permit: half of the shortest timeout that a pod can ask for.
const PATIENCE: Duration = Duration::from_millis(500);

/// Resolves a name; blocks.
type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Dials over TCP without a proxy. The addresses of a name are tried in order.
///
/// `SO_LINGER` stays unset. On Linux it does not shorten TIME_WAIT, and with it `close` waits for the peer even on a
/// non-blocking socket: milliseconds on loopback, the whole linger time if the peer is down. A thread that serves other
/// pods cannot afford that.
#[derive(Clone)]
pub struct TcpDial {
    lookup: Arc<Lookup>,
    /// Shared fairly between pods like attempts, so that slow names of one pod do not delay another's.
    lookups: Permits,
}

// === impl TcpDial ===

impl TcpDial {
    fn with_lookup(lookup: Arc<Lookup>) -> Self {
        Self { lookup, lookups: Permits::new(LOOKUPS) }
    }

    async fn addresses(&self, pod: &str, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let permit = self.lookups.acquire(pod, PATIENCE).await.ok_or_else(shortage::no_lookup_free)?;
        let (lookup, host) = (Arc::clone(&self.lookup), host.to_owned());
        // The thread holds the permit, not the attempt: an attempt can give up, a thread in the resolver cannot.
        let found = spawn_blocking(move || {
            let _permit = permit;
            lookup(&host, port)
        });
        found.await.map_err(io::Error::other)?
    }
}

impl Default for TcpDial {
    fn default() -> Self {
        #[expect(clippy::disallowed_methods, reason = "runs on a blocking thread, with a limit on concurrent calls")]
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
                        // A request is one small write; Nagle's algorithm would only delay it.
                        stream.set_nodelay(true)?;
                        return Ok(Box::new(stream) as Box<dyn Connection>);
                    }
                    Err(error) => failed = Some(better(failed.take(), error)),
                }
            }
            Err(failed.unwrap_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("cannot resolve {host}: no address"))
            }))
        })
    }
}

/// Selects the error to report for a name with several addresses: an answer of a target outranks a shortage of this
/// node; of two equals the last is reported.
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

    /// A resolver that answers for `localhost` at once, and for other names when the test releases them.
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

    /// PROBE-48: lookups of one pod use a bounded number of threads, even after its attempts gave up, and another pod's
    /// name resolves meanwhile.
    #[tokio::test]
    async fn slow_names_of_one_pod_hold_few_threads_and_do_not_delay_other_pods() {
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
        // Lookups with a thread hang there; all others get an error.
        let mut answered = Vec::new();
        let all_answered = async {
            while answered.len() < 40 - LOOKUPS / 4 {
                answered.extend(lookups.join_next().await);
            }
        };
        let all_answered = tokio::time::timeout(Duration::from_secs(60), all_answered).await;
        lookups.abort_all();
        let asked = slow.asked.load(Ordering::Relaxed);
        let other = dial.connect("honest", "localhost", port).await.map(drop);
        // Before any assertion, because the threads would outlive the test.
        slow.answer();
        for lookup in answered {
            let error = lookup.expect("no panic").expect_err("no answer");
            assert!(shortage::is_ours(&error), "{error}");
        }
        assert_eq!(asked, LOOKUPS / 4, "threads held by the names of one pod");
        assert!(all_answered.is_ok(), "an attempt waits forever for a lookup");
        assert!(other.is_ok(), "{other:?}");
    }

    /// PROBE-47: an address that refuses is an answer, whatever the other addresses did.
    #[test]
    fn an_answer_of_one_address_outranks_a_shortage_at_another() {
        use rustix::io::Errno;
        for (tried, answered) in [
            (&[Errno::CONNREFUSED][..], Errno::CONNREFUSED),
            (&[Errno::ADDRNOTAVAIL], Errno::ADDRNOTAVAIL),
            (&[Errno::CONNREFUSED, Errno::ADDRNOTAVAIL], Errno::CONNREFUSED),
            (&[Errno::ADDRNOTAVAIL, Errno::CONNREFUSED], Errno::CONNREFUSED),
            (&[Errno::ADDRNOTAVAIL, Errno::CONNREFUSED, Errno::MFILE], Errno::CONNREFUSED),
            (&[Errno::HOSTUNREACH, Errno::CONNREFUSED], Errno::CONNREFUSED),
        ] {
            let kept = tried.iter().fold(None, |kept, errno| Some(better(kept, (*errno).into())));
            let kept = kept.and_then(|error: io::Error| error.raw_os_error());
            assert_eq!(kept, Some(answered.raw_os_error()), "{tried:?}");
        }
    }

    /// PROBE-31.
    #[tokio::test]
    async fn a_name_without_an_address_says_so() {
        let none = TcpDial::with_lookup(Arc::new(|_, _| Ok(Vec::new())));
        let error = none.connect("pod", "name.example", 80).await.err().expect("no address");
        assert_eq!(error.to_string(), "cannot resolve name.example: no address");
    }
}
