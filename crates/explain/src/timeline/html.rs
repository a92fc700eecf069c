//! A timeline as a page: the picture, how things are now, and every change with its evidence. One file, no script,
//! nothing fetched.

use std::fmt::Write;

use super::{
    Caption, LaneKind, Section, State, Timeline, Tone,
    svg::{Heading, escape, picture},
};
use crate::words::{clock, span};

/// The timeline as a page of its own.
pub fn html(timeline: &Timeline, caption: &Caption) -> String {
    let name = timeline.pod_name();
    let window = format!("{} · {}", caption.times.window(timeline, "–"), span(timeline.to.since(timeline.from)));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{name} · {command}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{name}</h1>\n<p>{window}</p>\n{}</header>\n\
         <main>\n<figure>\n{}</figure>\n{}<section>\n<h2>What changed, and because of what</h2>\n{}</section>\n</main>\n\
         <footer>Drawn by keelet from {origin}. {times}; point at anything in the picture for its evidence.</footer>\n\
         </body>\n</html>\n",
        now(timeline),
        picture(timeline, Heading::Hidden, &caption.times),
        caption.sections.iter().map(section).collect::<String>(),
        table(timeline),
        name = escape(&name),
        command = escape(caption.command),
        window = escape(&window),
        origin = escape(caption.origin),
        times = caption.times.sentence(),
    )
}

fn section(section: &Section) -> String {
    let mut part = format!("<section>\n<h2>{}</h2>\n", escape(section.heading));
    if !section.sentences.is_empty() {
        let sentences: Vec<String> = section.sentences.iter().map(|sentence| escape(sentence)).collect();
        let _ = writeln!(part, "<p>{}</p>", sentences.join("<br>\n"));
    }
    part.push_str("<table>\n<tbody>\n");
    for row in &section.rows {
        let _ = writeln!(
            part,
            "<tr class=\"{}\"><td>{}</td><td>{}</td><td>{}</td></tr>",
            tone_class(row.tone),
            escape(&row.topic),
            whose(row.container.as_deref()),
            escape(&row.text)
        );
    }
    part.push_str("</tbody>\n</table>\n</section>\n");
    part
}

fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Plain => "plain",
        Tone::Bad => "bad",
        Tone::Turn => "turn",
    }
}

fn whose(container: Option<&str>) -> String {
    container.map_or_else(|| "<i>pod</i>".to_owned(), escape)
}

/// How things are at the end of the window.
fn now(timeline: &Timeline) -> String {
    let mut list = String::from("<ul class=\"now\">\n");
    for lane in &timeline.lanes {
        let Some(last) = lane.spans.last() else { continue };
        if lane.kind == LaneKind::Condition && lane.name != "Ready" {
            continue;
        }
        let class = match last.state {
            State::True | State::Running | State::Succeeded | State::Ready => "good",
            State::Trouble | State::Dead | State::Failed => "bad",
            State::Unready | State::Starting => "wait",
            State::False if lane.name == "Ready" => "bad",
            State::False | State::Pending | State::Waiting | State::Done => "plain",
        };
        let _ = writeln!(
            list,
            "<li class=\"{class}\" title=\"{}\"><span>{}</span> <b>{}</b></li>",
            escape(&last.title),
            escape(&lane.name),
            escape(&last.label)
        );
    }
    list.push_str("</ul>\n");
    list
}

fn table(timeline: &Timeline) -> String {
    if timeline.notes.is_empty() {
        return "<p>Nothing has changed in this time.</p>\n".to_owned();
    }
    let mut table = String::from(
        "<table>\n<thead><tr><th scope=\"col\">time</th><th scope=\"col\">of</th><th scope=\"col\">what, and its \
         evidence</th></tr></thead>\n<tbody>\n",
    );
    let mut before = None;
    for note in &timeline.notes {
        let time = clock(note.at);
        // What happened at the same time stands together.
        let same = before.replace(time.clone()) == Some(time.clone());
        let because = note.because.as_ref().map(|because| format!("<small>because {}</small>", escape(because)));
        let _ = writeln!(
            table,
            "<tr class=\"{}{}\"><td><time>{time}</time></td><td>{}</td><td>{}{}</td></tr>",
            tone_class(note.tone),
            if same { " same" } else { "" },
            whose(note.container.as_deref()),
            escape(&note.text),
            because.unwrap_or_default()
        );
    }
    table.push_str("</tbody>\n</table>\n");
    table
}

const STYLE: &str = include_str!("html.css");
