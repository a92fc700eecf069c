//! Images on the node: imported or pulled, verified, unpacked, and mounted for containers.
//!
//! [`Store`] is a directory that any number of processes may use at once. Its inputs are archives ([`Store::import`])
//! and registries ([`Store::pull`]). Neither is trusted: sizes are bounded ([`Limits`]), digests are verified, no name
//! escapes its directory, and a refused image leaves nothing behind. Its outputs are images by name ([`Store::find`]),
//! root file systems ([`Store::make_root`]), read-only volumes ([`Store::mount_image`]), and the user IDs of users in
//! an image ([`resolve_user`]).
//!
//! | path below the store | what |
//! | --- | --- |
//! | `images.json` | all images with their names and configurations; replaced as a whole |
//! | `layers/CHAIN/diff` | an unpacked layer, as overlayfs stacks it; named by the digest of it and all below it |
//! | `layers/CHAIN/layer.json` | what the layer takes on disk |
//! | `used/ID` | its modification time is when the image was last used |
//! | `roots/KEY` | a root: a note, the changes, and the place where the overlay is mounted; its owner's directory is in the note |
//! | `mounts/KEY.json` | where an image is mounted as a volume |
//! | `tmp/PID-N` | a working directory, locked by its owner; one without a lock is removed by the next process that
//! opens the store |
//! | `lock` | held briefly by every process that changes the store |
//!
//! Layers are kept by chain and not by their own digest, because the unpacked content depends on the layers below:
//! implied directories get the owner and mode they have there, and hard links may point there.
//!
//! The flow: `import` or `pull` find the layers, `assemble` unpacks them (`unpack`, over `tar` and `compress`) into a
//! working directory (`work`), and `store` makes all of it visible in one step under the lock. Calls block, except for
//! pulls.

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

pub use error::{CredentialsFault, Error, Fault, LimitExceeded, RegistryProblem, UserFault};
pub use image::{Image, ImageConfig, ImageContent};
pub use index::Removed;
pub use limits::Limits;
pub use overlay::Owners;
pub use platform::Platform;
pub use pull::{Auth, Progress, PullOptions, Tally, docker_auth, docker_auth_in, docker_config_path};
pub use reference::full_name;
pub use store::{Collected, InUse, Options, Store};
pub use tree::Usage;
pub use user::{User, groups_of, resolve_user};
