//! Docker configurations, which people copy from anywhere: any bytes.
//!
//! A registry that the file does not name gets no credentials, the same question gets the same answer, and what is said about a
//! file repeats no password.

#![no_main]

use keelet_image::{Auth, docker_auth_in};
use libfuzzer_sys::fuzz_target;

const REGISTRY: &str = "registry.example:5000";

fuzz_target!(|content: &[u8]| {
    let answer = docker_auth_in(content, REGISTRY, "team/app");
    assert_eq!(answer, docker_auth_in(content, REGISTRY, "team/app"), "another answer the second time");
    if let Ok(Auth::Basic { password, .. } | Auth::Token(password)) = &answer
        && password.len() > 8
    {
        let printed = format!("{:?}", answer.as_ref().expect("an answer"));
        assert!(!printed.contains(password.as_str()), "a password is printed");
    }
    if let Err(reason) = &answer {
        let reason = reason.to_string();
        assert!(!reason.is_empty() && reason.len() <= content.len() * 4 + 1024, "{} bytes of reasons", reason.len());
    }
    // Without escapes the text is what it says.
    let names = content.windows(16).any(|part| part == b"registry.example");
    if !names && !content.contains(&b'\\') {
        assert!(
            !matches!(&answer, Ok(Auth::Basic { .. } | Auth::Token(_))),
            "credentials of another registry: {answer:?}"
        );
    }
    let _ = docker_auth_in(content, "docker.io", "library/busybox");
});
