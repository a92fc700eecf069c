//! Times, spans, lists and quotes, as people read them.

use std::time::Duration;

use keelet_lifecycle::{Moment, Wall};

/// `2026-09-21`, in UTC.
pub(crate) fn date(wall: Wall) -> String {
    let text = wall.to_string();
    text.split_once('T').map_or(text.clone(), |(date, _)| date.to_owned())
}

/// `12:03:09`, in UTC.
pub(crate) fn clock(wall: Wall) -> String {
    let text = wall.whole_seconds().to_string();
    text.split_once('T').map_or(text.clone(), |(_, time)| time.trim_end_matches('Z').to_owned())
}

/// `shop/web`; the name alone where there is no namespace.
pub(crate) fn pod_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// The time of day, with the date where it is not that of `now`.
pub(crate) fn time(wall: Wall, now: Moment) -> String {
    if date(wall) == date(now.wall) { clock(wall) } else { format!("{} {}", date(wall), clock(wall)) }
}

/// The time of day and how long ago that was: `12:03:09 (14 s ago)`.
pub(crate) fn time_ago(at: Moment, now: Moment) -> String {
    format!("{} ({})", time(at.wall, now), relative(at, now))
}

/// The same of an instance: `12:03:09 (14 s ago, id 3f1b0c9d8e7a)`.
pub(crate) fn time_ago_id(at: Moment, id: &str, now: Moment) -> String {
    format!("{} ({}, id {})", time(at.wall, now), relative(at, now), short_id(id))
}

/// `14 s ago`, `in 3 s`, `just now`.
pub(crate) fn relative(at: Moment, now: Moment) -> String {
    let (ago, ahead) = (now.since(&at), at.since(&now));
    if ago >= Duration::from_secs(1) {
        format!("{} ago", span(whole_seconds(ago)))
    } else if ahead > Duration::ZERO {
        format!("in {}", span(ahead))
    } else {
        "just now".to_owned()
    }
}

fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs())
}

/// The two largest units: `12 ms`, `1.5 s`, `14 s`, `3 min 5 s`, `2 h`, `4 d 1 h`.
pub(crate) fn span(span: Duration) -> String {
    let (millis, seconds) = (span.as_millis(), span.as_secs());
    let two = |large: u64, unit: &str, small: u64, smaller: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {smaller}"),
    };
    match seconds {
        0 => format!("{millis} ms"),
        1..10 if millis % 1000 != 0 => format!("{}.{} s", seconds, millis % 1000 / 100),
        1..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// `"a"`, `"a" and "b"`, `"a", "b" and "c"`.
pub(crate) fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// `once`, `twice`, `3 times`.
pub(crate) fn times(number: u32) -> String {
    match number {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{number} times"),
    }
}

/// The beginning of an instance's ID, without the runtime's scheme.
pub(crate) fn short_id(id: &str) -> &str {
    let bare = id.split_once("://").map_or(id, |(_, bare)| bare);
    &bare[..bare.floor_char_boundary(12)]
}

/// Foreign text, such as a probe's output or an error message, on one line and in quotes; nothing for nothing.
pub(crate) fn quoted(text: &str) -> String {
    match one_line(text) {
        text if text.is_empty() => String::new(),
        text => format!(": \"{text}\""),
    }
}

/// The same of what says little, such as the page that a probe got: its beginning is enough.
pub(crate) fn quoted_briefly(text: &str) -> String {
    quoted(&clipped(&one_line(text), BRIEFLY))
}

/// How many characters of it.
const BRIEFLY: usize = 100;

/// A text of at most so many characters; `…` stands for what was left out.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Writes a sentence after its beginning, broken between words so that no line is longer than `width`; further lines are indented.
pub fn wrapped(page: &mut String, start: &str, indent: usize, text: &str, width: usize) {
    page.push_str(start);
    let mut column = start.chars().count();
    let mut first = true;
    for word in words_of(text) {
        let length = word.chars().count();
        // A word too long for any line stands where it comes.
        if !first && column + 1 + length > width.max(indent + 20) {
            page.push('\n');
            page.push_str(&" ".repeat(indent));
            column = indent;
        } else if !first {
            page.push(' ');
            column += 1;
        }
        page.push_str(&word);
        column += length;
        first = false;
    }
    page.push('\n');
}

/// Words with what follows them on the same line: a number keeps its unit.
fn words_of(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim_end_matches(|c: char| c.is_ascii_punctuation());
        match words.last_mut() {
            Some(number) if is_unit(bare) && number.ends_with(|c: char| c.is_ascii_digit()) => {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

fn is_unit(word: &str) -> bool {
    matches!(word, "ms" | "s" | "min" | "h")
}

/// Without line breaks and control characters.
pub(crate) fn one_line(text: &str) -> String {
    let words: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use keelet_lifecycle::BootId;

    use super::*;

    fn moment(ms: i64) -> Moment {
        let wall = Wall::from_millis(1_800_000_000_000 + ms);
        Moment { boot_ms: ms, wall, boot_id: BootId::from_u128(1) }
    }

    #[test]
    fn spans_show_their_two_largest_units() {
        let cases = [
            (0, "0 ms"),
            (12, "12 ms"),
            (1000, "1 s"),
            (1550, "1.5 s"),
            (14_900, "14 s"),
            (60_000, "1 min"),
            (185_000, "3 min 5 s"),
            (7_260_000, "2 h 1 min"),
            (349_200_000, "4 d 1 h"),
        ];
        for (millis, expected) in cases {
            assert_eq!(span(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn times_are_utc_with_the_date_only_where_it_differs() {
        let now = moment(0);
        assert_eq!(time_ago(moment(-14_000), now), "07:59:46 (14 s ago)");
        assert_eq!(time_ago(moment(-86_400_000), now), "2027-01-14 08:00:00 (1 d ago)");
        assert_eq!(relative(moment(2500), now), "in 2.5 s");
        assert_eq!(relative(moment(-400), now), "just now");
        assert_eq!(time_ago_id(moment(-2000), "x://abc", now), "07:59:58 (2 s ago, id abc)");
    }

    #[test]
    fn sentences_are_wrapped_between_words() {
        let mut page = String::new();
        wrapped(&mut page, "> ", 4, "one two three four five six seven", 24);
        assert_eq!(page, "> one two three four\n    five six seven\n");
        let mut page = String::new();
        wrapped(&mut page, "", 2, "it may take up to 10 s, no longer", 20);
        assert_eq!(page, "it may take up to\n  10 s, no longer\n");
        let mut page = String::new();
        wrapped(&mut page, "", 2, &"x".repeat(50), 10);
        assert_eq!(page, format!("{}\n", "x".repeat(50)));
    }

    #[test]
    fn what_is_left_out_is_marked() {
        assert_eq!((clipped("abcdef", 6), clipped("abcdefg", 6)), ("abcdef".to_owned(), "abcde…".to_owned()));
        assert_eq!(clipped("ab cd ef", 4), "ab…", "no blank before the mark");
        assert_eq!(quoted_briefly(&"é".repeat(101)), format!(": \"{}…\"", "é".repeat(99)));
    }

    #[test]
    fn lists_ids_and_quotes() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(list(&names(&["a"])), r#""a""#);
        assert_eq!(list(&names(&["a", "b", "c"])), r#""a", "b" and "c""#);
        assert_eq!((times(1), times(2), times(7)), ("once".to_owned(), "twice".to_owned(), "7 times".to_owned()));
        assert_eq!(short_id("containerd://0123456789abcdef"), "0123456789ab");
        assert_eq!(quoted(" two\n lines\u{1b}[31m "), ": \"two lines [31m\"");
        assert_eq!(quoted(" \n"), "");
    }
}
