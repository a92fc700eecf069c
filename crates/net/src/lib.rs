//! Pod networks: CNI where it is configured, else a bridge of our own.
