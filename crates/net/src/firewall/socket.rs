//! Sending a batch to the kernel, and hearing what it says. The kernel answers before sending returns, so nothing here
//! waits.

use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, send as send_bytes, socket_with,
    sockopt,
};

use super::message::Batch;

const ERROR: u16 = 2;
const HEADER: usize = 16;

/// What the kernel said to one message.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: i32,
    sequence: u32,
}

/// All of the batch, or nothing and why.
pub(super) fn send(batch: Batch) -> Result<(), String> {
    let (bytes, last) = batch.finish();
    let talk = || -> io::Result<Vec<Answer>> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(netlink::NETFILTER),
        )?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        // A batch has to fit into the buffer whole; some hundred ports are more than the usual 200 KiB.
        sockopt::set_socket_send_buffer_size_force(&socket, 2 * bytes.len() + 65536)?;
        send_bytes(&socket, &bytes, SendFlags::empty())?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; 65536];
        loop {
            match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(answers),
                Ok((_, length)) => answers.extend(read_answers(&buffer[..length.min(65536)])),
                Err(rustix::io::Errno::AGAIN) => return Ok(answers),
                Err(errno) => return Err(errno.into()),
            }
        }
    };
    let answers = talk().map_err(|error| format!("nftables: {error}"))?;
    if let Some(refused) = answers.iter().find(|answer| answer.code != 0) {
        let error = io::Error::from_raw_os_error(-refused.code);
        return Err(format!("nftables: message {} was refused: {error}", refused.sequence));
    }
    match answers.iter().any(|answer| answer.sequence == last) {
        true => Ok(()),
        false => Err("nftables: the kernel did not answer".to_owned()),
    }
}

/// The acknowledgements and refusals in what was received.
fn read_answers(mut bytes: &[u8]) -> Vec<Answer> {
    let word =
        |bytes: &[u8], at: usize| -> Option<u32> { Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
    let mut answers = Vec::new();
    while let (Some(length), Some(kind), Some(sequence)) = (word(bytes, 0), bytes.get(4..6), word(bytes, 8)) {
        let length = length as usize;
        if length < HEADER || length > bytes.len() {
            break;
        }
        if kind == ERROR.to_ne_bytes()
            && let Some(code) = word(&bytes[..length], HEADER)
        {
            answers.push(Answer { code: code as i32, sequence });
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    answers
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
    fn several_answers_in_one_packet_are_read() {
        let bytes = [answer(1, 0), answer(7, -22)].concat();
        assert_eq!(read_answers(&bytes), [Answer { sequence: 1, code: 0 }, Answer { sequence: 7, code: -22 }]);
    }

    #[test]
    fn cut_off_answers_are_left_out() {
        let bytes = answer(1, 0);
        for length in 0..bytes.len() {
            assert_eq!(read_answers(&bytes[..length]), [], "{length}");
        }
        assert_eq!(read_answers(&[0; 64]), []);
    }
}
