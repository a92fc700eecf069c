//! The choice of the image for this machine.

use std::fmt;

use serde::Deserialize;

/// Operating system, processor and its variant, in the words that images use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// `linux`
    #[serde(default)]
    pub os: String,
    /// `amd64`, `arm64`, ...
    #[serde(default)]
    pub architecture: String,
    /// `v8`, `v7`, ... or empty
    #[serde(default)]
    pub variant: String,
}

// === impl Platform ===

impl Platform {
    /// The machine this runs on.
    pub fn of_this_machine() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: String::new() }
    }

    /// Whether an image for `other` runs here. An image without a platform is assumed to run.
    pub(crate) fn runs(&self, other: &Self) -> bool {
        let same = |mine: &str, theirs: &str| theirs.is_empty() || mine == theirs;
        same(&self.os, &other.os) && same(&self.architecture, &other.architecture) && self.runs_variant(&other.variant)
    }

    /// Only base variants are accepted, because higher ones need processor features that are not checked.
    fn runs_variant(&self, variant: &str) -> bool {
        match self.architecture.as_str() {
            _ if variant.is_empty() || variant == self.variant => true,
            "amd64" => variant == "v1",
            "arm64" => variant == "v8",
            "arm" => matches!(variant, "v5" | "v6" | "v7"),
            _ => false,
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &'static str, value: &str| if value.is_empty() { text.to_owned() } else { value.to_owned() };
        write!(f, "{}/{}", or("any", &self.os), or("any", &self.architecture))?;
        if self.variant.is_empty() { Ok(()) } else { write!(f, "/{}", self.variant) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Platform { os: next(), architecture: next(), variant: next() }
    }

    #[test]
    fn an_image_runs_on_its_own_platform_and_base_variants_only() {
        let amd64 = platform("linux/amd64");
        for fits in ["linux/amd64", "linux/amd64/v1", "", "linux/"] {
            assert!(amd64.runs(&platform(fits)), "{fits}");
        }
        for other in ["linux/arm64", "windows/amd64", "linux/amd64/v3", "unknown/unknown"] {
            assert!(!amd64.runs(&platform(other)), "{other}");
        }
        assert!(platform("linux/arm64").runs(&platform("linux/arm64/v8")));
        assert!(!platform("linux/arm64").runs(&platform("linux/arm64/v9")));
    }
}
