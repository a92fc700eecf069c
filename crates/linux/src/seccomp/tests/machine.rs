//! An interpreter for classic BPF, as far as filters use it. It checks what the kernel checks when it loads a filter.

use super::Program;
use crate::seccomp::bpf::{Instruction, MAX_INSTRUCTIONS};

/// The input of a filter.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) arch: u32,
    pub(super) number: u32,
    pub(super) args: [u64; 6],
}

impl Call {
    pub(super) fn new(arch: u32, number: u32, some_args: &[u64]) -> Self {
        let mut args = [0; 6];
        args[..some_args.len()].copy_from_slice(some_args);
        Self { arch, number, args }
    }

    /// `struct seccomp_data`, little endian.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.arch.to_le_bytes());
        bytes.extend(0xdead_beef_u64.to_le_bytes());
        bytes.extend(self.args.iter().flat_map(|arg| arg.to_le_bytes()));
        bytes
    }
}

pub(super) fn run(program: &Program, call: &Call) -> u32 {
    check(&program.instructions);
    let data = call.bytes();
    let mut accumulator = 0;
    let mut at = 0;
    loop {
        let Instruction { code, if_true, if_false, operand } = program.instructions[at];
        at += 1;
        let mut branch = |taken: bool| at += usize::from(if taken { if_true } else { if_false });
        match code {
            0x20 => {
                let offset = operand as usize;
                accumulator = u32::from_le_bytes(data[offset..offset + 4].try_into().unwrap());
            }
            0x54 => accumulator &= operand,
            0x05 => at += operand as usize,
            0x15 => branch(accumulator == operand),
            0x25 => branch(accumulator > operand),
            0x35 => branch(accumulator >= operand),
            0x06 => return operand,
            other => panic!("unexpected instruction {other:#x}"),
        }
    }
}

fn check(instructions: &[Instruction]) {
    assert!(instructions.len() <= MAX_INSTRUCTIONS);
    assert_eq!(instructions.last().map(|last| last.code), Some(0x06), "the end is a return");
    for (at, instruction) in instructions.iter().enumerate() {
        let farthest = match instruction.code {
            0x20 => {
                assert!(instruction.operand.is_multiple_of(4) && instruction.operand < 64, "inside the data");
                0
            }
            0x05 => instruction.operand as usize,
            _ => usize::from(instruction.if_true.max(instruction.if_false)),
        };
        assert!(at + 1 + farthest < instructions.len() || instruction.code == 0x06, "a jump out at {at}");
    }
}
