//! bpf(2), as far as device filters of cgroups need it. No library: it is six calls with a struct each.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::device_filter::Instruction;

const PROG_LOAD: u32 = 5;
const PROG_ATTACH: u32 = 8;
const PROG_DETACH: u32 = 9;
const PROG_GET_FD_BY_ID: u32 = 13;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const PROG_QUERY: u32 = 16;

/// `BPF_PROG_TYPE_CGROUP_DEVICE` and `BPF_CGROUP_DEVICE`.
const PROGRAM_TYPE: u32 = 15;
const ATTACH_TYPE: u32 = 6;

/// `BPF_F_ALLOW_MULTI`: beside other programs. `BPF_F_REPLACE`: replaces one of them.
const ALLOW_MULTI: u32 = 2;
const REPLACE: u32 = 4;

/// The kernel has at most this many programs on a cgroup (`BPF_CGROUP_MAX_PROGS`).
const MAX_PROGRAMS: usize = 64;

/// Enough for the log of the verifier about a program that it rejects.
const LOG_SIZE: usize = 64 * 1024;

#[repr(C)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
    replaced: u32,
}

#[repr(C)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

#[repr(C)]
struct GetById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[repr(C)]
struct GetInfo {
    program: u32,
    length: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct Info {
    program_type: u32,
    id: u32,
    tag: [u8; 8],
    compiled_length: u32,
    translated_length: u32,
    compiled: u64,
    translated: u64,
    load_time: u64,
    created_by: u32,
    map_count: u32,
    maps: u64,
    name: [u8; 16],
}

/// Loads a program. An error has the log of the verifier.
pub(crate) fn load(program: &[Instruction], name: &CStr) -> io::Result<OwnedFd> {
    let mut kernel_name = [0; 16];
    for (to, from) in kernel_name.iter_mut().take(15).zip(name.to_bytes()) {
        *to = *from;
    }
    let mut attributes = Load {
        program_type: PROGRAM_TYPE,
        instruction_count: u32::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?,
        instructions: program.as_ptr() as u64,
        // The program calls no helper that needs a GPL-compatible license.
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: kernel_name,
    };
    let error = match bpf_fd(PROG_LOAD, &mut attributes) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    // With a log only after a failure: a log that is too small would make a valid program fail.
    let mut log = vec![0_u8; LOG_SIZE];
    attributes.log_level = 1;
    attributes.log_size = LOG_SIZE as u32;
    attributes.log = log.as_mut_ptr() as u64;
    bpf_fd(PROG_LOAD, &mut attributes).map_err(|_| {
        let text: Vec<u8> = log.iter().copied().take_while(|&byte| byte != 0).collect();
        let text = String::from_utf8_lossy(&text);
        io::Error::new(error.kind(), format!("the kernel rejects the program: {error}; {}", text.trim_end()))
    })
}

/// Attaches a program to a cgroup; replaces `old` if there is one.
pub(crate) fn attach(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>, old: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut attributes = Attach {
        target: raw(cgroup),
        program: raw(program),
        attach_type: ATTACH_TYPE,
        flags: if old.is_some() { ALLOW_MULTI | REPLACE } else { ALLOW_MULTI },
        replaced: old.map_or(0, raw),
    };
    bpf(PROG_ATTACH, &mut attributes).map(drop)
}

/// Detaches a program from a cgroup.
pub(crate) fn detach(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes =
        Attach { target: raw(cgroup), program: raw(program), attach_type: ATTACH_TYPE, flags: 0, replaced: 0 };
    bpf(PROG_DETACH, &mut attributes).map(drop)
}

/// The IDs of the programs that are attached to the cgroup itself.
pub(crate) fn attached(cgroup: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut ids = vec![0_u32; MAX_PROGRAMS];
    let mut attributes = Query {
        target: raw(cgroup),
        attach_type: ATTACH_TYPE,
        query_flags: 0,
        attach_flags: 0,
        ids: ids.as_mut_ptr() as u64,
        count: MAX_PROGRAMS as u32,
        padding: 0,
    };
    bpf(PROG_QUERY, &mut attributes)?;
    ids.truncate(attributes.count as usize);
    Ok(ids)
}

/// A program by its ID; none if it is gone.
pub(crate) fn open(id: u32) -> io::Result<Option<OwnedFd>> {
    match bpf_fd(PROG_GET_FD_BY_ID, &mut GetById { id, next_id: 0, open_flags: 0 }) {
        Ok(program) => Ok(Some(program)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name that a program was loaded with.
pub(crate) fn name(program: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut info = Info::default();
    let mut attributes =
        GetInfo { program: raw(program), length: size_of::<Info>() as u32, info: (&raw mut info) as u64 };
    bpf(OBJ_GET_INFO_BY_FD, &mut attributes)?;
    Ok(info.name.iter().copied().take_while(|&byte| byte != 0).collect())
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn bpf_fd<T>(command: u32, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    let fd = i32::try_from(fd).map_err(|_| io::Error::other(format!("bpf(2) returned {fd}")))?;
    // SAFETY: the commands used with this return a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf<T>(command: u32, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads and writes as many bytes as the last argument says. The functions above set pointers inside the struct to
    // memory that outlives the call and has the size that is in the same struct.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
