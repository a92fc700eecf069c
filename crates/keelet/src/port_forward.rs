//! `keelet port-forward`: ports of a pod on loopback.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow};
use futures::FutureExt;
use keelet_local::{Client, ClientError, api::Session};
use keelet_stream::client::Forwarder;
use serde_json::Value;
use tokio::{net::TcpListener, sync::Mutex, task::JoinSet};

use crate::{
    absence::Absence,
    ask::{self, Connection, InNamespace},
    exec::connect,
    output,
    validate::Verdict,
};

/// Reach ports of a pod on loopback
///
/// Until Ctrl-C. Connections go to the pod's own loopback, so servers that listen nowhere else are reached too. If the agent
/// is killed, open connections break; new ones wait for the next agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 1 not possible, or the pod is gone; 2 wrong usage.\n\n\
                        Examples:\n  keelet port-forward web 8080\n  keelet port-forward web 8000:80 :443")]
pub(crate) struct Args {
    /// Name of the pod
    #[arg(value_name = "POD")]
    pod: String,
    /// PORT, LOCAL:PORT, or :PORT for any free local one
    #[arg(required = true, value_name = "[LOCAL:]PORT", value_parser = Ports::parse)]
    ports: Vec<Ports>,
    #[command(flatten)]
    place: InNamespace,
    #[command(flatten)]
    connection: Connection,
}

/// A port here and a port there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    local: u16,
    remote: u16,
}

/// The way into the pod, made anew when it broke.
struct Tunnel {
    client: Client,
    path: String,
    absence: Absence,
    forwarder: Mutex<Option<Arc<Forwarder>>>,
}

/// Between a way that broke and the next try.
const PAUSE: Duration = Duration::from_millis(100);

// === impl Ports ===

impl Ports {
    fn parse(text: &str) -> Result<Self, String> {
        let port = |text: &str| {
            let number = text.parse::<u16>().ok().filter(|port| *port > 0);
            number.ok_or_else(|| format!("{text:?} is not a port: 1 to 65535"))
        };
        match text.split_once(':') {
            None => port(text).map(|remote| Self { local: remote, remote }),
            Some(("", remote)) => port(remote).map(|remote| Self { local: 0, remote }),
            Some((local, remote)) => Ok(Self { local: port(local)?, remote: port(remote)? }),
        }
    }
}

/// Forwards until the pod is gone or somebody has had enough.
pub(crate) fn run(args: &Args) -> Result<Verdict> {
    ask::run(async {
        let client = args.connection.client();
        let pod = ask::pod(&client, args.place.namespace.as_deref(), &args.pod).await?;
        let mut listeners = Vec::new();
        for ports in &args.ports {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, ports.local)).await;
            let listener = listener.with_context(|| format!("cannot listen on port {} of loopback", ports.local))?;
            listeners.push((listener, ports.remote));
        }
        let tunnel = Arc::new(Tunnel {
            path: format!("{}/portforward", ask::path_of(&pod)),
            absence: Absence::new(&client, "connections wait for the next one"),
            client,
            forwarder: Mutex::default(),
        });
        *tunnel.forwarder.lock().await = Some(tunnel.session().await?);
        let mut tasks = JoinSet::new();
        for (listener, remote) in listeners {
            output::out(&format!("Forwarding from {} -> {remote}\n", listener.local_addr()?))?;
            tasks.spawn(serve(listener, remote, Arc::clone(&tunnel)));
        }
        loop {
            let forwarder = tunnel.forwarder().await?;
            tokio::select! {
                () = forwarder.closed() => {}
                ended = tasks.join_next() => return Err(anyhow!("no more connections are taken: {ended:?}")),
            }
        }
    })
}

async fn serve(listener: TcpListener, remote: u16, tunnel: Arc<Tunnel>) {
    while let Ok((connection, _)) = listener.accept().await {
        let tunnel = Arc::clone(&tunnel);
        tokio::spawn(async move {
            // Why there is none is said by whoever keeps the tunnel.
            let Ok(forwarder) = tunnel.forwarder().await else { return };
            if let Err(error) = forwarder.forward(connection, remote).await {
                output::error(&format!("port {remote}: {error}"));
            }
        });
    }
}

// === impl Tunnel ===

impl Tunnel {
    /// The present way, or the next one as soon as there is an agent. Fails when the pod is gone.
    async fn forwarder(&self) -> Result<Arc<Forwarder>> {
        let mut held = self.forwarder.lock().await;
        loop {
            if let Some(forwarder) = held.as_ref().filter(|forwarder| forwarder.closed().now_or_never().is_none()) {
                return Ok(Arc::clone(forwarder));
            }
            match self.session().await {
                Ok(forwarder) => {
                    self.absence.is_over();
                    *held = Some(forwarder);
                }
                Err(error) if matches!(error.downcast_ref(), Some(ClientError::Refused(_))) => return Err(error),
                Err(_) => self.absence.wait().await?,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn session(&self) -> Result<Arc<Forwarder>> {
        let session: Session = self.client.post(&self.path, &Value::Null).await?;
        Ok(Arc::new(Forwarder::connect(connect(&session.url).await?, &session.url).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::Ports;

    #[test]
    fn ports_are_written_as_for_kubectl() {
        assert_eq!(Ports::parse("80"), Ok(Ports { local: 80, remote: 80 }));
        assert_eq!(Ports::parse("8000:80"), Ok(Ports { local: 8000, remote: 80 }));
        assert_eq!(Ports::parse(":80"), Ok(Ports { local: 0, remote: 80 }));
        for bad in ["", "0", "x", "80:", "8000:0", "70000", "1:2:3"] {
            assert!(Ports::parse(bad).is_err(), "{bad:?}");
        }
    }
}
