//! The eBPF code of device rules.
//!
//! Registers: 2 is the device type, 3 the accesses not allowed yet, 4 and 5 the device numbers.

use super::{Kind, Rule};

/// Accesses (`BPF_DEVCG_ACC_*`).
pub(super) const MKNOD: u32 = 1;
pub(super) const READ: u32 = 2;
pub(super) const WRITE: u32 = 4;
pub(super) const ALL: u32 = MKNOD | READ | WRITE;

/// `BPF_DEVCG_DEV_*`.
const BLOCK: u32 = 1;
const CHAR: u32 = 2;

const LOAD_32: u8 = 0x61;
const AND_32: u8 = 0x54;
const SHIFT_RIGHT_32: u8 = 0x74;
const MOVE_64: u8 = 0xb7;
const JUMP: u8 = 0x05;
const JUMP_NE_32: u8 = 0x56;
const JUMP_ANY_32: u8 = 0x46;
const EXIT: u8 = 0x95;

const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const TYPE: u8 = 2;
const WANTED: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// One instruction, in the layout of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(super) code: u8,
    /// The destination in the low half, the source in the high half.
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

pub(super) fn program(rules: &[Rule]) -> Vec<Instruction> {
    // The context has the type in the low half of the first word, the accesses in the high half, then the device numbers.
    let mut code = vec![
        load(TYPE, 0),
        immediate(AND_32, TYPE, 0xffff),
        load(WANTED, 0),
        immediate(SHIFT_RIGHT_32, WANTED, 16),
        load(MAJOR, 4),
        load(MINOR, 8),
    ];
    // Without a requested access there is nothing to deny, and the rules may rely on at least one bit.
    code.push(jump_if(JUMP_NE_32, WANTED, 0, 2));
    code.extend(decide(true));
    for rule in rules.iter().rev() {
        code.extend(rule_code(rule));
        if rule.is_total() {
            // The verifier rejects unreachable code.
            return code;
        }
    }
    code.extend(decide(false));
    code
}

fn rule_code(rule: &Rule) -> Vec<Instruction> {
    let mut code = match (rule.allow, rule.access) {
        (allow, ALL) => decide(allow).to_vec(),
        (true, access) => {
            let mut code = vec![immediate(AND_32, WANTED, !access), jump_if(JUMP_NE_32, WANTED, 0, 2)];
            code.extend(decide(true));
            code
        }
        (false, access) => {
            let mut code = vec![jump_if(JUMP_ANY_32, WANTED, access, 1), jump(2)];
            code.extend(decide(false));
            code
        }
    };
    let kind = rule.kind.map(|kind| match kind {
        Kind::Block => BLOCK,
        Kind::Char => CHAR,
    });
    // From the inside out: each test jumps over all code emitted so far.
    for (register, value) in [(MINOR, rule.minor), (MAJOR, rule.major), (TYPE, kind)] {
        if let Some(value) = value {
            // At most 3 tests and 4 instructions.
            let skip = i16::try_from(code.len()).unwrap_or(i16::MAX);
            code.insert(0, jump_if(JUMP_NE_32, register, value, skip));
        }
    }
    code
}

fn decide(allow: bool) -> [Instruction; 2] {
    [immediate(MOVE_64, RESULT, u32::from(allow)), immediate(EXIT, 0, 0)]
}

fn load(register: u8, offset: i16) -> Instruction {
    Instruction { code: LOAD_32, registers: register | CONTEXT << 4, offset, immediate: 0 }
}

fn immediate(code: u8, register: u8, value: u32) -> Instruction {
    Instruction { code, registers: register, offset: 0, immediate: value.cast_signed() }
}

fn jump_if(code: u8, register: u8, value: u32, offset: i16) -> Instruction {
    Instruction { code, registers: register, offset, immediate: value.cast_signed() }
}

fn jump(offset: i16) -> Instruction {
    Instruction { code: JUMP, registers: 0, offset, immediate: 0 }
}
