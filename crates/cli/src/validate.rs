//! `keelet validate`: are these pods good, and if not, what is wrong where.

mod json;
mod text;

use std::path::PathBuf;

use anyhow::Context;
use keelet_pod::{Features, Pod, Report, Strictness, read_manifest};

use crate::{
    exit::ExitStatus,
    feature_gates::FeatureGateArgs,
    format::Format,
    manifest::{self, ManifestFile, UnreadableManifest},
    output,
    style::Style,
};

/// Check pod manifests without running them
///
/// Reads v1 Pods (YAML or JSON, one or more documents, Lists too) and reports everything that is wrong with them, not
/// only the first mistake: file, line, column, field, value, and what is allowed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 all valid, 1 something is invalid, 2 wrong usage or an unreadable file.\n\n\
                        Examples:\n  keelet validate pod.yaml\n  keelet validate manifests/ -o json\n  \
                        kubectl get pod web -o yaml | keelet validate --lenient -")]
pub struct Args {
    /// Manifests: files, directories (their *.yaml, *.yml and *.json), or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
    /// Accept unknown fields and repeated keys with a warning
    #[arg(long)]
    lenient: bool,
    #[command(flatten)]
    feature_gates: FeatureGateArgs,
}

/// One manifest and what came of it.
struct Outcome {
    file: String,
    result: Result<Report, UnreadableManifest>,
}

/// Manifests that are not all valid: the report of `keelet validate` on them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidManifests(pub(crate) String);

/// Validates what the arguments name and prints the result.
pub fn run(args: &Args) -> anyhow::Result<ExitStatus> {
    let resolution = args.feature_gates.resolve()?;
    for warning in &resolution.warnings {
        output::warning(&warning.to_string());
    }
    let strictness = if args.lenient { Strictness::Lenient } else { Strictness::Strict };
    let manifests = args.files.iter().flat_map(|argument| manifest::manifests(argument));
    let outcomes: Vec<_> = manifests.map(|manifest| validate(manifest, strictness, &resolution.features)).collect();
    let printed = match args.output {
        Format::Text => text::render(&outcomes, Style::of_stdout()),
        Format::Json => json::render(&outcomes),
    };
    output::out(&printed).context("cannot write the result")?;
    Ok(outcomes.iter().map(Outcome::status).max().unwrap_or(ExitStatus::Success))
}

/// The pods of these files with the file of each, and warnings about them; or everything that is wrong, as `keelet
/// validate` says it.
pub(crate) fn pods(files: &[PathBuf], features: &Features) -> Result<(Vec<(String, Pod)>, String), InvalidManifests> {
    let manifests = files.iter().flat_map(|argument| manifest::manifests(argument));
    let outcomes: Vec<_> = manifests.map(|manifest| validate(manifest, Strictness::Strict, features)).collect();
    if outcomes.iter().any(|outcome| outcome.status() != ExitStatus::Success) {
        return Err(InvalidManifests(text::render(&outcomes, Style::Plain)));
    }
    let warnings =
        outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok()).flat_map(|report| &report.warnings);
    let warnings = warnings.map(|problem| format!("warning: {problem}\n")).collect();
    let pods = outcomes.into_iter().flat_map(|Outcome { file, result }| {
        let pods = result.map(|report| report.pods).unwrap_or_default();
        pods.into_iter().map(move |pod| (file.clone(), pod))
    });
    Ok((pods.collect(), warnings))
}

fn validate(manifest: ManifestFile, strictness: Strictness, features: &Features) -> Outcome {
    let file = manifest.origin.name().to_owned();
    let result = manifest.bytes.map(|bytes| read_manifest(&bytes, &manifest.origin, strictness, features));
    Outcome { file, result }
}

// === impl Outcome ===

impl Outcome {
    fn status(&self) -> ExitStatus {
        match &self.result {
            Err(_) => ExitStatus::Usage,
            Ok(report) if report.is_ok() => ExitStatus::Success,
            Ok(_) => ExitStatus::Failure,
        }
    }
}
