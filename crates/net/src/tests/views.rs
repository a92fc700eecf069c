//! Connections into a namespace, for port forwarding.

use tokio::io::AsyncReadExt;

use super::*;
use crate::dial;

#[test]
fn a_port_on_the_loopback_of_a_pod_accepts_connections() {
    inside("tests::views::a_port_on_the_loopback_of_a_pod_accepts_connections", |scene| {
        let pod = scene.pod("one");
        scene.runtime.block_on(scene.network().loopback_only(&pod.netns)).unwrap();
        serve(Some(&pod.netns), "127.0.0.1:80");
        serve(Some(&pod.netns), "[::1]:81");
        let call = |port| {
            scene.runtime.block_on(async {
                let mut text = String::new();
                dial(&pod.netns, port).await?.read_to_string(&mut text).await?;
                io::Result::Ok(text)
            })
        };
        assert_eq!(call(80).unwrap(), "127.0.0.1");
        assert_eq!(call(81).unwrap(), "::1");
        let error = call(82).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains("port 82") && error.to_string().contains("::1:"), "{error}");
        let error = scene.runtime.block_on(dial(Path::new("/nowhere"), 80)).unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
    });
}

/// A current-thread runtime does the same.
#[test]
fn one_thread_is_enough() {
    inside("tests::views::one_thread_is_enough", |scene| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let pod = scene.pod("one");
        serve(Some(&pod.netns), "0.0.0.0:80");
        runtime.block_on(async {
            let network = scene.network();
            network.attach(&pod).await.unwrap();
            dial(&pod.netns, 80).await.unwrap();
            network.detach(&pod.sandbox_id, Some(&pod.netns)).await.unwrap();
        });
    });
}
