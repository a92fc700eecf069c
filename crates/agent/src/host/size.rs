//! Sizes: `64Mi` in bytes.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Suffix and factor, whole numbers first; the fractions of a byte come last.
const SUFFIXES: [(&str, f64); 16] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("m", 1e-3),
    ("u", 1e-6),
    ("n", 1e-9),
    ("", 1.0),
];

/// A validated amount as whole bytes, rounded up. `None` for what is no amount.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    let (number, factor) = SUFFIXES.iter().find_map(|(suffix, factor)| {
        let number = quantity.0.strip_suffix(suffix)?;
        // An exponent is part of the number: Rust reads it as the API does.
        Some((number.parse::<f64>().ok()?, factor))
    })?;
    let bytes = (number * factor).ceil();
    // Beyond 2^53 a tmpfs does not care for the last byte; beyond 2^64 the conversion saturates.
    (bytes >= 0.0).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_bytes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("64Mi", Some(64 << 20)),
            ("1.5Gi", Some(3 << 29)),
            ("2k", Some(2000)),
            ("1e3", Some(1000)),
            ("1E3", Some(1000)),
            ("5E", Some(5_000_000_000_000_000_000)),
            ("1500m", Some(2)),
            ("1n", Some(1)),
            ("999Ei", Some(u64::MAX)),
            ("-1", None),
            ("Mi", None),
            ("", None),
            ("NaN", None),
        ] {
            assert_eq!(bytes(&Quantity(text.to_owned())), expected, "{text}");
        }
    }
}
