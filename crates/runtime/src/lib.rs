//! The embedded container runtime: a CRI server over shims, images and networks.
