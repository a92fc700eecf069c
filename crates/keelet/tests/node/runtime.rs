//! What holds containers: shims and the processes that hold namespaces. Each may be killed at any time.

use keelet_harness::{Actor, Node, Seen, eventually, manifest};
use keelet_lifecycle::status::{ConditionType, Phase};

use super::on_a_node;

/// The exit code that stands in where the real one is unknown.
const UNKNOWN: (i32, &str) = (137, "ContainerStatusUnknown");

fn pod(name: &str, fields: &str, containers: &[Actor]) -> String {
    let list: String = containers.iter().map(|actor| format!("\n{actor}")).collect();
    manifest(name, &format!("{fields}\ncontainers:{list}"))
}

/// Waits until a pod has a shim that is not that one.
async fn another_shim(node: &Node, seen: &Seen, old: u32) -> u32 {
    eventually("another shim", async || match node.shim(seen) {
        Some(pid) if pid != old => Ok(pid),
        other => Err(format!("the shim is {other:?}, it was {old}")),
    })
    .await
}

/// KEEP-13: the shim of a pod is killed. Containers and status stay as they are, and the next shim knows how they end:
/// their exit codes, and what they say.
#[test]
fn a_shim_is_killed_and_nothing_changes() {
    on_a_node(async |node| {
        // While there is no shim nothing answers, and a busy machine may take a while to start the next one.
        let probe = "readinessProbe: {exec: {command: [sh, -c, echo asked >>/ctl/diary]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}";
        let speaker = Actor::new("speaker").does("echo before; await speak; echo after; say spoken").with(probe);
        node.want("web", &pod("web", "", &[Actor::new("main"), speaker]));
        node.start();
        let before = node.ready("web").await;
        let shim = node.shim(&before).expect("a shim");
        node.kill_shim(&before);
        another_shim(node, &before, shim).await;
        // The next one runs commands in containers that it did not start.
        let asked = node.times("asked");
        node.written("asked", asked + 2).await;
        // By now what the old one had just forked is gone too.
        let shim = another_shim(node, &before, shim).await;
        let now = node.see("web").await.expect("the pod");
        assert_eq!((&now.status, now.version, now.running()), (&before.status, before.version, before.running()));
        assert_eq!((now.sandbox(), node.starts("web", ["main", "speaker"])), (before.sandbox(), [1, 1]));
        // It reads on what they write.
        node.touch("speak");
        node.written("spoken web.speaker", 1).await;
        let log = node.path(&format!("logs/default_web_{}/speaker/0.log", before.uid));
        eventually("both words in the log", async || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let words: Vec<_> = text.lines().filter_map(|line| line.rsplit(' ').next()).collect();
            if words == ["before", "after"] { Ok(()) } else { Err(format!("{}: {text:?}", log.display())) }
        })
        .await;
        // And it knows how they end.
        node.exit("web", "main", 7);
        let again = |seen: &Seen| seen.is_ready() && seen.restarts("main") == Some(1);
        let after = node.pod_when("web", "ready with a new container", again).await;
        assert_eq!(after.history("main"), (7, "Error"));
        assert_eq!(after.running_id("speaker"), before.running_id("speaker"));
        assert_eq!(node.shim(&after), Some(shim), "the shim stays");
        node.leaves_nothing().await;
    });
}

/// KEEP-13: a shim is killed while no agent is there, and a container ends later, or before the next agent comes.
#[test]
fn a_shim_is_killed_without_an_agent() {
    on_a_node(async |node| {
        node.want("later", &pod("later", "", &[Actor::new("main")]));
        node.want("before", &pod("before", "", &[Actor::new("main"), Actor::new("other")]));
        node.start();
        let (later, before) = (node.ready("later").await, node.ready("before").await);
        node.kill().await;
        node.kill_shim(&later);
        node.kill_shim(&before);
        // Neither a shim nor an agent runs that could learn its exit code.
        node.exit("before", "main", 7);
        node.written("end before.main", 1).await;
        node.buried(&before, "main").await;
        node.start();
        let again = |seen: &Seen| seen.is_ready() && seen.restarts("main") == Some(1);
        let after = node.pod_when("before", "ready with a new container", again).await;
        assert_eq!(after.history("main"), UNKNOWN, "nothing is made up");
        assert_eq!(after.running_id("other"), before.running_id("other"));
        assert_eq!((after.sandbox(), after.restarts("other")), (before.sandbox(), Some(0)));
        let same = node.pod_when("later", "as it was", |seen| seen.is_ready()).await;
        assert_eq!((&same.status, same.running()), (&later.status, later.running()));
        node.exit("later", "main", 9);
        let after = node.pod_when("later", "ready with a new container", again).await;
        assert_eq!(after.history("main"), (9, "Error"), "the new shim knows it from the process itself");
        node.leaves_nothing().await;
    });
}

/// A container in a pod that never restarts ends unseen: it counts as failed, for want of a better word, and the pod ends.
#[test]
fn an_unknown_exit_status_is_reported_as_unknown() {
    on_a_node(async |node| {
        node.want("job", &pod("job", "restartPolicy: Never", &[Actor::new("main")]));
        node.start();
        let before = node.ready("job").await;
        node.kill().await;
        node.kill_shim(&before);
        node.exit("job", "main", 0);
        node.written("end job.main", 1).await;
        node.buried(&before, "main").await;
        node.start();
        let seen = node.pod_until("job", "over", |seen| seen.status.phase.is_terminal()).await;
        let ended = seen.ended("main").expect("an end");
        assert_eq!((ended.exit_code, ended.reason.as_str()), UNKNOWN);
        assert_eq!((seen.status.phase, node.starts("job", ["main"])), (Phase::Failed, [1]));
        node.leaves_nothing().await;
    });
}

/// RULE-11, SIDE-12, STAT-25: the process that holds a pod's namespaces is killed. The sandbox is made anew, with all containers, and
/// volumes stay.
#[test]
fn a_sandbox_whose_holder_is_killed_is_made_anew() {
    on_a_node(async |node| {
        let init = Actor::new("init").does("echo round >>/kept/rounds; exit 0");
        let fields = format!("initContainers:\n{init}");
        node.want("web", &pod("web", &fields, &[Actor::new("main"), Actor::new("other")]));
        let never = pod("never", "restartPolicy: Never", &[Actor::new("main")]);
        node.want("never", &never);
        node.start();
        let (before, never) = (node.ready("web").await, node.ready("never").await);
        node.kill_pause(&before);
        node.kill_pause(&never);
        let anew = |seen: &Seen| {
            seen.is_ready() && seen.sandboxes.iter().any(|one| one.ready && one.id != before.sandbox().id)
        };
        let after = node.pod_when("web", "in a new sandbox", anew).await;
        assert_eq!((&after.uid, after.status.start_time), (&before.uid, before.status.start_time));
        assert_eq!(node.run_in(&after, "main", "cat /kept/rounds").await, "round\nround");
        for name in ["main", "other"] {
            assert_ne!(after.running_id(name), before.running_id(name), "{name}");
        }
        assert!(after.transitions(&ConditionType::PodReadyToStartContainers).contains(&false), "{:#?}", after.journal);
        let over = node.pod_until("never", "over", |seen| seen.status.phase.is_terminal()).await;
        assert_eq!((over.running().len(), node.starts("never", ["main"])), (0, [1]));
        node.leaves_nothing().await;
    });
}

/// RALL-37: shim and agent are killed in the middle of a restart of all containers.
#[test]
fn shim_and_agent_are_killed_while_all_containers_restart() {
    on_a_node(async |node| {
        let rule = "restartPolicy: Never, restartPolicyRules: \
                    [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
        let actors = [Actor::new("source").with(rule), Actor::new("deaf").on_term(":")];
        let manifest = pod("job", "restartPolicy: Never", &actors);
        let soft = "  annotations: {keelet.dev/restart-all-grace-period-seconds: '20'}\nspec:\n";
        node.want("job", &manifest.replacen("spec:\n", soft, 1));
        node.start();
        let before = node.ready("job").await;
        node.exit("job", "source", 42);
        node.written("term job.deaf", 1).await;
        node.kill().await;
        node.kill_shim(&before);
        node.start();
        let up = |seen: &Seen| seen.is_ready() && seen.counts(["source", "deaf"]) == [1, 1];
        let after = node.pod_when("job", "up again", up).await;
        assert_eq!((after.sandbox(), after.history("source")), (before.sandbox(), (42, "Error")));
        assert_eq!(after.history("deaf"), (137, "RestartingAllContainers"));
        assert_eq!(node.starts("job", ["source", "deaf"]), [2, 2]);
        node.leaves_nothing().await;
    });
}

/// What a container forked dies with it, also what left its session; and what a container does to its own files is gone
/// with it.
#[test]
fn nothing_outlives_a_container() {
    on_a_node(async |node| {
        let main = Actor::new("main")
            .does("setsid sleep 602 & setsid sleep 602 & (sleep 602 & disown) & echo mine >/tmp/mine");
        node.want("web", &pod("web", "", &[main, Actor::new("other")]));
        node.start();
        let before = node.ready("web").await;
        eventually("three processes", async || match node.processes("sleep 602") {
            3 => Ok(()),
            count => Err(format!("{count}")),
        })
        .await;
        node.kill_container(&before, "main");
        let again = |seen: &Seen| seen.is_ready() && seen.restarts("main") == Some(1);
        node.pod_when("web", "ready with a new container", again).await;
        eventually("three processes", async || match node.processes("sleep 602") {
            3 => Ok(()),
            count => Err(format!("{count}")),
        })
        .await;
        node.leaves_nothing().await;
        assert_eq!(node.processes("sleep 602"), 0);
    });
}

/// KEEP-1, KEEP-13: an agent that is killed again and again while its pods start. In the end there is one of everything, and
/// nothing was restarted.
#[test]
fn pods_start_however_often_the_agent_dies() {
    on_a_node(async |node| {
        let (init, side) = (Actor::new("init").does("exit 0"), Actor::new("side").with("restartPolicy: Always"));
        let fields = format!("restartPolicy: Never\ninitContainers:\n{init}\n{side}");
        for name in ["one", "two"] {
            node.want(name, &pod(name, &fields, &[Actor::new("main"), Actor::new("other")]));
        }
        for alive in [50, 90, 140, 200, 270, 350, 440, 540, 650, 770, 900] {
            node.start();
            tokio::time::sleep(std::time::Duration::from_millis(alive)).await;
            node.kill().await;
        }
        node.start();
        for name in ["one", "two"] {
            let seen = node.ready(name).await;
            assert_eq!(seen.status.phase, Phase::Running);
            for status in seen.status.all_containers() {
                assert_eq!((status.restart_count, status.last_state.is_none()), (0, true), "{name}: {status:#?}");
            }
            assert_eq!(node.starts(name, ["init", "side", "main", "other"]), [1; 4], "{name}");
            assert_eq!(seen.sandboxes.len(), 1, "{name}");
        }
        node.leaves_nothing().await;
    });
}

/// TERM-1: an agent that is killed again and again while its pods end. Nothing is started any more, and nothing is left.
#[test]
fn pods_go_however_often_the_agent_dies() {
    on_a_node(async |node| {
        let (init, side) = (Actor::new("init").does("exit 0"), Actor::new("side").with("restartPolicy: Always"));
        let fields = format!("terminationGracePeriodSeconds: 2\ninitContainers:\n{init}\n{side}");
        let pods = ["one", "two", "three"];
        for name in pods {
            node.want(name, &pod(name, &fields, &[Actor::new("main"), Actor::new("deaf").on_term(":")]));
        }
        node.start();
        for name in pods {
            node.ready(name).await;
        }
        for name in pods {
            node.want_no_more(name);
        }
        for alive in [60, 100, 160, 240, 400, 600, 900] {
            tokio::time::sleep(std::time::Duration::from_millis(alive)).await;
            node.kill().await;
            node.start();
        }
        node.leaves_nothing().await;
        for name in pods {
            assert_eq!(node.starts(name, ["init", "side", "main", "deaf"]), [1; 4], "{name}");
        }
    });
}

/// Shims die while their pod starts, over and over, and the agent in between. In the end the pod runs, and nothing of the
/// attempts before is left.
#[test]
fn a_pod_starts_however_often_its_shims_die() {
    on_a_node(async |node| {
        node.want("web", &pod("web", "", &[Actor::new("main"), Actor::new("other")]));
        node.start();
        for round in 0..12 {
            tokio::time::sleep(std::time::Duration::from_millis(40 * round)).await;
            node.kill_shims();
            if round % 4 == 3 {
                node.kill().await;
                node.kill_shims();
                node.start();
            }
        }
        // Instances that ended before their script began are in no diary, so it is not asked.
        let seen = node.pod_until("web", "Ready", |seen| seen.is_ready() && seen.agrees().is_ok()).await;
        assert_eq!(node.stray_cgroups(&seen), [""; 0], "{:#?}", seen.containers);
        assert_eq!(seen.running().len(), 2);
        // It can be used.
        node.exit("web", "main", 5);
        let count = seen.counts(["main"])[0] + 1;
        let again = |seen: &Seen| seen.is_ready() && seen.counts(["main"])[0] >= count && seen.agrees().is_ok();
        let after = node.pod_until("web", "ready with a new container", again).await;
        assert_eq!(after.history("main"), (5, "Error"));
        node.leaves_nothing().await;
    });
}

/// Everything that belongs to a pod is killed at once, with the agent: shim, holder and containers. The pod is made anew, and
/// the exit status of its containers is unknown.
#[test]
fn a_pod_of_which_nothing_runs_is_created_again() {
    on_a_node(async |node| {
        node.want("web", &pod("web", "", &[Actor::new("main"), Actor::new("other")]));
        node.start();
        let before = node.ready("web").await;
        node.kill().await;
        node.kill_shim(&before);
        node.kill_pause(&before);
        for name in ["main", "other"] {
            node.kill_container(&before, name);
            node.buried(&before, name).await;
        }
        node.start();
        let anew = |seen: &Seen| {
            seen.is_ready() && seen.sandboxes.iter().any(|one| one.ready && one.id != before.sandbox().id)
        };
        let after = node.pod_when("web", "in a new sandbox", anew).await;
        for name in ["main", "other"] {
            assert_eq!((after.history(name), after.restarts(name)), (UNKNOWN, Some(1)), "{name}");
        }
        assert_eq!(after.uid, before.uid);
        node.leaves_nothing().await;
    });
}

/// A pod that forks and forks gets no more processes than `podPidsLimit` says, and the pod beside it does not notice.
#[test]
fn a_fork_bomb_stays_in_its_pod() {
    on_a_node(async |node| {
        let config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodPidsLimit: 40\n";
        node.put("config.yaml", config);
        let forks = "perl -e 'my $n = 0; while ($n < 100 and defined(my $pid = fork)) { if (!$pid) { close STDOUT; sleep 1000; exit } $n++ } print $n'";
        let bomb = Actor::new("main").does(&format!("say forked-$({forks})"));
        node.want("bomb", &pod("bomb", "", &[bomb]));
        node.start();
        let forked = eventually("it forked", async || {
            let diary = node.diary();
            let line = diary.iter().find_map(|line| line.strip_prefix("forked-")?.strip_suffix(" bomb.main"));
            line.map(str::to_owned).ok_or_else(|| format!("{diary:?}"))
        })
        .await;
        let forked: u32 = forked.parse().expect("a number");
        assert!((20..40).contains(&forked), "{forked}");
        node.want("calm", &pod("calm", "", &[Actor::new("main").does("(:) && say forks")]));
        node.written("forks calm.main", 1).await;
        node.want_no_more("bomb");
        node.gone("bomb").await;
        node.leaves_nothing().await;
    });
}
