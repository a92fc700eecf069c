//! Networks of CNI plugins: ADD runs the plugins of a list in order, each one told what those before it did; DEL runs
//! them backwards, with what was remembered of ADD.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::names::POD_INTERFACE;
use crate::store::{Progress, Record, Store, Via};
use crate::{Attached, Error, PodNetwork, Settings, bridge, failpoint, threads};

mod config;
mod plugin;
mod result;

#[cfg(test)]
mod tests;

pub(crate) use config::{Found, NetworkList, find, parse, parse_list};
use plugin::{Ask, Runner, Subject};
pub(crate) use result::{addresses, failure};

/// What CNI works with.
pub(crate) struct Cni<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
}

/// What plugins can ask to be told at run time.
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
    let mut told = json!({ "portMappings": ports });
    if !pod.annotations.is_empty() {
        told["io.kubernetes.cri.pod-annotations"] = json!(pod.annotations);
    }
    told
}

/// Who the pod is, for plugins that look it up.
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
    /// Connects a pod. Blocks; on a thread of its own.
    pub(crate) fn attach(&self, pod: &PodNetwork, current: Option<&NetworkList>) -> Result<Attached, Error> {
        let books = self.store.lock()?;
        let before = books.record(&pod.sandbox_id)?;
        let lost = before.is_none() && books.broken()?.contains(&pod.sandbox_id);
        drop(books);
        if let Some(list) = current.filter(|_| lost) {
            // Plugins refuse to add what they have already.
            self.detach_unknown(&pod.sandbox_id, Some(&pod.netns), list)?;
        }
        if let Some(record) = before {
            if let Some(attached) = self.still_attached(pod, &record)? {
                return Ok(attached);
            }
            // Half of it may be there. DEL takes away what there is.
            self.delete(&record, Some(&pod.netns))?;
            self.store.lock()?.forget(&record.sandbox)?;
        }
        let none = || Error::CniConfiguration {
            dir: self.settings.cni_conf_dir.clone(),
            problems: vec!["it is gone".to_owned()],
        };
        self.add(pod, current.ok_or_else(none)?)
    }

    /// Disconnects a pod, and forgets it when all plugins have done their part.
    pub(crate) fn detach(&self, record: &Record, netns: Option<&Path>) -> Result<(), Error> {
        self.delete(record, netns)?;
        failpoint::pass("plugins deleted")?;
        self.store.lock()?.forget(&record.sandbox)
    }

    /// A sandbox of which only the ID is left: the plugins of today are asked to delete it.
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

    /// Whether the plugins are there, and say that they can work.
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
                self.runner().run(Ask::Status, list, plugin, &Subject::default(), &input).await?;
            }
            Ok(())
        })
    }

    /// What an earlier call came to, if the namespace still has it.
    fn still_attached(&self, pod: &PodNetwork, record: &Record) -> Result<Option<Attached>, Error> {
        let Via::Cni { result, .. } = &record.via else { return Ok(None) };
        let ips = addresses(result);
        let whole = record.progress == Progress::Done && !ips.is_empty() && bridge::has_interface(&pod.netns)?;
        Ok(whole.then(|| Attached { ips, interface: POD_INTERFACE.to_owned() }))
    }

    fn add(&self, pod: &PodNetwork, list: &NetworkList) -> Result<Attached, Error> {
        if !pod.forwarded().is_empty() && !list.asks_for("portMappings") {
            tracing::warn!(
                sandbox = pod.sandbox_id,
                network = list.name,
                "the pod has host ports, but no plugin of the network asks for them (capability portMappings)"
            );
        }
        let told = capabilities(pod);
        let via = |result| Via::Cni { list: list.to_value(), capabilities: told.clone(), result };
        let begun = Record::new(pod, via(Value::Null));
        // Written before the first plugin runs: what a crash leaves can be deleted.
        self.store.lock()?.write(&begun)?;
        failpoint::pass("record written")?;
        let result = threads::block_on(async {
            let mut result = Value::Null;
            for plugin in &list.plugins {
                let input = plugin.input(list, &told, &result);
                let subject = subject(&begun, Some(&pod.netns));
                result = self.runner().run(Ask::Add, list, plugin, &subject, &input).await?;
                if !result.is_object() {
                    return Err(self.no_result(list, &plugin.kind, "it answered nothing to ADD"));
                }
                failpoint::pass("plugin added")?;
            }
            Ok(result)
        })?;
        let ips = addresses(&result);
        if ips.is_empty() {
            let last = list.plugins.last().map(|plugin| plugin.kind.as_str()).unwrap_or_default();
            return Err(self.no_result(list, last, &format!("its result has no address: {result}")));
        }
        self.store.lock()?.write(&Record { via: via(result), progress: Progress::Done, ..begun })?;
        Ok(Attached { ips, interface: POD_INTERFACE.to_owned() })
    }

    /// All plugins backwards. One that fails does not keep the others from their part; the first failure is told.
    fn delete(&self, record: &Record, netns: Option<&Path>) -> Result<(), Error> {
        let Via::Cni { list, capabilities, result } = &record.via else { return Ok(()) };
        let list = parse_list(list)
            .map_err(|problem| Error::CniConfiguration { dir: PathBuf::from("the books"), problems: vec![problem] })?;
        let netns = netns.filter(|path| threads::is_namespace(path));
        // Plugins before 0.4.0 do not know what a result is doing here.
        let before = if list.at_least("0.4.0") { result } else { &Value::Null };
        threads::block_on(async {
            let mut first = Ok(());
            for plugin in list.plugins.iter().rev() {
                let input = plugin.input(&list, capabilities, before);
                let ran = self.runner().run(Ask::Delete, &list, plugin, &subject(record, netns), &input).await;
                first = first.and(ran.map(drop));
            }
            first
        })
    }

    fn runner(&self) -> Runner<'_> {
        Runner { dirs: &self.settings.cni_bin_dirs, timeout: self.settings.cni_timeout }
    }

    fn no_result(&self, list: &NetworkList, plugin: &str, problem: &str) -> Error {
        Error::CniPlugin {
            plugin: plugin.to_owned(),
            network: list.name.clone(),
            command: Ask::Add.command(),
            problem: problem.to_owned(),
        }
    }
}
