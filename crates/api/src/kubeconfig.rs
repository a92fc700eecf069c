//! Which kubeconfig is used, by kubectl's rules: the file of an option, else those that `KUBECONFIG` lists, else `~/.kube/config`; in a pod
//! without any of them, its service account.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use http::Uri;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::connect::{ConnectError, client};

/// What a person says about the kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubectl {
    /// The file.
    pub file: Option<PathBuf>,
    /// The context in it, instead of its current one.
    pub context: Option<String>,
}

/// A client and the API server that it is for.
#[derive(Clone)]
pub struct Connected {
    /// The client.
    pub client: Client,
    /// The address of the API server.
    pub url: Uri,
}

/// Where a kubeconfig may be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// This file has to be there.
    File(PathBuf),
    /// These files, merged; those that do not exist are left out, as kubectl does.
    List(Vec<PathBuf>),
    /// There is no place for one.
    Nowhere,
}

/// A client for the API server that kubectl would ask.
pub async fn connect_as_kubectl(kubectl: &Kubectl) -> Result<Connected, ConnectError> {
    let place = place(kubectl.file.as_deref(), std::env::var_os("KUBECONFIG"), std::env::var_os("HOME"));
    let Some((kubeconfig, path)) = read(&place)? else {
        if kubectl.context.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            let config = Config::incluster_env().map_err(|error| ConnectError::InCluster { error })?;
            return connected(config);
        }
        return Err(ConnectError::NoKubeconfig { looked: place.to_string() });
    };
    if let Some(wanted) = &kubectl.context {
        let known: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
        if !known.contains(wanted) {
            return Err(ConnectError::NoContext { path, context: wanted.clone(), known: known.join(", ") });
        }
    }
    let options = KubeConfigOptions { context: kubectl.context.clone(), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    connected(config.map_err(|error| ConnectError::Kubeconfig { path, error })?)
}

fn connected(config: Config) -> Result<Connected, ConnectError> {
    let url = config.cluster_url.clone();
    Ok(Connected { client: client(config)?, url })
}

fn place(flag: Option<&Path>, variable: Option<OsString>, home: Option<OsString>) -> Place {
    if let Some(file) = flag {
        return Place::File(file.to_owned());
    }
    let listed = variable.as_deref().map(std::env::split_paths).into_iter().flatten();
    let listed: Vec<_> = listed.filter(|path| !path.as_os_str().is_empty()).collect();
    match (listed.is_empty(), home.as_deref().filter(|home| !home.is_empty())) {
        (false, _) => Place::List(listed),
        (true, Some(home)) => Place::List(vec![in_home(home)]),
        (true, None) => Place::Nowhere,
    }
}

fn in_home(home: &OsStr) -> PathBuf {
    Path::new(home).join(".kube/config")
}

/// The kubeconfig and where it is; none if none of the files exists.
fn read(place: &Place) -> Result<Option<(Kubeconfig, String)>, ConnectError> {
    let of = |path: &Path| {
        Kubeconfig::read_from(path)
            .map_err(|error| ConnectError::Kubeconfig { path: path.display().to_string(), error })
    };
    let files = match place {
        Place::Nowhere => return Ok(None),
        Place::File(path) => return Ok(Some((of(path)?, path.display().to_string()))),
        Place::List(files) => files,
    };
    let mut merged: Option<(Kubeconfig, Vec<String>)> = None;
    for path in files {
        let next = match of(path) {
            Err(ConnectError::Kubeconfig { error: KubeconfigError::ReadConfig(io, _), .. })
                if io.kind() == std::io::ErrorKind::NotFound =>
            {
                continue;
            }
            other => other?,
        };
        let shown = path.display().to_string();
        merged = Some(match merged {
            None => (next, vec![shown]),
            Some((all, paths)) => {
                let wrong = |error| ConnectError::Kubeconfig { path: shown.clone(), error };
                (all.merge(next).map_err(wrong)?, [paths, vec![shown.clone()]].concat())
            }
        });
    }
    Ok(merged.map(|(kubeconfig, paths)| (kubeconfig, paths.join(", "))))
}

// === impl Connected ===

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connected").field("url", &self.url).finish_non_exhaustive()
    }
}

// === impl Place ===

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::List(files) => {
                let files: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
                f.write_str(&files.join(", "))
            }
            Self::Nowhere => f.write_str("~/.kube/config (HOME is not set)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(files: &[&str]) -> Place {
        Place::List(files.iter().map(PathBuf::from).collect())
    }

    #[test]
    fn the_option_wins_then_the_variable_then_the_home_directory() {
        let (flag, variable, home) = (Path::new("/a"), || Some("/b::/c".into()), || Some("/root".into()));
        assert_eq!(place(Some(flag), variable(), home()), Place::File("/a".into()));
        assert_eq!(place(None, variable(), home()), list(&["/b", "/c"]));
        assert_eq!(place(None, Some(":".into()), home()), list(&["/root/.kube/config"]), "an empty list is none");
        assert_eq!(place(None, None, home()), list(&["/root/.kube/config"]));
        assert_eq!(place(None, None, Some("".into())), Place::Nowhere);
    }

    #[test]
    fn files_of_a_list_are_merged_and_those_that_do_not_exist_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let file = |name: &str, context: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: {context}\ncontexts:\n- name: {context}\n  context: {{cluster: {context}}}\n\
                 clusters:\n- name: {context}\n  cluster: {{server: 'https://{context}.example'}}\n"
            );
            std::fs::write(path(name), text).unwrap();
        };
        file("one", "a");
        file("two", "b");
        let (merged, shown) = read(&Place::List(vec![path("one"), path("none"), path("two")])).unwrap().unwrap();
        let names: Vec<_> = merged.contexts.iter().map(|context| context.name.as_str()).collect();
        assert_eq!((names, merged.current_context.as_deref()), (vec!["a", "b"], Some("a")), "the first file wins");
        assert_eq!(shown, format!("{}, {}", path("one").display(), path("two").display()));
        assert!(read(&Place::List(vec![path("none")])).unwrap().is_none());
        let error = read(&Place::File(path("none"))).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot use the kubeconfig {}", path("none").display())), "{error}");
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_named_with_those_that_are() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::fs::write(&file, "apiVersion: v1\nkind: Config\ncontexts:\n- name: a\n- name: b\n").unwrap();
        let kubectl = Kubectl { file: Some(file.clone()), context: Some("c".to_owned()) };
        let error = connect_as_kubectl(&kubectl).await.unwrap_err().to_string();
        assert_eq!(error, format!("context \"c\" not found in the kubeconfig {}; contexts: a, b", file.display()));
    }
}
