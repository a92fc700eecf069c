//! What the agent runs with: flags, then the configuration file, then defaults.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use keelet_agent::config::{self, NodeConfig, ReadConfig};
use keelet_agent::node::{Facts, MAX_PODS, Machine};
use keelet_host::Layout;
use keelet_launch::SeccompDefault;

use super::Args;
use keelet_assembly::Paths;
use keelet_cli::paths::absolute;

/// The kubelet's.
const HEALTHZ_PORT: u16 = 10248;

/// Where everything is, and what the file says. Paths are as the runtime sees them: whatever the working directory.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) endpoint: Option<String>,
    pub(crate) paths: Paths,
    pub(crate) logs: PathBuf,
    /// None on a node of a cluster that has no static pods.
    pub(crate) manifests: Option<PathBuf>,
    pub(crate) objects: PathBuf,
    pub(crate) config: NodeConfig,
}

// === impl Options ===

impl Options {
    pub(crate) fn of(args: &Args, config: NodeConfig) -> Result<Self> {
        // One that cannot be written may be so for a while only; one that cannot be a directory never will be.
        let own = |option: &str, path: &Path| {
            let kind = path.metadata().map(|found| found.is_dir());
            match kind.map_err(|error| error.kind()) {
                Ok(false) | Err(io::ErrorKind::NotADirectory) => {
                    bail!("{option}: {} is not a directory", path.display())
                }
                _ => absolute(option, path),
            }
        };
        let endpoint = args.container_runtime_endpoint.clone().or_else(|| config.container_runtime_endpoint.clone());
        let manifests = args.pod_manifest_path.clone().or_else(|| config.static_pod_path.clone());
        let logs = args.pod_logs_dir.clone().or_else(|| config.pod_logs_dir.clone());
        Ok(Self {
            endpoint,
            paths: Paths {
                root_dir: own("--root-dir", &args.directories.root_dir)?,
                state_dir: own("--state-dir", &args.directories.state_dir)?,
            },
            logs: own("--pod-logs-dir", &logs.unwrap_or_else(|| Layout::LOGS.into()))?,
            // They may come and go.
            manifests: match manifests {
                Some(manifests) => Some(absolute("--pod-manifest-path", &manifests)?),
                None if args.cluster.kubeconfig.is_some() => None,
                None => return Err(missing("--pod-manifest-path", "staticPodPath")),
            },
            objects: absolute("--local-objects-dir", &args.local_objects_dir)?,
            config,
        })
    }

    /// Where health and metrics are served: the flag, the file, the kubelet's port.
    pub(crate) fn healthz(&self, args: &Args) -> Option<SocketAddr> {
        let port = args.healthz_port.or(self.config.healthz_port).unwrap_or(HEALTHZ_PORT);
        let address = self.config.healthz_bind_address.unwrap_or(Ipv4Addr::LOCALHOST.into());
        (port != 0).then_some(SocketAddr::new(address, port))
    }

    /// What is known of this node.
    pub(crate) fn facts(&self, args: &Args) -> Result<Facts> {
        let mut known = Machine::this().facts(args.hostname_override.clone(), args.node_ip, &self.paths.root_dir);
        if args.cluster.kubeconfig.is_some() {
            known.capacity.pods = Some(MAX_PODS);
        }
        let facts = &mut known.for_pods;
        facts.cluster_dns.clone_from(&self.config.cluster_dns);
        facts.cluster_domain = self.config.cluster_domain.clone().unwrap_or_default();
        if let Some(path) = &self.config.resolv_conf {
            facts.resolv_conf = match path.as_os_str().is_empty() {
                true => None,
                false => {
                    let text = fs::read_to_string(path);
                    Some(text.with_context(|| format!("resolvConf: cannot read {}", path.display()))?)
                }
            };
        }
        if self.config.seccomp_default {
            facts.seccomp_default = SeccompDefault::Runtime;
        }
        Ok(known)
    }

    pub(crate) fn parallel_pulls(&self) -> Option<NonZeroUsize> {
        self.config.parallel_pulls.and_then(NonZeroUsize::new)
    }

    /// Refuses to run on a node that swaps, if the file says so.
    pub(crate) fn check_swap(&self) -> Result<()> {
        match Machine::this().swap() {
            Some(device) if self.config.fail_swap_on == Some(true) => {
                bail!("failSwapOn is true, and this node swaps to {device}; switch it off or set failSwapOn to false")
            }
            _ => Ok(()),
        }
    }
}

/// Reads the configuration file, if there is to be one. What has to be said about it goes to the log.
pub(crate) fn read_config(path: Option<&Path>) -> Result<NodeConfig> {
    let Some(path) = path else { return Ok(NodeConfig::default()) };
    let bytes = fs::read(path).with_context(|| format!("--config: cannot read {}", path.display()))?;
    let path = absolute("--config", path)?;
    match config::read(&bytes, &path) {
        Ok(ReadConfig { config, warnings, remarks }) => {
            for warning in warnings {
                tracing::warn!(%warning, "configuration file warning");
            }
            for remark in remarks {
                tracing::info!(%remark, "configuration file remark");
            }
            Ok(config)
        }
        Err(errors) => Err(anyhow!("--config: {}", errors.join("\n"))),
    }
}

fn missing(flag: &str, field: &str) -> anyhow::Error {
    anyhow!("{flag} is required, or {field} in the file of --config, or --kubeconfig to join a cluster")
}
