//! Where images come from, as the command line says it.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use keelet_image::PullOptions;

use crate::paths::absolute;

/// Registries, and the mirrors that have their images too.
#[derive(Clone, Debug, Default, Args)]
pub struct Registries {
    /// Mirror to pull from before the registry itself; `*` as REGISTRY is every registry [repeatable]
    #[arg(long, value_name = "REGISTRY=URL", value_parser = parse)]
    registry_mirror: Vec<Mirror>,
    /// File with registry credentials, as written by `docker login` [default: $DOCKER_CONFIG/config.json, else
    /// ~/.docker/config.json]
    #[arg(long, value_name = "FILE")]
    docker_config: Option<PathBuf>,
}

/// One host that has images of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mirror {
    registry: String,
    host: String,
    plain_http: bool,
}

fn parse(text: &str) -> Result<Mirror> {
    let Some((registry, url)) = text.split_once('=') else {
        bail!("expected REGISTRY=URL, such as docker.io=https://mirror.example:5000");
    };
    if registry.is_empty() || registry.contains('/') {
        bail!("invalid registry {registry:?}: expected a host such as docker.io, or * for every registry");
    }
    let (plain_http, host) = match url.split_once("://") {
        Some(("https", host)) => (false, host),
        Some(("http", host)) => (true, host),
        _ => bail!("invalid mirror URL {url:?}: it must start with https:// or http://"),
    };
    let host = host.strip_suffix('/').unwrap_or(host);
    if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
        bail!("invalid mirror URL {url:?}: expected a host with or without a port, and nothing after it");
    }
    Ok(Mirror { registry: registry.to_owned(), host: host.to_owned(), plain_http })
}

// === impl Registries ===

impl Registries {
    /// Adds what was asked for to how images are pulled.
    pub fn apply(&self, options: &mut PullOptions) -> Result<()> {
        if let Some(path) = &self.docker_config {
            // Read again for each pull; a missing file would look like one without credentials.
            std::fs::metadata(path).with_context(|| format!("--docker-config: cannot read {}", path.display()))?;
            options.docker_config = Some(absolute("--docker-config", path)?);
        }
        for Mirror { registry, host, plain_http } in &self.registry_mirror {
            options.mirrors.entry(registry.clone()).or_default().push(host.clone());
            if *plain_http {
                options.plain_http.insert(host.clone());
            }
        }
        Ok(())
    }

    /// A runtime of its own pulls in its own way: what was asked for would change nothing.
    pub fn refuse_beside(&self, endpoint: &str) -> Result<()> {
        let given = [
            ("--registry-mirror", !self.registry_mirror.is_empty()),
            ("--docker-config", self.docker_config.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => bail!("{option} is for the embedded runtime; {endpoint} has registries of its own"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelet_image::PullOptions;

    use super::{Mirror, Registries, parse};

    #[test]
    fn a_mirror_is_a_registry_and_a_url() {
        let mirror = |registry: &str, host: &str, plain_http| Mirror {
            registry: registry.to_owned(),
            host: host.to_owned(),
            plain_http,
        };
        assert_eq!(parse("docker.io=https://m.example").expect("one"), mirror("docker.io", "m.example", false));
        assert_eq!(parse("*=http://127.0.0.1:5000/").expect("one"), mirror("*", "127.0.0.1:5000", true));
        for (wrong, because) in [
            ("docker.io", "REGISTRY=URL"),
            ("=http://a", "invalid registry"),
            ("docker.io/library=http://a", "docker.io/library"),
            ("docker.io=a", "start with https://"),
            ("docker.io=ftp://a", "ftp://a"),
            ("docker.io=http://", "invalid mirror URL"),
            ("docker.io=http://a/b", "nothing after it"),
            ("docker.io=http://user@a", "nothing after it"),
        ] {
            let error = parse(wrong).expect_err(wrong).to_string();
            assert!(error.contains(because), "{wrong}: {error}");
        }
    }

    #[test]
    fn mirrors_are_asked_in_their_order() {
        let registry_mirror = ["a=http://one", "a=https://two", "b=http://three"];
        let registry_mirror = registry_mirror.iter().map(|text| parse(text).expect("a mirror")).collect();
        let mut options = PullOptions::default();
        let registries = Registries { registry_mirror, docker_config: None };
        registries.apply(&mut options).expect("mirrors");
        assert_eq!(options.mirrors["a"], ["one", "two"]);
        assert_eq!(options.mirrors["b"], ["three"]);
        assert_eq!(options.plain_http.iter().collect::<Vec<_>>(), ["one", "three"]);
    }

    #[test]
    fn credentials_come_from_the_file_that_is_named_or_it_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config.json");
        let registries = Registries { docker_config: Some(path.clone()), ..Registries::default() };
        let mut options = PullOptions::default();
        let error = registries.apply(&mut options).expect_err("it is not there");
        assert!(error.to_string().starts_with("--docker-config: ") && options.docker_config.is_none(), "{error}");
        std::fs::write(&path, "{}").expect("a file");
        registries.apply(&mut options).expect("it is there");
        assert_eq!(options.docker_config, Some(path));
    }

    #[test]
    fn what_would_change_nothing_is_refused() {
        let endpoint = "unix:///run/containerd/containerd.sock";
        Registries::default().refuse_beside(endpoint).expect("nothing was asked for");
        let mirror = parse("a=http://one").expect("a mirror");
        let mirrors = Registries { registry_mirror: vec![mirror], ..Registries::default() };
        let error = mirrors.refuse_beside(endpoint).expect_err("a mirror").to_string();
        assert!(error.contains("--registry-mirror") && error.contains(endpoint), "{error}");
        let config = Registries { docker_config: Some("c".into()), ..Registries::default() };
        assert!(config.refuse_beside(endpoint).expect_err("a file").to_string().contains("--docker-config"));
    }
}
