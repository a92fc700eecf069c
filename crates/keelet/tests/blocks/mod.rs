//! The blocks of README.md, and a clean directory to follow them in.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

const README: &str = include_str!("../../../../README.md");

/// What the word after the fence says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `console`: commands after `$ `, each followed by exactly what it prints.
    Console,
    /// `sh`: commands that any user can run, and that succeed.
    Sh,
    /// `sh root`: the same for root, with real containers.
    Root,
    /// `sh make`: targets of the Makefile. A test cannot build itself.
    Make,
    /// `text`: what something else shows, such as a time of day.
    Text,
}

/// One block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

/// All blocks, in order.
///
/// # Panics
///
/// If a block does not say what it is.
pub(crate) fn all() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (number, line) in (1..).zip(README.lines()) {
        match line.strip_prefix("```") {
            Some("") if open => open = false,
            Some(word) => {
                let kind = match word {
                    "console" => Kind::Console,
                    "sh" => Kind::Sh,
                    "sh root" => Kind::Root,
                    "sh make" => Kind::Make,
                    "text" => Kind::Text,
                    _ => panic!(
                        "README.md:{number}: a block of kind {word:?}: expected console, sh, sh root, sh make or text"
                    ),
                };
                open = true;
                blocks.push(Block { line: number, kind, text: String::new() });
            }
            None if open => {
                let block = blocks.last_mut().expect("an open block");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    assert!(!open, "README.md: the last block has no end");
    blocks
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Prepares a directory as a reader has it: the examples, and keelet, which the search path of the result finds.
pub(crate) fn prepare(directory: &Path) -> String {
    let examples = fs::canonicalize(repository().join("examples")).expect("the examples");
    symlink(examples, directory.join("examples")).expect("a link");
    let bin = directory.join("bin");
    fs::create_dir(&bin).expect("a directory");
    symlink(env!("CARGO_BIN_EXE_keelet"), bin.join("keelet")).expect("a link");
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}
