//! Digests: the container hash the kubelet stores, the resources digest, the UID of a manifest.

use k8s_openapi::api::core::v1;

/// The hash under `io.kubernetes.container.hash`: FNV-1a of name and image, over the text that Go's `%#v`-like
/// dump of the JSON bytes yields, so that a node changes agents without restarting its containers.
pub(crate) fn container_hash(name: &str, image: &str) -> u32 {
    let json = format!("{{\"image\":{},\"name\":{}}}", go_string(image), go_string(name));
    let bytes: Vec<_> = json.bytes().map(|byte| byte.to_string()).collect();
    fnv1a_32(format!("([]uint8)[{}]", bytes.join(" ")).as_bytes())
}

/// A digest of a container's resources: maps are sorted, so equal resources digest equally.
pub(crate) fn resources_digest(resources: Option<&v1::ResourceRequirements>) -> u32 {
    let json = resources.map(serde_json::to_vec).and_then(Result::ok).unwrap_or_default();
    fnv1a_32(&json)
}

/// A UID for a pod that has none from an API server: 32 hex digits, as the kubelet makes them for static pods. It
/// follows from the content, in whatever layout, and from nothing else: a file that is renamed or copied asks for the
/// same pod.
pub(crate) fn manifest_uid(pod: &v1::Pod) -> String {
    format!("{:032x}", fnv1a_128(&serde_json::to_vec(pod).unwrap_or_default()))
}

/// A JSON string as Go's encoder writes it: it escapes what HTML would interpret, and the two line separators.
fn go_string(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn fnv1a_128(bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::{container_hash, fnv1a_32, fnv1a_128, go_string};

    #[test]
    fn container_hash_is_the_kubelets() {
        assert_eq!(format!("{:x}", container_hash("test_container", "foo/image:v1")), "8e45cbd0");
    }

    /// The published test vectors of the function.
    #[test]
    fn fnv_vectors() {
        assert_eq!(fnv1a_32(b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a_32(b"foobar"), 0xbf9c_f968);
        assert_eq!(fnv1a_128(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a_128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn strings_are_escaped_as_go_does() {
        assert_eq!(go_string("a<b>&c\u{2028}\u{2029}\"é"), r#""a\u003cb\u003e\u0026c\u2028\u2029\"é""#);
    }
}
