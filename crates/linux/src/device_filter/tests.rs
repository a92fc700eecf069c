//! The program of the rules is run on an interpreter and compared with a plain evaluation of the rules.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// The context that the kernel gives to a program.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    kind: u32,
    major: u32,
    minor: u32,
    access: u32,
}

fn rules(json: Value) -> Vec<LinuxDeviceCgroup> {
    serde_json::from_value(json).unwrap()
}

fn attempt(kind: char, major: u32, minor: u32, letters: &str) -> Attempt {
    let bits = letters.chars().map(|letter| match letter {
        'm' => 1,
        'r' => 2,
        _ => 4,
    });
    Attempt { kind: if kind == 'b' { 1 } else { 2 }, major, minor, access: bits.sum() }
}

/// An interpreter for the instructions that our programs use. It checks the control flow as the kernel's verifier does.
fn run(program: &[Instruction], attempt: &Attempt) -> bool {
    check(program);
    let context = [attempt.kind | attempt.access << 16, attempt.major, attempt.minor];
    let mut registers = [None::<u64>; 11];
    let mut at = 0;
    loop {
        let Instruction { code, registers: both, offset, immediate } = program[at];
        at += 1;
        let to = usize::from(both & 0xf);
        let value = immediate.cast_unsigned();
        let half =
            |registers: &[Option<u64>; 11]| registers[to].expect("a register is written before it is read") as u32;
        let mut jump = |taken: bool| {
            if taken {
                at += usize::try_from(offset).unwrap();
            }
        };
        match code {
            0x61 => {
                assert_eq!(both >> 4, 1, "only the context is read");
                registers[to] = Some(u64::from(context[usize::try_from(offset).unwrap() / 4]));
            }
            0x54 => registers[to] = Some(u64::from(half(&registers) & value)),
            0x74 => registers[to] = Some(u64::from(half(&registers) >> value)),
            0xb7 => registers[to] = Some(i64::from(immediate).cast_unsigned()),
            0x05 => jump(true),
            0x56 => jump(half(&registers) != value),
            0x46 => jump(half(&registers) & value != 0),
            0x95 => return registers[0].expect("a result is set") == 1,
            other => panic!("unexpected instruction {other:#x}"),
        }
    }
}

/// Every instruction is reachable, and no jump leaves the program.
fn check(program: &[Instruction]) {
    let mut reached = vec![false; program.len()];
    let mut todo = vec![0];
    while let Some(at) = todo.pop() {
        assert!(at < program.len(), "the end is passed");
        if std::mem::replace(&mut reached[at], true) {
            continue;
        }
        let jump = at + 1 + usize::try_from(program[at].offset).unwrap();
        match program[at].code {
            0x95 => {}
            0x05 => todo.push(jump),
            0x56 | 0x46 => todo.extend([at + 1, jump]),
            _ => todo.push(at + 1),
        }
    }
    assert!(reached.iter().all(|&reached| reached), "unreachable code, which the verifier rejects: {program:?}");
}

/// For each requested access the last matching rule applies.
fn evaluated(rules: &[LinuxDeviceCgroup], attempt: &Attempt) -> bool {
    [(1, 'm'), (2, 'r'), (4, 'w')].iter().filter(|(bit, _)| attempt.access & bit != 0).all(|(_, letter)| {
        let matches = |rule: &&LinuxDeviceCgroup| {
            let kind = match rule.typ().unwrap_or_default().as_str() {
                "a" => true,
                "b" => attempt.kind == 1,
                _ => attempt.kind == 2,
            };
            let number = |wanted: Option<i64>, actual: u32| wanted.is_none_or(|n| n == -1 || n == i64::from(actual));
            let access = rule.access().as_deref().unwrap_or("rwm").contains(*letter);
            kind && number(rule.major(), attempt.major) && number(rule.minor(), attempt.minor) && access
        };
        rules.iter().rfind(matches).is_some_and(|rule| rule.allow())
    })
}

fn some_number() -> impl Strategy<Value = Option<i64>> {
    prop::sample::select(vec![None, Some(-1), Some(0), Some(1), Some(3), Some(0x8000_0000), Some(0xffff_ffff)])
}

fn some_rule() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec![None, Some("a"), Some("b"), Some("c"), Some("u")]);
    let access = prop::sample::select(vec!["r", "w", "m", "rw", "wm", "rm", "rwm", "mwr"]);
    (any::<bool>(), kind, some_number(), some_number(), access).prop_map(|(allow, kind, major, minor, access)| {
        json!({ "allow": allow, "type": kind, "major": major, "minor": minor, "access": access })
    })
}

fn some_attempt() -> impl Strategy<Value = Attempt> {
    let number = || prop::sample::select(vec![0, 1, 2, 3, 0x8000_0000, u32::MAX]);
    (1..3_u32, number(), number(), 0..8_u32).prop_map(|(kind, major, minor, access)| Attempt {
        kind,
        major,
        minor,
        access,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_program_decides_as_the_rules_do(
        rules in prop::collection::vec(some_rule(), 0..10),
        attempts in prop::collection::vec(some_attempt(), 30),
    ) {
        let rules: Vec<LinuxDeviceCgroup> = serde_json::from_value(json!(rules)).unwrap();
        let program = compile(&rules).unwrap();
        for attempt in attempts {
            prop_assert_eq!(run(&program, &attempt), evaluated(&rules, &attempt), "{:?}", attempt);
        }
    }
}

#[test]
fn the_usual_rules_of_a_container() {
    let rules = rules(json!([
        { "allow": false, "access": "rwm" },
        { "allow": true, "type": "c", "access": "m" },
        { "allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm" },
        { "allow": true, "type": "c", "major": 136, "access": "rw" },
        { "allow": true, "type": "b", "major": 8, "minor": 0, "access": "r" },
        { "allow": false, "type": "c", "major": 136, "minor": 7, "access": "w" },
    ]));
    let program = compile(&rules).unwrap();
    for (attempt, allowed) in [
        (attempt('c', 1, 3, "rw"), true),
        (attempt('c', 1, 3, "m"), true),
        (attempt('c', 1, 8, "r"), false),
        (attempt('c', 1, 8, "m"), true),
        (attempt('b', 1, 3, "r"), false),
        (attempt('c', 136, 5, "rw"), true),
        (attempt('c', 136, 7, "r"), true),
        (attempt('c', 136, 7, "rw"), false),
        // Two rules together: one allows mknod, another reading.
        (attempt('c', 136, 5, "rwm"), true),
        (attempt('b', 8, 0, "r"), true),
        (attempt('b', 8, 0, "rw"), false),
        (attempt('b', 8, 1, "r"), false),
    ] {
        assert_eq!(run(&program, &attempt), allowed, "{attempt:?}");
    }
}

#[test]
fn without_rules_everything_is_denied() {
    let program = compile(&[]).unwrap();
    assert!(!run(&program, &attempt('c', 1, 3, "r")));
}

#[test]
fn rules_before_one_that_matches_everything_have_no_effect() {
    let all = json!({ "allow": true, "type": "a", "access": "rwm" });
    let one = json!({ "allow": false, "type": "c", "major": 1, "minor": 3, "access": "rwm" });
    let long = compile(&rules(json!([one, one, one, all]))).unwrap();
    assert_eq!(long, compile(&rules(json!([all]))).unwrap());
    assert!(run(&long, &attempt('c', 1, 3, "rwm")));
}

#[test]
fn an_invalid_rule_is_rejected_with_its_position() {
    for (rule, part) in [
        (json!({ "allow": true, "type": "p", "access": "r" }), "invalid type p"),
        (json!({ "allow": true, "type": "c", "major": -2, "access": "r" }), "invalid major -2"),
        (json!({ "allow": true, "type": "c", "minor": 4_294_967_296_i64, "access": "r" }), "invalid minor 4294967296"),
        (json!({ "allow": true, "type": "c", "access": "rx" }), "invalid access \"rx\""),
        (json!({ "allow": true, "type": "c" }), "missing access"),
    ] {
        let error = compile(&rules(json!([{ "allow": false }, rule]))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with(&format!("devices[1]: {part}")), "{error}");
    }
}

#[test]
fn the_error_for_a_directory_that_is_not_a_cgroup_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let error = attach(directory.path(), &[]).unwrap_err().to_string();
    assert!(error.contains(&directory.path().display().to_string()), "{error}");
}
