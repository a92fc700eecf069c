//! CNI: configurations that people wrote, and what plugins answer. Any bytes.
//!
//! A configuration is refused with a reason, or reads the same when it is written down; a plugin is asked by a name, never by a path.

#![no_main]

use keelet_net::reading;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind % 3 {
        0 | 1 => match reading::network(bytes, kind % 3 == 0) {
            Ok((name, inputs)) => {
                assert!(!name.is_empty() && !name.contains('/') && !inputs.is_empty(), "{name:?}");
            }
            Err(error) => assert!(!error.to_string().is_empty(), "rejected without a reason"),
        },
        _ => {
            let (output, errors) = bytes.split_at(bytes.len() / 2);
            if let Err(error) = reading::result(output, errors) {
                assert!(!error.to_string().is_empty(), "a failure without a reason");
            }
        }
    }
});
