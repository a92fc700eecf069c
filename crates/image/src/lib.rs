//! Images on the node: imported or pulled, unpacked with care, put under containers.
//!
//! [`Store`] is a directory with everything in it; any number of processes may use it at once. What comes in are archives
//! ([`Store::import`]) and registries ([`Store::pull`]), neither of which is trusted: sizes are bounded ([`Limits`]),
//! digests are compared, names never lead out of where they belong, and what is refused leaves nothing. What goes out are
//! images by name ([`Store::find`]), root file systems made of them ([`Store::make_root`]), read-only volumes
//! ([`Store::mount_image`]), and who a user is inside of one ([`resolve_user`]).
//!
//! | path below the store | what |
//! | --- | --- |
//! | `images.json` | all images with their names and configurations; replaced as a whole |
//! | `layers/CHAIN/diff` | an unpacked layer, as overlayfs stacks it; named by the digest of it and all below it |
//! | `layers/CHAIN/layer.json` | what the layer takes on disk |
//! | `used/ID` | its modification time is when the image was last used |
//! | `roots/KEY` | a root: a note, the changes, and the place where the overlay is mounted; its owner's directory is in the note |
//! | `mounts/KEY.json` | where an image is mounted as a volume |
//! | `tmp/PID-N` | a workplace, locked by its owner; one that nobody holds is removed by whoever comes next |
//! | `lock` | held for moments by whoever changes anything |
//!
//! Layers are kept by chain and not by their own digest, because what a layer unpacks to depends on those below: directories
//! that it only goes through have the owner and mode they have there, and hard links may point there.
//!
//! The way in: `import` or `pull` find the layers, `assemble` unpacks (`unpack`, over `tar` and `compress`) into a workplace
//! (`work`), and `store` makes all of it visible in one step under the lock. Calls block, except for pulls.

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
pub use overlay::Owners;
pub use platform::Platform;
pub use pull::{Auth, Progress, PullOptions, Tally, docker_auth, docker_auth_in, docker_config_path};
pub use reference::full_name;
pub use store::{Collected, InUse, Options, Store};
pub use tree::Usage;
pub use user::{User, groups_of, resolve_user};
