//! Tables: columns as wide as they need to be, three spaces between them.

use crate::style::Style;

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tint: Tint,
}

/// What a cell says of the state of things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tint {
    /// Nothing.
    #[default]
    Neutral,
    Good,
    /// In progress, or unknown.
    Unsure,
    Bad,
}

/// A table that may grow: rows that are printed later keep the columns where they are.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    headers: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
}

const GAP: usize = 3;

// === impl Cell ===

impl Cell {
    pub(crate) fn tinted(text: impl Into<String>, tint: Tint) -> Self {
        Self { text: one_line(&text.into()), tint }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::tinted(text, Tint::Neutral)
    }
}

/// Whatever others wrote must not break the table, nor the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim_end().to_owned()
}

// === impl Tint ===

impl Tint {
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        match self {
            Self::Neutral => text.to_owned(),
            Self::Good => style.green(text),
            Self::Unsure => style.yellow(text),
            Self::Bad => style.red(text),
        }
    }
}

// === impl Table ===

impl Table {
    pub(crate) fn new(headers: impl IntoIterator<Item = &'static str>) -> Self {
        Self { headers: headers.into_iter().collect(), rows: Vec::new(), widths: Vec::new() }
    }

    /// Makes a column at least that wide.
    pub(crate) fn reserve(&mut self, header: &str, width: usize) {
        self.widths.resize(self.headers.len(), 0);
        if let Some(column) = self.headers.iter().position(|known| *known == header) {
            self.widths[column] = self.widths[column].max(width);
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The text of the rows so far, which are then forgotten; with the header if there is to be one.
    pub(crate) fn text(&mut self, header: bool, style: Style) -> String {
        let mut rows = std::mem::take(&mut self.rows);
        if header {
            rows.insert(0, self.headers.iter().map(|header| Cell::from(*header)).collect());
        }
        self.widths.resize(self.headers.len(), 0);
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        rows.iter().map(|row| self.line(row, style)).collect()
    }

    fn line(&self, row: &[Cell], style: Style) -> String {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&self.widths).enumerate() {
            line.push_str(&cell.tint.paint(style, &cell.text));
            if index + 1 < row.len() {
                line.push_str(&" ".repeat(width - cell.text.chars().count() + GAP));
            }
        }
        let end = line.trim_end().len();
        line.truncate(end);
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_stay_where_they_are() {
        let mut table = Table::new(["NAME", "STATUS", "AGE"]);
        table.row(vec!["web".into(), Cell::tinted("Running", Tint::Good), "5s".into()]);
        assert_eq!(table.text(true, Style::Plain), "NAME   STATUS    AGE\nweb    Running   5s\n");
        table.row(vec!["a".into(), "Error".into(), "7s".into()]);
        assert_eq!(table.text(false, Style::Plain), "a      Error     7s\n");
    }

    #[test]
    fn colours_take_no_room_and_control_characters_do_no_harm() {
        let mut table = Table::new(["A", "B"]);
        table.row(vec![Cell::tinted("x", Tint::Bad), "1\u{1b}[2J\n2".into()]);
        assert_eq!(table.text(false, Style::Coloured), "\u{1b}[31;1mx\u{1b}[0m   1 [2J 2\n");
    }
}
