//! Configuration files, in tables.

use super::*;

fn of(fields: &str) -> Result<ReadConfig, Vec<String>> {
    let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}\n");
    read(text.as_bytes(), Path::new("/etc/kubelet/config.yaml"))
}

#[test]
fn what_has_a_meaning_here_is_read() {
    let usual = NodeConfig::default();
    let with = |change: &dyn Fn(&mut NodeConfig)| {
        let mut config = usual.clone();
        change(&mut config);
        config
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let cases: Vec<(&str, NodeConfig)> = vec![
        ("", usual.clone()),
        ("staticPodPath: /pods", with(&|config| config.static_pod_path = Some("/pods".into()))),
        ("staticPodPath: pods", with(&|config| config.static_pod_path = Some("/etc/kubelet/pods".into()))),
        ("staticPodPath: ''", usual.clone()),
        (
            "containerRuntimeEndpoint: unix:///r.sock",
            with(&|config| config.container_runtime_endpoint = Some("unix:///r.sock".to_owned())),
        ),
        ("featureGates: {A: true}", with(&|config| config.feature_gates = [("A".to_owned(), true)].into())),
        ("fileCheckFrequency: 5s", with(&|config| config.file_check_frequency = seconds(5))),
        ("healthzPort: 0", with(&|config| config.healthz_port = Some(0))),
        ("clusterDNS: [10.0.0.10]", with(&|config| config.cluster_dns = vec!["10.0.0.10".to_owned()])),
        ("clusterDomain: c.local", with(&|config| config.cluster_domain = Some("c.local".to_owned()))),
        ("resolvConf: ''", with(&|config| config.resolv_conf = Some(PathBuf::new()))),
        ("podLogsDir: /l", with(&|config| config.pod_logs_dir = Some("/l".into()))),
        ("podPidsLimit: 100", with(&|config| config.pod_pids_limit = Some(100))),
        ("podPidsLimit: -1", with(&|config| config.pod_pids_limit = Some(-1))),
        (
            "allowedUnsafeSysctls: [net.core.somaxconn, kernel.msg*, 'net.*']",
            with(&|config| {
                let patterns = ["net.core.somaxconn", "kernel.msg*", "net.*"].map(str::to_owned);
                config.sysctls = Sysctls::allowing(patterns.into()).unwrap();
            }),
        ),
        ("failSwapOn: true", with(&|config| config.fail_swap_on = Some(true))),
        ("serializeImagePulls: true", with(&|config| config.parallel_pulls = Some(1))),
        ("serializeImagePulls: false", usual.clone()),
        ("maxParallelImagePulls: 3", with(&|config| config.parallel_pulls = Some(3))),
        ("crashLoopBackOff: {maxContainerRestartPeriod: 1m}", with(&|config| config.max_restart_period = seconds(60))),
        ("seccompDefault: true", with(&|config| config.seccomp_default = true)),
        ("containerLogMaxSize: 1Mi", with(&|config| config.upkeep.logs.max_bytes = Some(1 << 20))),
        ("containerLogMaxSize: '-1'", with(&|config| config.upkeep.logs.max_bytes = None)),
        ("containerLogMaxFiles: 2", with(&|config| config.upkeep.logs.max_files = 2)),
        ("imageMaximumGCAge: 48h", with(&|config| config.upkeep.images.maximum_age = seconds(48 * 3600))),
        (
            "imageGCHighThresholdPercent: 70",
            with(&|config| {
                config.upkeep.images.high_percent = 70;
                config.upkeep.images.low_percent = 69;
            }),
        ),
        ("address: 192.0.2.7", with(&|config| config.https.address = Some([192, 0, 2, 7].into()))),
        ("port: 0\nenableServer: true", with(&|config| config.https.port = Some(0))),
        ("enableServer: false", with(&|config| config.https.disabled = true)),
        (
            "tlsCertFile: pki/a.crt\ntlsPrivateKeyFile: /k/a.key\ntlsMinVersion: VersionTLS13",
            with(&|config| {
                config.https.certificate = Some("/etc/kubelet/pki/a.crt".into());
                config.https.private_key = Some("/k/a.key".into());
                config.https.min_version = Some(TlsVersion::Tls13);
            }),
        ),
        (
            "authentication: {x509: {clientCAFile: /ca.crt}, webhook: {enabled: true, cacheTTL: 1m}, anonymous: {enabled: false}}",
            with(&|config| {
                config.https.client_ca = Some("/ca.crt".into());
                config.https.tokens = Some(true);
                config.https.token_lasts = seconds(60);
            }),
        ),
        ("authentication: {anonymous: {enabled: true}}", with(&|config| config.https.anonymous = true)),
        (
            "authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 5s}}",
            with(&|config| {
                config.https.allowed_lasts = seconds(0);
                config.https.denied_lasts = seconds(5);
            }),
        ),
        (
            "authorization: {mode: AlwaysAllow}",
            with(&|config| config.https.authorization_mode = Some("AlwaysAllow".to_owned())),
        ),
        ("enableDebuggingHandlers: false", with(&|config| config.https.debugging = Some(false))),
        ("cpuManagerPolicy: none\nmemoryManagerPolicy: None\ntopologyManagerPolicy: none", usual.clone()),
        ("memorySwap: {swapBehavior: NoSwap}", usual.clone()),
    ];
    for (fields, config) in cases {
        let found = of(fields).unwrap_or_else(|errors| panic!("{fields}: {errors:?}"));
        assert_eq!(found.config, config, "{fields}");
        assert_eq!(found.warnings, Vec::<String>::new(), "{fields}");
    }
}

#[test]
fn json_is_read_too() {
    let text =
        r#"{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "clusterDomain": "x"}"#;
    assert_eq!(read(text.as_bytes(), Path::new("c.json")).unwrap().config.cluster_domain.as_deref(), Some("x"));
}

#[test]
fn what_cannot_be_meant_is_reported_with_file_line_and_field() {
    let at = "/etc/kubelet/config.yaml:3:";
    for (fields, words) in [
        ("maxPods: 5\nhealthzPort: x", "4:14: healthzPort: Invalid type: x: must be an integer, is a string"),
        (
            "cpuManagerPolicy: static",
            "cpuManagerPolicy: Invalid value: \"static\": not supported by keelet; supported: \"none\"",
        ),
        (
            "memoryManagerPolicy: Static",
            "memoryManagerPolicy: Invalid value: \"Static\": not supported by keelet; supported: \"None\"",
        ),
        ("topologyManagerPolicy: restricted", "topologyManagerPolicy: Invalid value: \"restricted\""),
        ("memorySwap: {swapBehavior: LimitedSwap}", "memorySwap.swapBehavior: Invalid value: \"LimitedSwap\""),
        ("fileCheckFrequency: soon", "fileCheckFrequency: Invalid value: \"soon\": must be a duration such as 20s"),
        ("clusterDNS: [dns.local]", "clusterDNS: Invalid value: \"dns.local\": must be an IP address"),
        ("clusterDNS: 10.0.0.1", "clusterDNS: Invalid type: 10.0.0.1: must be a list"),
        ("healthzPort: 70000", "healthzPort: Invalid value: 70000: must be between 1 and 65535, or 0 for none"),
        ("podPidsLimit: 0", "podPidsLimit: Invalid value: 0: must be between 1 and 4194304, or -1 for as many"),
        (
            "allowedUnsafeSysctls: [net.core.somaxconn, vm.swappiness]",
            "allowedUnsafeSysctls: Invalid value: \"vm.swappiness\": must be a kernel parameter that pods have of their own",
        ),
        ("allowedUnsafeSysctls: ['*']", "allowedUnsafeSysctls: Invalid value: \"*\": must be"),
        ("podPidsLimit: 4194305", "podPidsLimit: Invalid value: 4194305: must be between 1 and 4194304"),
        ("containerLogMaxSize: inf", "containerLogMaxSize: Invalid value: \"inf\": must be a size such as 10Mi"),
        ("containerLogMaxSize: big", "containerLogMaxSize: Invalid value: \"big\": must be a size such as 10Mi"),
        ("containerLogMaxFiles: 1", "containerLogMaxFiles: Invalid value: 1: must be between 2 and 1000"),
        ("containerLogMonitorInterval: 1s", "containerLogMonitorInterval: Invalid value: 1s: must be at least 3s"),
        (
            "imageGCLowThresholdPercent: 90",
            "imageGCLowThresholdPercent: Invalid value: 90: must be less than imageGCHighThresholdPercent, which is 85",
        ),
        ("tlsCertFile: /a.crt", "tlsCertFile: Invalid value: \"/a.crt\": needs tlsPrivateKeyFile beside it"),
        ("tlsMinVersion: VersionTLS10", "tlsMinVersion: Invalid value: \"VersionTLS10\": must be \"VersionTLS12\" or"),
        ("port: 70000", "port: Invalid value: 70000: must be between 1 and 65535, or 0 for none"),
        ("imageMaximumGCAge: 1m", "imageMaximumGCAge: Invalid value: 60s: must be greater than imageMinimumGCAge"),
        ("featureGates: {A: 1}", "featureGates[A]: Invalid type: 1: must be true or false"),
        ("failSwapOn: 'true'", "failSwapOn: Invalid type: \"true\": must be true or false"),
    ] {
        let errors = of(fields).expect_err(fields);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(words), "{fields}: {}", errors[0]);
        assert!(errors[0].starts_with(at) || fields.contains('\n'), "{}", errors[0]);
    }
    let serial = of("serializeImagePulls: true\nmaxParallelImagePulls: 2").unwrap_err();
    assert!(serial[0].contains("must be 1 while serializeImagePulls is true"), "{serial:?}");
    let other = read(b"apiVersion: v1\nkind: Pod\n", Path::new("c")).unwrap_err();
    assert_eq!(other.len(), 2, "{other:?}");
}

/// All mistakes in one go.
#[test]
fn all_mistakes_are_reported_at_once() {
    assert_eq!(of("healthzPort: x\nfileCheckFrequency: y\ncpuManagerPolicy: static").unwrap_err().len(), 3);
}

#[test]
fn fields_without_an_effect_are_named() {
    let read = of("maxPods: 5\nsyncFrequency: 1m\nnoSuchField: 1\nevictionHard: {memory.available: 100Mi}\n\
                   containerLogMaxWorkers: 2\nstaticPodPth: /x")
    .unwrap();
    let file = "/etc/kubelet/config.yaml";
    assert_eq!(
        read.warnings,
        [
            format!("{file}:3: known, not supported: maxPods"),
            format!("{file}:5:1: noSuchField: Unknown field"),
            format!("{file}:6: known, not supported: evictionHard"),
            format!("{file}:8:1: staticPodPth: Unknown field: did you mean \"staticPodPath\"?"),
        ]
    );
    assert_eq!(read.remarks.len(), 2, "{:?}", read.remarks);
    assert!(read.remarks.iter().all(|remark| remark.contains("accepted, not needed: ")));
}

#[test]
fn changes_say_whether_they_take_effect() {
    let usual = NodeConfig::default();
    assert_eq!(usual.changes(&usual), []);
    let mut new = usual.clone();
    new.cluster_domain = Some("x".to_owned());
    new.upkeep.logs.max_files = 3;
    assert_eq!(
        usual.changes(&new),
        [
            Change { field: "clusterDomain", takes_effect: false },
            Change { field: "containerLogMaxFiles", takes_effect: true },
        ]
    );
}

/// The list is sorted, so that nothing is in it twice, and the document has a row for each.
#[test]
fn the_document_lists_every_field_and_its_fate() {
    assert!(FIELDS.is_sorted_by(|(one, _), (other, _)| one < other));
    let document = include_str!("../../../../docs/config.md");
    for (field, fate) in FIELDS {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{field}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/config.md has no row for {field}"));
        let word = match fate {
            Fate::Applied => "applied",
            Fate::NotNeeded(_) => "not needed",
            Fate::NotSupported => "not supported",
            Fate::Only(_) => "only",
        };
        assert!(row.contains(&format!("| {word}")), "{row}");
    }
}
