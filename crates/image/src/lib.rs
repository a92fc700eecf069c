//! Images on the node: imported or pulled, unpacked with care, put under containers.

mod assemble;
mod compress;
mod digest;
mod error;
mod image;
mod import;
mod index;
mod limits;
mod manifest;
mod overlay;
mod platform;
mod pull;
mod reference;
mod roots;
mod store;
mod tar;
mod tree;
mod unpack;
mod user;
mod work;

pub use error::{Error, Fault, LimitExceeded, RegistryProblem};
pub use image::{Image, ImageConfig, Source};
pub use index::Removed;
pub use limits::Limits;
pub use platform::Platform;
pub use pull::{Auth, Progress, PullOptions, docker_auth, docker_config_path};
pub use store::{Collected, Options, Store};
pub use tree::Usage;
pub use user::{User, groups_of, resolve_user};
