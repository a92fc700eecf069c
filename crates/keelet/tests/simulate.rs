//! `keelet simulate` from the outside: what its options do, what it prints, and how it ends.

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

const WEB: &str = "apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  terminationGracePeriodSeconds: 10
  initContainers:
  - {name: setup, image: tools}
  containers:
  - name: main
    image: app
    startupProbe: {httpGet: {path: /up, port: 80}, periodSeconds: 5, failureThreshold: 6}
    readinessProbe: {httpGet: {path: /ready, port: 80}, periodSeconds: 5}
    livenessProbe: {exec: {command: [alive]}, periodSeconds: 10, failureThreshold: 2, timeoutSeconds: 2}
  - {name: side, image: proxy}
";

fn keelet() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelet"));
    command.env_remove("NO_COLOR").env_remove("COLUMNS").env("LC_ALL", "C.UTF-8");
    command
}

#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("keelet runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// Simulates a manifest with these options.
fn simulate(manifest: &str, options: &str) -> (i32, String, String) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("pod.yaml");
    fs::write(&path, manifest).unwrap();
    run(keelet().current_dir(directory.path()).args(["simulate", "pod.yaml"]).args(options.split_whitespace()))
}

/// The answer as text.
fn text(options: &str) -> String {
    let (code, out, err) = simulate(WEB, options);
    assert_eq!((code, err.as_str()), (0, ""), "{options}");
    out
}

/// The answer for machines.
fn json(options: &str) -> Value {
    serde_json::from_str(&text(&format!("{options} -o json"))).unwrap()
}

fn main_of(answer: &Value) -> &Value {
    answer["result"]["containers"].as_array().unwrap().iter().find(|found| found["name"] == "main").unwrap()
}

fn verdict<'a>(answer: &'a Value, container: Option<&str>, topic: &str) -> &'a str {
    let is_it = |line: &&Value| line["topic"] == topic && line.get("container").and_then(Value::as_str) == container;
    answer["verdict"].as_array().unwrap().iter().find(is_it).expect("a line")["text"].as_str().unwrap()
}

#[test]
fn without_options_everything_goes_well() {
    let out = text("--width 100");
    assert!(out.starts_with("pod shop/web, 30 s of simulated time (seed 1)\n  everything goes well"), "{out}");
    for part in [
        "00:00:01  container \"setup\" exited with code 0\n",
        "container \"main\" has started up\n          because startup probe passed",
        "Ready is True\n",
        "\nSummary\n  ready       after 1.",
        " s, and from then on\n  phase       Running at the end\n  restarts    none\n",
        "    slow start  may take up to 25 s: the 6th failure in a row of its startup probe kills it then\n",
        "    hang        is noticed within 22 s (2 attempts, 10 s apart, + 2 s timeout), and the container is\n",
        "    traffic     is withdrawn within 16 s of a hang (3 attempts, 5 s apart, + 1 s timeout)",
    ] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    assert!(!out.contains('\u{1b}'), "no colours but on a terminal");
    assert!(!out.contains("2000-01-01"), "dates mean nothing here");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let options = "--exit side=1@7s*3 --slow-start 12s --agent-restart @20s+3s --reboot @1m --for 2m";
    for format in ["text", "svg", "html", "json"] {
        let once = text(&format!("{options} -o {format}"));
        assert_eq!(once, text(&format!("{options} -o {format}")), "{format}");
        assert_ne!(once, text(&format!("{options} -o {format} --seed 2")), "{format}");
    }
}

/// START-5.
#[test]
fn a_slow_start_fits_or_is_killed() {
    let fits = json("--slow-start 25s");
    assert_eq!(main_of(&fits)["restarts"], 0);
    assert!(verdict(&fits, Some("main"), "slow start").ends_with("; 25 s fits"));
    assert!((26_000..27_500).contains(&fits["result"]["firstReadyMs"].as_u64().unwrap()), "{}", fits["result"]);
    let killed = json("--slow-start main=31s");
    assert_eq!(main_of(&killed)["killedBy"][0], "startup");
    let advice = verdict(&killed, Some("main"), "slow start");
    assert!(advice.ends_with("31 s does not fit: its failureThreshold would have to be at least 8"), "{advice}");
    assert_eq!(verdict(&killed, None, "ready"), "never");
    let enough = WEB.replace("failureThreshold: 6", "failureThreshold: 8");
    let (_, out, _) = simulate(&enough, "--slow-start main=31s -o json");
    assert_eq!(main_of(&serde_json::from_str(&out).unwrap())["restarts"], 0, "the advice is good");
}

#[test]
fn containers_exit_as_often_as_asked() {
    let answer = json("--exit main=3@5s*2 --exit main=0@4s");
    assert_eq!(
        (main_of(&answer)["restarts"].as_u64(), &main_of(&answer)["backoffsMs"]),
        (Some(3), &serde_json::json!([10_000, 20_000]))
    );
    let codes: Vec<&str> = answer["moments"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|moment| moment["text"].as_str()?.strip_prefix("container \"main\" exited with code "))
        .collect();
    assert_eq!(codes, ["3", "3", "0"]);
    assert_eq!(verdict(&answer, None, "restarts"), "main 3 times, after backoffs of 10 s, 20 s");
    let every = json("--exit side=1* --for 3m");
    assert!(verdict(&every, None, "restarts").starts_with("side 5 times"), "{}", verdict(&every, None, "restarts"));
}

#[test]
fn an_init_container_may_fail_first() {
    let answer = json("--exit setup=1@2s");
    assert_eq!(answer["result"]["containers"][0]["restarts"], 1);
    assert_eq!(answer["result"]["readyAtEnd"], true);
    let (_, out, _) = simulate(&WEB.replace("spec:\n", "spec:\n  restartPolicy: Never\n"), "--exit setup=1@2s -o json");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert!(verdict(&answer, None, "phase").starts_with("Failed after 2"));
    assert_eq!(verdict(&answer, None, "ready"), "never");
}

#[test]
fn a_failing_readiness_probe_takes_the_pod_out_for_a_while() {
    let answer = json("--probe-fails readiness@30s+30s");
    assert_eq!((&answer["result"]["readyAtEnd"], main_of(&answer)["restarts"].as_u64()), (&true.into(), Some(0)));
    let unready = answer["result"]["unreadyMs"].as_u64().unwrap();
    assert!((15_000..=25_000).contains(&unready), "{unready}");
    let for_good = json("--probe-fails main/readiness@30s");
    assert_eq!(for_good["result"]["readyAtEnd"], false);
}

/// PROBE-4.
#[test]
fn a_hanging_liveness_probe_kills_in_the_time_foretold() {
    let answer = json("--probe-hangs main/liveness@60s+25s");
    assert_eq!(
        (main_of(&answer)["killedBy"][0].as_str(), main_of(&answer)["restarts"].as_u64()),
        (Some("liveness"), Some(1))
    );
    let foretold = answer["outlook"][0]["liveness"]["hangMs"].as_u64().unwrap();
    assert_eq!(foretold, 22_000);
    let stopped = |moment: &&Value| moment["text"].as_str().unwrap().contains("is stopped with 10 s of grace");
    let at = answer["moments"].as_array().unwrap().iter().find(stopped).unwrap()["atMs"].as_u64().unwrap();
    assert!((60_000..=60_000 + foretold).contains(&at), "{at}");
}

/// KEEP-10.
#[test]
fn an_agent_restart_changes_no_status() {
    let out = text("--agent-restart @20s --agent-restart @40s+10s --width 200");
    assert!(out.contains("  agent       killed at 20 s, back after 1 s: no status changed\n"), "{out}");
    assert!(out.contains("  agent       killed at 40 s, back after 10 s: no status changed\n"), "{out}");
    assert!(out.contains("00:00:50  an agent started, "), "{out}");
    let meanwhile = text("--agent-restart @40s+10s --exit side=1@44s --width 200");
    assert!(
        meanwhile.contains("killed at 40 s, back after 10 s, and found changes: container \"side\" exited with code 1"),
        "{meanwhile}"
    );
    let never_back = text("--agent-restart @40s+10s --for 45s");
    assert!(never_back.contains("back after 10 s: the simulation ends before that"), "{never_back}");
}

#[test]
fn a_reboot_starts_everything_again() {
    let answer = json("--reboot @30s+15s");
    assert_eq!((main_of(&answer)["restarts"].as_u64(), &answer["result"]["readyAtEnd"]), (Some(1), &true.into()));
    let again = verdict(&answer, None, "reboot");
    assert!(again.starts_with("at 30 s, back after 15 s: ready again 1"), "{again}");
    let band = &answer["timeline"]["bands"][0];
    assert_eq!((&band["from"], &band["label"]), (&"2000-01-01T00:00:30Z".into(), &"no agent for 15 s".into()));
}

#[test]
fn pulls_take_their_time() {
    let ready = |options| json(options)["result"]["firstReadyMs"].as_u64().unwrap();
    let (present, pulled) = (ready(""), ready("--pull 8s"));
    assert!(pulled >= present + 16_000, "Ready after {present} ms, and with pulls of 8 s after {pulled} ms");
}

#[test]
fn pictures_and_pages_speak_of_simulated_time_and_fetch_nothing() {
    let page = text("--slow-start 10s --exit side=1@5s -o html");
    for part in
        ["<title>shop/web · keelet simulate</title>", "simulated with seed 1", "<h2>Summary</h2>", "; 10 s fits"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("2000-01-01") && !page.contains("UTC"));
    let picture = text("-o svg");
    assert!(picture.starts_with("<svg ") && !picture.contains("2000-01-01"));
    for drawn in [page, picture] {
        assert!(!drawn.replace("http://www.w3.org/2000/svg", "").contains("src=") && !drawn.contains("url(http"));
    }
}

#[test]
fn text_keeps_within_its_width() {
    for width in [80, 120] {
        let out = text(&format!("--exit side=1@5s*3 --slow-start 40s --width {width}"));
        let long: Vec<&str> = out.lines().filter(|line| line.chars().count() > width).collect();
        assert_eq!(long, [""; 0]);
    }
    assert!(text("--ascii").is_ascii());
}

#[test]
fn wrong_options_are_reported_precisely() {
    for (options, part) in [
        ("--exit man=1@5s", r#"--exit man=...: container "man" not found in the pod; containers: setup, main, side"#),
        (
            "--exit main=300",
            r#"for '--exit <CONTAINER=CODE[@DURATION][*COUNT]>': invalid exit code "300": expected 0 to 255"#,
        ),
        ("--slow-start soon", r#"invalid duration "soon""#),
        ("--slow-start side=5s", r#"container "side" has no probes"#),
        ("--probe-fails ready@5s", r#"unknown probe "ready": expected startup, readiness or liveness"#),
        ("--probe-fails side/readiness@5s", r#"container "side" has no readiness probe; it has no probes"#),
        ("--agent-restart 1x", r#"invalid duration "1x""#),
        ("--for 10s --reboot @10s", "--reboot @10s: the simulation is over after 10 s; see --for"),
        ("--for 25h", "at most 24h"),
        ("-o yaml", "[possible values: text, svg, html, json]"),
    ] {
        let (code, out, err) = simulate(WEB, options);
        assert_eq!((code, out.as_str()), (2, ""), "{options}");
        assert!(err.contains(part), "{options}: {err}");
    }
    assert_eq!(run(keelet().args(["simulate", "/no/such/file"])).0, 2);
    let (code, _, err) = run(keelet().args(["simulate", "/"]));
    assert_eq!((code, err.as_str()), (2, "error: / is a directory: expected one manifest\n"));
    let (code, _, err) = simulate(&format!("{WEB}---\n{}", WEB.replace("name: web", "name: two")), "");
    assert_eq!((code, err.as_str()), (2, "error: pod.yaml has 2 pods: expected one\n"));
}

#[test]
fn an_invalid_manifest_is_reported_as_validate_does() {
    let manifest = WEB.replace("failureThreshold: 6", "failureThreshold: -6");
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("pod.yaml"), &manifest).unwrap();
    let (_, validated, _) = run(keelet().current_dir(directory.path()).args(["validate", "pod.yaml"]));
    let (code, out, err) = run(keelet().current_dir(directory.path()).args(["simulate", "pod.yaml"]));
    assert_eq!((code, out.as_str()), (1, ""));
    let problems: Vec<&str> = validated.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(!problems.is_empty());
    assert_eq!(err, format!("error: pod.yaml is invalid\n{}\n", problems.join("\n")));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn standard_input_will_do() {
    let mut child = keelet().args(["simulate", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(WEB.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text(""));
}

#[test]
fn every_example_can_be_simulated() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for entry in fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let (code, out, err) = run(keelet().arg("simulate").arg(&path));
            assert_eq!((code, err.as_str()), (0, ""), "{}", path.display());
            assert!(out.contains("and from then on"), "{}\n{out}", path.display());
        }
    }
}
