//! The version of the running kernel.

/// Major and minor version; none if the release is not a version.
pub fn version() -> Option<(u32, u32)> {
    parse(&release())
}

/// The release, such as `6.1.0-18-amd64`.
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next().and_then(|part| part.parse().ok()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_release_begins_with_the_version() {
        for (release, version) in
            [("6.1.0-18-amd64", (6, 1)), ("6.18.44-fc", (6, 18)), ("10.0", (10, 0)), ("7", (7, 0)), ("6.9", (6, 9))]
        {
            assert_eq!(parse(release), Some(version), "{release}");
        }
        for release in ["6.14.9-generic", "6.9", "5.19.0", "6", "", "linux"] {
            assert!(parse(release).is_none_or(|version| version < (6, 15)), "{release}");
        }
        for release in ["", "linux", ".6.1"] {
            assert_eq!(parse(release), None, "{release}");
        }
    }
}
