//! The reader against archives of another writer, and against broken ones.

use std::io::Write as _;

use super::*;

/// Writes an archive with the `tar` crate.
fn archive(fill: impl FnOnce(&mut ::tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(Vec::new());
    fill(&mut builder);
    builder.into_inner().unwrap()
}

fn header(kind: ::tar::EntryType, size: u64) -> ::tar::Header {
    let mut header = ::tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(1);
    header.set_gid(2);
    header.set_mtime(3);
    header
}

fn file(builder: &mut ::tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = header(::tar::EntryType::Regular, content.len() as u64);
    builder.append_data(&mut header, name, content).unwrap();
}

/// A raw entry with a name that no sane writer would take.
fn raw(kind: u8, name: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = header(::tar::EntryType::new(kind), content.len() as u64);
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.write_all(content).unwrap();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut content = Vec::new();
    for (key, value) in records {
        let rest = 1 + key.len() + 1 + value.len() + 1;
        let length = (1..).find(|digits| (rest + digits).to_string().len() == *digits).unwrap() + rest;
        content.extend_from_slice(format!("{length} {key}=").as_bytes());
        content.extend_from_slice(value);
        content.push(b'\n');
    }
    raw(b'x', b"pax", &content)
}

type Summary = (String, Kind, Vec<u8>);

fn read(bytes: &[u8]) -> Result<Vec<Summary>, (Fault, String)> {
    let mut reader = Reader::new(bytes);
    let mut entries = Vec::new();
    loop {
        match reader.next_entry() {
            Ok(None) => return Ok(entries),
            Ok(Some(entry)) => {
                let mut content = Vec::new();
                if let Err(error) = reader.read_to_end(&mut content) {
                    return Err((Fault::from_io("read", error), String::from_utf8_lossy(reader.place()).into()));
                }
                entries.push((String::from_utf8(entry.name).unwrap(), entry.kind, content));
            }
            Err(fault) => return Err((fault, String::from_utf8_lossy(reader.place()).into())),
        }
    }
}

#[test]
fn entries_come_with_names_kinds_and_content() {
    let long = "d/".repeat(120) + "file";
    let bytes = archive(|builder| {
        file(builder, "a", b"content");
        file(builder, &long, b"long");
        builder.append_link(&mut header(::tar::EntryType::Symlink, 0), "link", "target").unwrap();
        builder.append_data(&mut header(::tar::EntryType::Directory, 0), "dir/", &b""[..]).unwrap();
    });
    let entries = read(&bytes).unwrap();
    assert_eq!(entries[0], ("a".into(), Kind::File, b"content".to_vec()));
    assert_eq!(entries[1], (long, Kind::File, b"long".to_vec()));
    assert_eq!((entries[2].1, entries[3].1), (Kind::Symlink, Kind::Directory));
    assert_eq!(entries.len(), 4);
}

#[test]
fn extended_headers_win_and_attributes_are_kept() {
    let bytes = [
        pax(&[
            ("path", b"real/name"),
            ("uid", b"70000"),
            ("mtime", b"9.5"),
            ("SCHILY.xattr.user.a", b"b\0c"),
            ("size", b"3"),
        ]),
        raw(b'0', b"short", b"abc"),
    ]
    .concat();
    let mut reader = Reader::new(&bytes[..]);
    let entry = reader.next_entry().unwrap().unwrap();
    assert_eq!(entry.name, b"real/name");
    assert_eq!((entry.uid, entry.gid, entry.mtime, entry.size), (70000, 2, (9, 500_000_000), 3));
    assert_eq!(entry.xattrs["user.a"], b"b\0c");
    assert!(reader.next_entry().unwrap().is_none());
}

#[test]
fn both_modern_forms_of_sparse_files_give_the_same_map() {
    let in_header =
        [pax(&[("GNU.sparse.size", b"5000"), ("GNU.sparse.map", b"0,3,4096,2")]), raw(b'0', b"x", b"abcde")].concat();
    let mut leading = b"2\n0\n3\n4096\n2\n".to_vec();
    leading.resize(512, 0);
    leading.extend_from_slice(b"abcde");
    let in_content = [
        pax(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"x"),
            ("GNU.sparse.realsize", b"5000"),
        ]),
        raw(b'0', b"GNUSparseFile.0/x", &leading),
    ]
    .concat();
    for bytes in [in_header, in_content] {
        let mut reader = Reader::new(&bytes[..]);
        let entry = reader.next_entry().unwrap().unwrap();
        assert_eq!((entry.name.as_slice(), entry.size), (&b"x"[..], 5000));
        assert_eq!(entry.extents, [Extent { offset: 0, length: 3 }, Extent { offset: 4096, length: 2 }]);
        let mut content = Vec::new();
        reader.read_to_end(&mut content).unwrap();
        assert_eq!(content, b"abcde");
    }
}

#[test]
fn a_sparse_file_of_gnu_tar_is_read_with_its_holes() {
    let place = tempfile::tempdir().unwrap();
    let holes = std::fs::File::create(place.path().join("holes")).unwrap();
    for block in 0..40 {
        std::os::unix::fs::FileExt::write_all_at(&holes, &[7; 4096], block * 65536).unwrap();
    }
    holes.set_len(40 * 65536).unwrap();
    for format in ["gnu", "posix"] {
        let made = tempfile::NamedTempFile::new().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test may wait for its own child")]
        let status = std::process::Command::new("tar")
            .args(["--sparse", &format!("--format={format}"), "-cf"])
            .arg(made.path())
            .arg("-C")
            .arg(place.path())
            .arg("holes")
            .status();
        if !status.is_ok_and(|status| status.success()) {
            keelet_report::skipped("there is no GNU tar");
            return;
        }
        let bytes = std::fs::read(made.path()).unwrap();
        let mut reader = Reader::new(&bytes[..]);
        let entry = reader.next_entry().unwrap().unwrap();
        assert_eq!((entry.name.as_slice(), entry.size), (&b"holes"[..], 40 * 65536), "{format}");
        let stored: u64 = entry.extents.iter().map(|extent| extent.length).sum();
        assert_eq!(stored, 40 * 4096, "{format}");
        assert!(reader.next_entry().unwrap().is_none());
    }
}

#[test]
fn broken_archives_are_refused_with_the_place() {
    let good = raw(b'0', b"name", b"content");
    let zeros = [0; 1024];
    let mut wrong_sum = good.clone();
    wrong_sum[0] ^= 1;
    let mut huge = raw(b'L', b"long", b"");
    huge[124..136].copy_from_slice(b"77777777777\0");
    let fix = |mut bytes: Vec<u8>| {
        bytes[148..156].copy_from_slice(b"        ");
        let sum: u32 = bytes[..512].iter().map(|byte| u32::from(*byte)).sum();
        bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes
    };
    let mut bad_uid = good.clone();
    bad_uid[108..116].copy_from_slice(b"notoctal");
    let table: Vec<(&str, Vec<u8>, &str, &str)> = vec![
        ("cut in content", good[..515].to_vec(), "ends in the middle", "name"),
        ("cut in padding", good[..700].to_vec(), "ends in the middle", "name"),
        ("cut in header", good[..100].to_vec(), "ends in the middle", "offset 0"),
        ("checksum", wrong_sum, "checksum", "offset 0"),
        ("garbage after end", [&good[..], &zeros[..], b"garbage"].concat(), "after the end", "offset 1024"),
        ("long name of 8 GiB", fix(huge), "too long", "offset 0"),
        ("uid", fix(bad_uid), "invalid uid", "name"),
        ("uid of minus one", [pax(&[("uid", b"4294967295")]), good.clone()].concat(), "uid", "offset 0"),
        ("size below zero", [pax(&[("size", b"-1")]), good.clone()].concat(), "size", "offset 0"),
        ("type", raw(b'Z', b"odd", b""), "entry type 'Z'", "odd"),
        ("link with content", raw(b'2', b"link", b"x"), "symbolic link with 1 bytes", "link"),
        (
            "two long names",
            [raw(b'L', b"l", b"a"), raw(b'L', b"l", b"b"), good.clone()].concat(),
            "two long names",
            "offset 1024",
        ),
        ("name for nothing", raw(b'L', b"l", b"a"), "ends in the middle", "offset 1024"),
        (
            "sparse map overlaps",
            [pax(&[("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"0,4,2,3")]), good.clone()].concat(),
            "overlap",
            "name",
        ),
        (
            "sparse map too long",
            [pax(&[("GNU.sparse.size", b"3"), ("GNU.sparse.map", b"0,7")]), good.clone()].concat(),
            "behind the end",
            "name",
        ),
        (
            "sparse map too short",
            [pax(&[("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"0,6")]), good.clone()].concat(),
            "not as long",
            "name",
        ),
        (
            "sparse overflow",
            [pax(&[("GNU.sparse.size", b"9"), ("GNU.sparse.map", b"1,18446744073709551615")]), good].concat(),
            "ends nowhere",
            "name",
        ),
    ];
    for (case, bytes, message, place) in table {
        let (fault, at) = read(&bytes).expect_err(case);
        assert!(fault.to_string().contains(message), "{case}: {fault}");
        assert_eq!(at, place, "{case}");
    }
}

#[test]
fn an_archive_without_its_end_mark_is_whole_if_its_last_entry_is() {
    assert_eq!(read(&raw(b'0', b"name", b"content")).unwrap().len(), 1);
    assert_eq!(read(b"").unwrap().len(), 0);
}

/// A small generator, so that a failure can be repeated.
struct Noise(u64);

impl Noise {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

#[test]
fn whatever_is_changed_in_an_archive_the_reader_neither_panics_nor_hangs() {
    let mut leading = b"2\n0\n3\n4096\n2\n".to_vec();
    leading.resize(512, 0);
    leading.extend_from_slice(b"abcde");
    let original = [
        raw(b'5', b"dir/", b""),
        raw(b'L', b"long", &[b'n'; 200]),
        raw(b'0', b"file", &[1; 700]),
        pax(&[("path", b"p"), ("uid", b"7"), ("mtime", b"1.5"), ("SCHILY.xattr.user.a", b"b")]),
        raw(b'0', b"file", b"content"),
        pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.name", b"x"), ("GNU.sparse.realsize", b"5000")]),
        raw(b'0', b"sparse", &leading),
        raw(b'3', b"device", b""),
        raw(b'1', b"hard", b""),
        vec![0; 1024],
    ]
    .concat();
    assert!(read(&original).is_ok());
    let interesting = [0, 1, b'0', b'7', b'9', b' ', b'\n', b'=', b'-', 0x80, 0xff];
    let mut noise = Noise(1);
    let mut refused = 0;
    for _ in 0..4000 {
        let mut changed = original.clone();
        for _ in 0..=noise.next(4) {
            let at = noise.next(changed.len());
            changed[at] = interesting[noise.next(interesting.len())];
        }
        // Most changes would only break a checksum; set them right so that the fields themselves are read.
        for block in changed.chunks_exact_mut(512) {
            if &block[257..262] == b"ustar" {
                block[148..156].copy_from_slice(b"        ");
                let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
                block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        if noise.next(4) == 0 {
            changed.truncate(noise.next(original.len()));
        }
        let mut reader = Reader::new(&changed[..]);
        let mut entries = 0;
        loop {
            match reader.next_entry() {
                Ok(Some(_)) => entries += 1,
                Ok(None) => break,
                Err(_) => {
                    refused += 1;
                    break;
                }
            }
            assert!(entries < 100);
        }
    }
    assert!(refused > 1000, "{refused}");
}
