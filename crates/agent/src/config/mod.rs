//! The node's configuration file: a `KubeletConfiguration` in, what it means here out.
//!
//! A file that was written for a kubelet is taken as it is. What has a meaning here is applied; every other field is
//! named in a warning. A value whose promise the agent would not keep is an error. Flags win over the file; the caller,
//! which has the flags, applies them.

mod duration;
mod fields;
mod gates;
mod https;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1;
use keelet_lifecycle::{
    node::NodeProbe,
    sysctls::{NAMESPACED, NotNamespaced, Sysctls},
};
use keelet_pod::{Kind, Object, Origin, Quantity, Taint, TypeMeta, read_object};
use serde::Deserialize;

pub use self::{
    fields::{FIELDS, Fate, fate},
    gates::{built_in_conditions, gate_warnings},
    https::{HttpsConfig, TlsVersion},
};
use self::{
    gates::RawNodeProbe,
    https::{Authentication, Authorization},
};
use crate::upkeep::{ImageRules, LogRules, Upkeep};

const TYPE: TypeMeta = TypeMeta { api_version: "kubelet.config.k8s.io/v1beta1", kind: "KubeletConfiguration" };

/// What a configuration file says, as far as it means something here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConfig {
    /// Directory with pod manifests.
    pub static_pod_path: Option<PathBuf>,
    /// Socket of the container runtime.
    pub container_runtime_endpoint: Option<String>,
    /// Feature gates.
    pub feature_gates: BTreeMap<String, bool>,
    /// How often manifests are read without a hint.
    pub file_check_frequency: Option<Duration>,
    /// Where `/healthz` is served.
    pub healthz_bind_address: Option<IpAddr>,
    /// The port of it; 0 for none.
    pub healthz_port: Option<u16>,
    /// The cluster's DNS servers.
    pub cluster_dns: Vec<String>,
    /// The domain of the cluster's services.
    pub cluster_domain: Option<String>,
    /// The node's resolver configuration; an empty path for none.
    pub resolv_conf: Option<PathBuf>,
    /// Directory for the logs of containers.
    pub pod_logs_dir: Option<PathBuf>,
    /// Whether the agent must not start while the node swaps.
    pub fail_swap_on: Option<bool>,
    /// Pulls of images at once; none for as many as there are.
    pub parallel_pulls: Option<usize>,
    /// The longest time between two restarts of a container that crashes.
    pub max_restart_period: Option<Duration>,
    /// Whether containers that ask for no seccomp profile get the runtime's.
    pub seccomp_default: bool,
    /// How many processes and threads a pod may have; -1 for as many as the node can, none for the runtime's own limit.
    pub pod_pids_limit: Option<i32>,
    /// Kernel parameters that pods may set beside the safe ones.
    pub sysctls: Sysctls,
    /// Whether startup and readiness probes that have not passed yet are also attempted between their scheduled attempts.
    pub eager_probes: Option<bool>,
    /// Probes of components of the node, each with the condition that it decides.
    pub node_probes: Vec<NodeProbe>,
    /// Taints that the node registers with.
    pub taints: Vec<Taint>,
    /// Logs and images.
    pub upkeep: Upkeep,
    /// The HTTPS server of a node of a cluster.
    pub https: HttpsConfig,
}

/// The kernel has no numbers for more processes.
pub const MOST_PIDS: i32 = 1 << 22;
/// The kubelet's way to say that a pod may have as many as the node can.
pub const NO_PIDS_LIMIT: i32 = -1;

/// A configuration and what has to be said about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadConfig {
    /// What it says.
    pub config: NodeConfig,
    /// Fields without an effect, one sentence each.
    pub warnings: Vec<String>,
    /// Fields that are not needed, one sentence each.
    pub remarks: Vec<String>,
}

/// A field that another version of the file gives another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub field: &'static str,
    /// Whether it takes effect while the agent runs.
    pub takes_effect: bool,
}

/// The fields that are read, as they are written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(rename = "kind")]
    _kind: Option<String>,
    allowed_unsafe_sysctls: Option<Vec<String>>,
    eager_probes: Option<bool>,
    static_pod_path: Option<String>,
    container_runtime_endpoint: Option<String>,
    feature_gates: Option<BTreeMap<String, bool>>,
    file_check_frequency: Option<String>,
    healthz_bind_address: Option<String>,
    healthz_port: Option<i32>,
    #[serde(rename = "clusterDNS")]
    cluster_dns: Option<Vec<String>>,
    cluster_domain: Option<String>,
    resolv_conf: Option<String>,
    pod_logs_dir: Option<String>,
    pod_pids_limit: Option<i64>,
    fail_swap_on: Option<bool>,
    serialize_image_pulls: Option<bool>,
    max_parallel_image_pulls: Option<i32>,
    crash_loop_back_off: Option<CrashLoopBackOff>,
    seccomp_default: Option<bool>,
    container_log_max_size: Option<String>,
    container_log_max_files: Option<i32>,
    container_log_monitor_interval: Option<String>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low: Option<i32>,
    #[serde(rename = "imageMinimumGCAge")]
    image_minimum_age: Option<String>,
    #[serde(rename = "imageMaximumGCAge")]
    image_maximum_age: Option<String>,
    memory_swap: Option<MemorySwap>,
    cpu_manager_policy: Option<String>,
    memory_manager_policy: Option<String>,
    memory_reservation_policy: Option<String>,
    topology_manager_policy: Option<String>,
    sync_frequency: Option<String>,
    address: Option<String>,
    port: Option<i32>,
    enable_server: Option<bool>,
    enable_debugging_handlers: Option<bool>,
    tls_cert_file: Option<String>,
    tls_private_key_file: Option<String>,
    tls_min_version: Option<String>,
    authentication: Option<Authentication>,
    authorization: Option<Authorization>,
    node_readiness_probes: Option<Vec<RawNodeProbe>>,
    register_with_taints: Option<Vec<v1::Taint>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CrashLoopBackOff {
    max_container_restart_period: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MemorySwap {
    swap_behavior: Option<String>,
}

/// Reads a configuration file. The error reports every problem at once, each with its line.
pub fn read(bytes: &[u8], file: &Path) -> Result<ReadConfig, Vec<String>> {
    let mut object: Object<Raw> = read_object(bytes, &Origin::file(file.display().to_string()), TYPE);
    let (mut warnings, mut remarks) = (Vec::new(), Vec::new());
    for problem in &object.warnings {
        let place = match problem.line {
            Some(line) => format!("{}:{line}", problem.file),
            None => problem.file.clone(),
        };
        match (problem.kind, fate(&problem.path)) {
            (Kind::UnknownField, Some(Fate::NotNeeded(why))) => {
                remarks.push(format!("{place}: accepted, not needed: {}: {why}", problem.path));
            }
            (Kind::UnknownField, Some(_)) => warnings.push(format!("{place}: known, not supported: {}", problem.path)),
            _ => warnings.push(problem.to_string()),
        }
    }
    if object.value.sync_frequency.is_some()
        && let Some(Fate::NotNeeded(why)) = fate("syncFrequency")
    {
        remarks.push(format!("{}: accepted, not needed: syncFrequency: {why}", file.display()));
    }
    let directory = file.parent().unwrap_or(Path::new("")).to_owned();
    let config = Checker { object: &mut object }.config(&directory);
    if object.errors.is_empty() {
        Ok(ReadConfig { config, warnings, remarks })
    } else {
        Err(object.errors.iter().map(ToString::to_string).collect())
    }
}

/// Turns what is written into what it means, and says what has no meaning.
struct Checker<'a> {
    object: &'a mut Object<Raw>,
}

// === impl Checker ===

impl Checker<'_> {
    fn config(&mut self, directory: &Path) -> NodeConfig {
        let raw = self.object.value.clone();
        self.policies(&raw);
        let https = self.https(&raw, directory);
        // As the kubelet reads them: relative to the file.
        let path = |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| directory.join(text));
        let period = raw.crash_loop_back_off.and_then(|backoff| backoff.max_container_restart_period);
        NodeConfig {
            static_pod_path: path(raw.static_pod_path),
            container_runtime_endpoint: raw.container_runtime_endpoint.filter(|endpoint| !endpoint.is_empty()),
            feature_gates: raw.feature_gates.unwrap_or_default(),
            file_check_frequency: self
                .duration("fileCheckFrequency", raw.file_check_frequency)
                .filter(|every| !every.is_zero()),
            healthz_bind_address: self.address("healthzBindAddress", raw.healthz_bind_address),
            healthz_port: self.port("healthzPort", raw.healthz_port),
            cluster_dns: self.addresses("clusterDNS", raw.cluster_dns.unwrap_or_default()),
            cluster_domain: raw.cluster_domain,
            resolv_conf: raw
                .resolv_conf
                .map(|text| if text.is_empty() { PathBuf::new() } else { directory.join(text) }),
            pod_logs_dir: path(raw.pod_logs_dir),
            fail_swap_on: raw.fail_swap_on,
            parallel_pulls: self.pulls(raw.serialize_image_pulls, raw.max_parallel_image_pulls),
            max_restart_period: self.duration("crashLoopBackOff.maxContainerRestartPeriod", period),
            seccomp_default: raw.seccomp_default.unwrap_or_default(),
            pod_pids_limit: self.pids(raw.pod_pids_limit),
            sysctls: self.sysctls(raw.allowed_unsafe_sysctls.unwrap_or_default()),
            eager_probes: raw.eager_probes,
            node_probes: self.node_probes(raw.node_readiness_probes.unwrap_or_default()),
            taints: self.taints(raw.register_with_taints.unwrap_or_default()),
            upkeep: Upkeep {
                logs: self.logs(
                    raw.container_log_max_size,
                    raw.container_log_max_files,
                    raw.container_log_monitor_interval,
                ),
                images: self.images(raw.image_gc_high, raw.image_gc_low, raw.image_minimum_age, raw.image_maximum_age),
            },
            https,
        }
    }

    fn policies(&mut self, raw: &Raw) {
        let swap = raw.memory_swap.as_ref().and_then(|swap| swap.swap_behavior.clone());
        for (field, at, value) in [
            ("cpuManagerPolicy", "cpuManagerPolicy", &raw.cpu_manager_policy),
            ("memoryManagerPolicy", "memoryManagerPolicy", &raw.memory_manager_policy),
            ("memoryReservationPolicy", "memoryReservationPolicy", &raw.memory_reservation_policy),
            ("topologyManagerPolicy", "topologyManagerPolicy", &raw.topology_manager_policy),
            ("memorySwap", "memorySwap.swapBehavior", &swap),
        ] {
            let (Some(Fate::Only(allowed)), Some(value)) = (fate(field), value) else { continue };
            if !value.is_empty() && !allowed.contains(&value.as_str()) {
                let allowed: Vec<_> = allowed.iter().map(|word| format!("{word:?}")).collect();
                let message = format!("not supported by keelet; supported: {}", allowed.join(", "));
                self.object.refuse(at, &format!("{value:?}"), message);
            }
        }
    }

    fn duration(&mut self, field: &str, text: Option<String>) -> Option<Duration> {
        let text = text.filter(|text| !text.is_empty())?;
        let parsed = duration::parse(&text);
        if parsed.is_none() {
            self.object.refuse(field, &format!("{text:?}"), duration::SYNTAX);
        }
        parsed
    }

    fn address(&mut self, field: &str, text: Option<String>) -> Option<IpAddr> {
        let text = text.filter(|text| !text.is_empty())?;
        let parsed = text.parse().ok();
        if parsed.is_none() {
            self.object.refuse(field, &format!("{text:?}"), "must be an IP address such as 127.0.0.1");
        }
        parsed
    }

    fn addresses(&mut self, field: &str, texts: Vec<String>) -> Vec<String> {
        for text in &texts {
            self.address(field, Some(text.clone()));
        }
        texts
    }

    fn port(&mut self, field: &str, number: Option<i32>) -> Option<u16> {
        let number = number?;
        let port = u16::try_from(number).ok();
        if port.is_none() {
            self.object.refuse(field, &number.to_string(), "must be between 1 and 65535, or 0 for none");
        }
        port
    }

    fn pids(&mut self, number: Option<i64>) -> Option<i32> {
        let number = number?;
        let limit =
            i32::try_from(number).ok().filter(|limit| *limit == NO_PIDS_LIMIT || (1..=MOST_PIDS).contains(limit));
        if limit.is_none() {
            let message = format!("must be between 1 and {MOST_PIDS}, or -1 for as many as the node can have");
            self.object.refuse("podPidsLimit", &number.to_string(), message);
        }
        limit
    }

    fn sysctls(&mut self, patterns: Vec<String>) -> Sysctls {
        Sysctls::allowing(patterns).unwrap_or_else(|NotNamespaced(pattern)| {
            let message = format!(
                "must be a kernel parameter that pods have of their own, or the beginning of one with '*' at its \
                                   end: {}",
                NAMESPACED.join(", ")
            );
            self.object.refuse("allowedUnsafeSysctls", &format!("{pattern:?}"), message);
            Sysctls::default()
        })
    }

    fn within<T: TryFrom<i32> + PartialOrd + fmt::Display>(
        &mut self,
        field: &str,
        number: Option<i32>,
        least: T,
        most: T,
    ) -> Option<T> {
        let number = number?;
        match T::try_from(number).ok().filter(|number| (&least..=&most).contains(&number)) {
            Some(number) => Some(number),
            None => {
                self.object.refuse(field, &number.to_string(), format!("must be between {least} and {most}"));
                None
            }
        }
    }

    fn pulls(&mut self, serialize: Option<bool>, most: Option<i32>) -> Option<usize> {
        let most = self.within("maxParallelImagePulls", most, 1, i32::MAX);
        if serialize == Some(true) {
            if most.is_some_and(|most| most > 1) {
                let field = "maxParallelImagePulls";
                let shown = most.unwrap_or_default().to_string();
                self.object.refuse(field, &shown, "must be 1 while serializeImagePulls is true");
            }
            return Some(1);
        }
        most.and_then(|most| usize::try_from(most).ok())
    }

    fn logs(&mut self, size: Option<String>, files: Option<i32>, interval: Option<String>) -> LogRules {
        let usual = LogRules::default();
        let max_bytes = match size.as_deref().filter(|size| !size.is_empty()) {
            None => usual.max_bytes,
            // The kubelet's way to say that logs are not rotated.
            Some(size) if size.starts_with('-') => None,
            Some(size) => {
                match Quantity::parse(size).and_then(|size| u64::try_from(size.units()).ok()).filter(|bytes| *bytes > 0)
                {
                    Some(bytes) => Some(bytes),
                    None => {
                        let shown = format!("{size:?}");
                        self.object.refuse("containerLogMaxSize", &shown, "must be a size such as 10Mi");
                        None
                    }
                }
            }
        };
        let interval = self.duration("containerLogMonitorInterval", interval);
        if interval.is_some_and(|interval| interval < Duration::from_secs(3)) {
            let shown = format!("{:?}", interval.unwrap_or_default());
            self.object.refuse("containerLogMonitorInterval", &shown, "must be at least 3s");
        }
        LogRules {
            max_bytes,
            max_files: self.within("containerLogMaxFiles", files, 2, 1000).unwrap_or(usual.max_files),
            interval: interval.unwrap_or(usual.interval),
        }
    }

    fn images(
        &mut self,
        high: Option<i32>,
        low: Option<i32>,
        least: Option<String>,
        most: Option<String>,
    ) -> ImageRules {
        let usual = ImageRules::default();
        let high = self.within("imageGCHighThresholdPercent", high, 0, 100).unwrap_or(usual.high_percent);
        // A high threshold below the usual low one moves that along.
        let usual_low = usual.low_percent.min(high.saturating_sub(1));
        let low = self.within("imageGCLowThresholdPercent", low, 0, 100).unwrap_or(usual_low);
        if low >= high && high > 0 {
            let message = format!("must be less than imageGCHighThresholdPercent, which is {high}");
            self.object.refuse("imageGCLowThresholdPercent", &low.to_string(), message);
        }
        let minimum_age = self.duration("imageMinimumGCAge", least).unwrap_or(usual.minimum_age);
        let maximum_age = self.duration("imageMaximumGCAge", most).filter(|age| !age.is_zero());
        if maximum_age.is_some_and(|most| most <= minimum_age) {
            let shown = format!("{:?}", maximum_age.unwrap_or_default());
            self.object.refuse("imageMaximumGCAge", &shown, "must be greater than imageMinimumGCAge, or 0 for none");
        }
        ImageRules { high_percent: high, low_percent: low, minimum_age, maximum_age }
    }
}

// === impl NodeConfig ===

impl NodeConfig {
    /// What is different in another version of the file.
    pub fn changes(&self, new: &Self) -> Vec<Change> {
        let (old, (logs, images)) = (self, (&self.upkeep.logs, &self.upkeep.images));
        let (new_logs, new_images) = (&new.upkeep.logs, &new.upkeep.images);
        let https = old.https.changes(&new.https).map(|(field, changed)| (field, changed, false));
        [
            ("staticPodPath", old.static_pod_path != new.static_pod_path, false),
            ("containerRuntimeEndpoint", old.container_runtime_endpoint != new.container_runtime_endpoint, false),
            ("featureGates", old.feature_gates != new.feature_gates, false),
            ("fileCheckFrequency", old.file_check_frequency != new.file_check_frequency, false),
            ("healthzBindAddress", old.healthz_bind_address != new.healthz_bind_address, false),
            ("healthzPort", old.healthz_port != new.healthz_port, false),
            ("clusterDNS", old.cluster_dns != new.cluster_dns, false),
            ("clusterDomain", old.cluster_domain != new.cluster_domain, false),
            ("resolvConf", old.resolv_conf != new.resolv_conf, false),
            ("podLogsDir", old.pod_logs_dir != new.pod_logs_dir, false),
            ("podPidsLimit", old.pod_pids_limit != new.pod_pids_limit, false),
            ("allowedUnsafeSysctls", old.sysctls != new.sysctls, false),
            ("eagerProbes", old.eager_probes != new.eager_probes, false),
            ("failSwapOn", old.fail_swap_on != new.fail_swap_on, false),
            ("maxParallelImagePulls", old.parallel_pulls != new.parallel_pulls, false),
            ("crashLoopBackOff", old.max_restart_period != new.max_restart_period, false),
            ("nodeReadinessProbes", old.node_probes != new.node_probes, false),
            ("registerWithTaints", old.taints != new.taints, false),
            ("seccompDefault", old.seccomp_default != new.seccomp_default, false),
            ("containerLogMaxSize", logs.max_bytes != new_logs.max_bytes, true),
            ("containerLogMaxFiles", logs.max_files != new_logs.max_files, true),
            ("containerLogMonitorInterval", logs.interval != new_logs.interval, true),
            ("imageGCHighThresholdPercent", images.high_percent != new_images.high_percent, true),
            ("imageGCLowThresholdPercent", images.low_percent != new_images.low_percent, true),
            ("imageMinimumGCAge", images.minimum_age != new_images.minimum_age, true),
            ("imageMaximumGCAge", images.maximum_age != new_images.maximum_age, true),
        ]
        .into_iter()
        .chain(https)
        .filter(|(_, changed, _)| *changed)
        .map(|(field, _, takes_effect)| Change { field, takes_effect })
        .collect()
    }
}
