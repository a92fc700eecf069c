//! CNI networks: ADD runs the plugins of a list in order, each with the result of those before it; DEL runs them in reverse order, with the
//! stored result of ADD.

use std::path::Path;

use serde_json::{Value, json};

use crate::names::POD_INTERFACE;
use crate::store::{Progress, Record, Store, Via};
use crate::{Attached, Error, PodNetwork, Settings, bridge, failpoint, threads};

mod config;
mod error;
mod plugin;
mod result;

#[cfg(test)]
mod tests;

pub(crate) use config::{Found, NetworkList, find, parse, parse_list};
pub use error::{CniConfigError, CniFileError, CniPluginError};
use plugin::{Operation, Runner, Subject};
pub(crate) use result::{addresses, failure};

/// The CNI network of a node.
pub(crate) struct Cni<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
}

/// Runtime configuration for plugins, by capability.
fn capabilities(pod: &PodNetwork) -> Value {
    let ports: Vec<Value> = pod
        .forwarded()
        .iter()
        .map(|port| {
            json!({
                "hostPort": port.host_port,
                "containerPort": port.container_port,
                "protocol": port.protocol.to_string(),
                "hostIP": port.host_ip.map(|ip| ip.to_string()).unwrap_or_default(),
            })
        })
        .collect();
    let mut config = json!({ "portMappings": ports });
    if !pod.annotations.is_empty() {
        config["io.kubernetes.cri.pod-annotations"] = json!(pod.annotations);
    }
    config
}

/// The pod of a call, for plugins that look it up.
fn subject(record: &Record, netns: Option<&Path>) -> Subject {
    let arguments = [
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", &record.namespace),
        ("K8S_POD_NAME", &record.name),
        ("K8S_POD_INFRA_CONTAINER_ID", &record.sandbox),
        ("K8S_POD_UID", &record.uid),
    ];
    let arguments: Vec<String> = arguments.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Subject { sandbox: record.sandbox.clone(), netns: netns.map(Path::to_owned), arguments: arguments.join(";") }
}

// === impl Cni ===

impl Cni<'_> {
    /// Attaches a sandbox. Blocks; runs on a thread of its own.
    pub(crate) fn attach(&self, pod: &PodNetwork, current: Option<&NetworkList>) -> Result<Attached, Error> {
        let store = self.store.lock()?;
        let before = store.record(&pod.sandbox_id)?;
        let is_lost = before.is_none() && store.broken()?.contains(&pod.sandbox_id);
        drop(store);
        if let Some(list) = current.filter(|_| is_lost) {
            // Plugins refuse to add a container that they know already.
            self.detach_unknown(&pod.sandbox_id, Some(&pod.netns), list)?;
        }
        if let Some(record) = before {
            if let Some(attached) = self.still_attached(pod, &record)? {
                return Ok(attached);
            }
            // ADD may have been interrupted. DEL removes what it created.
            self.delete(&record, Some(&pod.netns))?;
            self.store.lock()?.forget(&record.sandbox)?;
        }
        let removed = || Error::CniConfigurationRemoved { dir: self.settings.cni_conf_dir.clone() };
        self.add(pod, current.ok_or_else(removed)?)
    }

    /// Detaches a sandbox, and removes its record when all plugins have succeeded.
    pub(crate) fn detach(&self, record: &Record, netns: Option<&Path>) -> Result<(), Error> {
        self.delete(record, netns)?;
        failpoint::pass("plugins deleted")?;
        self.store.lock()?.forget(&record.sandbox)
    }

    /// Detaches a sandbox whose record is lost: the plugins of the current configuration delete it by its ID.
    pub(crate) fn detach_unknown(&self, sandbox: &str, netns: Option<&Path>, list: &NetworkList) -> Result<(), Error> {
        let pod = PodNetwork {
            sandbox_id: sandbox.to_owned(),
            netns: netns.map(Path::to_owned).unwrap_or_default(),
            name: String::new(),
            namespace: String::new(),
            uid: String::new(),
            ports: Vec::new(),
            annotations: Default::default(),
        };
        let via = Via::Cni { list: list.to_value(), capabilities: capabilities(&pod), result: Value::Null };
        self.detach(&Record::new(&pod, via), netns)
    }

    /// Checks that the plugins are installed and report that they work.
    pub(crate) fn status(&self, list: &NetworkList) -> Result<(), Error> {
        for plugin in &list.plugins {
            self.runner().find(list, plugin)?;
        }
        if !list.at_least("1.1.0") {
            return Ok(());
        }
        threads::block_on(async {
            for plugin in &list.plugins {
                let input = plugin.input(list, &Value::Null, &Value::Null);
                self.runner().run(Operation::Status, list, plugin, &Subject::default(), &input).await?;
            }
            Ok(())
        })
    }

    /// The result of an earlier call, if the namespace still has the interface.
    fn still_attached(&self, pod: &PodNetwork, record: &Record) -> Result<Option<Attached>, Error> {
        let Via::Cni { result, .. } = &record.via else { return Ok(None) };
        let ips = addresses(result);
        let is_complete = record.progress == Progress::Done && !ips.is_empty() && bridge::has_interface(&pod.netns)?;
        Ok(is_complete.then(|| Attached { ips, interface: POD_INTERFACE.to_owned() }))
    }

    fn add(&self, pod: &PodNetwork, list: &NetworkList) -> Result<Attached, Error> {
        if !pod.forwarded().is_empty() && !list.asks_for("portMappings") {
            tracing::warn!(
                sandbox = pod.sandbox_id,
                network = list.name,
                "host ports are not forwarded: no plugin of the network has the capability portMappings"
            );
        }
        let config = capabilities(pod);
        let via = |result| Via::Cni { list: list.to_value(), capabilities: config.clone(), result };
        let begun = Record::new(pod, via(Value::Null));
        // Written before the first plugin runs, so that DEL can be run after a crash.
        self.store.lock()?.write(&begun)?;
        failpoint::pass("record written")?;
        let result = threads::block_on(async {
            let mut result = Value::Null;
            for plugin in &list.plugins {
                let input = plugin.input(list, &config, &result);
                let subject = subject(&begun, Some(&pod.netns));
                result = self.runner().run(Operation::Add, list, plugin, &subject, &input).await?;
                if !result.is_object() {
                    return Err(invalid_result(list, &plugin.kind, "no JSON object".to_owned()));
                }
                failpoint::pass("plugin added")?;
            }
            Ok(result)
        })?;
        let ips = addresses(&result);
        if ips.is_empty() {
            let last = list.plugins.last().map(|plugin| plugin.kind.as_str()).unwrap_or_default();
            return Err(invalid_result(list, last, format!("no address in {result}")));
        }
        self.store.lock()?.write(&Record { via: via(result), progress: Progress::Done, ..begun })?;
        Ok(Attached { ips, interface: POD_INTERFACE.to_owned() })
    }

    /// Runs DEL for all plugins in reverse order, also after a failure. Returns the first error.
    fn delete(&self, record: &Record, netns: Option<&Path>) -> Result<(), Error> {
        let Via::Cni { list, capabilities, result } = &record.via else { return Ok(()) };
        let list = parse_list(list).map_err(|source| Error::CniRecord { sandbox: record.sandbox.clone(), source })?;
        let netns = netns.filter(|path| threads::is_namespace(path));
        // DEL has a previous result since 0.4.0.
        let previous = if list.at_least("0.4.0") { result } else { &Value::Null };
        threads::block_on(async {
            let mut first = Ok(());
            for plugin in list.plugins.iter().rev() {
                let input = plugin.input(&list, capabilities, previous);
                let ran = self.runner().run(Operation::Delete, &list, plugin, &subject(record, netns), &input).await;
                first = first.and(ran.map(drop));
            }
            first
        })
    }

    fn runner(&self) -> Runner<'_> {
        Runner { dirs: &self.settings.cni_bin_dirs, timeout: self.settings.cni_timeout }
    }
}

fn invalid_result(list: &NetworkList, plugin: &str, problem: String) -> Error {
    Error::CniPlugin {
        plugin: plugin.to_owned(),
        network: list.name.clone(),
        command: Operation::Add.command(),
        source: CniPluginError::Result(problem),
    }
}
