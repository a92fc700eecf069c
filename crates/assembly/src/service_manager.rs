//! The service manager: the agent notifies it when it is ready, reloads and stops, and that it is alive.
//!
//! Datagrams to the socket that `NOTIFY_SOCKET` names, as systemd wants them. Without one nothing is sent.

use std::{
    io,
    os::{linux::net::SocketAddrExt, unix::net::SocketAddr, unix::net::UnixDatagram},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// The service manager, if there is one.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

// === impl ServiceManager ===

impl ServiceManager {
    /// What the environment says.
    pub fn of_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::new(
            variable("NOTIFY_SOCKET").as_deref(),
            variable("WATCHDOG_USEC").as_deref(),
            variable("WATCHDOG_PID").as_deref(),
        )
    }

    fn new(socket: Option<&str>, watchdog_usec: Option<&str>, watchdog_pid: Option<&str>) -> Self {
        let opened = socket.map(|name| open(name).map_err(|error| (name, error))).transpose();
        let socket = opened.unwrap_or_else(|(name, error)| {
            tracing::warn!(NOTIFY_SOCKET = name, %error, "cannot notify the service manager");
            None
        });
        // Meant for another process if it says so.
        let ours = watchdog_pid.is_none_or(|pid| pid == std::process::id().to_string());
        let usec = watchdog_usec.filter(|_| ours).and_then(|usec| usec.parse().ok()).filter(|usec| *usec > 0);
        Self { socket, watchdog: usec.map(Duration::from_micros) }
    }

    /// How often it wants a keep-alive: twice in the time that it waits for one.
    pub fn ping_every(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some()).map(|time| time / 2)
    }

    /// The agent runs.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// The agent reads its configuration again, until it says that it is ready.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let usec = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={usec}\n"));
    }

    /// The agent is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping; pods keep running\n");
    }

    /// The agent is alive.
    pub fn alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::debug!(%error, "cannot send a notification to the service manager");
        }
    }
}

fn open(name: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.strip_prefix('@') {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None if name.starts_with('/') => SocketAddr::from_pathname(name)?,
        None => return Err(io::Error::new(io::ErrorKind::InvalidInput, "must start with / or @")),
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold the agent up.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn what_the_agent_says_arrives_in_files_and_abstract_names() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("keelet-test-{}", std::process::id());
        let file = UnixDatagram::bind(&path).unwrap();
        let hidden = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, name) in [(file, path.display().to_string()), (hidden, format!("@{name}"))] {
            let manager = ServiceManager::new(Some(&name), None, None);
            manager.ready("runs");
            assert_eq!(said(&socket), "READY=1\nSTATUS=runs\n");
            manager.reloading();
            let reloading = said(&socket);
            let usec = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("the time of it").trim();
            assert!(usec.parse::<u64>().unwrap() > 0);
            manager.alive();
            assert_eq!(said(&socket), "WATCHDOG=1\n");
            manager.stopping();
            assert!(said(&socket).starts_with("STOPPING=1\n"));
        }
    }

    #[test]
    fn without_a_service_manager_nothing_is_sent() {
        for name in [None, Some("relative"), Some("/nowhere/notify")] {
            let manager = ServiceManager::new(name, Some("1000000"), None);
            manager.ready("runs");
            assert_eq!(manager.ping_every().is_some(), name == Some("/nowhere/notify"));
        }
    }

    #[test]
    fn keep_alives_come_twice_as_often_as_they_are_wanted() {
        let (_socket, name) = (UnixDatagram::unbound().unwrap(), "/run/notify");
        let own = std::process::id().to_string();
        for (usec, pid, every) in [
            (Some("30000000"), None, Some(15_000)),
            (Some("30000000"), Some(own.as_str()), Some(15_000)),
            (Some("30000000"), Some("1"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, None, None),
        ] {
            let manager = ServiceManager::new(Some(name), usec, pid);
            assert_eq!(manager.ping_every(), every.map(Duration::from_millis), "{usec:?} {pid:?}");
        }
    }
}
