//! The list of behaviours: tables whose rows are `| id | statement | where it is tested |`.

use std::collections::BTreeMap;

use crate::ids::{self, Id};

/// One behaviour that the project keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Its id.
    pub id: Id,
    /// The line of the list it stands in.
    pub line: usize,
    /// Whether a test has to name it today.
    pub tested: Tested,
}

/// Where a behaviour is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tested {
    /// `unit`, or `superseded`: a test that runs with `cargo test` names it.
    Now,
    /// `pending`: it needs a part that does not exist yet.
    Later,
    /// `decision`: a choice that other behaviours carry out.
    Elsewhere,
}

/// The parts of keelet that a pending behaviour may wait for.
const DOORS: [&str; 4] = ["agent", "runtime", "cluster", "gates"];

/// Reads the list. What is wrong with it comes back as sentences for people.
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
            faults.push(format!("line {line}: {id} states nothing"));
        }
        let tested = tested(place).unwrap_or_else(|| {
            faults.push(format!("line {line}: {id} says {place:?}, which is no place to test"));
            Tested::Now
        });
        if let Some(earlier) = list.insert(id.clone(), Behaviour { id: id.clone(), line, tested }) {
            faults.push(format!("line {line}: {id} stands in line {} already", earlier.line));
        }
    }
    faults.extend(gaps(&list));
    (list, faults)
}

fn first_cell_id(line: &str) -> Option<Id> {
    let cell = line.trim().strip_prefix('|')?.split('|').next()?.trim().trim_matches(['*', '`']);
    ids::find(cell).into_iter().next().filter(|id| id.to_string() == cell)
}

/// `unit`, `superseded: by what`, `pending: door`, `decision`, or `unit + pending: door` for a behaviour of two parts.
fn tested(place: &str) -> Option<Tested> {
    let parts: Option<Vec<Tested>> = place
        .split(" + ")
        .map(|part| match part.split_once(": ").unwrap_or((part, "")) {
            ("unit", "") => Some(Tested::Now),
            ("superseded", by) if !by.is_empty() => Some(Tested::Now),
            ("pending", door) if DOORS.contains(&door) => Some(Tested::Later),
            ("decision", "") => Some(Tested::Elsewhere),
            _ => None,
        })
        .collect();
    let parts = parts?;
    if parts.contains(&Tested::Now) { Some(Tested::Now) } else { parts.first().copied() }
}

/// Numbers that a family leaves out: a row that was forgotten.
fn gaps(list: &BTreeMap<Id, Behaviour>) -> Vec<String> {
    let mut highest: BTreeMap<&str, u32> = BTreeMap::new();
    for id in list.keys() {
        let last = highest.entry(&id.family).or_default();
        *last = id.number.max(*last);
    }
    let wanted = highest.into_iter().flat_map(|(family, last)| {
        (1..=last).map(|number| Id { family: family.to_owned(), number, suffix: String::new() })
    });
    wanted.filter(|id| !list.contains_key(id)).map(|id| format!("{id} is left out")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Tested, read};

    const HEAD: &str = "| id | what | where |\n| --- | --- | --- |\n";

    fn read_rows(rows: &str) -> (Vec<(String, Tested)>, Vec<String>) {
        let (list, faults) = read(&format!("{HEAD}{rows}"));
        (list.values().map(|b| (b.id.to_string(), b.tested)).collect(), faults)
    }

    #[test]
    fn reads_every_place() {
        let (list, faults) = read_rows(
            "| VEC-1 | one | unit |\n| **VEC-2** | two | pending: agent |\n| `VEC-3` | three | superseded: by four |\n\
             | VEC-4 | four | unit + pending: runtime |\n| VEC-5 | five | decision |\n",
        );
        assert_eq!(faults, Vec::<String>::new());
        let places: Vec<Tested> = list.iter().map(|(_, tested)| *tested).collect();
        assert_eq!(places, [Tested::Now, Tested::Later, Tested::Now, Tested::Now, Tested::Elsewhere]);
    }

    #[test]
    fn says_what_is_wrong_with_the_list() {
        let (_, faults) = read_rows("| VEC-1 | one | somewhere |\n| VEC-1 | again | unit |\n| VEC-4 || unit |\n");
        assert_eq!(
            faults,
            [
                "line 3: VEC-1 says \"somewhere\", which is no place to test",
                "line 4: VEC-1 stands in line 3 already",
                "line 5: VEC-4 states nothing",
                "VEC-2 is left out",
                "VEC-3 is left out",
            ]
        );
    }

    #[test]
    fn a_door_that_does_not_exist_is_a_fault() {
        let (_, faults) = read_rows("| VEC-1 | one | pending: later |\n| VEC-2 | two | pending |\n");
        assert_eq!(faults.len(), 2, "{faults:?}");
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
