//! `keelet port-forward`: ports of a pod on loopback.

use std::{net::Ipv4Addr, sync::Arc};

use anyhow::{Context, Result, anyhow, bail};
use keelet_local::api::Session;
use keelet_stream::client::Forwarder;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    ask::{self, Connection, InNamespace},
    exec::connect,
    output,
    validate::Verdict,
};

/// Reach ports of a pod on loopback
///
/// Until Ctrl-C. Connections go to the pod's own loopback, so servers that listen nowhere else are reached too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 the pod is gone, 1 not possible, 2 wrong usage.\n\n\
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
        let session: Session = client.post(&format!("{}/portforward", ask::path_of(&pod)), &Value::Null).await?;
        let forwarder = Arc::new(Forwarder::connect(connect(&session.url).await?, &session.url).await?);
        let mut tasks = JoinSet::new();
        for (listener, remote) in listeners {
            output::out(&format!("Forwarding from {} -> {remote}\n", listener.local_addr()?))?;
            tasks.spawn(serve(listener, remote, Arc::clone(&forwarder)));
        }
        tokio::select! {
            () = forwarder.closed() => bail!("the runtime ended the session"),
            ended = tasks.join_next() => Err(anyhow!("no more connections are taken: {ended:?}")),
        }
    })
}

async fn serve(listener: TcpListener, remote: u16, forwarder: Arc<Forwarder>) {
    while let Ok((connection, _)) = listener.accept().await {
        let forwarder = Arc::clone(&forwarder);
        tokio::spawn(async move {
            if let Err(error) = forwarder.forward(connection, remote).await {
                output::error(&format!("port {remote}: {error}"));
            }
        });
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
