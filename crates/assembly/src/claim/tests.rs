//! One holder for each directory, and which pairs may be used together.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use rustix::fs::{CWD, Mode, mkfifoat};

use super::{Claim, ClaimError, Extra, Holder, is_held};
use crate::paths::Paths;

fn paths(dir: &Path) -> Paths {
    Paths { root_dir: dir.join("root"), state_dir: dir.join("state") }
}

async fn take(paths: &Paths) -> Result<Claim, ClaimError> {
    Claim::take(paths, Holder::Agent, Extra::default()).await
}

/// DIR-1: each directory has a lock of its own, whatever the other one is.
#[tokio::test]
async fn a_directory_has_one_holder() {
    let dir = tempfile::tempdir().unwrap();
    let pair = paths(dir.path());
    let claim = take(&pair).await.unwrap();
    let other = dir.path().join("other");
    for (wrong, option) in [
        (Paths { state_dir: other.clone(), ..pair.clone() }, "--root-dir"),
        (Paths { root_dir: other.clone(), ..pair.clone() }, "--state-dir"),
    ] {
        let said = take(&wrong).await.unwrap_err().to_string();
        let expected = format!("{option}: another keelet agent (pid {}) uses ", std::process::id());
        assert!(said.starts_with(&expected), "{said}");
    }
    assert!(is_held(&pair.root_dir) && is_held(&pair.state_dir) && !is_held(&other));
    drop(claim);
    take(&pair).await.unwrap();
    let same = Paths { state_dir: pair.root_dir.join("../root"), ..pair };
    let said = take(&same).await.unwrap_err().to_string();
    assert!(said.starts_with("--root-dir and --state-dir must not be the same directory"), "{said}");
}

/// DIR-3: the ledger in the root directory knows pods; they may run in a runtime that cannot be asked yet.
#[tokio::test]
async fn the_state_directory_of_pods_is_kept_to() {
    let dir = tempfile::tempdir().unwrap();
    let pair = paths(dir.path());
    drop(take(&pair).await.unwrap());
    let wrong = Paths { state_dir: dir.path().join("other"), ..pair.clone() };
    drop(take(&wrong).await.expect("no pods are known, so it may change"));
    fs::create_dir_all(pair.root_dir.join("ledger/pods/uid")).unwrap();
    let said = take(&pair).await.unwrap_err().to_string();
    assert!(said.contains(&format!("start with --state-dir {}, or", wrong.state_dir.display())), "{said}");
    // The same directory by another name.
    symlink(&pair.root_dir, dir.path().join("link")).unwrap();
    let linked = Paths { root_dir: dir.path().join("link"), ..wrong };
    drop(take(&linked).await.unwrap());
    // After a reboot nothing runs.
    for file in [&pair.root_dir, &pair.state_dir].map(|dir| dir.join("owner.json")) {
        let text = fs::read_to_string(&file).unwrap();
        let boot = text.lines().find(|line| line.contains("bootId")).unwrap();
        fs::write(&file, text.replace(boot, "  \"bootId\": \"an earlier one\",")).unwrap();
    }
    take(&pair).await.unwrap();
}

/// DIR-11
#[tokio::test]
async fn a_directory_that_every_user_can_write_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let pair = paths(dir.path());
    let root = || Path::new("/").to_owned();
    let said = take(&Paths { root_dir: root(), ..pair.clone() }).await.unwrap_err().to_string();
    assert_eq!(said, "--root-dir must not be /; it needs a directory of its own");
    // By a name that is not there until the root directory is made.
    let said = take(&Paths { state_dir: dir.path().join("root/../../../../../../.."), ..pair.clone() }).await;
    assert_eq!(said.unwrap_err().to_string(), "--state-dir must not be /; it needs a directory of its own");
    fs::create_dir_all(&pair.state_dir).unwrap();
    for (open, option) in [(&pair.root_dir, "--root-dir"), (&pair.state_dir, "--state-dir")] {
        for mode in [0o777, 0o1777] {
            fs::set_permissions(open, fs::Permissions::from_mode(mode)).unwrap();
            let said = take(&pair).await.unwrap_err().to_string();
            assert!(said.starts_with(&format!("{option}: every user can write to ")), "{said}");
        }
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    take(&pair).await.unwrap();
}

/// DIR-11: another user may own the directory, and put what they like in place of the record.
#[tokio::test]
async fn a_record_is_neither_read_nor_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let pair = paths(dir.path());
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    for held in [&pair.root_dir, &pair.state_dir] {
        fs::create_dir_all(held).unwrap();
        symlink(&victim, held.join("owner.json.new")).unwrap();
        symlink(&victim, held.join("owner.json")).unwrap();
    }
    drop(take(&pair).await.unwrap());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    let record = pair.root_dir.join("owner.json");
    assert!(fs::symlink_metadata(&record).unwrap().is_file(), "a record in place of the link");
    // A pipe that no process writes to, and a file without an end.
    fs::remove_file(&record).unwrap();
    mkfifoat(CWD, &record, Mode::RWXU).unwrap();
    assert_eq!(super::read(&pair.root_dir), None);
    fs::remove_file(&record).unwrap();
    symlink("/dev/zero", &record).unwrap();
    assert_eq!(super::read(&pair.root_dir), None);
}

/// DIR-5, DIR-7: what is deleted is made again and locked again; what was moved or replaced is not used any more.
#[tokio::test]
async fn directories_are_watched() {
    let dir = tempfile::tempdir().unwrap();
    let pair = paths(dir.path());
    let mut claim = take(&pair).await.unwrap();
    assert!(!claim.check().await.unwrap(), "as they were");
    fs::remove_file(pair.state_dir.join("owner.json")).unwrap();
    assert!(claim.check().await.unwrap() && pair.state_dir.join("owner.json").exists(), "it was emptied");
    fs::remove_dir_all(&pair.root_dir).unwrap();
    fs::remove_dir_all(&pair.state_dir).unwrap();
    assert!(claim.check().await.unwrap());
    assert!(is_held(&pair.root_dir) && is_held(&pair.state_dir) && pair.root_dir.join("owner.json").exists());
    let moved = dir.path().join("moved");
    fs::rename(&pair.root_dir, &moved).unwrap();
    assert!(claim.check().await.unwrap_err().to_string().contains("was moved while in use"));
    fs::create_dir(&pair.root_dir).unwrap();
    assert!(claim.check().await.unwrap_err().to_string().contains("was replaced"));
    fs::remove_dir(&pair.root_dir).unwrap();
    fs::rename(&moved, &pair.root_dir).unwrap();
    assert!(!claim.check().await.unwrap());
}

/// DIR-1: a directory that cannot be made when the agent starts is locked as soon as it can be, and an agent that finds it
/// locked by another one then gives up.
#[tokio::test]
async fn a_directory_that_cannot_be_made_is_locked_later() {
    let dir = tempfile::tempdir().unwrap();
    let pair = paths(dir.path());
    let other = Paths { state_dir: dir.path().join("other"), ..pair.clone() };
    fs::write(&pair.root_dir, "a file in the place of the directory").unwrap();
    let (mut claim, mut second) = (take(&pair).await.unwrap(), take(&other).await.unwrap());
    assert!(!claim.check().await.unwrap() && is_held(&pair.state_dir), "still a file");
    fs::remove_file(&pair.root_dir).unwrap();
    fs::create_dir(&pair.root_dir).unwrap();
    assert!(claim.check().await.unwrap() && !claim.check().await.unwrap());
    assert!(is_held(&pair.root_dir) && pair.root_dir.join("owner.json").exists());
    let expected = format!("--root-dir: another keelet agent (pid {}) uses ", std::process::id());
    for said in [take(&other).await.unwrap_err(), second.check().await.unwrap_err()] {
        assert!(said.to_string().starts_with(&expected), "{said}");
    }
}

/// DIR-3: a directory that is there at last may belong to pods of another state directory.
#[tokio::test]
async fn a_directory_that_is_there_at_last_is_checked_like_one_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let pair = paths(dir.path());
    drop(take(&pair).await.unwrap());
    fs::create_dir_all(pair.root_dir.join("ledger/pods/uid")).unwrap();
    let away = dir.path().join("away");
    fs::rename(&pair.root_dir, &away).unwrap();
    fs::write(&pair.root_dir, "a file in the place of the directory").unwrap();
    let wrong = Paths { state_dir: dir.path().join("other"), ..pair.clone() };
    let mut claim = take(&wrong).await.unwrap();
    fs::remove_file(&pair.root_dir).unwrap();
    fs::rename(&away, &pair.root_dir).unwrap();
    let said = claim.check().await.unwrap_err().to_string();
    assert!(said.contains(&format!("start with --state-dir {}, or", pair.state_dir.display())), "{said}");
}
