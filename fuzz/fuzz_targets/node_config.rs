//! Configuration files of a node: any bytes.
//!
//! A file is taken, or refused with reasons; whatever is said about it names the file.

#![no_main]

use std::path::Path;

use keelet_agent::config;
use libfuzzer_sys::fuzz_target;

const FILE: &str = "/etc/kubelet/config.yaml";

fuzz_target!(|file: &[u8]| {
    let words = match config::read(file, Path::new(FILE)) {
        Ok(read) => {
            assert_eq!(read.config.changes(&read.config), [], "it differs from itself");
            let images = &read.config.upkeep.images;
            assert!(images.high_percent <= 100 && images.low_percent <= 100, "{images:?}");
            assert!(images.high_percent == 0 || images.low_percent < images.high_percent, "{images:?}");
            assert!(images.maximum_age.is_none_or(|most| most > images.minimum_age), "{images:?}");
            assert!(read.config.upkeep.logs.max_bytes != Some(0));
            let directories = [&read.config.static_pod_path, &read.config.pod_logs_dir];
            assert!(directories.into_iter().flatten().all(|path| path.is_absolute()), "{directories:?}");
            [read.warnings, read.remarks].concat()
        }
        Err(reasons) => {
            assert!(!reasons.is_empty(), "refused without a reason");
            reasons
        }
    };
    for told in words {
        assert!(told.starts_with(FILE) && told.len() > FILE.len() + 2, "{told:?}");
    }
});
