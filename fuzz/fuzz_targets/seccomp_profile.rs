//! System call filters that people wrote: any bytes, for both machines.
//!
//! A profile is refused, or becomes a filter that the kernel would take; the same text gives the same filter.

#![no_main]

use keelet_linux::{
    capabilities::Cap,
    seccomp::{Architecture, Circumstances, compile_for, read_profile},
};
use libfuzzer_sys::fuzz_target;

/// What the kernel takes.
const MOST_INSTRUCTIONS: usize = 4096;

fuzz_target!(|json: &[u8]| {
    for architecture in [Architecture::X86_64, Architecture::Aarch64] {
        let caps = [Cap::SYS_ADMIN, Cap::NET_ADMIN].into_iter().collect();
        let circumstances = Circumstances { caps, architecture, kernel: (6, 1) };
        let made = || read_profile(json, &circumstances).and_then(|profile| compile_for(&profile, architecture));
        match made() {
            Ok(program) => {
                assert!((1..=MOST_INSTRUCTIONS).contains(&program.size()), "{} instructions", program.size());
                let again = made().expect("the same text is taken again");
                assert_eq!((program.size(), program.warnings().len()), (again.size(), again.warnings().len()));
            }
            Err(error) => assert!(!error.to_string().is_empty(), "refused without a reason"),
        }
    }
});
