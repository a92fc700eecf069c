//! Frames that a pod writes past its own network stack.

use std::net::{Ipv6Addr, UdpSocket};
use std::num::NonZero;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, recvfrom, sendto,
    socket_with, sockopt,
};

use super::*;

/// All protocols, in network order.
const ALL: u32 = 3_u16.to_be() as u32;

/// What the template says.
const TEMPLATE: &str = "template";

/// A pod's interface, below its network stack.
pub(super) struct Wire {
    socket: OwnedFd,
    /// The interface, as an address.
    interface: SocketAddrAny,
    /// A datagram that the pod's own stack sent.
    template: Vec<u8>,
}

/// A frame.
#[derive(Clone, Debug)]
pub(super) struct Frame(pub(super) Vec<u8>);

/// The datagrams that arrive at a socket, up to one that says `last`.
pub(super) fn received(server: &UdpSocket, last: &str) -> Vec<String> {
    server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 128];
    while seen.last().is_none_or(|seen| seen != last) {
        let (length, _) = server.recv_from(&mut buffer).expect("the last datagram");
        seen.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    seen
}

/// Every frame that reaches a pod's interface.
pub(super) fn listen(pod: &PodNetwork) -> OwnedFd {
    at(Some(&pod.netns), || {
        let all = NonZero::new(ALL).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, all).unwrap();
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(30))).unwrap();
        socket
    })
}

/// The marks of the frames that arrive, up to this one. A mark begins with `#`.
pub(super) fn marks(interface: &OwnedFd, last: &str) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    let mut buffer = vec![0; 2048];
    while seen.last().is_none_or(|seen| seen != last) {
        let received = recvfrom(interface, &mut buffer[..], RecvFlags::empty());
        let (length, _, _) = received.unwrap_or_else(|error| panic!("{last} does not arrive: {error}; seen: {seen:?}"));
        let mark = buffer[..length].iter().rposition(|byte| *byte == b'#').map(|at| &buffer[at..length]);
        seen.extend(mark.and_then(|mark| std::str::from_utf8(mark).ok()).map(str::to_owned));
    }
    seen
}

// === impl Wire ===

impl Wire {
    /// Has the pod send a datagram, which shows the way from its interface to an IPv4 address.
    pub(super) fn open(pod: &PodNetwork, to: IpAddr, port: u16) -> Wire {
        at(Some(&pod.netns), || {
            let all = NonZero::new(ALL).map(Protocol::from_raw);
            let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, all).unwrap();
            UdpSocket::bind("0.0.0.0:0").unwrap().send_to(TEMPLATE.as_bytes(), (to, port)).unwrap();
            loop {
                let mut buffer = vec![0; 2048];
                let (length, _, interface) = recvfrom(&socket, &mut buffer[..], RecvFlags::empty()).unwrap();
                buffer.truncate(length);
                if buffer.ends_with(TEMPLATE.as_bytes()) {
                    return Wire { socket, interface: interface.unwrap(), template: buffer };
                }
            }
        })
    }

    /// A frame of another protocol, from the pod's hardware address.
    pub(super) fn frame(&self, ether_type: u16, content: &[&[u8]]) -> Frame {
        Frame([&self.template[..12], &ether_type.to_be_bytes(), &content.concat()].concat())
    }

    /// An ARP reply: this address is at the pod's hardware address.
    pub(super) fn arp_reply(&self, address: [u8; 4]) -> Frame {
        let (to, own) = (&self.template[..6], &self.template[6..12]);
        self.frame(0x0806, &[&[0, 1, 8, 0, 6, 4, 0, 2], own, &address, to, &self.template[30..34]])
    }

    /// An ICMPv6 message to all nodes, or to all of them that the kernel takes for neighbours.
    pub(super) fn icmpv6(&self, from: Ipv6Addr, kind: u8, body: &[u8]) -> Frame {
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
        let length = (4 + body.len() as u16).to_be_bytes();
        let header = [&[0x60, 0, 0, 0][..], &length, &[58, 255], &from.octets(), &all_nodes].concat();
        self.frame(0x86dd, &[&header, &[kind, 0, 0, 0], body])
    }

    /// A datagram like the first one, to another address.
    pub(super) fn datagram(&self, to: [u8; 4], text: &str) -> Frame {
        let mut frame = self.template[..14 + 20 + 8].to_vec();
        frame.extend(text.as_bytes());
        let length = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame[30..34].copy_from_slice(&to);
        frame[38..40].copy_from_slice(&(length - 20).to_be_bytes());
        // None: the datagram counts as unchecked.
        frame[40..42].fill(0);
        Frame(frame).checked()
    }

    pub(super) fn send(&self, frame: &Frame) {
        sendto(&self.socket, &frame.0, SendFlags::empty(), &self.interface).unwrap();
    }
}

// === impl Frame ===

impl Frame {
    /// With the checksum of its IPv4 header.
    fn checked(mut self) -> Frame {
        self.0[24..26].fill(0);
        let words = self.0[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        self.0[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        self
    }

    /// With VLAN tags of the number 0 before its content.
    pub(super) fn tagged(mut self, tags: &[u16]) -> Frame {
        let tags = tags.iter().flat_map(|kind| [kind.to_be_bytes(), [0, 0]].concat());
        self.0.splice(12..12, tags);
        self
    }

    /// With words at the end of its content.
    pub(super) fn marked(mut self, text: &str) -> Frame {
        self.0.extend(text.as_bytes());
        let length = (self.0.len() - 14) as u16;
        match u16::from_be_bytes([self.0[12], self.0[13]]) {
            0x0800 => {
                self.0[16..18].copy_from_slice(&length.to_be_bytes());
                self.0[38..40].copy_from_slice(&(length - 20).to_be_bytes());
                self.checked()
            }
            0x86dd => {
                self.0[18..20].copy_from_slice(&(length - 40).to_be_bytes());
                self
            }
            _ => self,
        }
    }

    /// From another IPv4 address.
    pub(super) fn with_source_address(mut self, address: [u8; 4]) -> Frame {
        self.0[26..30].copy_from_slice(&address);
        self.checked()
    }

    /// From another hardware address.
    pub(super) fn with_source_hardware(mut self, address: [u8; 6]) -> Frame {
        self.0[6..12].copy_from_slice(&address);
        self
    }
}
