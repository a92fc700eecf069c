//! The endpoint of the runtime.

use std::path::PathBuf;

/// An invalid endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the runtime endpoint {given:?} {why}: it must be a unix socket, as unix:///run/containerd/containerd.sock or as an absolute path"
)]
pub struct EndpointError {
    given: String,
    why: &'static str,
}

/// The path of the socket that an endpoint names.
pub(crate) fn socket_path(endpoint: &str) -> Result<PathBuf, EndpointError> {
    let refuse = |why| Err(EndpointError { given: endpoint.to_owned(), why });
    let path = match endpoint.split_once("://") {
        Some(("unix", path)) => path,
        Some(_) => return refuse("has a scheme other than unix"),
        None => endpoint,
    };
    match path {
        "" => refuse("names no path"),
        _ if path.contains('\0') => refuse("contains a NUL byte"),
        _ if path.ends_with('/') => refuse("names a directory"),
        _ if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => refuse("has a relative path"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_named_by_url_or_by_path() {
        for endpoint in ["unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock"] {
            assert_eq!(socket_path(endpoint), Ok(PathBuf::from("/run/containerd/containerd.sock")));
        }
        assert_eq!(socket_path("unix:///run/with space#1.sock"), Ok(PathBuf::from("/run/with space#1.sock")));
    }

    #[test]
    fn anything_else_is_refused_with_what_is_allowed() {
        for (endpoint, why) in [
            ("", "names no path"),
            ("unix://", "names no path"),
            ("unix://run/x.sock", "has a relative path"),
            ("run/x.sock", "has a relative path"),
            ("unix:/run/x.sock", "has a relative path"),
            ("tcp://127.0.0.1:1234", "has a scheme other than unix"),
            ("npipe:////./pipe/containerd", "has a scheme other than unix"),
            ("/run/containerd/", "names a directory"),
            ("/run/\0", "contains a NUL byte"),
        ] {
            let message = socket_path(endpoint).expect_err(endpoint).to_string();
            assert!(message.starts_with(&format!("the runtime endpoint {endpoint:?} {why}: ")), "{message}");
            assert!(message.contains("unix:///run/containerd/containerd.sock"), "{message}");
        }
    }
}
