//! Netlink messages to netfilter. The kernel answers before sending returns, so nothing here blocks.

use std::io;
use std::os::fd::OwnedFd;
#[cfg(test)]
use std::sync::atomic::Ordering::SeqCst;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, send as send_bytes, socket_with,
    sockopt,
};

use super::error::FirewallError;
use super::message::{ACKNOWLEDGE, Attributes, Batch, DUMP, Family, message};

const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Length, type, flags, sequence and sender.
const HEADER: usize = 16;
/// Family, version and resource.
const SECOND_HEADER: usize = 4;

/// A message from the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    kind: u16,
    sequence: u32,
    body: Vec<u8>,
}

/// Sends a batch, which the kernel applies completely or not at all.
pub(super) fn send(batch: Batch) -> Result<(), FirewallError> {
    #[cfg(test)]
    if REFUSED.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
        return Err(FirewallError::NotAcknowledged);
    }
    let (bytes, last) = batch.finish();
    let answers = open(bytes.len()).and_then(|socket| talk(&socket, &bytes));
    let answers = answers.map_err(FirewallError::Netlink)?;
    if let Some((sequence, source)) = answers.iter().find_map(|answer| Some((answer.sequence, answer.refusal()?))) {
        return Err(FirewallError::Refused { sequence, source });
    }
    match answers.iter().any(|answer| answer.kind == ERROR && answer.sequence == last) {
        true => Ok(()),
        false => Err(FirewallError::NotAcknowledged),
    }
}

/// Sends one request.
pub(super) fn request(kind: u16, family: Family, attributes: &Attributes) -> io::Result<()> {
    let bytes = message(kind, ACKNOWLEDGE, 1, family.number(), 0, attributes);
    let answers = talk(&open(bytes.len())?, &bytes)?;
    answers.iter().find_map(Message::refusal).map_or(Ok(()), Err)
}

/// Requests a list.
pub(super) fn list(kind: u16, family: Family) -> io::Result<Vec<Message>> {
    let bytes = message(kind, DUMP, 1, family.number(), 0, &Attributes::default());
    let answers = talk(&open(bytes.len())?, &bytes)?;
    match answers.iter().find_map(Message::refusal) {
        Some(error) => Err(error),
        None => Ok(answers),
    }
}

/// Simulates a kernel without netfilter in tests.
#[cfg(test)]
pub(super) static MISSING: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Simulates a kernel that refuses batches in tests: so many of the next ones.
#[cfg(test)]
pub(super) static REFUSED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn open(longest: usize) -> io::Result<OwnedFd> {
    #[cfg(test)]
    if MISSING.load(SeqCst) {
        return Err(rustix::io::Errno::PROTONOSUPPORT.into());
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::NETFILTER))?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
    // The whole batch has to fit into the buffer; some hundred ports are more than the default of 200 KiB.
    sockopt::set_socket_send_buffer_size_force(&socket, 2 * longest + 65536)?;
    Ok(socket)
}

/// Sends, and reads all answers.
fn talk(socket: &OwnedFd, bytes: &[u8]) -> io::Result<Vec<Message>> {
    send_bytes(socket, bytes, SendFlags::empty())?;
    let mut answers = Vec::new();
    let mut buffer = vec![0; 65536];
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) | Err(rustix::io::Errno::AGAIN) => return Ok(answers),
            Ok((length, _)) => answers.extend(read_messages(&buffer[..length])),
            Err(errno) => return Err(errno.into()),
        }
        if answers.last().is_some_and(|answer: &Message| answer.kind == DONE) {
            return Ok(answers);
        }
    }
}

/// Parses received bytes.
pub(super) fn read_messages(mut bytes: &[u8]) -> Vec<Message> {
    let word =
        |at: usize, bytes: &[u8]| -> Option<u32> { Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
    let mut messages = Vec::new();
    while let (Some(length), Some(kind), Some(sequence)) = (word(0, bytes), word(4, bytes), word(8, bytes)) {
        let length = length as usize;
        let Some(body) = bytes.get(HEADER..length) else { break };
        // The type is the first half of its word in memory, in any byte order.
        let [first, second, ..] = kind.to_ne_bytes();
        messages.push(Message { kind: u16::from_ne_bytes([first, second]), sequence, body: body.to_vec() });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

// === impl Message ===

impl Message {
    pub(super) fn is(&self, kind: u16) -> bool {
        self.kind == kind
    }

    /// Its address family.
    pub(super) fn family(&self) -> Option<u8> {
        self.body.first().copied()
    }

    /// The bytes after the headers.
    pub(super) fn attributes(&self) -> &[u8] {
        self.body.get(SECOND_HEADER..).unwrap_or_default()
    }

    /// The error of the kernel, if it refused.
    fn refusal(&self) -> Option<io::Error> {
        let code = i32::from_ne_bytes(self.body.get(..4)?.try_into().ok()?);
        (self.kind == ERROR && code != 0).then(|| io::Error::from_raw_os_error(code.saturating_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sequence: u32, code: i32) -> Vec<u8> {
        let mut bytes = 36_u32.to_ne_bytes().to_vec();
        bytes.extend(ERROR.to_ne_bytes());
        bytes.extend(0_u16.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes.extend([0; 16]);
        bytes
    }

    #[test]
    fn several_messages_in_one_packet_are_parsed() {
        let messages = read_messages(&[answer(1, 0), answer(7, -22)].concat());
        assert_eq!(messages.iter().map(|message| message.sequence).collect::<Vec<_>>(), [1, 7]);
        assert!(messages[0].refusal().is_none());
        assert_eq!(messages[1].refusal().unwrap().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn truncated_messages_are_ignored() {
        let bytes = answer(1, 0);
        for length in 0..bytes.len() {
            assert_eq!(read_messages(&bytes[..length]), [], "{length}");
        }
        assert_eq!(read_messages(&[0; 64]), []);
    }
}
