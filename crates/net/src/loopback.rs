//! The filter on the host end of each pod that keeps its frames from the loopback addresses of the node.
//!
//! Host ports at 127.0.0.1 need `route_localnet` on the bridge, with which the node takes frames for 127.0.0.0/8 from pods. A packet rule
//! drops them, and any program can remove packet rules (`nft flush ruleset`), also while no agent runs. This filter is a part of the
//! interface, below all packet rules, and stays for as long as the interface does.

use futures::StreamExt;
use rtnetlink::packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};

use crate::kernel::Link;

/// Attributes of a filter that is a classic BPF program.
const OPS_LEN: u16 = 4;
const OPS: u16 = 5;

/// `BPF_LD | BPF_ABS` of a byte and of two, `BPF_JMP | BPF_JEQ`, `BPF_RET`.
const BYTE: u16 = 0x30;
const TWO_BYTES: u16 = 0x28;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// `SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT`: whether the kernel took a VLAN tag off the frame.
const HAD_VLAN_TAG: u32 = 0xffff_f000 + 48;

/// `TC_ACT_OK` and `TC_ACT_SHOT`.
const ACCEPT: u32 = 0;
const DROP: u32 = 2;

/// An instruction: code, how many to skip if true and if false, operand. A frame begins with its Ethernet header.
type Instruction = (u16, u8, u8, u32);

/// Drops IPv4 for 127.0.0.0/8. Drops all frames with VLAN tags too: pods have no VLAN, and the node takes a frame for an untagged one
/// after any number of tags with the number 0.
const PROGRAM: [Instruction; 10] = [
    (BYTE, 0, 0, HAD_VLAN_TAG),
    (JUMP_IF_EQUAL, 0, 6, 0),
    (TWO_BYTES, 0, 0, 12),
    (JUMP_IF_EQUAL, 4, 0, 0x8100),
    (JUMP_IF_EQUAL, 3, 0, 0x88a8),
    (JUMP_IF_EQUAL, 0, 3, 0x0800),
    (BYTE, 0, 0, 14 + 16),
    (JUMP_IF_EQUAL, 0, 1, 127),
    (RETURN, 0, 0, DROP),
    (RETURN, 0, 0, ACCEPT),
];

/// Adds the filter to an interface, or replaces it.
pub(crate) async fn close(handle: &rtnetlink::Handle, link: &Link) -> Result<(), rtnetlink::Error> {
    // The kernel's own type; an index is small.
    let index = link.index.cast_signed();
    match handle.qdisc().add(index).ingress().execute().await {
        // There already, from an earlier call.
        Err(rtnetlink::Error::NetlinkError(answer)) if answer.raw_code() == EXISTS => {}
        other => other?,
    }
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewTrafficFilter(filter(index)));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    let mut handle = handle.clone();
    let mut answers = handle.request(request)?;
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload {
            return Err(rtnetlink::Error::NetlinkError(error));
        }
    }
    Ok(())
}

const EXISTS: i32 = -rustix::io::Errno::EXIST.raw_os_error();

fn filter(index: i32) -> TcMessage {
    let mut message = TcMessage::with_index(index);
    message.header.parent = TcHandle { major: 0xffff, minor: TcHandle::MIN_INGRESS };
    // One number and one priority, so that a repeated request replaces it; for frames of all protocols (`ETH_P_ALL`, 3).
    message.header.handle = TcHandle { major: 0, minor: 1 };
    message.header.info = 1 << 16 | u32::from(3_u16.to_be());
    let program = PROGRAM.iter().flat_map(|(code, if_true, if_false, operand)| {
        [&code.to_ne_bytes()[..], &[*if_true, *if_false], &operand.to_ne_bytes()].concat()
    });
    let length = PROGRAM.len() as u16;
    let other = |kind, value| TcOption::Bpf(TcFilterBpfOption::Other(DefaultNla::new(kind, value)));
    message.attributes = vec![
        TcAttribute::Kind(TcFilterBpf::KIND.to_owned()),
        TcAttribute::Options(vec![
            other(OPS_LEN, length.to_ne_bytes().to_vec()),
            other(OPS, program.collect()),
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]),
    ];
    message
}
