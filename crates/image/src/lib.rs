//! Images on the node: imported or pulled, unpacked with care, put under containers.
