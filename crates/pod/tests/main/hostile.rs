//! Inputs that mean harm, or no sense at all.

use keelet_pod::{Features, Kind, MAX_MANIFEST_BYTES, Origin, Report, Strictness, read_manifest};

use crate::common::{pod, strict};

fn read(bytes: &[u8]) -> Report {
    read_manifest(bytes, &Origin::file("x"), Strictness::Strict, &Features::default())
}

/// The one error of an unreadable manifest.
#[track_caller]
fn unreadable(bytes: &[u8]) -> String {
    let report = read(bytes);
    assert_eq!(report.errors.len(), 1, "{report}");
    assert_eq!(report.errors[0].kind, Kind::Syntax, "{report}");
    report.errors[0].to_string()
}

#[test]
fn manifests_have_a_size_limit() {
    let mut bytes = pod("", "").into_bytes();
    bytes.resize(MAX_MANIFEST_BYTES, b'\n');
    assert!(read(&bytes).is_ok());
    bytes.push(b'\n');
    assert_eq!(unreadable(&bytes), "x: Unreadable: larger than 3 MiB, the limit for a manifest");
    assert_eq!(MAX_MANIFEST_BYTES, 3 * 1024 * 1024);
}

#[test]
fn input_that_is_not_text_is_reported_with_its_offset() {
    assert_eq!(unreadable(b"a: b\nc: \xff\n"), "x:2:4: Unreadable: not UTF-8: invalid byte 0xff at offset 8");
    assert_eq!(unreadable(b"\x80"), "x:1:1: Unreadable: not UTF-8: invalid byte 0x80 at offset 0");
    assert_eq!(unreadable("é: b\0".as_bytes()), "x:1:5: Unreadable: NUL byte at offset 5: this is not a text file");
    let words = "x:1:4: Unreadable: control character 0x1b at offset 3; escape it in a quoted string";
    assert_eq!(unreadable(b"a: \x1b[31m"), words);
    for byte in [1, 8, 0x0b, 0x0c, 0x0e, 0x1f, 0x7f] {
        assert!(unreadable(&[b'a', byte]).contains("control character"), "{byte}");
    }
    for byte in [b'\t', b'\n', b'\r', b' ', b'~'] {
        assert!(!read(&[b'a', byte]).to_string().contains("control character"), "{byte}");
    }
    for mark in [[0xff, 0xfe], [0xfe, 0xff]] {
        assert_eq!(unreadable(&mark), "x: Unreadable: is UTF-16 by its byte order mark; save it as UTF-8");
    }
    assert!(unreadable("k\0i\0n\0d\0".as_bytes()).contains("NUL byte at offset 1"));
}

#[test]
fn empty_manifests_hold_no_pod() {
    for text in ["", "\n", "# only a comment\n", "---\n", "---\n---\n", "~", "\u{feff}"] {
        assert_eq!(unreadable(text.as_bytes()), "x: Unreadable: holds no pod: the file has no document", "{text:?}");
    }
}

#[test]
fn depth_is_limited() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(unreadable(nested(64).as_bytes()).contains("is a list"));
    for text in
        [nested(65), "[".repeat(1_000_000), "{\"a\":".repeat(100_000), "- ".repeat(100_000), "? ".repeat(100_000)]
    {
        let message = unreadable(text.as_bytes());
        assert!(
            message.contains("nested more than 64 levels deep") || message.contains("cannot be a key"),
            "{message}"
        );
    }
    // Aliases nest too: 60 levels below 5 are one too many.
    let anchored = |depth: usize| format!("a: &a {}\nb: [[[[[*a]]]]]\n", nested(depth));
    assert!(!read(anchored(58).as_bytes()).to_string().contains("deep"));
    assert!(unreadable(anchored(59).as_bytes()).contains("x:2:9: Unreadable: nested more than 64 levels deep"));
    assert!(
        !read(format!("a: &a x\nb: {}*a{}\n", "[".repeat(63), "]".repeat(63)).as_bytes()).to_string().contains("deep")
    );
}

#[test]
fn a_billion_laughs_are_not_funny() {
    let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..30 {
        let uses = vec![format!("*a{}", level - 1); 9].join(",");
        text.push_str(&format!("a{level}: &a{level} [{uses}]\n"));
    }
    assert!(unreadable(text.as_bytes()).contains("more than 500000 values once aliases are expanded"));
    let text = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 100].join(","));
    assert!(unreadable(text.as_bytes()).contains("more than 8388608 bytes of text once aliases are expanded"));
    let keys = format!("a: &a {{\"{}\": 1}}\nb: [{}]\n", "x".repeat(1000), vec!["*a"; 10_000].join(","));
    assert!(unreadable(keys.as_bytes()).contains("bytes of text once aliases are expanded"));
    let text = format!("a: &a [\"{}\"]\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 100].join(","));
    assert!(unreadable(text.as_bytes()).contains("bytes of text once aliases are expanded"));
    // Copies kept for aliases that never come count as well.
    let anchors: String = (0..60).map(|level| format!("&a{level} [")).collect();
    let text = format!("{anchors}{}{}", vec!["1"; 100_000].join(","), "]".repeat(60));
    assert!(unreadable(text.as_bytes()).contains("more than 500000 values"));
}

#[test]
fn values_are_limited() {
    let list = |number: usize| format!("[{}]", vec!["1"; number].join(","));
    assert!(unreadable(list(499_999).as_bytes()).contains("is a list"));
    assert!(unreadable(list(500_000).as_bytes()).contains("x:1:1000000: Unreadable: more than 500000 values"));
}

#[test]
fn objects_of_a_pod_are_limited() {
    // The pod, its metadata, its spec and its container are four.
    let volumes = |number: usize| pod(&format!("volumes: [{}]", vec!["{}"; number].join(",")), "");
    assert!(!strict(&volumes(19_996)).to_string().contains("objects"));
    let report = strict(&volumes(19_997));
    assert_eq!(
        report.errors[0].to_string(),
        "pod.yaml:1:1: Too many: a pod may consist of at most 20000 objects, this one has 20001"
    );
    let nulls = pod(&format!("volumes: [{}]", vec!["~"; 19_997].join(",")), "");
    assert!(strict(&nulls).to_string().contains("objects"));
}

#[test]
fn pods_of_a_manifest_are_limited() {
    let pods = |number: usize| -> String {
        (0..number)
            .map(|index| format!("---\napiVersion: v1\nkind: Pod\nmetadata: {{name: w{index}}}\nspec: {{containers: [{{name: a, image: b}}]}}\n"))
            .collect()
    };
    let report = strict(&pods(1000));
    assert!(report.is_ok() && report.pods.len() == 1000);
    let report = strict(&pods(1002));
    assert_eq!(report.errors.len(), 1, "{report}");
    assert!(report.errors[0].to_string().contains("Too many: a manifest may hold at most 1000 pods"), "{report}");
}

#[test]
fn problems_are_limited_and_the_rest_counted() {
    let fields: String = (0..150).map(|index| format!("k{index}: 1\n")).collect();
    let report = strict(&pod("", &fields));
    assert_eq!((report.errors.len(), report.omitted), (100, 50));
    assert!(report.to_string().ends_with("and 50 more\n"), "{report}");
    let report = strict(&format!("{fields}{}", pod("", "")));
    assert_eq!((report.errors.len(), report.omitted), (100, 50));
    let report = strict(&pod(&"hostname: a\n".repeat(151), ""));
    assert_eq!((report.errors.len(), report.omitted), (100, 50));
    let labels: String = (0..150).map(|index| format!("-{index}: a, ")).collect();
    let report = strict(&pod("", "").replace("{name: web}", &format!("{{name: web, labels: {{{labels}}}}}")));
    assert_eq!((report.errors.len(), report.omitted), (100, 50));
    let gates = format!("readinessGates: [{}]", vec!["{}"; 60].join(","));
    let report = strict(&pod(&format!("{gates}\nvolumes: [{}]", vec!["{name: A}"; 60].join(",")), ""));
    assert_eq!((report.errors.len(), report.omitted), (100, 79));
    assert_eq!(report.warnings.len(), 60);
    // Over all documents of a manifest it is a thousand.
    let report = strict(&"---\na: 1\n".repeat(1200));
    assert_eq!((report.errors.len(), report.omitted), (1000, 200));
    // And a hundred documents that cannot even be read.
    assert_eq!(strict(&"---\n]\n".repeat(200)).errors.len(), 100);
}

/// No input makes it panic: mutations of a manifest that has a bit of everything, from a fixed seed.
#[test]
fn nothing_panics() {
    let seed = include_bytes!("../fixtures/fix-1-restart-all.yaml");
    let pieces: [&[u8]; 16] = [
        b"&a ",
        b"*a",
        b"<<: ",
        b"[",
        b"]",
        b"{",
        b"}",
        b": ",
        b"- ",
        b"\n",
        b"'",
        b"\"",
        b"\xff",
        b"!!int ",
        b"99999999999",
        b"---\n",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for _ in 0..3000 {
        let mut bytes = seed.to_vec();
        for _ in 0..1 + random(6) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = random(256) as u8,
                1 => drop(bytes.drain(at..(at + random(20)).min(bytes.len()))),
                2 => bytes.truncate(at.max(1)),
                _ => drop(bytes.splice(at..at, pieces[random(pieces.len())].iter().copied())),
            }
            if bytes.is_empty() {
                bytes.push(b'a');
            }
        }
        let report = read(&bytes);
        assert!(!report.errors.is_empty() || !report.pods.is_empty());
    }
}
