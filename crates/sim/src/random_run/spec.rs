//! Random pods.

use std::fmt::Write;

use keelet_sim_api::Random;

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

const RULES: [&str; 3] = [
    "{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}",
    "{action: Restart, exitCodes: {operator: In, values: [1]}}",
    "{action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0, 1, 137, 143]}}",
];

/// The manifest of a random pod.
pub(super) fn manifest(random: &mut Random) -> String {
    let mut text = String::from("apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, uid: web}\nspec:\n");
    let grace = random.within(0..5);
    let _ = writeln!(text, "  restartPolicy: {}\n  terminationGracePeriodSeconds: {grace}", random.pick(&POLICIES));
    let init: Vec<(&str, bool)> =
        [("setup", false), ("watcher", true), ("late", false)].into_iter().filter(|_| random.chance(400)).collect();
    let mut port = 8000;
    if !init.is_empty() {
        text.push_str("  initContainers:\n");
    }
    for (name, sidecar) in init {
        let _ = writeln!(text, "  - name: {name}\n    image: {name}");
        if sidecar {
            text.push_str("    restartPolicy: Always\n");
            rules(&mut text, random);
            probes(&mut text, name, random, &mut port);
        }
    }
    text.push_str("  containers:\n");
    let regular = usize::try_from(random.within(1..4)).unwrap_or(1);
    for name in ["main", "helper", "extra"].into_iter().take(regular) {
        let _ = writeln!(text, "  - name: {name}\n    image: {name}");
        if random.chance(300) {
            let _ = writeln!(text, "    restartPolicy: {}", random.pick(&POLICIES));
            rules(&mut text, random);
        }
        probes(&mut text, name, random, &mut port);
        if random.chance(150) {
            text.push_str(
                "    lifecycle: {postStart: {exec: {command: [hello]}}, preStop: {exec: {command: [bye]}}}\n",
            );
        }
    }
    text
}

fn rules(text: &mut String, random: &mut Random) {
    if random.chance(600) {
        let _ = writeln!(text, "    restartPolicyRules: [{}]", random.pick(&RULES));
    }
}

/// Probes that ask different things, so that every attempt is distinct from the others.
fn probes(text: &mut String, container: &str, random: &mut Random, port: &mut u16) {
    for kind in ["startup", "readiness", "liveness"] {
        if !random.chance(450) {
            continue;
        }
        *port += 1;
        let handler = match random.within(0..5) {
            0 | 1 => format!("httpGet: {{path: /{kind}, port: {port}}}"),
            2 => format!("tcpSocket: {{port: {port}}}"),
            3 => format!("exec: {{command: [probe, {container}, {kind}]}}"),
            _ => format!("grpc: {{port: {port}}}"),
        };
        let period = random.pick(&[1, 2, 5, 10]);
        let failures = random.within(1..4);
        let failures = if kind == "startup" { failures + 8 } else { failures };
        let successes = if kind == "readiness" { random.within(1..3) } else { 1 };
        let delay = if random.chance(300) { random.within(1..6) } else { 0 };
        let _ = writeln!(
            text,
            "    {kind}Probe: {{{handler}, periodSeconds: {period}, failureThreshold: {failures}, \
             successThreshold: {successes}, initialDelaySeconds: {delay}, timeoutSeconds: {}}}",
            random.within(1..4)
        );
    }
}
