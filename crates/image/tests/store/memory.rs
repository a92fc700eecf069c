//! The cost of unpacking: memory and descriptors, whatever a layer contains.
//!
//! Each case runs in a process of its own, which is this test called again: the high-water mark of memory is a process's.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use sha2::{Digest as _, Sha256};

use crate::build::*;

/// What a layer may cost, in KiB.
const BUDGET: u64 = 64 * 1024;
/// Descriptors of the process that unpacks: fewer than the levels of a tree, and room for what a store keeps open.
const DESCRIPTORS: u64 = 128;
/// The variable that passes the working directory to the process that unpacks.
const CHILD: &str = "KEELET_IMAGE_TEST_MEMORY";
/// A path of 2,000 levels is nearly as long as a path may be.
const LEVELS: usize = 2000;

/// What it is called, why it is refused if it is, and what it holds.
type Case = (&'static str, &'static str, Box<dyn Fn(&mut Layer)>);
type Packer = fn(&[u8]) -> Vec<u8>;

/// The cost of importing and removing a layer.
struct Cost {
    kib: u64,
    /// empty if it was taken
    refusal: String,
}

/// A layer on its way to a file.
struct Layer {
    file: BufWriter<File>,
    hash: Sha256,
}

impl Layer {
    fn put(&mut self, entry: Raw) {
        self.write(&entry.bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.file.write_all(bytes).unwrap();
    }
}

/// A field of `/proc/self/status`, in KiB.
fn status(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// The process that unpacks.
fn be_child(place: &Path) {
    let limit = rustix::process::Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let store = store(&place.join("store"));
    let archive = File::open(place.join("archive")).unwrap();
    // From here on the mark counts.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let refusal = match store.import(archive, None) {
        Ok(images) => {
            store.remove(&images[0].id).unwrap();
            String::new()
        }
        Err(error) => error.to_string(),
    };
    let growth = status("VmHWM").saturating_sub(before);
    let left = fs::read_dir(place.join("store/tmp")).unwrap().count()
        + fs::read_dir(place.join("store/layers")).unwrap().count();
    fs::write(place.join("cost"), format!("{growth} {left} {refusal}")).unwrap();
}

/// Imports an image of one layer in a process of its own, called by the test of this name.
#[expect(clippy::disallowed_methods, reason = "a test may wait for its own child")]
fn cost_of(test: &str, case: &str, packed: impl FnOnce(&[u8]) -> Vec<u8>, fill: impl FnOnce(&mut Layer)) -> Cost {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("layer");
    let mut layer = Layer { file: BufWriter::new(File::create(&path).unwrap()), hash: Sha256::new() };
    fill(&mut layer);
    layer.write(&[0; 1024]);
    layer.file.flush().unwrap();
    let diff_id: String = layer.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let platform = keelet_image::Platform::of_this_machine();
    let config = serde_json::json!({
        "architecture": platform.architecture, "os": platform.os, "config": {},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{diff_id}")]},
    });
    let mut archive = tar::Builder::new(BufWriter::new(File::create(place.path().join("archive")).unwrap()));
    let mut add = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content).unwrap();
    };
    add("manifest.json", br#"[{"Config":"c","RepoTags":["hostile:v1"],"Layers":["l"]}]"#);
    add("c", &serde_json::to_vec(&config).unwrap());
    add("l", &packed(&fs::read(&path).unwrap()));
    archive.into_inner().unwrap().flush().unwrap();
    fs::remove_file(&path).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(CHILD, place.path())
        .output()
        .unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let cost = fs::read_to_string(place.path().join("cost"));
    let cost = cost.unwrap_or_else(|_| panic!("{case}: the process that unpacks ended with {}: {told}", output.status));
    let mut parts = cost.splitn(3, ' ');
    let mut next = || parts.next().unwrap().to_owned();
    let (kib, left, refusal) = (next().parse().unwrap(), next(), next());
    assert_eq!(left, "0", "{case}: unfinished work or layers are left in the store: {refusal}");
    Cost { kib, refusal }
}

/// Whether this is a process that [`cost_of`] called.
fn is_child() -> bool {
    let Some(place) = std::env::var_os(CHILD) else { return false };
    be_child(Path::new(&place));
    true
}

fn plain(layer: &[u8]) -> Vec<u8> {
    layer.to_vec()
}

/// An entry with a name as long as a test wants.
fn named(kind: u8, name: &str) -> Raw {
    Raw::new(kind, "x").pax("path", name.as_bytes())
}

/// IMG-1: 60,000 directories below 2,000 levels cost gigabytes when their names are kept, and a descriptor for each level when
/// the tree is measured or removed by keeping the way down open.
#[test]
fn directories_below_thousands_of_levels_cost_neither_memory_nor_descriptors() {
    const TEST: &str = "memory::directories_below_thousands_of_levels_cost_neither_memory_nor_descriptors";
    if is_child() || !is_root() {
        return;
    }
    let deep = "d/".repeat(LEVELS);
    let cost = cost_of(TEST, "deep", plain, |layer| {
        for number in 0..DIRECTORIES {
            layer.put(named(b'5', &format!("{deep}{number:05}")));
        }
    });
    assert_eq!(cost.refusal, "", "deep");
    assert!(cost.kib <= BUDGET, "{DIRECTORIES} directories below {LEVELS} levels cost {} KiB", cost.kib);

    // Links make trees that are deeper than any path is long.
    let cost = cost_of(TEST, "deeper", plain, |layer| {
        let mut top = String::new();
        for link in ["a", "b", "c", "e", "f"] {
            layer.put(named(b'0', &format!("{top}{}file", "d/".repeat(1900))));
            let target = format!("{top}{}", "d/".repeat(1900));
            layer.put(Raw::new(b'2', link).pax("linkpath", target.as_bytes()));
            top = format!("{link}/");
        }
    });
    assert_eq!(cost.refusal, "", "deeper");
    assert!(cost.kib <= BUDGET, "9,500 levels cost {} KiB", cost.kib);
}

/// As many directories below as many levels as a hostile image can have. It takes minutes, so `make test` has fewer.
#[test]
#[ignore = "takes minutes; make soak"]
#[expect(clippy::print_stdout, reason = "the cost is what it is for")]
fn sixty_thousand_directories_below_thousands_of_levels_stay_within_the_budget() {
    const TEST: &str = "memory::sixty_thousand_directories_below_thousands_of_levels_stay_within_the_budget";
    const MANY: usize = 60_000;
    if is_child() || !is_root() {
        return;
    }
    let deep = "d/".repeat(LEVELS);
    // Compressed: the names alone are 240 MB.
    let cost = cost_of(
        TEST,
        "deep",
        |layer| pack(layer, Packing::Gzip),
        |layer| {
            for number in 0..MANY {
                layer.put(named(b'5', &format!("{deep}{number:05}")));
            }
        },
    );
    println!("{MANY} directories below {LEVELS} levels cost {} KiB", cost.kib);
    assert_eq!(cost.refusal, "", "deep");
    assert!(cost.kib <= BUDGET, "{MANY} directories below {LEVELS} levels cost {} KiB", cost.kib);
}

/// IMG-1: what is bounded for one entry stays within the budget when all bounds are used at once.
#[test]
fn entries_at_their_bounds_stay_within_the_budget() {
    const TEST: &str = "memory::entries_at_their_bounds_stay_within_the_budget";
    if is_child() || !is_root() {
        return;
    }
    const MIB: usize = 1 << 20;
    let map = "0,0,".repeat(MIB / 4 - 20);
    let cases: Vec<Case> = vec![
        (
            "records without a value",
            "",
            Box::new(|layer| {
                layer.put(Raw::file("f", "").pax_raw(&b"4 =\n".repeat(MIB / 4)));
            }),
        ),
        (
            "attributes",
            "",
            Box::new(move |layer| {
                let records: Vec<u8> =
                    (0..28_000).flat_map(|number| record(&format!("SCHILY.xattr.skipped.{number}"), b"")).collect();
                layer.put(Raw::file("f", "").pax_raw(&records));
            }),
        ),
        (
            "a map of a sparse file",
            "",
            Box::new(move |layer| {
                let records =
                    [record("GNU.sparse.size", b"0"), record("GNU.sparse.map", map.trim_end_matches(',').as_bytes())]
                        .concat();
                layer.put(Raw::file("f", "").pax_raw(&records));
            }),
        ),
        (
            "global headers",
            "",
            Box::new(|layer| {
                for _ in 0..40 {
                    layer.put(Raw::new(b'g', "g").content(&record("comment", &vec![b'x'; MIB - 30])));
                }
            }),
        ),
        (
            "a name of 64 KiB",
            "too long",
            Box::new(|layer| {
                layer.put(Raw::new(b'L', "x").content("d/".repeat(32 * 1024).as_bytes()));
                layer.put(Raw::file("f", ""));
            }),
        ),
        (
            "a link of 64 KiB",
            "too long",
            Box::new(|layer| {
                layer.put(Raw::new(b'K', "x").content("d/".repeat(32 * 1024).as_bytes()));
                layer.put(Raw::symlink("l", "x"));
            }),
        ),
    ];
    for (case, refusal, fill) in cases {
        let cost = cost_of(TEST, case, plain, |layer| fill(layer));
        let as_expected = if refusal.is_empty() { cost.refusal.is_empty() } else { cost.refusal.contains(refusal) };
        assert!(as_expected, "{case}: expected {refusal:?}, found {:?}", cost.refusal);
        assert!(cost.kib <= BUDGET, "{case} cost {} KiB", cost.kib);
    }
}

/// IMG-1: compressed streams that unpack to more than their decoder may hold at once.
#[test]
fn what_a_decoder_must_hold_at_once_stays_within_the_budget() {
    const TEST: &str = "memory::what_a_decoder_must_hold_at_once_stays_within_the_budget";
    if is_child() || !is_root() {
        return;
    }
    // More than fits into the budget, so that a window as large is filled.
    let big_file = |layer: &mut Layer| layer.put(Raw::new(b'0', "f").content(&vec![0; 72 << 20]));
    let cases: [(&str, &str, Packer); 4] = [
        ("a window of 32 MiB", "", |layer| zstd_with_window(15 << 3, layer)),
        ("a window of 64 MiB", "memory", |layer| zstd_with_window(16 << 3, layer)),
        ("a window of 96 MiB", "memory", |layer| zstd_with_window(16 << 3 | 4, layer)),
        ("a block of 262 MB", "", |_| zstd_bomb(4000)),
    ];
    for (case, refusal, packed) in cases {
        let cost = cost_of(TEST, case, packed, big_file);
        assert!(cost.kib <= BUDGET, "{case} cost {} KiB: {}", cost.kib, cost.refusal);
        assert!(cost.refusal.to_lowercase().contains(refusal), "{case}: {}", cost.refusal);
        let is_taken = cost.refusal.is_empty();
        assert_eq!(is_taken, case == "a window of 32 MiB", "{case}: {}", cost.refusal);
    }
}

/// A stream in blocks that are not compressed, of a frame that asks for a window.
fn zstd_with_window(descriptor: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, descriptor];
    let blocks: Vec<&[u8]> = content.chunks(128 * 1024).collect();
    for (index, block) in blocks.iter().enumerate() {
        let is_last = u32::from(index + 1 == blocks.len());
        frame.extend_from_slice(&((u32::try_from(block.len()).unwrap() << 3) | is_last).to_le_bytes()[..3]);
        frame.extend_from_slice(block);
    }
    frame
}

/// A block of some kilobytes that says to repeat the byte before it 65,539 times, and that some thousand times over. A block may
/// not become longer than 128 KiB; a decoder that does not look makes hundreds of megabytes of it before anything is read.
fn zstd_bomb(repeats: u16) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3];
    frame.extend_from_slice(&(16u32 << 3).to_le_bytes()[..3]);
    frame.extend_from_slice(&[0; 16]);
    // No literals; every sequence has the same codes: none copied, two bits of offset, sixteen bits of length.
    let [high, low] = repeats.to_be_bytes();
    let mut block = vec![0x00, high + 128, low, 0b0101_0100, 0, 2, 52];
    block.resize(block.len() + usize::from(repeats) * 18 / 8, 0);
    block.push(1);
    frame.extend_from_slice(&((u32::try_from(block.len()).unwrap() << 3) | 2 << 1 | 1).to_le_bytes()[..3]);
    frame.extend_from_slice(&block);
    frame
}

/// IMG-1: no state is kept from one entry to the next. Four times as many entries cost the same.
#[test]
fn memory_does_not_grow_with_the_number_of_entries() {
    const TEST: &str = "memory::memory_does_not_grow_with_the_number_of_entries";
    if is_child() || !is_root() {
        return;
    }
    let long = "n".repeat(240);
    let cost = |entries: usize| {
        let cost = cost_of(TEST, "entries", plain, |layer| {
            for number in 0..entries / 8 {
                let directory = format!("directory-{}", number % 10);
                layer.put(Raw::dir(&format!("{directory}/{number}")));
                layer.put(Raw::file(&format!("{directory}/file-{number}"), ""));
                layer.put(Raw::hardlink(&format!("{directory}/link-{number}"), &format!("{directory}/file-{number}")));
                layer.put(Raw::symlink(&format!("{directory}/symlink-{number}"), "x"));
                layer.put(Raw::file(&format!("{directory}/.wh.gone-{number}"), ""));
                layer.put(Raw::file(&format!("implied-{number}/file"), ""));
                layer.put(named(b'0', &format!("{directory}/{long}{number}")));
                layer.put(Raw::file(&format!("{directory}/{number}/.wh..wh..opq"), ""));
            }
        });
        assert_eq!(cost.refusal, "");
        cost.kib
    };
    let (few, many) = (cost(ENTRIES), cost(4 * ENTRIES));
    assert!(many < few + MORE, "{ENTRIES} entries cost {few} KiB, four times as many {many} KiB");
}

const ENTRIES: usize = 16_000;
/// KiB that measurements may differ by. To keep a name for each of the 48,000 others would cost more.
const MORE: u64 = 1024;
/// Their names alone are 6 MB, and as lists of their parts they would be beyond the budget.
const DIRECTORIES: usize = 1500;
