//! The list of behaviours: tables whose rows are `| id | statement | where it is tested |`.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{self, Id};

/// One behaviour that the project keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Its id.
    pub id: Id,
    /// Its line in the list.
    pub line: usize,
    /// The kinds of tests that have to name it today. Empty if it needs a part that does not exist yet, is a decision that
    /// other behaviours implement, or belongs to another component.
    pub tested: BTreeSet<Tested>,
}

/// The kinds of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tested {
    /// `unit`, or `superseded`: any test names it.
    Unit,
    /// `sim`: a simulation of the whole agent names it.
    Simulation,
    /// `e2e`: a test with real peers names it.
    Peers,
    /// `soak`: a test that takes minutes names it, and `make soak` alone runs it.
    Soak,
}

/// The parts of keelet that a pending behaviour may wait for.
const DOORS: [&str; 3] = ["runtime", "cluster", "gates"];

/// Reads the list. Its faults are returned as sentences for people.
pub fn read(markdown: &str) -> (BTreeMap<Id, Behaviour>, Vec<String>) {
    let mut list = BTreeMap::new();
    let mut faults = Vec::new();
    for (index, text) in markdown.lines().enumerate() {
        let line = index + 1;
        let Some(id) = first_cell_id(text) else { continue };
        let cells: Vec<&str> = text.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [_, statement, place] = cells[..] else {
            faults.push(format!("line {line}: {id} has {} columns instead of 3", cells.len()));
            continue;
        };
        if statement.is_empty() {
            faults.push(format!("line {line}: {id} has no statement"));
        }
        let tested = tested(place).unwrap_or_else(|| {
            faults.push(format!("line {line}: {id} has the kind {place:?}, which is not a kind of test"));
            BTreeSet::new()
        });
        if tested.iter().eq([&Tested::Soak]) {
            faults.push(format!("line {line}: {id} has no test that runs without `make soak`"));
        }
        if let Some(earlier) = list.insert(id.clone(), Behaviour { id: id.clone(), line, tested }) {
            faults.push(format!("line {line}: {id} is already in line {}", earlier.line));
        }
    }
    faults.extend(gaps(&list));
    (list, faults)
}

fn first_cell_id(line: &str) -> Option<Id> {
    let cell = line.trim().strip_prefix('|')?.split('|').next()?.trim().trim_matches(['*', '`']);
    ids::find(cell).into_iter().next().filter(|id| id.to_string() == cell)
}

/// `unit`, `sim`, `e2e`, `soak`, `superseded: by what`, `pending: door`, `not ours: why`, `decision`, or several of them joined by ` + `.
fn tested(place: &str) -> Option<BTreeSet<Tested>> {
    let parts = place.split(" + ").map(|part| match part.split_once(": ").unwrap_or((part, "")) {
        ("unit", "") => Some(Some(Tested::Unit)),
        ("sim", "") => Some(Some(Tested::Simulation)),
        ("e2e", "") => Some(Some(Tested::Peers)),
        ("soak", "") => Some(Some(Tested::Soak)),
        ("superseded", by) if !by.is_empty() => Some(Some(Tested::Unit)),
        ("pending", door) if DOORS.contains(&door) => Some(None),
        ("not ours", reason) if !reason.is_empty() => Some(None),
        ("decision", "") => Some(None),
        _ => None,
    });
    let parts: Option<Vec<Option<Tested>>> = parts.collect();
    Some(parts?.into_iter().flatten().collect())
}

/// Ids that are missing in a family: a forgotten row.
fn gaps(list: &BTreeMap<Id, Behaviour>) -> Vec<String> {
    let mut highest: BTreeMap<&str, u32> = BTreeMap::new();
    for id in list.keys() {
        let last = highest.entry(&id.family).or_default();
        *last = id.number.max(*last);
    }
    let wanted = highest.into_iter().flat_map(|(family, last)| {
        (1..=last).map(|number| Id { family: family.to_owned(), number, suffix: String::new() })
    });
    wanted.filter(|id| !list.contains_key(id)).map(|id| format!("{id} is missing")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Tested, read};

    const HEAD: &str = "| id | what | where |\n| --- | --- | --- |\n";

    fn read_rows(rows: &str) -> (Vec<Vec<Tested>>, Vec<String>) {
        let (list, faults) = read(&format!("{HEAD}{rows}"));
        (list.into_values().map(|b| b.tested.into_iter().collect()).collect(), faults)
    }

    #[test]
    fn reads_every_place() {
        let (list, faults) = read_rows(
            "| VEC-1 | one | unit |\n| **VEC-2** | two | pending: runtime |\n| `VEC-3` | three | superseded: by four |\n\
             | VEC-4 | four | sim + pending: runtime |\n| VEC-5 | five | decision |\n| VEC-6 | six | unit + sim + e2e + soak |\n\
             | VEC-7 | seven | not ours: another program does it |\n",
        );
        assert_eq!(faults, Vec::<String>::new());
        let (unit, sim, peers, soak) = (Tested::Unit, Tested::Simulation, Tested::Peers, Tested::Soak);
        assert_eq!(list, [vec![unit], vec![], vec![unit], vec![sim], vec![], vec![unit, sim, peers, soak], vec![]]);
    }

    #[test]
    fn says_what_is_wrong_with_the_list() {
        let (_, faults) = read_rows("| VEC-1 | one | somewhere |\n| VEC-1 | again | unit |\n| VEC-4 || unit |\n");
        assert_eq!(
            faults,
            [
                "line 3: VEC-1 has the kind \"somewhere\", which is not a kind of test",
                "line 4: VEC-1 is already in line 3",
                "line 5: VEC-4 has no statement",
                "VEC-2 is missing",
                "VEC-3 is missing",
            ]
        );
    }

    #[test]
    fn a_door_that_does_not_exist_is_a_fault() {
        let (_, faults) =
            read_rows("| VEC-1 | one | pending: later |\n| VEC-2 | two | pending |\n| VEC-3 | three | not ours |\n");
        assert_eq!(faults.len(), 3, "{faults:?}");
    }

    #[test]
    fn a_test_that_takes_minutes_does_not_stand_alone() {
        let (_, faults) = read_rows("| VEC-1 | one | soak |\n| VEC-2 | two | sim + soak |\n");
        assert_eq!(faults, ["line 3: VEC-1 has no test that runs without `make soak`"]);
    }

    #[test]
    fn a_row_with_a_pipe_too_many_is_a_fault() {
        let (_, faults) = read_rows("| VEC-1 | one | or two | unit |\n");
        assert_eq!(faults, ["line 3: VEC-1 has 4 columns instead of 3"]);
    }

    #[test]
    fn prose_that_names_an_id_is_no_row() {
        assert!(read("VEC-1 is a vector.\n| see VEC-1 | x | unit |\n").0.is_empty());
    }
}
