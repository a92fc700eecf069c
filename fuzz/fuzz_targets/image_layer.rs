//! Layers of images, from a stranger: tar archives with names, links, devices and attributes that mean harm.
//!
//! The first byte is the number of blocks of the first layer, the rest goes into a second one above it; with 0 there is one
//! layer. Checksums and digests are made right. The rules are those of `image_archive`, and a user is looked up in what
//! was unpacked, which must not lead out of it either.

#![no_main]

use keelet_fuzz::{archive, store};
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 512;

fuzz_target!(
    init: store::prepare(),
    |input: &[u8]| {
        let Some((blocks, layers)) = input.split_first() else { return };
        let end = (usize::from(*blocks) * BLOCK).min(layers.len());
        let (lower, upper) = layers.split_at(end);
        let layers: Vec<Vec<u8>> =
            [lower, upper].into_iter().filter(|layer| !layer.is_empty()).map(archive::with_checksums).collect();
        store::check_import(&archive::of_image(&layers));
    }
);
