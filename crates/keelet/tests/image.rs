//! `scripts/image`: an archive that is made of one program, and that keelet imports.

#![expect(clippy::disallowed_methods, reason = "a test that waits for programs which end by themselves")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

/// The smallest program: an ELF header, a segment, and `exit(0)`.
fn program(machine: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0".to_vec();
    bytes.extend(machine.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    for word in [0x40_0078_u64, 64, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(5_u32.to_le_bytes());
    for word in [0_u64, 0x40_0000, 0x40_0000, 0x81, 0x81, 0x1000] {
        bytes.extend(word.to_le_bytes());
    }
    // mov eax, 60; xor edi, edi; syscall
    bytes.extend([0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    bytes
}

fn script(arguments: &[&str]) -> Output {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/image");
    Command::new(script).args(arguments).output().expect("the script runs")
}

fn written(directory: &Path, name: &str, bytes: &[u8]) -> String {
    let path = directory.join(name);
    fs::write(&path, bytes).expect("a file");
    path.to_string_lossy().into_owned()
}

fn digest(path: &str) -> String {
    let output = Command::new("sha256sum").arg(path).output().expect("sha256sum");
    String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// PEER-28
#[test]
fn an_image_has_one_program_and_a_user_without_rights() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let binary = written(directory, "keelet", &program(62));
    let archive = directory.join("image.tar").to_string_lossy().into_owned();
    let made = script(&["--binary", &binary, "--output", &archive, "--name", "keelet:test"]);
    assert!(made.status.success(), "{}", said(&made));
    // Twice the same bytes.
    let first = digest(&archive);
    assert!(script(&["--binary", &binary, "--output", &archive, "--name", "keelet:test"]).status.success());
    assert_eq!(digest(&archive), first);

    let layout = directory.join("layout");
    fs::create_dir(&layout).expect("a directory");
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&layout).status().expect("tar");
    assert!(unpacked.success());
    let json = |path: &str| -> Value { serde_json::from_slice(&fs::read(layout.join(path)).expect(path)).expect(path) };
    // Every blob has the digest that it is named by, and everything names blobs that exist.
    for blob in fs::read_dir(layout.join("blobs/sha256")).expect("blobs") {
        let path = blob.expect("a blob").path();
        assert_eq!(digest(&path.to_string_lossy()), path.file_name().expect("a name").to_string_lossy());
    }
    let blob = |digest: &Value| {
        format!("blobs/sha256/{}", digest.as_str().and_then(|digest| digest.strip_prefix("sha256:")).expect("a digest"))
    };
    let entry = &json("index.json")["manifests"][0];
    assert_eq!(entry["annotations"]["io.containerd.image.name"], "docker.io/library/keelet:test");
    let manifest = json(&blob(&entry["digest"]));
    let config = json(&blob(&manifest["config"]["digest"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/keelet"]));
    let docker = &json("manifest.json")[0];
    assert_eq!(docker["Config"], blob(&manifest["config"]["digest"]));
    assert_eq!(docker["Layers"][0], blob(&manifest["layers"][0]["digest"]));
    let layer = layout.join(blob(&manifest["layers"][0]["digest"]));
    let listed = Command::new("tar").args(["-tvzf"]).arg(&layer).output().expect("tar");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.starts_with("-rwxr-xr-x 0/0") && listed.trim_end().ends_with(" keelet"), "{listed}");
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let plain = written(directory, "layer.tar", &Command::new("zcat").arg(&layer).output().expect("zcat").stdout);
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(&plain)));
}

/// PEER-28: the archive is one that `keelet image import` takes.
#[test]
fn an_image_is_imported() {
    if !rustix::process::geteuid().is_root() {
        keelet_report::skipped("importing an image needs root");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let binary = written(directory, "keelet", &program(62));
    let (archive, store) = (directory.join("image.tar"), directory.join("store"));
    fs::create_dir(&store).expect("a directory");
    let (archive, store) = (archive.to_string_lossy(), store.to_string_lossy());
    assert!(script(&["--binary", &binary, "--output", &archive, "--name", "keelet:test"]).status.success());
    let keelet = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_keelet"))
            .args(arguments)
            .env_remove("KEELET_SOCKET")
            .output()
            .expect("keelet runs")
    };
    let imported = keelet(&["image", "import", "--image-store", &store, &archive]);
    assert!(imported.status.success(), "{}", said(&imported));
    let listed = keelet(&["image", "ls", "--image-store", &store]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("keelet") && listed.contains("test"), "{listed}");
}

#[test]
fn what_cannot_be_an_image_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let mut dynamic = program(62);
    dynamic.extend(b"/lib64/ld-linux-x86-64.so.2\0");
    for (name, bytes, expected) in [
        ("script", b"#!/bin/sh\n".to_vec(), "is not a program (ELF)"),
        ("s390", program(22), "is for another machine than x86_64 or aarch64"),
        (
            "dynamic",
            dynamic,
            "needs shared libraries: build it with RUSTFLAGS=\"-C target-feature=+crt-static\" and --target",
        ),
    ] {
        let binary = written(directory, name, &bytes);
        let output = directory.join("image.tar");
        let refused = script(&["--binary", &binary, "--output", &output.to_string_lossy()]);
        assert_eq!((refused.status.code(), said(&refused)), (Some(1), format!("error: {binary} {expected}")));
        assert!(!output.exists());
    }
    let refused = script(&["--nmae", "x"]);
    assert_eq!(said(&refused), "error: unknown argument --nmae; --help says more");
}
