//! Headers that say more about the next entry: GNU long names and POSIX extended records.

use std::collections::BTreeMap;

use super::header::owner;
use crate::error::Fault;

/// What extended headers said about the entry to come. It wins over the entry's own header.
#[derive(Default)]
pub(super) struct Extended {
    pub(super) name: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) xattrs: BTreeMap<String, Vec<u8>>,
    pub(super) sparse_size: Option<u64>,
    /// the map of the form that keeps it here; the other one has it before the content
    pub(super) sparse_map: Option<Vec<u8>>,
    seen_long_name: bool,
    seen_long_link: bool,
    seen_pax: bool,
}

/// Splits `LENGTH KEY=VALUE\n` records. The length counts all of the record.
fn records(mut bytes: &[u8]) -> Result<Vec<(&str, &[u8])>, Fault> {
    const WRONG: Fault = Fault::Extended("a record that is not LENGTH KEY=VALUE");
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ').ok_or(WRONG)?;
        let length: usize =
            std::str::from_utf8(&bytes[..space]).ok().and_then(|text| text.parse().ok()).ok_or(WRONG)?;
        if length <= space + 1 || length > bytes.len() || bytes[length - 1] != b'\n' {
            return Err(WRONG);
        }
        let record = &bytes[space + 1..length - 1];
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(WRONG)?;
        let key = std::str::from_utf8(&record[..equals]).map_err(|_| WRONG)?;
        records.push((key, &record[equals + 1..]));
        bytes = &bytes[length..];
    }
    Ok(records)
}

fn decimal(value: &[u8], field: &'static str) -> Result<i64, Fault> {
    let wrong = || Fault::Number { field, value: String::from_utf8_lossy(value).into_owned() };
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)
}

fn size(value: &[u8], field: &'static str) -> Result<u64, Fault> {
    let number = decimal(value, field)?;
    u64::try_from(number).map_err(|_| Fault::Number { field, value: number.to_string() })
}

/// Seconds with a fraction, `-1.5` among them, as whole seconds downwards and nanoseconds upwards.
fn time(value: &[u8]) -> Result<(i64, u32), Fault> {
    let wrong = || Fault::Number { field: "mtime", value: String::from_utf8_lossy(value).into_owned() };
    let text = std::str::from_utf8(value).map_err(|_| wrong())?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().map_err(|_| wrong())?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse().map_err(|_| wrong())?;
    if whole.starts_with('-') && nanoseconds > 0 {
        return Ok((seconds.checked_sub(1).ok_or_else(wrong)?, 1_000_000_000 - nanoseconds));
    }
    Ok((seconds, nanoseconds))
}

fn without_end(mut name: Vec<u8>) -> Vec<u8> {
    if let Some(end) = name.iter().position(|byte| *byte == 0) {
        name.truncate(end);
    }
    name
}

// === impl Extended ===

impl Extended {
    pub(super) fn set_long_name(&mut self, name: Vec<u8>) -> Result<(), Fault> {
        if std::mem::replace(&mut self.seen_long_name, true) {
            return Err(Fault::Extended("two long names for one entry"));
        }
        self.name.get_or_insert(without_end(name));
        Ok(())
    }

    pub(super) fn set_long_link(&mut self, link: Vec<u8>) -> Result<(), Fault> {
        if std::mem::replace(&mut self.seen_long_link, true) {
            return Err(Fault::Extended("two long link names for one entry"));
        }
        self.link.get_or_insert(without_end(link));
        Ok(())
    }

    pub(super) fn set_pax(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if std::mem::replace(&mut self.seen_pax, true) {
            return Err(Fault::Extended("two extended headers for one entry"));
        }
        for (key, value) in records(bytes)? {
            match key {
                // The name of a sparse file is the one to use; `path` is a stand-in for readers that do not know.
                "path" if self.sparse_size.is_some() && self.name.is_some() => {}
                "path" | "GNU.sparse.name" => self.name = Some(value.to_vec()),
                "linkpath" => self.link = Some(value.to_vec()),
                "size" => self.size = Some(size(value, "size")?),
                "uid" => self.uid = Some(owner(decimal(value, "uid")?, "uid")?),
                "gid" => self.gid = Some(owner(decimal(value, "gid")?, "gid")?),
                "mtime" => self.mtime = Some(time(value)?),
                "GNU.sparse.realsize" | "GNU.sparse.size" => self.sparse_size = Some(size(value, "sparse size")?),
                "GNU.sparse.map" => self.sparse_map = Some(value.to_vec()),
                "GNU.sparse.offset" | "GNU.sparse.numbytes" => {
                    return Err(Fault::Sparse("version 0.0 is not supported, 0.1 and 1.0 are"));
                }
                _ => {
                    if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
                        self.xattrs.insert(name.to_owned(), value.to_vec());
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split_by_their_lengths() {
        assert_eq!(records(b"9 a=b\nc=\n").ok(), Some(vec![("a", &b"b\nc="[..])]));
        assert_eq!(records(b"6 a=b\n7 cd=e\n").map(|records| records.len()).ok(), Some(2));
        for wrong in
            [&b"x"[..], b"6 a=b", b"5 a=b\n", b"7 a=b\n", b"6 a:b\n", b"0 a=b\n", b"99999999999999999999 a=b\n"]
        {
            assert!(records(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn times_have_fractions_and_lie_before_1970_too() {
        assert_eq!(time(b"12").ok(), Some((12, 0)));
        assert_eq!(time(b"12.5").ok(), Some((12, 500_000_000)));
        assert_eq!(time(b"12.1234567891").ok(), Some((12, 123_456_789)));
        assert_eq!(time(b"-1.25").ok(), Some((-2, 750_000_000)));
        assert_eq!(time(b"-0.5").ok(), Some((-1, 500_000_000)));
        assert!(time(b"1.x").is_err());
        assert!(time(b"").is_err());
    }
}
