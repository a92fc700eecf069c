//! CNI.
