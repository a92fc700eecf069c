//! Inputs with several parts: people can write them as seeds, and a fuzzer can move, drop and repeat the parts.

/// What stands between two parts.
const BORDER: &[u8] = b"\n%%\n";

/// The parts of an input; at most this many, the last one with all the rest.
pub fn split(input: &[u8], most: usize) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = input;
    while parts.len() + 1 < most {
        let Some(at) = rest.windows(BORDER.len()).position(|window| window == BORDER) else { break };
        parts.push(&rest[..at]);
        rest = &rest[at + BORDER.len()..];
    }
    parts.push(rest);
    parts
}

/// The first line of a part, as text, and what follows it.
pub fn title(part: &[u8]) -> (String, &[u8]) {
    let end = part.iter().position(|byte| *byte == b'\n').unwrap_or(part.len());
    let rest = part.get(end + 1..).unwrap_or_default();
    (String::from_utf8_lossy(&part[..end]).into_owned(), rest)
}
