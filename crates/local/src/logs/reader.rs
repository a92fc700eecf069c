//! Reads the log of a container: the parts of one life after another, and if asked to, what is still to come.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Bound,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use flate2::read::MultiGzDecoder;

use super::{
    LogRequest, Which,
    assemble::{Assembler, Wish},
    files::{Life, lives},
    tail::{self, Skip, What},
};

/// Read at once.
const PIECE: usize = 64 << 10;

/// Blocking: each step reads one piece at most.
#[derive(Debug)]
pub(super) struct Reader {
    request: LogRequest,
    assembler: Assembler,
    /// Whether more may come after the end.
    follow: bool,
    /// The life that is read; none before there is a log.
    attempt: Option<u32>,
    queue: VecDeque<(PathBuf, Skip)>,
    open: Option<Open>,
    piece: Vec<u8>,
}

/// What a step gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// These lines.
    Lines(Vec<u8>),
    /// There is nothing more at the moment.
    Nothing,
    /// There never will be.
    End,
}

struct Open {
    path: PathBuf,
    inode: u64,
    log: Box<dyn Read + Send>,
    /// Whether it is being written.
    newest: bool,
}

// === impl Reader ===

impl Reader {
    pub(super) fn new(request: LogRequest) -> Self {
        let wish = Wish { timestamps: request.timestamps, since: request.since };
        Self {
            assembler: Assembler::new(wish),
            follow: request.follow,
            request,
            attempt: None,
            queue: VecDeque::new(),
            open: None,
            piece: vec![0; PIECE],
        }
    }

    /// The container writes no more: what is there is all.
    pub(super) fn no_more(&mut self) {
        self.follow = false;
    }

    pub(super) fn step(&mut self) -> io::Result<Step> {
        if self.attempt.is_none() {
            self.choose()?;
        }
        loop {
            let lines = self.assembler.take();
            if !lines.is_empty() {
                return Ok(Step::Lines(lines));
            }
            let Some(open) = &mut self.open else {
                match self.queue.pop_front() {
                    Some((path, skip)) => self.open = self.opened(path, skip)?,
                    None if self.follow => return Ok(Step::Nothing),
                    None => {
                        self.assembler.finish();
                        let rest = self.assembler.take();
                        return Ok(if rest.is_empty() { Step::End } else { Step::Lines(rest) });
                    }
                }
                continue;
            };
            match open.log.read(&mut self.piece) {
                Ok(0) => {
                    if self.is_at_its_end()? {
                        self.assembler.end_of_file();
                        self.open = None;
                    } else {
                        return Ok(Step::Nothing);
                    }
                }
                Ok(count) => self.assembler.feed(&self.piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_file(&open.path, error)),
            }
        }
    }

    /// Finds the life that was asked for.
    fn choose(&mut self) -> io::Result<()> {
        let lives = lives(&self.request.directory).map_err(|error| in_file(&self.request.directory, error))?;
        let mut newest_first = lives.iter().rev();
        let chosen = match self.request.which {
            Which::Newest => newest_first.next(),
            Which::BeforeNewest => newest_first.nth(1),
        };
        let Some((attempt, life)) = chosen else { return Ok(()) };
        self.attempt = Some(*attempt);
        self.queue = self.plan(life)?;
        Ok(())
    }

    /// What is read of a life.
    fn plan(&self, life: &Life) -> io::Result<VecDeque<(PathBuf, Skip)>> {
        let mut queue = VecDeque::new();
        let mut wanted = self.request.tail;
        for path in life.parts().rev() {
            let is_last = queue.is_empty();
            let nothing_wanted = is_last && wanted == Some(0);
            if self.request.since.is_some_and(|since| is_older(path, since.into())) || nothing_wanted {
                // All before it is older still. The newest is always followed.
                if is_last {
                    queue.push_front((path.to_owned(), end_of(path)));
                }
                break;
            }
            let (mut skip, mut enough) = (Skip::Bytes(0), false);
            if let Some(left) = wanted {
                let what = if is_last { What::LastPart } else { What::EarlierPart };
                // What is collected while it is looked at is not there to be shown.
                match tail::find(path, left, what) {
                    Ok((found, lines)) => {
                        skip = found;
                        wanted = Some(left - lines);
                        // Else the first of the lines may have begun in the part before.
                        enough = left == lines && found != Skip::Bytes(0) && found != Skip::Lines(0);
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(in_file(path, error)),
                }
            }
            queue.push_front((path.to_owned(), skip));
            if enough {
                break;
            }
        }
        Ok(queue)
    }

    fn opened(&mut self, path: PathBuf, skip: Skip) -> io::Result<Option<Open>> {
        let mut file = match File::open(&path) {
            Ok(file) => file,
            // Rotated away or collected meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(in_file(&path, error)),
        };
        let inode = file.metadata().map_err(|error| in_file(&path, error))?.ino();
        match skip {
            Skip::Bytes(offset) => {
                self.assembler.skip(0);
                file.seek(SeekFrom::Start(offset)).map_err(|error| in_file(&path, error))?;
            }
            Skip::Lines(lines) => self.assembler.skip(lines),
        }
        let newest = path.extension().is_some_and(|extension| extension == "log");
        let compressed = path.extension().is_some_and(|extension| extension == "gz");
        let log: Box<dyn Read + Send> = if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        Ok(Some(Open { path, inode, log, newest }))
    }

    /// Whether nothing more will be written to what is open, now that all of it is read. If so, what comes after it
    /// is in the queue.
    fn is_at_its_end(&mut self) -> io::Result<bool> {
        let Some(open) = &mut self.open else { return Ok(true) };
        if !open.newest || !self.follow {
            return Ok(true);
        }
        let there = std::fs::metadata(&open.path).map(|metadata| metadata.ino()).ok();
        let rotated = there.is_some_and(|inode| inode != open.inode);
        let lives = lives(&self.request.directory).map_err(|error| in_file(&self.request.directory, error))?;
        let next = self.attempt.and_then(|attempt| lives.range((Bound::Excluded(attempt), Bound::Unbounded)).next());
        if !rotated && next.is_none() {
            return Ok(false);
        }
        // The writer went on to another file after its last word in this one; so that word is there by now.
        open.newest = false;
        if rotated {
            self.queue.push_back((open.path.clone(), Skip::Bytes(0)));
        }
        if let (Some((attempt, life)), false) = (next, rotated) {
            self.attempt = Some(*attempt);
            self.queue.extend(life.parts().map(|path| (path.to_owned(), Skip::Bytes(0))));
        }
        let mut rest = Vec::new();
        open.log.read_to_end(&mut rest).map_err(|error| in_file(&open.path, error))?;
        self.assembler.feed(&rest);
        if !rotated {
            self.assembler.finish();
        }
        Ok(true)
    }
}

/// Nothing is read of it but what is written from now on.
fn end_of(path: &Path) -> Skip {
    let newest = path.extension().is_some_and(|extension| extension == "log");
    let length = path.metadata().map_or(0, |metadata| metadata.len());
    if newest { Skip::Bytes(length) } else { Skip::Lines(u64::MAX) }
}

/// Whether the last word in a file is from before then.
fn is_older(path: &Path, since: SystemTime) -> bool {
    path.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|modified| modified < since)
}

fn in_file(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("path", &self.path).field("newest", &self.newest).finish_non_exhaustive()
    }
}
