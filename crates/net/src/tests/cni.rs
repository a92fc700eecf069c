//! Plugins: a fake one that records its calls, and the real ones where they are installed.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::*;
use crate::Error;

/// Writes its input and environment to a file per call. `ADD` creates an interface if `ip` is installed; else it only prints a result.
const PLUGIN: &str = r#"#!/bin/sh
here=$(dirname "$0")/..
me=$(basename "$0")
call=$here/calls/$(ls "$here/calls" | wc -l)-$me-$CNI_COMMAND
mkdir -p "$call"
cat > "$call/input"
env | grep ^CNI_ > "$call/env"
if [ -e "$here/fail-$me-$CNI_COMMAND" ]; then
  echo "some words beside" >&2
  echo '{"cniVersion": "1.0.0", "code": 7, "msg": "it does not work", "details": "and this is why"}'
  exit 1
fi
if [ -e "$here/hang-$me-$CNI_COMMAND" ]; then sleep 600; fi
if [ "$CNI_COMMAND" = ADD ]; then
  echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "'"$CNI_NETNS"'"}],'
  echo ' "ips": [{"address": "10.77.0.5/24", "interface": 0}], "dns": {}, "by": "'"$me"'"}'
fi
"#;

impl Scene {
    fn install_plugins(&mut self, names: &[&str]) {
        for dir in ["calls", "bin", "net.d"] {
            std::fs::create_dir_all(self.dir.path().join(dir)).unwrap();
        }
        for name in names {
            let path = self.dir.path().join("bin").join(name);
            std::fs::write(&path, PLUGIN).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn configure(&self, file: &str, config: &Value) {
        std::fs::create_dir_all(&self.settings.cni_conf_dir).unwrap();
        std::fs::write(self.settings.cni_conf_dir.join(file), config.to_string()).unwrap();
    }

    fn order(&self, name: &str) {
        std::fs::write(self.dir.path().join(name), "").unwrap();
    }

    fn cancel(&self, name: &str) {
        std::fs::remove_file(self.dir.path().join(name)).unwrap();
    }

    /// The calls so far, each as plugin and command.
    fn calls(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path().join("calls")).unwrap();
        let mut calls: Vec<(u32, String)> = entries
            .map(|entry| {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let (number, call) = name.split_once('-').unwrap();
                (number.parse().unwrap(), call.to_owned())
            })
            .collect();
        calls.sort();
        calls.into_iter().map(|(_, call)| call).collect()
    }

    fn input(&self, call: &str) -> Value {
        let path = self.dir.path().join("calls").join(call).join("input");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn environment(&self, call: &str) -> BTreeMap<String, String> {
        let text = std::fs::read_to_string(self.dir.path().join("calls").join(call).join("env")).unwrap();
        text.lines().filter_map(|line| line.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
    }
}

fn two_plugins() -> Value {
    json!({"cniVersion": "1.0.0", "name": "fake", "plugins": [
        {"type": "first", "mtu": 1400},
        {"type": "second", "capabilities": {"portMappings": true}},
    ]})
}

#[test]
fn plugins_run_in_order_and_in_reverse_order() {
    inside("tests::cni::plugins_run_in_order_and_in_reverse_order", |mut scene| {
        scene.install_plugins(&["first", "second"]);
        scene.configure("10-fake.conflist", &two_plugins());
        let before = scene.snapshot();
        let mut pod = scene.pod("one");
        pod.ports = vec![port(80, 8080)];
        assert_eq!(scene.attach(&pod).unwrap(), [ip("10.77.0.5")]);
        assert_eq!(scene.calls(), ["first-ADD", "second-ADD"]);
        assert_eq!(
            scene.input("0-first-ADD"),
            json!({"cniVersion": "1.0.0", "name": "fake", "type": "first", "mtu": 1400})
        );
        let second = scene.input("1-second-ADD");
        assert_eq!(second["prevResult"]["by"], "first");
        assert_eq!(
            second["runtimeConfig"],
            json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": ""}]})
        );
        let environment = scene.environment("1-second-ADD");
        assert_eq!(environment["CNI_CONTAINERID"], pod.sandbox_id);
        assert_eq!(environment["CNI_NETNS"], pod.netns.to_str().unwrap());
        assert_eq!(environment["CNI_IFNAME"], "eth0");
        assert_eq!(environment["CNI_PATH"], scene.dir.path().join("bin").to_str().unwrap());
        assert_eq!(
            environment["CNI_ARGS"],
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=one;K8S_POD_INFRA_CONTAINER_ID=sandbox-one;\
             K8S_POD_UID=uid-one"
        );
        assert_eq!(scene.snapshot(), before, "the bridge is not used");

        // DEL uses the configuration of ADD, not the current file.
        scene.configure("10-fake.conflist", &json!({"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "y"}]}));
        scene.detach(&pod).unwrap();
        assert_eq!(scene.calls(), ["first-ADD", "second-ADD", "second-DEL", "first-DEL"]);
        assert_eq!(scene.input("3-first-DEL")["prevResult"]["by"], "second");
        assert_eq!(scene.input("2-second-DEL")["runtimeConfig"]["portMappings"][0]["hostPort"], 8080);
        assert_eq!(scene.files(), [""; 0]);
        scene.detach(&pod).unwrap();
        assert_eq!(scene.calls().len(), 4);
    });
}

#[test]
fn the_error_of_a_plugin_is_complete_and_its_changes_are_reverted() {
    inside("tests::cni::the_error_of_a_plugin_is_complete_and_its_changes_are_reverted", |mut scene| {
        scene.install_plugins(&["first", "second"]);
        scene.configure("10-fake.conflist", &two_plugins());
        scene.order("fail-second-ADD");
        let pod = scene.pod("one");
        assert_eq!(
            scene.attach(&pod).unwrap_err().to_string(),
            "CNI plugin \"second\" of network \"fake\" failed to ADD: it does not work (code 7); and this is why; \
             stderr: some words beside"
        );
        assert_eq!(scene.calls(), ["first-ADD", "second-ADD", "second-DEL", "first-DEL"]);
        assert_eq!(scene.files(), [""; 0]);
        scene.cancel("fail-second-ADD");
        scene.attach(&pod).unwrap();

        // A plugin whose DEL fails does not prevent the others, and is called again.
        scene.order("fail-second-DEL");
        assert!(scene.detach(&pod).unwrap_err().to_string().contains("failed to DEL"));
        assert_eq!(scene.calls().last().unwrap(), "first-DEL");
        assert_eq!(scene.files().len(), 1);
        scene.cancel("fail-second-DEL");
        scene.sweep(&[]).unwrap();
        assert_eq!(scene.files(), [""; 0]);
    });
}

#[test]
fn a_plugin_that_hangs_is_killed() {
    inside("tests::cni::a_plugin_that_hangs_is_killed", |mut scene| {
        scene.install_plugins(&["first", "second"]);
        scene.configure("10-fake.conflist", &two_plugins());
        scene.settings.cni_timeout = Duration::from_millis(500);
        scene.order("hang-first-ADD");
        let error = scene.attach(&scene.pod("one")).unwrap_err().to_string();
        assert!(error.contains("\"first\"") && error.contains("no answer in 0.5 s"), "{error}");
    });
}

#[test]
fn the_status_names_a_missing_plugin() {
    inside("tests::cni::the_status_names_a_missing_plugin", |mut scene| {
        scene.install_plugins(&["first"]);
        scene.configure("10-fake.conflist", &two_plugins());
        let error = scene.runtime.block_on(scene.network().status()).unwrap_err().to_string();
        assert!(error.contains("\"second\"") && error.contains("/bin"), "{error}");
        scene.install_plugins(&["second"]);
        let kind = scene.runtime.block_on(scene.network().status()).unwrap();
        assert!(kind.to_string().starts_with("CNI network fake from "), "{kind}");
        assert_eq!(scene.calls(), [""; 0], "STATUS is only asked from version 1.1.0 on");

        scene.configure(
            "05-new.conflist",
            &json!({"cniVersion": "1.1.0", "name": "new", "plugins": [{"type": "first"}]}),
        );
        scene.runtime.block_on(scene.network().status()).unwrap();
        assert_eq!(scene.calls(), ["first-STATUS"]);
        scene.order("fail-first-STATUS");
        let error = scene.runtime.block_on(scene.network().status()).unwrap_err().to_string();
        assert!(error.contains("failed to STATUS: it does not work"), "{error}");
    });
}

#[test]
fn an_invalid_configuration_does_not_fall_back_to_the_bridge() {
    inside("tests::cni::an_invalid_configuration_does_not_fall_back_to_the_bridge", |scene| {
        scene.configure("10-fake.conflist", &json!({"name": "fake"}));
        let error = scene.attach(&scene.pod("one")).unwrap_err();
        assert!(matches!(error, Error::CniConfiguration { .. }), "{error}");
        assert!(error.to_string().contains("10-fake.conflist: plugins: must be an array"), "{error}");
        assert!(link("keelet0").is_none());
    });
}

#[test]
fn attaching_again_after_a_crash_between_plugins_runs_del_first() {
    inside("tests::cni::attaching_again_after_a_crash_between_plugins_runs_del_first", |mut scene| {
        scene.install_plugins(&["first", "second"]);
        scene.configure("10-fake.conflist", &two_plugins());
        for step in 0..3 {
            let pod = scene.pod(&format!("{step}"));
            failpoint::arm(step);
            assert!(matches!(scene.attach(&pod), Err(Error::Stopped(_))));
            assert!(failpoint::disarm());
            let calls = scene.calls().len();
            assert_eq!(scene.attach(&pod).unwrap(), [ip("10.77.0.5")]);
            assert_eq!(scene.calls()[calls..], ["second-DEL", "first-DEL", "first-ADD", "second-ADD"]);
            scene.detach(&pod).unwrap();
        }
        let pod = scene.pod("broken");
        scene.attach(&pod).unwrap();
        std::fs::write(scene.settings.state_dir.join("sandboxes/sandbox-broken.json"), "").unwrap();
        let calls = scene.calls().len();
        scene.attach(&pod).unwrap();
        assert_eq!(scene.calls()[calls..], ["second-DEL", "first-DEL", "first-ADD", "second-ADD"]);
        std::fs::write(scene.settings.state_dir.join("sandboxes/sandbox-broken.json"), "").unwrap();
        let calls = scene.calls().len();
        scene.detach(&pod).unwrap();
        assert_eq!(scene.calls()[calls..], ["second-DEL", "first-DEL"]);
        assert_eq!(scene.files(), [""; 0]);
    });
}

#[test]
fn pods_keep_their_kind_of_network_when_cni_is_installed() {
    inside("tests::cni::pods_keep_their_kind_of_network_when_cni_is_installed", |mut scene| {
        let before = scene.snapshot();
        let old = scene.pod("old");
        let address = scene.attach(&old).unwrap();
        scene.install_plugins(&["first", "second"]);
        scene.configure("10-fake.conflist", &two_plugins());
        let new = scene.pod("new");
        assert_eq!(scene.attach(&new).unwrap(), [ip("10.77.0.5")]);
        assert_eq!(scene.attach(&old).unwrap(), address);
        scene.detach(&old).unwrap();
        assert_eq!(scene.snapshot(), before);
        scene.detach(&new).unwrap();
    });
}

#[test]
fn the_real_bridge_plugin_works() {
    inside("tests::cni::the_real_bridge_plugin_works", |mut scene| {
        let bin = ["/usr/lib/cni", "/opt/cni/bin"].map(PathBuf::from);
        let has = |name: &str| bin.iter().any(|dir| dir.join(name).exists());
        if !["bridge", "host-local", "portmap"].iter().all(|name| has(name)) {
            return keelet_report::skipped(
                "the CNI plugins are not installed (apt-get install containernetworking-plugins)",
            );
        }
        scene.settings.cni_bin_dirs = bin.to_vec();
        let addresses = scene.dir.path().join("host-local");
        scene.configure(
            "10-real.conflist",
            &json!({"cniVersion": "1.0.0", "name": "real", "plugins": [
                {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.66.0.0/24"}]], "dataDir": addresses,
                          "routes": [{"dst": "0.0.0.0/0"}]}},
                {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
            ]}),
        );
        let (mut one, two) = (scene.pod("one"), scene.pod("two"));
        one.ports = vec![port(80, 8080)];
        let first = scene.attach(&one).unwrap();
        let second = scene.attach(&two).unwrap();
        assert_eq!((&first[..], &second[..]), (&[ip("10.66.0.2")][..], &[ip("10.66.0.3")][..]));
        assert_eq!(scene.attach(&one).unwrap(), first, "again");
        serve(Some(&one.netns), "0.0.0.0:80");
        assert_eq!(ask(None, first[0], 80).unwrap(), "10.66.0.1");
        assert_eq!(ask(Some(&two.netns), first[0], 80).unwrap(), second[0].to_string());
        assert!(ask(None, ip("10.66.0.1"), 8080).is_ok(), "the host port");
        scene.detach(&one).unwrap();
        // The namespace of the other one is gone already.
        nix::mount::umount(&two.netns).unwrap();
        scene.sweep(&[]).unwrap();
        // The kernel destroys a namespace, and the veth pair in it, some time after its last reference is gone.
        until("the veth pair is gone", || !scene.snapshot().links.iter().any(|link| link.starts_with("veth")));
        let held: Vec<_> =
            std::fs::read_dir(addresses.join("real")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!held.iter().any(|name| name.to_string_lossy().starts_with("10.66")), "{held:?}");
        assert_eq!(scene.files(), [""; 0]);
    });
}
