//! Manifests as they lie in a directory of static pods: any bytes.
//!
//! A manifest yields pods or problems. Every problem has its place. A pod that was accepted, written down again and read
//! again, as a manifest and out of the ledger, is the same pod. Being lenient accepts at least what being strict does.

#![no_main]

use keelet_pod::{Features, Kind, Origin, Pod, Problem, Report, Severity, Strictness, read_manifest};
use libfuzzer_sys::fuzz_target;

const FILE: &str = "pod.yaml";

fuzz_target!(|manifest: &[u8]| {
    let strict = read(manifest, Strictness::Strict);
    let lenient = read(manifest, Strictness::Lenient);
    for report in [&strict, &lenient] {
        check_places(report, manifest);
        assert!(report.is_ok() || !report.errors.is_empty());
    }
    if strict.is_ok() {
        assert!(lenient.is_ok(), "only strictly right: {lenient}");
        assert_eq!(strict.pods, lenient.pods);
    }
    lenient.pods.iter().for_each(check_round_trips);
});

fn read(manifest: &[u8], strictness: Strictness) -> Report {
    read_manifest(manifest, &Origin::file(FILE), strictness, &Features::default())
}

fn check_places(report: &Report, manifest: &[u8]) {
    let breaks = manifest.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
    let all = report.errors.iter().chain(&report.warnings);
    for problem in all {
        let Problem { line, column, kind, severity, .. } = problem;
        let told = problem.to_string();
        assert!(told.starts_with(FILE) && told.len() > FILE.len() + 2, "{told:?}");
        assert_eq!(line.is_some(), column.is_some(), "{told}");
        // Only of a file as a whole there is nothing to point at.
        assert!(line.is_some() || *kind == Kind::Syntax, "{told}");
        assert!(line.is_none_or(|line| (1..=breaks as u32 + 1).contains(&line)), "{told}: {breaks} line breaks");
        assert!(column.is_none_or(|column| column >= 1), "{told}");
        let expected = if report.errors.contains(problem) { Severity::Error } else { Severity::Warning };
        assert_eq!(*severity, expected, "{told}");
    }
}

fn check_round_trips(pod: &Pod) {
    let json = pod.to_json().expect("an accepted pod can be written down");
    let kept = Pod::from_json(json.clone(), &Features::default());
    assert_eq!(kept.as_ref().ok(), Some(pod), "out of the ledger: {:?}", kept.as_ref().err());
    let again = read(json.to_string().as_bytes(), Strictness::Lenient);
    assert!(again.is_ok(), "{again}");
    assert_eq!(again.pods.as_slice(), std::slice::from_ref(pod), "as a manifest");
}
