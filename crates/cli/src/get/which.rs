//! Which things are meant by a name. Pure.

use keelet_image::full_name;
use keelet_serve::api::Image;
use serde_json::Value;

/// A thing and what it is called.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Thing {
    pub(super) called: Called,
    pub(super) object: Value,
}

/// How a thing is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// By the one name it has.
    Name(String),
    /// By any of its full names, by what is short for one, or by the beginning of its ID.
    Image { names: Vec<String>, id: String },
}

/// As many digits of an ID as the runtime takes for one too; fewer are more likely a name.
const FEWEST_DIGITS: usize = 12;

/// The beginning of an ID that several images share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("image ID prefix {asked:?} is ambiguous: {images} images match")]
pub(super) struct AmbiguousId {
    asked: String,
    images: usize,
}

/// The indices of the things that are meant by a name. The error says why that is not known.
pub(super) fn meant(things: &[Thing], asked: &str) -> Result<Vec<usize>, AmbiguousId> {
    let full = full_name(asked);
    let is_called = |thing: &Thing| match &thing.called {
        Called::Name(name) => name == asked,
        Called::Image { names, .. } => names.iter().any(|name| name == asked || Some(name) == full.as_ref()),
    };
    let named: Vec<usize> = (0..things.len()).filter(|index| is_called(&things[*index])).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let digits = asked.strip_prefix("sha256:").unwrap_or(asked);
    if digits.len() < FEWEST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Vec::new());
    }
    let begins = |thing: &Thing| match &thing.called {
        Called::Name(_) => false,
        Called::Image { id, .. } => id.strip_prefix("sha256:").unwrap_or(id).starts_with(digits),
    };
    let beginning: Vec<usize> = (0..things.len()).filter(|index| begins(&things[*index])).collect();
    match beginning.len() {
        0 | 1 => Ok(beginning),
        several => Err(AmbiguousId { asked: asked.to_owned(), images: several }),
    }
}

// === impl Called ===

impl Called {
    pub(super) fn image(image: &Image) -> Self {
        let names = image.tags.iter().chain(&image.digests).cloned().collect();
        Self::Image { names, id: image.id.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, tags: &[&str], digests: &[&str]) -> Thing {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let image = Image { id: id.to_owned(), tags: own(tags), digests: own(digests), ..Image::default() };
        Thing { called: Called::image(&image), object: Value::Null }
    }

    #[test]
    fn an_image_is_found_by_every_name_it_has() {
        let digest = format!("sha256:{}", "d".repeat(64));
        let by_digest = format!("docker.io/library/busybox@{digest}");
        let things = [
            image("sha256:0123456789abcdef", &["docker.io/library/busybox:1", "docker.io/library/busybox:latest"], &[]),
            image("sha256:0123456789abff00", &["reg:5000/app:2"], &[&by_digest]),
        ];
        for (asked, expected) in [
            ("docker.io/library/busybox:1", &[0][..]),
            ("docker.io/library/busybox:latest", &[0]),
            ("busybox", &[0]),
            ("busybox:1", &[0]),
            ("busybox:2", &[]),
            ("reg:5000/app:2", &[1]),
            ("app:2", &[]),
            (&by_digest, &[1]),
            (&format!("busybox@{digest}"), &[1]),
            ("sha256:0123456789abcdef", &[0]),
            ("0123456789abc", &[0]),
            ("0123456789abf", &[1]),
            ("0123456", &[]),
        ] {
            assert_eq!(meant(&things, asked).unwrap(), expected, "{asked}");
        }
        let error = meant(&things, "0123456789ab").unwrap_err().to_string();
        assert_eq!(error, "image ID prefix \"0123456789ab\" is ambiguous: 2 images match");
    }

    #[test]
    fn anything_else_has_one_name() {
        let things =
            ["web", "0123456789abcdef"].map(|name| Thing { called: Called::Name(name.into()), object: Value::Null });
        assert_eq!(meant(&things, "web"), Ok(vec![0]));
        assert_eq!(meant(&things, "0123456789ab"), Ok(Vec::new()));
    }
}
