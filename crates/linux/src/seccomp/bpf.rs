//! Classic BPF: the instructions that filters need, and code generation.
//!
//! Code is generated from the inside out. Every block is relocatable and ends in a return, so blocks are joined by prepending a jump.

use super::Architecture;

/// The kernel's limit (`BPF_MAXINSNS`).
pub(super) const MAX_INSTRUCTIONS: usize = 4096;

/// `SECCOMP_RET_*`: the action for a call.
pub(super) const KILL_THREAD: u32 = 0;
pub(super) const KILL_PROCESS: u32 = 0x8000_0000;
pub(super) const TRAP: u32 = 0x0003_0000;
pub(super) const ERRNO: u32 = 0x0005_0000;
pub(super) const TRACE: u32 = 0x7ff0_0000;
pub(super) const LOG: u32 = 0x7ffc_0000;
pub(super) const ALLOW: u32 = 0x7fff_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQ: u16 = 0x15;
const JUMP_GT: u16 = 0x25;
const JUMP_GE: u16 = 0x35;
const RETURN: u16 = 0x06;

/// One instruction, in the layout of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u16,
    pub(super) if_true: u8,
    pub(super) if_false: u8,
    pub(super) operand: u32,
}

/// The action for all calls of one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallAction {
    /// Always the same.
    Always(u32),
    /// The action of the first matching rule, else this one.
    ByArguments(Vec<Rule>, u32),
}

/// Conditions that must all hold, and the action if they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) conditions: Vec<Condition>,
    pub(super) action: u32,
}

/// A comparison of a 64-bit argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// 0 to 5.
    pub(super) argument: u8,
    pub(super) test: Test,
}

/// The comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Eq(u64),
    Ne(u64),
    Lt(u64),
    Le(u64),
    Gt(u64),
    Ge(u64),
    MaskedEq { mask: u64, value: u64 },
}

/// The numbers from `first` up to where the next range begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) verdict: CallAction,
}

/// The whole filter. `ranges` are in order; the first begins at 0.
pub(super) fn program(architecture: Architecture, ranges: &[Range]) -> Vec<Instruction> {
    let mut code =
        vec![load(ARCHITECTURE), branch(JUMP_EQ, architecture.audit_number(), 1, 0), ret(KILL_PROCESS), load(NUMBER)];
    code.extend(search(ranges));
    code
}

/// Binary search for the range of the number in the accumulator.
fn search(ranges: &[Range]) -> Vec<Instruction> {
    let (left, right) = ranges.split_at(ranges.len() / 2);
    match (left, right) {
        ([], []) => vec![ret(KILL_PROCESS)],
        ([], right) => right.iter().flat_map(|range| verdict(&range.verdict)).collect(),
        (left, right) => {
            let first = right.first().map_or(u32::MAX, |range| range.first);
            let below = search(left);
            let mut code = match u8::try_from(below.len()) {
                Ok(skip) => vec![branch(JUMP_GE, first, skip, 0)],
                // Conditional jumps reach 255 instructions, unconditional ones any.
                Err(_) => vec![branch(JUMP_GE, first, 0, 1), jump(below.len())],
            };
            code.extend(below);
            code.extend(search(right));
            code
        }
    }
}

fn verdict(verdict: &CallAction) -> Vec<Instruction> {
    match verdict {
        CallAction::Always(action) => vec![ret(*action)],
        CallAction::ByArguments(rules, otherwise) => {
            let mut code: Vec<_> = rules.iter().flat_map(rule).collect();
            code.push(ret(*otherwise));
            code
        }
    }
}

/// Returns if all conditions hold, else continues behind the rule.
fn rule(rule: &Rule) -> Vec<Instruction> {
    let action = vec![ret(rule.action)];
    rule.conditions.iter().rev().fold(action, |then, condition| {
        let mut code = condition.code(then.len());
        code.extend(then);
        code
    })
}

/// The target of a comparison of one half of an argument.
#[derive(Clone, Copy)]
enum To {
    /// The next instruction.
    Next,
    /// The condition holds.
    Pass,
    /// It does not.
    Fail,
}

/// An instruction with symbolic jump targets.
enum Draft {
    Plain(Instruction),
    Branch(u16, u32, To, To),
}

// === impl Condition ===

impl Condition {
    /// Falls through if the condition holds, else skips `then` more instructions.
    fn code(&self, then: usize) -> Vec<Instruction> {
        let drafts = self.draft();
        let end = drafts.len();
        drafts
            .iter()
            .enumerate()
            .map(|(at, draft)| match draft {
                Draft::Plain(instruction) => *instruction,
                Draft::Branch(code, operand, if_true, if_false) => {
                    let distance = |to: &To| {
                        let target = match to {
                            To::Next => at + 1,
                            To::Pass => end,
                            To::Fail => end + then,
                        };
                        // Six conditions of six instructions and a return are far below 255.
                        u8::try_from(target - at - 1).unwrap_or(u8::MAX)
                    };
                    branch(*code, *operand, distance(if_true), distance(if_false))
                }
            })
            .collect()
    }

    /// The machine compares 32 bits: first the high half, then the low half.
    fn draft(&self) -> Vec<Draft> {
        use Draft::{Branch, Plain};
        use To::{Fail, Next, Pass};
        let offset = ARGUMENTS + 8 * u32::from(self.argument);
        let (high, low) = (|| Plain(load(offset + 4)), || Plain(load(offset)));
        match self.test {
            Test::Eq(value) => vec![
                high(),
                Branch(JUMP_EQ, upper(value), Next, Fail),
                low(),
                Branch(JUMP_EQ, lower(value), Pass, Fail),
            ],
            Test::Ne(value) => vec![
                high(),
                Branch(JUMP_EQ, upper(value), Next, Pass),
                low(),
                Branch(JUMP_EQ, lower(value), Fail, Pass),
            ],
            Test::Gt(value) => vec![
                high(),
                Branch(JUMP_GT, upper(value), Pass, Next),
                Branch(JUMP_EQ, upper(value), Next, Fail),
                low(),
                Branch(JUMP_GT, lower(value), Pass, Fail),
            ],
            Test::Ge(value) => vec![
                high(),
                Branch(JUMP_GT, upper(value), Pass, Next),
                Branch(JUMP_EQ, upper(value), Next, Fail),
                low(),
                Branch(JUMP_GE, lower(value), Pass, Fail),
            ],
            Test::Lt(value) => vec![
                high(),
                Branch(JUMP_GT, upper(value), Fail, Next),
                Branch(JUMP_EQ, upper(value), Next, Pass),
                low(),
                Branch(JUMP_GE, lower(value), Fail, Pass),
            ],
            Test::Le(value) => vec![
                high(),
                Branch(JUMP_GT, upper(value), Fail, Next),
                Branch(JUMP_EQ, upper(value), Next, Pass),
                low(),
                Branch(JUMP_GT, lower(value), Fail, Pass),
            ],
            Test::MaskedEq { mask, value } => vec![
                high(),
                Plain(and(upper(mask))),
                Branch(JUMP_EQ, upper(value), Next, Fail),
                low(),
                Plain(and(lower(mask))),
                Branch(JUMP_EQ, lower(value), Pass, Fail),
            ],
        }
    }
}

fn upper(value: u64) -> u32 {
    (value >> 32) as u32
}

fn lower(value: u64) -> u32 {
    value as u32
}

fn load(offset: u32) -> Instruction {
    plain(LOAD, offset)
}

fn and(mask: u32) -> Instruction {
    plain(AND, mask)
}

fn ret(action: u32) -> Instruction {
    plain(RETURN, action)
}

fn jump(distance: usize) -> Instruction {
    // A longer jump would be in a program that is rejected for its length.
    plain(JUMP, u32::try_from(distance).unwrap_or(u32::MAX))
}

fn plain(code: u16, operand: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, operand }
}

fn branch(code: u16, operand: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code, if_true, if_false, operand }
}
