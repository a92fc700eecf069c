//! Reads the log of a container: the parts of one instance after another, and if asked to, what is still to come.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Bound,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use flate2::read::MultiGzDecoder;

use super::{
    Instances, LogRequest, Which,
    assemble::{Assembler, Selection},
    files::{self, Rotated, Snapshot},
    tail::{self, Skip, What},
};

/// Read at once.
const PIECE: usize = 64 << 10;

/// Bytes by which a part is known again: with the times of its first lines, no two begin the same.
const BEGINNING: u64 = 4 << 10;

/// Blocking: each step reads one piece at most.
#[derive(Debug)]
pub(super) struct Reader {
    request: LogRequest,
    assembler: Assembler,
    ahead: Ahead,
    /// The instance that is read; none before there is a log.
    attempt: Option<u32>,
    /// When the part before the one that is written was rotated. What was rotated later comes after it, or is it.
    passed: Option<String>,
    queue: VecDeque<(Part, Skip)>,
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

/// What comes after the end of what is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// More may be written at any time.
    Open,
    /// Nothing is written any more, but there may be parts that were not queued.
    Written,
    /// Nothing.
    Nothing,
}

/// A part to be read.
#[derive(Debug)]
enum Part {
    /// A rotated one, under this name or its other one. It is looked for when it is its turn, so that a log of any number
    /// of parts is read with two files open.
    Named(PathBuf),
    /// The one that is written.
    Held(PathBuf, File),
}

struct Open {
    path: PathBuf,
    log: Log,
    /// Whether it was being written when it was found.
    written: bool,
}

enum Log {
    Plain(File),
    Compressed(Box<MultiGzDecoder<File>>),
}

// === impl Reader ===

impl Reader {
    pub(super) fn new(request: LogRequest) -> Self {
        let selection = Selection { timestamps: request.timestamps, since: request.since, stream: request.stream };
        Self {
            assembler: Assembler::new(selection),
            ahead: if request.follow { Ahead::Open } else { Ahead::Nothing },
            request,
            attempt: None,
            passed: None,
            queue: VecDeque::new(),
            open: None,
            piece: vec![0; PIECE],
        }
    }

    /// The container writes no more: what is there is all.
    pub(super) fn no_more(&mut self) {
        if self.ahead == Ahead::Open {
            self.ahead = Ahead::Written;
        }
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
                    Some((part, skip)) => self.open = self.opened(part, skip)?,
                    None if self.goes_on()? => {}
                    None if self.ahead == Ahead::Open => return Ok(Step::Nothing),
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
                    if self.waits_at_the_end()? {
                        return Ok(Step::Nothing);
                    }
                }
                Ok(count) => self.assembler.feed(&self.piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_file(&open.path, error)),
            }
        }
    }

    /// Finds the instance that was asked for.
    fn choose(&mut self) -> io::Result<()> {
        let instances = files::instances(&self.request.directory).map_err(|error| self.in_directory(error))?;
        let mut newest_first = instances.keys().rev();
        let chosen = match self.request.which {
            Which::Newest => newest_first.next(),
            Which::BeforeNewest => newest_first.nth(1),
        };
        let Some(attempt) = chosen else { return Ok(()) };
        let snapshot = self.snapshot(*attempt)?;
        let passed = snapshot.instance.last_time().map(str::to_owned);
        self.queue = self.parts_to_read(snapshot)?;
        (self.attempt, self.passed) = (Some(*attempt), passed);
        Ok(())
    }

    /// What is read of an instance.
    fn parts_to_read(&self, snapshot: Snapshot) -> io::Result<VecDeque<(Part, Skip)>> {
        let mut queue = VecDeque::new();
        let mut wanted = self.request.tail;
        for part in snapshot.into_parts().into_iter().rev() {
            let is_last = queue.is_empty();
            let nothing_wanted = is_last && wanted == Some(0);
            if self.request.since.is_some_and(|since| part.is_older(since.into())) || nothing_wanted {
                // All before it is older still. The newest is always followed.
                if is_last {
                    let skip = part.all();
                    queue.push_front((part, skip));
                }
                break;
            }
            let (mut skip, mut enough) = (Skip::Bytes(0), false);
            if let Some(left) = wanted {
                let what = if is_last { What::LastPart } else { What::EarlierPart };
                // What is collected while it is read is not there to be shown.
                let Some((found, lines)) = part.find(left, what).map_err(|error| in_file(part.path(), error))? else {
                    continue;
                };
                skip = found;
                wanted = Some(left - lines);
                // Else the first of the lines may have begun in the part before.
                enough = left == lines && found != Skip::Bytes(0) && found != Skip::Lines(0);
            }
            queue.push_front((part, skip));
            if enough {
                break;
            }
        }
        Ok(queue)
    }

    fn opened(&mut self, part: Part, skip: Skip) -> io::Result<Option<Open>> {
        let (path, mut log, written) = match part {
            Part::Held(path, file) => (path, Log::Plain(file), true),
            Part::Named(path) => match files::open(&path).map_err(|error| in_file(&path, error))? {
                Some(rotated) => (path, rotated.into(), false),
                // Collected meanwhile.
                None => return Ok(None),
            },
        };
        match skip {
            Skip::Bytes(offset) => {
                self.assembler.skip(0);
                log.pass(offset).map_err(|error| in_file(&path, error))?;
            }
            Skip::Lines(lines) => self.assembler.skip(lines),
        }
        Ok(Some(Open { path, log, written }))
    }

    /// What is open was read to its end. Whether more may be written to it; if not, it is closed.
    fn waits_at_the_end(&mut self) -> io::Result<bool> {
        let written = self.open.as_ref().is_some_and(|open| open.written);
        if written {
            if self.goes_on()? {
                return Ok(false);
            }
            if self.ahead == Ahead::Open {
                return Ok(true);
            }
            self.ahead = Ahead::Nothing;
        }
        self.assembler.end_of_file();
        self.open = None;
        Ok(false)
    }

    /// Looks for what comes after all that was read: parts that were rotated meanwhile, the file that is written now,
    /// the next instance. If there is any, it is queued and what is open is read to its end.
    fn goes_on(&mut self) -> io::Result<bool> {
        let Some(attempt) = self.attempt.filter(|_| self.ahead != Ahead::Nothing) else { return Ok(false) };
        let instances = files::instances(&self.request.directory).map_err(|error| self.in_directory(error))?;
        let next = instances.range((Bound::Excluded(attempt), Bound::Unbounded)).next().map(|(next, _)| *next);
        let next = next.filter(|_| self.request.instances == Instances::AndLater);
        // Nearly always: the file is the one that was there, and needs no closer look.
        let newest = instances.get(&attempt).and_then(|instance| instance.newest.as_deref());
        let there = newest.and_then(|path| path.symlink_metadata().ok());
        let same = there.zip(self.open.as_ref()).is_some_and(|(there, open)| open.inode() == Some(there.ino()));
        let later = if same { Vec::new() } else { self.later_parts(attempt)? };
        if !later.is_empty() {
            self.read_to_the_end()?;
            self.assembler.end_of_file();
            self.queue.extend(later.into_iter().map(|part| (part, Skip::Bytes(0))));
            return Ok(true);
        }
        let Some(next) = next else { return Ok(false) };
        let snapshot = self.snapshot(next)?;
        self.attempt = Some(next);
        self.passed = snapshot.instance.last_time().map(str::to_owned);
        self.read_to_the_end()?;
        self.assembler.finish();
        self.queue.extend(snapshot.into_parts().into_iter().map(|part| (part, Skip::Bytes(0))));
        Ok(true)
    }

    /// Parts of the instance that is read that came after the one that is open.
    fn later_parts(&mut self, attempt: u32) -> io::Result<Vec<Part>> {
        let snapshot = self.snapshot(attempt)?;
        let held = snapshot.held.as_ref().and_then(|(_, file)| file.metadata().ok()).map(|held| held.ino());
        let open = self.open.as_ref().filter(|open| open.written);
        if open.is_some_and(|open| open.inode() == held) {
            return Ok(Vec::new());
        }
        let last = snapshot.instance.last_time().map(str::to_owned);
        let until = |time: &str| last.as_deref().is_some_and(|last| time <= last);
        let rotated = snapshot.instance.rotated_after(self.passed.as_deref());
        let mut parts: VecDeque<&Path> = rotated.filter(|(time, _)| until(time)).map(|(_, path)| path).collect();
        // The first that was rotated since is what is open, if it was not collected.
        if let (Some(open), Some(first)) = (open, parts.front())
            && open.is_at(first).map_err(|error| in_file(first, error))?
        {
            parts.pop_front();
        }
        let parts = parts.into_iter().map(|path| Part::Named(path.to_owned())).collect::<Vec<_>>();
        let held = snapshot.held.map(|(path, file)| Part::Held(path, file));
        let later: Vec<Part> = parts.into_iter().chain(held).collect();
        if !later.is_empty() {
            self.passed = last;
        }
        Ok(later)
    }

    /// The writer went on to another file after its last word in this one; so that word is there by now.
    fn read_to_the_end(&mut self) -> io::Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let mut rest = Vec::new();
        open.log.read_to_end(&mut rest).map_err(|error| in_file(&open.path, error))?;
        self.assembler.feed(&rest);
        Ok(())
    }

    fn snapshot(&self, attempt: u32) -> io::Result<Snapshot> {
        files::snapshot(&self.request.directory, attempt).map_err(|error| self.in_directory(error))
    }

    fn in_directory(&self, error: io::Error) -> io::Error {
        in_file(&self.request.directory, error)
    }
}

fn in_file(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

// === impl Snapshot ===

impl Snapshot {
    /// All parts, the oldest first.
    fn into_parts(self) -> Vec<Part> {
        let Self { instance, mut held } = self;
        let part = |path: &Path| match held.take_if(|(held, _)| held == path) {
            Some((path, file)) => Part::Held(path, file),
            None => Part::Named(path.to_owned()),
        };
        instance.parts().map(part).collect()
    }
}

// === impl Part ===

impl Part {
    fn path(&self) -> &Path {
        match self {
            Self::Named(path) | Self::Held(path, _) => path,
        }
    }

    /// Whether the last word in it is from before then.
    fn is_older(&self, since: SystemTime) -> bool {
        let metadata = match self {
            Self::Named(path) => path.symlink_metadata(),
            Self::Held(_, file) => file.metadata(),
        };
        metadata.and_then(|metadata| metadata.modified()).is_ok_and(|modified| modified < since)
    }

    /// Nothing is read of it but what is written from now on.
    fn all(&self) -> Skip {
        match self {
            Self::Named(_) => Skip::Lines(u64::MAX),
            Self::Held(_, file) => Skip::Bytes(file.metadata().map_or(0, |metadata| metadata.len())),
        }
    }

    /// What to skip of it to have its last lines, and how many there are then. None if it was collected.
    fn find(&self, wanted: u64, what: What) -> io::Result<Option<(Skip, u64)>> {
        let found = match self {
            Self::Held(_, file) => tail::find(file, wanted, what),
            Self::Named(path) => match files::open(path)? {
                Some(Rotated::Plain(file)) => tail::find(&file, wanted, what),
                Some(Rotated::Compressed(file)) => tail::find_compressed(&file, wanted, what),
                None => return Ok(None),
            },
        };
        found.map(Some)
    }
}

// === impl Open ===

impl Open {
    /// None of a file that is compressed: no process writes to it.
    fn inode(&self) -> Option<u64> {
        match &self.log {
            Log::Plain(file) => file.metadata().ok().map(|metadata| metadata.ino()),
            Log::Compressed(_) => None,
        }
    }

    /// Whether a rotated part is what is open: the same file, or one made from it.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let Log::Plain(file) = &self.log else { return Ok(false) };
        Ok(match files::open(path)? {
            None => false,
            Some(Rotated::Plain(other)) => other.metadata()?.ino() == file.metadata()?.ino(),
            Some(Rotated::Compressed(other)) => {
                let (mut own, mut others) = (Vec::new(), Vec::new());
                MultiGzDecoder::new(other).take(BEGINNING).read_to_end(&mut others)?;
                own.resize(others.len(), 0);
                let read = file.read_at(&mut own, 0)?;
                own[..read] == others
            }
        })
    }
}

// === impl Log ===

impl Log {
    /// Skips its first bytes.
    fn pass(&mut self, bytes: u64) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.seek(SeekFrom::Start(bytes)).map(drop),
            Self::Compressed(log) => io::copy(&mut log.take(bytes), &mut io::sink()).map(drop),
        }
    }
}

impl From<Rotated> for Log {
    fn from(part: Rotated) -> Self {
        match part {
            Rotated::Plain(file) => Self::Plain(file),
            Rotated::Compressed(file) => Self::Compressed(Box::new(MultiGzDecoder::new(file))),
        }
    }
}

impl Read for Log {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(buffer),
            Self::Compressed(log) => log.read(buffer),
        }
    }
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("path", &self.path).field("written", &self.written).finish_non_exhaustive()
    }
}
