//! Real links, packets and plugins. Each test has a network and mount namespace of its own, so that nothing of the host is changed. Needs
//! root; without it the tests are skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ipnet::IpNet;
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use tempfile::TempDir;

use crate::kernel::{Kernel, Link};
use crate::{Network, PodNetwork, PortMapping, Protocol, Settings, failpoint, threads};

mod bridge;
mod cni;
mod frames;
mod hostile;
mod ports;
mod views;

/// Set for the copy of this program that runs inside.
const INSIDE: &str = "KEELET_NET_TEST_INSIDE";

/// Runs `body` in a copy of this program that has namespaces of its own. `name` is the test's full name.
#[expect(clippy::disallowed_methods, reason = "a test waits for its own copy")]
fn inside(name: &str, body: impl FnOnce(Scene)) {
    if std::env::var_os(INSIDE).is_some() {
        return body(Scene::new());
    }
    if !rustix::process::geteuid().is_root() {
        return keelet_report::skipped("it needs root");
    }
    let probe = Command::new("unshare").args(["-n", "-m", "true"]).status();
    if !probe.as_ref().is_ok_and(|status| status.success()) {
        return keelet_report::skipped(format_args!("it needs `unshare -n -m`, which gives {probe:?}"));
    }
    // Not by its path, which another build may have replaced by now.
    let exe = format!("/proc/{}/exe", std::process::id());
    let mut command = Command::new("unshare");
    command.args(["-n", "-m", "--"]).arg(exe).args([name, "--exact", "--nocapture", "--test-threads=1"]);
    let result = command.env(INSIDE, "1").output().unwrap();
    let output = String::from_utf8_lossy(&result.stdout).into_owned() + &String::from_utf8_lossy(&result.stderr);
    assert!(output.contains("1 passed"), "the test in its namespaces:\n{output}");
    keelet_report::skipped_elsewhere(&output);
}

/// Waits for another thread or the kernel.
#[expect(clippy::disallowed_methods, reason = "a test may block")]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{what}: not within a minute");
}

/// A node of its own: the namespaces of this process, a state directory, and pods.
struct Scene {
    dir: TempDir,
    settings: Settings,
    runtime: tokio::runtime::Runtime,
}

/// Links, addresses and routes of the node.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    links: BTreeSet<String>,
    routes: BTreeSet<String>,
    rules: bool,
}

// === impl Scene ===

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(dir.path().join("state"));
        settings.cni_conf_dir = dir.path().join("net.d");
        settings.cni_bin_dirs = vec![dir.path().join("bin")];
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        crate::bridge::loopback(Path::new("/proc/self/ns/net")).unwrap();
        Scene { dir, settings, runtime }
    }

    /// The network as after a start of the agent.
    fn network(&self) -> Network {
        Network::open(self.settings.clone()).unwrap()
    }

    /// A new network namespace, mounted on a file.
    fn netns(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(format!("netns-{name}"));
        File::create(&path).unwrap();
        let bind = || {
            nix::sched::unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let own = "/proc/thread-self/ns/net";
            nix::mount::mount(Some(own), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        };
        std::thread::scope(|scope| scope.spawn(bind).join().unwrap());
        path
    }

    fn pod(&self, name: &str) -> PodNetwork {
        PodNetwork {
            sandbox_id: format!("sandbox-{name}"),
            netns: self.netns(name),
            name: name.to_owned(),
            namespace: "default".to_owned(),
            uid: format!("uid-{name}"),
            ports: Vec::new(),
            annotations: BTreeMap::new(),
        }
    }

    fn attach(&self, pod: &PodNetwork) -> Result<Vec<IpAddr>, crate::Error> {
        self.runtime.block_on(self.network().attach(pod)).map(|attached| attached.ips)
    }

    fn detach(&self, pod: &PodNetwork) -> Result<(), crate::Error> {
        self.runtime.block_on(self.network().detach(&pod.sandbox_id, Some(&pod.netns)))
    }

    fn sweep(&self, live: &[&PodNetwork]) -> Result<(), crate::Error> {
        let live = live.iter().map(|pod| pod.sandbox_id.clone()).collect();
        self.runtime.block_on(self.network().sweep(&live))
    }

    /// The files of sandboxes in the state directory.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.settings.state_dir.join("sandboxes")).unwrap();
        let mut files: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        files
    }

    fn snapshot(&self) -> Snapshot {
        let look = async {
            let kernel = Kernel::open()?;
            let mut links = BTreeSet::new();
            for link in kernel.links().await? {
                links.insert(format!("{} {:?}", link.name, kernel.addresses(&link).await?));
            }
            let routes = kernel.routes().await?.iter().map(|route| route.to.to_string()).collect();
            Ok(Snapshot {
                links,
                routes,
                rules: crate::firewall::rules(&self.settings.bridge).is_ok_and(|tables| !tables.is_empty()),
            })
        };
        threads::block_on(look).unwrap()
    }
}

impl Drop for Scene {
    /// Unmounts namespaces, so that the directory can be removed.
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            let _ = nix::mount::umount2(&entry.path(), nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// Runs work inside a namespace, or on the node.
fn at<T: Send>(netns: Option<&Path>, work: impl FnOnce() -> T + Send) -> T {
    match netns {
        Some(netns) => threads::inside(netns, || Ok(work())).unwrap(),
        None => work(),
    }
}

/// Listens inside a namespace until the test exits; sends each client the address that it connected from.
fn serve(netns: Option<&Path>, address: &str) {
    let listener = at(netns, || TcpListener::bind(address).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let peer = stream.peer_addr().map(|peer| peer.ip().to_string()).unwrap_or_default();
            let _ = stream.write_all(peer.as_bytes());
        }
    });
}

/// The address that a server sees of a client. The first packets may be lost: a port of a bridge takes a moment.
fn ask(netns: Option<&Path>, ip: IpAddr, port: u16) -> io::Result<String> {
    ask_within(netns, ip, port, Duration::from_secs(30))
}

/// Whether no server answers there.
fn is_silent(netns: Option<&Path>, ip: IpAddr, port: u16) -> bool {
    ask_within(netns, ip, port, Duration::from_secs(2)).is_err()
}

fn ask_within(netns: Option<&Path>, ip: IpAddr, port: u16, patience: Duration) -> io::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "a test may block")]
    let connect = || TcpStream::connect_timeout(&SocketAddr::new(ip, port), patience);
    let mut stream = at(netns, connect)?;
    // A connected client gets an answer as soon as the server's thread is scheduled.
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut output = String::new();
    stream.read_to_string(&mut output)?;
    Ok(output)
}

fn port(container_port: u16, host_port: u16) -> PortMapping {
    PortMapping { protocol: Protocol::Tcp, container_port, host_port, host_ip: None }
}

fn link(name: &str) -> Option<Link> {
    threads::block_on(async { Kernel::open()?.link(name).await }).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}
