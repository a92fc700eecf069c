//! Directories and files of pods: none are made, the requests for them are counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use keelet_host::{Ended, Host, HostError, InstanceFiles, InstanceOf, LogFile, Space, Volumes};
use keelet_launch::{Data, IdRange, ObjectKind, Objects, Reference};
use keelet_pod::Pod;

use crate::{
    node::ContainerState,
    process::{AgentProcess, Permit},
    sim::Sim,
};

/// The host as one run of the agent sees it.
#[derive(Clone, Debug)]
pub(crate) struct SimHost {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: Arc<AgentProcess>,
}

// === impl SimHost ===

impl SimHost {
    async fn count(&self, what: &str) {
        let permit = self.process.effect();
        if permit != Permit::Dead {
            *self.sim.lock().directories.entry(what.to_owned()).or_default() += 1;
        }
        self.sim.announce(&self.process);
        if permit != Permit::Go {
            std::future::pending().await
        }
    }
}

impl Host for SimHost {
    fn prepare<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<Volumes, HostError>> {
        Box::pin(async move {
            self.count(&format!("prepare {}", pod.uid)).await;
            if self.sim.lock().faults.no_volumes {
                return Err(HostError { reason: "FailedMount", message: "the volume cannot be mounted".to_owned() });
            }
            let volumes = pod.source.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            let root = PathBuf::from("/sim/pods").join(&pod.uid);
            Ok(volumes.map(|volume| (volume.name.clone(), root.join(&volume.name))).collect())
        })
    }

    fn refresh<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async move {
            self.count(&format!("refresh {}", pod.uid)).await;
            Ok(())
        })
    }

    /// Every object is there with every key that is asked for, and the value says which one it is; but for those that
    /// are made to be missing.
    fn objects<'a>(&'a self, _: &'a Pod, wanted: &'a [Reference]) -> BoxFuture<'a, Result<Objects, HostError>> {
        let mut data: BTreeMap<(ObjectKind, &str), Data> = BTreeMap::new();
        let missing = self.sim.lock().faults.missing_objects.clone();
        for Reference { kind, name, key } in wanted.iter().filter(|wanted| !missing.contains(&wanted.name)) {
            let object = data.entry((*kind, name)).or_default();
            object.extend(key.iter().map(|key| (key.clone(), format!("{name}/{key}").into_bytes())));
        }
        let mut objects = Objects::default();
        for ((kind, name), data) in data {
            objects.insert(kind, name, Arc::new(data));
        }
        Box::pin(async move { Ok(objects) })
    }

    fn user_range<'a>(&'a self, _: &'a Pod) -> BoxFuture<'a, Result<IdRange, HostError>> {
        Box::pin(async { Ok(IdRange { first: 65_536, length: 65_536 }) })
    }

    fn log_dir(&self, pod: &Pod) -> Result<PathBuf, HostError> {
        Ok(PathBuf::from("/sim/logs").join(&pod.uid))
    }

    fn prepare_instance<'a>(&'a self, instance: InstanceOf<'a>) -> BoxFuture<'a, Result<InstanceFiles, HostError>> {
        Box::pin(async move {
            self.count(&format!("files of {} {}", instance.container, instance.attempt)).await;
            Ok(InstanceFiles::default())
        })
    }

    fn log_counts<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, BTreeMap<String, u32>> {
        Box::pin(async move { self.sim.lock().node.log_counts(&pod.uid) })
    }

    fn termination_message<'a>(&'a self, pod: &'a Pod, instance: Ended<'a>) -> BoxFuture<'a, String> {
        Box::pin(async move { self.sim.lock().scripts.of(&pod.name, instance.container).message.clone() })
    }

    fn log_sizes<'a>(&'a self, logs: &'a [LogFile]) -> BoxFuture<'a, Vec<Option<u64>>> {
        let size = |log: &LogFile| self.sim.lock().log_sizes.get(&log.container).copied().unwrap_or(Some(0));
        let sizes = logs.iter().map(size).collect();
        Box::pin(async move { sizes })
    }

    fn rotate_log<'a>(&'a self, log: &'a LogFile, _: u32, _: &'a str) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async move {
            self.count(&format!("rotate {}", log.container)).await;
            // The runtime goes on writing into the file that has another name now.
            self.sim.lock().log_sizes.insert(log.container.clone(), None);
            Ok(())
        })
    }

    fn unrotate_log<'a>(&'a self, log: &'a LogFile, _: &'a str) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async move {
            self.count(&format!("unrotate {}", log.container)).await;
            self.sim.lock().log_sizes.insert(log.container.clone(), Some(u64::MAX));
            Ok(())
        })
    }

    fn drop_old_logs<'a>(&'a self, pod: &'a Pod, _: u32) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async move {
            self.count(&format!("drop old logs of {}", pod.uid)).await;
            Ok(())
        })
    }

    fn space<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, Option<Space>> {
        let space = self.sim.lock().space;
        Box::pin(async move { space })
    }

    fn pods_with_directories(&self) -> BoxFuture<'_, BTreeSet<String>> {
        let left = self.sim.lock().leftovers.clone();
        Box::pin(async move { left })
    }

    fn process_end(&self, pid: u32) -> Option<BoxFuture<'static, ()>> {
        let state = self.sim.lock();
        if !state.watches_processes {
            return None;
        }
        let is_it =
            |state: &ContainerState| matches!(state, ContainerState::Running { pid: found, .. } if *found == pid);
        let container = state.node.containers.values().find(|container| is_it(&container.state))?;
        let mut ended = container.ended.subscribe();
        Some(Box::pin(async move {
            let _ = ended.wait_for(|ended| *ended).await;
        }))
    }

    fn clean_up<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async move {
            self.count(&format!("clean up {uid}")).await;
            self.sim.lock().leftovers.remove(uid);
            Ok(())
        })
    }
}
