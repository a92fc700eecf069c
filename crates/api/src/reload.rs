//! A client whose credentials follow their files: certificates expire, and are replaced while the process runs.

use std::{
    collections::BTreeMap,
    future::Future,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{sync::Mutex, time::Instant};
use tower::Service;
use tracing::{info, warn};

use super::connect::{ConnectError, client, verified};

/// How often the files are looked at, at most: a few calls of the kernel.
const INTERVAL: Duration = Duration::from_secs(10);

/// What tells two contents of a file apart: its inode, size and time of change.
type Stamp = (u64, u64, i64, i64);

/// The client of a kubeconfig as it is now.
#[derive(Clone)]
struct Reloading {
    current: Arc<Mutex<Current>>,
    kubeconfig: PathBuf,
    interval: Duration,
}

struct Current {
    client: Client,
    files: BTreeMap<PathBuf, Option<Stamp>>,
    checked: Instant,
}

/// A client from a kubeconfig: its current context, also after the file or one that it names has changed. One by which another server could pose as
/// the API server is refused.
pub async fn connect(kubeconfig: &Path) -> Result<Client, ConnectError> {
    connect_checking(kubeconfig, INTERVAL).await
}

async fn connect_checking(kubeconfig: &Path, interval: Duration) -> Result<Client, ConnectError> {
    let current = Mutex::new(load(kubeconfig).await?).into();
    Ok(Client::new(Reloading { current, kubeconfig: kubeconfig.to_owned(), interval }, "default"))
}

async fn load(path: &Path) -> Result<Current, ConnectError> {
    let wrong = |error| ConnectError::Kubeconfig { path: path.display().to_string(), error };
    let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
    // Before they are read: a change in between is seen the next time.
    let files = named_in(path, &kubeconfig).into_iter().map(|file| (file.clone(), stamp(&file))).collect();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?;
    verified(&config).map_err(|why| {
        let (path, url) = (path.display().to_string(), config.cluster_url.clone());
        ConnectError::Unverified { path, url, why }
    })?;
    Ok(Current { client: client(config)?, files, checked: Instant::now() })
}

/// The kubeconfig and the files with certificates and keys that it names.
fn named_in(path: &Path, kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let of_users = users.flat_map(|user| [&user.client_certificate, &user.client_key]);
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let of_clusters = clusters.map(|cluster| &cluster.certificate_authority);
    let named = of_users.chain(of_clusters).flatten().map(PathBuf::from);
    std::iter::once(path.to_owned()).chain(named).collect()
}

fn stamp(file: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(file).ok()?;
    Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

// === impl Reloading ===

impl Reloading {
    /// The client of the files as they are, or of the last ones that could be used.
    async fn client(&self) -> Client {
        let mut current = self.current.lock().await;
        if current.checked.elapsed() < self.interval {
            return current.client.clone();
        }
        current.checked = Instant::now();
        if current.files.iter().all(|(file, known)| stamp(file) == *known) {
            return current.client.clone();
        }
        let kubeconfig = self.kubeconfig.display();
        match load(&self.kubeconfig).await {
            Ok(new) => {
                info!(%kubeconfig, "credentials have changed: using the new ones");
                *current = new;
            }
            // The files may be half written. They are read again the next time.
            Err(error) => {
                warn!(%kubeconfig, %error, "credentials have changed and cannot be used: keeping the former ones")
            }
        }
        current.client.clone()
    }
}

impl Service<Request<Body>> for Reloading {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.client().await.send(request).await })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base64::{Engine, prelude::BASE64_STANDARD};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        sync::mpsc,
    };

    use super::*;

    /// A server that answers every request, and sends on who asked.
    async fn server() -> (String, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (send, asked) = mpsc::channel(8);
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let send = send.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 4096];
                    while let Ok(read @ 1..) = connection.read(&mut buffer).await {
                        let head = String::from_utf8_lossy(&buffer[..read]).to_lowercase();
                        let token = head.lines().find_map(|line| line.strip_prefix("authorization: bearer "));
                        let _ = send.send(token.unwrap_or("no token").trim().to_owned()).await;
                        let answer =
                            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
                        let _ = connection.write_all(answer).await;
                    }
                });
            }
        });
        (address, asked)
    }

    fn write(file: &Path, server: &str, token: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\n"
        );
        let next = file.with_extension("new");
        fs::write(&next, text).unwrap();
        fs::rename(next, file).unwrap();
    }

    /// CLU-44: credentials that are replaced are used without a restart; those that cannot be used change nothing.
    #[tokio::test]
    async fn credentials_that_are_replaced_are_used() {
        let (directory, (server, mut asked)) = (tempfile::tempdir().unwrap(), server().await);
        let file = directory.path().join("kubeconfig");
        write(&file, &server, "first");
        let client = connect_checking(&file, Duration::ZERO).await.unwrap();
        let ask = async || {
            let request = Request::get("/version").body(Body::empty()).unwrap();
            client.send(request).await.unwrap();
        };
        ask().await;
        assert_eq!(asked.recv().await.unwrap(), "first");
        write(&file, &server, "second");
        ask().await;
        assert_eq!(asked.recv().await.unwrap(), "second");
        fs::write(&file, "no: [kubeconfig").unwrap();
        ask().await;
        assert_eq!(asked.recv().await.unwrap(), "second", "half a file changes nothing");
        write(&file, &server, "third");
        ask().await;
        assert_eq!(asked.recv().await.unwrap(), "third");
        fs::remove_file(&file).unwrap();
        ask().await;
        assert_eq!(asked.recv().await.unwrap(), "third", "nor does none");
    }

    /// CLU-44: an agent or a controller does what an API server says, so it has to know that it is the API server. A file that is replaced by such a
    /// one changes nothing.
    #[tokio::test]
    async fn a_server_that_cannot_be_verified_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        let refused = async |cluster: &str| {
            let text = format!(
                "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
                 users: [{{name: u, user: {{token: hush}}}}]\n"
            );
            fs::write(&file, text).unwrap();
            connect(&file).await.err().map(|error| error.to_string())
        };
        let own = BASE64_STANDARD.encode(rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem());
        let with_ca = format!("server: 'https://192.0.2.1', certificate-authority-data: {own}");
        for (cluster, words) in [
            (with_ca.clone(), None),
            (format!("{with_ca}, insecure-skip-tls-verify: false"), None),
            ("server: 'http://127.0.0.1:8001'".to_owned(), None),
            ("server: 'http://[::1]:8001'".to_owned(), None),
            ("server: 'http://localhost:8001'".to_owned(), None),
            (format!("{with_ca}, insecure-skip-tls-verify: true"), Some("insecure-skip-tls-verify: true")),
            (
                "server: 'https://192.0.2.1', insecure-skip-tls-verify: true".to_owned(),
                Some("certificate-authority-data"),
            ),
            (
                "server: 'https://127.0.0.1', insecure-skip-tls-verify: true".to_owned(),
                Some("certificate-authority-data"),
            ),
            (
                "server: 'https://192.0.2.1'".to_owned(),
                Some("neither certificate-authority-data nor certificate-authority"),
            ),
            ("server: 'http://192.0.2.1'".to_owned(), Some("neither encrypted nor verified")),
            ("server: 'http://localhost.evil.example'".to_owned(), Some("neither encrypted nor verified")),
            ("server: 'http://127.0.0.1.evil.example'".to_owned(), Some("neither encrypted nor verified")),
        ] {
            let error = refused(&cluster).await;
            match words {
                None => assert_eq!(error, None, "{cluster}"),
                Some(words) => {
                    let error = error.unwrap_or_else(|| panic!("accepted: {cluster}"));
                    let place = format!("cannot use the kubeconfig {} for ", file.display());
                    assert!(error.starts_with(&place) && error.contains(words), "{error}");
                }
            }
        }
    }

    /// CLU-44: certificates are files of their own.
    #[test]
    fn certificates_and_keys_are_looked_at_too() {
        let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {certificate-authority: /ca.pem}}]\n\
                    users: [{name: u, user: {client-certificate: /u.pem, client-key: /u.key}}]\n";
        let found = named_in(Path::new("/config"), &Kubeconfig::from_yaml(text).unwrap());
        assert_eq!(found, ["/config", "/u.pem", "/u.key", "/ca.pem"].map(PathBuf::from));
    }
}
