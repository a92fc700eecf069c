//! Generates both sides of the wire contract from `proto/`, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = protox::compile(["proto/cri.proto", "proto/containerd_events.proto"], ["proto"])?;
    tonic_prost_build::configure()
        // Maps have one order, so that the same message has the same bytes.
        .btree_map(".")
        // A server implements what it offers; all else answers Unimplemented.
        .generate_default_stubs(true)
        // Secrets are not for logs; `redacted.rs` says how they are shown.
        .skip_debug([".runtime.v1.AuthConfig", ".runtime.v1.KeyValue"])
        .compile_fds(files)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
