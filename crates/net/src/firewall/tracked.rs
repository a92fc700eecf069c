//! Connection tracking. UDP has no connection teardown: a client that keeps sending keeps the NAT of its first packet, to a pod that was
//! deleted. So the tracked connections of a host port are deleted when its pod changes.

use std::collections::BTreeSet;
use std::io;

use super::error::FirewallError;
use super::message::{Attributes, Family};
use super::socket::{self, Message};

const CONNECTIONS: u16 = 1;
const GET: u16 = CONNECTIONS << 8 | 1;
const DELETE: u16 = CONNECTIONS << 8 | 2;

const UDP: u8 = 17;

/// The original tuple of a connection, before NAT.
const ORIGINAL: u16 = 1;
const PROTOCOL_PART: u16 = 2;
const PROTOCOL_NUMBER: u16 = 1;
const DESTINATION_PORT: u16 = 3;

/// Deletes all tracked UDP connections to these host ports.
pub(crate) fn delete_udp(ports: &BTreeSet<u16>) -> Result<(), FirewallError> {
    if ports.is_empty() {
        return Ok(());
    }
    let delete = || -> io::Result<()> {
        for family in [Family::Ipv4, Family::Ipv6] {
            for found in socket::list(GET, family)? {
                if let Some(original) = original_if_udp_to(&found, ports) {
                    let mut attributes = Attributes::default();
                    attributes.nested(ORIGINAL, |out| out.raw(original));
                    match socket::request(DELETE, family, &attributes) {
                        // It may have expired.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        other => other?,
                    }
                }
            }
        }
        Ok(())
    };
    delete().map_err(FirewallError::Tracking)
}

/// The original tuple of a connection, if that is UDP to one of the ports.
fn original_if_udp_to<'a>(message: &'a Message, ports: &BTreeSet<u16>) -> Option<&'a [u8]> {
    let original = attribute(message.attributes(), ORIGINAL)?;
    let protocol = attribute(original, PROTOCOL_PART)?;
    let number = attribute(protocol, PROTOCOL_NUMBER)?;
    let port = attribute(protocol, DESTINATION_PORT)?.get(..2)?;
    let port = u16::from_be_bytes(port.try_into().ok()?);
    (number.first() == Some(&UDP) && ports.contains(&port)).then_some(original)
}

/// The value of an attribute.
pub(super) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    const FLAGS: u16 = 0xc000;
    while let Some(head) = bytes.get(..4) {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & !FLAGS;
        let value = bytes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_among_others() {
        let mut attributes = Attributes::default();
        attributes.bytes(9, &[1, 2, 3]);
        attributes.nested(4, |out| out.bytes(1, &[7]));
        let bytes = attributes.as_bytes();
        assert_eq!(attribute(bytes, 9), Some(&[1, 2, 3][..]));
        assert_eq!(attribute(attribute(bytes, 4).unwrap(), 1), Some(&[7][..]));
        assert_eq!(attribute(bytes, 5), None);
    }

    #[test]
    fn invalid_bytes_have_no_attributes() {
        for bytes in [&[][..], &[0; 3], &[0; 8], &[255; 8], &[3, 0, 1, 0]] {
            assert_eq!(attribute(bytes, 1), None, "{bytes:?}");
        }
    }
}
