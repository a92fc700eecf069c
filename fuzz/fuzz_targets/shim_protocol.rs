//! Lines between a server and a shim, and the files that both leave for their successors: any bytes.
//!
//! A line is a request or an answer, or is refused; what was taken reads the same when it is written again.

#![no_main]

use keelet_shim::protocol::{Answer, StartOptions, Request, Sandbox, State};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

fn reads_the_same<T: Serialize + DeserializeOwned>(line: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(line) else { return };
    let written = serde_json::to_vec(&read).expect("what was read can be written");
    assert!(!written.contains(&b'\n'), "one line");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_vec(&again).expect("written"), written, "it reads the same");
}

fuzz_target!(|line: &[u8]| {
    reads_the_same::<Request>(line);
    reads_the_same::<Answer>(line);
    reads_the_same::<Sandbox>(line);
    reads_the_same::<StartOptions>(line);
    reads_the_same::<State>(line);
});
