//! Timelines: the model, and each way to draw it.

use std::time::Duration;

use keelet_lifecycle::{
    journal::{Note, What},
    operation::Outcome,
};
use keelet_pod::ProbeKind;

use super::{
    stage::Stage,
    why::{ALL, WEB, up},
};
use crate::Known;
use crate::timeline::{
    BandKind, Caption, Lane, LaneKind, MarkKind, Row, Section, State, TextStyle, Timeline, Times, Tone, html, json,
    svg, text,
};

const PLAIN: TextStyle = TextStyle { width: 60, colours: false, ascii: true };

/// A pod that becomes ready, fails its readiness probe, is without an agent, is killed, crashes.
fn eventful() -> Stage {
    let mut stage = Stage::new(WEB);
    stage.answer("main", ProbeKind::Startup, Outcome::Failure, "connection refused");
    stage.settle().seconds(4).exit("setup", 0).seconds(4);
    stage.answer("main", ProbeKind::Startup, Outcome::Success, "200 OK").seconds(12);
    stage.answer("main", ProbeKind::Readiness, Outcome::Failure, "<503> & \"gone\"").seconds(8);
    stage.answer("main", ProbeKind::Readiness, Outcome::Success, "200 OK").seconds(8);
    stage.restart_agent(8).seconds(4);
    stage.answer("main", ProbeKind::Liveness, Outcome::Failure, "500").seconds(2);
    stage.answer("main", ProbeKind::Liveness, Outcome::Success, "200 OK").seconds(4);
    stage.exit("main", 3).seconds(6);
    stage
}

fn build(stage: &Stage) -> Timeline {
    Timeline::build(&stage.known(), None, stage.now)
}

fn lane<'t>(timeline: &'t Timeline, name: &str) -> &'t Lane {
    timeline.lanes.iter().find(|lane| lane.name == name).unwrap_or_else(|| panic!("no lane {name}"))
}

/// Spans as state and length in seconds.
fn outline(lane: &Lane) -> Vec<(State, u64)> {
    lane.spans.iter().map(|span| (span.state, span.to.since(span.from).as_secs())).collect()
}

#[test]
fn lanes_are_phase_conditions_and_containers_with_what_they_were_when() {
    let timeline = build(&eventful());
    let names: Vec<&str> = timeline.lanes.iter().map(|lane| lane.name.as_str()).collect();
    assert_eq!(names, ["phase", "Ready", "Initialized", "setup", "main", "plain"]);
    assert_eq!(outline(lane(&timeline, "phase")), [(State::Pending, 4), (State::Running, 56)]);
    assert_eq!(
        outline(lane(&timeline, "main")),
        [
            (State::Waiting, 4),
            (State::Starting, 5),
            (State::Ready, 14),
            (State::Unready, 6),
            (State::Ready, 21),
            (State::Ready, 4),
            (State::Trouble, 6),
        ]
    );
    assert_eq!(outline(lane(&timeline, "setup")), [(State::Starting, 4), (State::Done, 56)]);
    assert_eq!(lane(&timeline, "setup").kind, LaneKind::Init);
    let exits: Vec<MarkKind> =
        lane(&timeline, "main").marks.iter().map(|mark| mark.kind).filter(|kind| *kind != MarkKind::Kill).collect();
    assert_eq!(exits, [MarkKind::Exit { code: 143 }, MarkKind::Exit { code: 3 }]);
    let absence = &timeline.bands[0];
    assert_eq!((absence.kind, absence.to.since(absence.from).as_secs()), (BandKind::NoAgent, 8));
    assert_eq!(absence.label, "no agent for 8 s");
    let failed = lane(&timeline, "main").ticks.iter().filter(|tick| tick.outcome == Outcome::Failure).count();
    assert_eq!(failed, 5 + 8 + 2);
}

/// A status that says "waits" may be noted after the start that the runtime tells of a moment later.
#[test]
fn a_wait_noted_after_the_start_does_not_hide_that_a_container_runs() {
    let stage = up(WEB);
    let expected = outline(lane(&build(&stage), "plain"));
    assert!(expected.iter().any(|(state, _)| *state == State::Ready), "{expected:?}");
    let mut journal = stage.known().journal.to_vec();
    let runs = |note: &Note| matches!(&note.what, What::Running { container, .. } if container == "plain");
    let start = journal.iter().position(runs).expect("it runs");
    let (container, reason) = ("plain".to_owned(), "ContainerCreating".to_owned());
    let what = What::Waiting { container, reason, message: String::new() };
    journal.insert(start + 1, Note { what, because: None, ..journal[start].clone() });
    let known = Known { journal: &journal, ..stage.known() };
    let timeline = Timeline::build(&known, None, stage.now);
    assert_eq!(outline(lane(&timeline, "plain")), expected);
}

#[test]
fn no_line_is_wider_than_the_screen() {
    for width in [80, 100, 132] {
        let page = text(&build(&eventful()), TextStyle { width, ..PLAIN });
        let widest = page.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{widest:?}\n{page}");
    }
}

#[test]
fn a_restart_of_all_is_a_band_in_two_parts() {
    let mut stage = up(ALL);
    stage.hold("Stop {").exit("source", 42).seconds(3).held.clear();
    stage.restart_agent(1).seconds(2).exit("setup", 0).seconds(5);
    let timeline = build(&stage);
    let bands: Vec<_> = timeline.bands.iter().filter(|band| band.kind != BandKind::NoAgent).collect();
    assert_eq!((bands[0].kind, bands[1].kind), (BandKind::Removing, BandKind::Restarting));
    assert_eq!(bands[0].to, bands[1].from);
    assert_eq!(bands[0].to.since(bands[0].from).as_secs(), 4);
    assert_eq!(bands[1].to.since(bands[1].from).as_secs(), 2);
    assert!(timeline.lanes.iter().any(|lane| lane.name == "AllContainersRestarting"));
}

#[test]
fn a_window_keeps_what_was_so_when_it_began() {
    let stage = eventful();
    let timeline = Timeline::build(&stage.known(), Some(Duration::from_secs(8)), stage.now);
    assert_eq!(timeline.to.since(timeline.from).as_secs(), 8);
    assert_eq!(outline(lane(&timeline, "main")), [(State::Ready, 2), (State::Trouble, 6)]);
    assert_eq!(outline(lane(&timeline, "phase")), [(State::Running, 8)]);
    assert!(timeline.bands.is_empty() && timeline.notes.iter().all(|note| note.at >= timeline.from));
    let all = Timeline::build(&stage.known(), Some(Duration::from_secs(86_400)), stage.now);
    assert_eq!(all.from, build(&stage).from);
}

/// A step of the wall clock within a boot tears nothing apart.
#[test]
fn a_step_of_the_wall_clock_moves_nothing() {
    let stage = eventful();
    let mut stepped = stage.now;
    stepped.wall = keelet_lifecycle::Wall::from_millis(stepped.wall.as_millis() + 3_600_000);
    let timeline = Timeline::build(&stage.known(), None, stepped);
    assert_eq!(outline(lane(&timeline, "main")), outline(lane(&build(&stage), "main")));
    assert_eq!(timeline.to.since(timeline.from).as_secs(), 60);
}

#[test]
fn an_instance_too_short_to_be_seen_running_is_drawn() {
    let mut stage = up(WEB);
    stage.observed.containers.iter_mut().filter(|found| found.name == "plain").for_each(|found| {
        found.state = keelet_lifecycle::observed::InstanceState::Exited {
            started_at: stage.now.wall,
            finished_at: stage.now.wall,
            exit_code: 1,
            reason: "Error".to_owned(),
            message: String::new(),
        };
    });
    stage.seconds(2);
    let marks = &lane(&build(&stage), "plain").marks.clone();
    assert!(marks.iter().any(|mark| mark.kind == MarkKind::Exit { code: 1 }));
}

#[test]
fn the_terminal_shows_it_in_the_width_it_has() {
    let page = text(&build(&eventful()), PLAIN);
    let expected = "\
pod shop/web   2027-01-15 08:00:00 to 08:01:00 UTC (1 min)

             08:00:00               08:00:30
agent        ----------------------------      ^------------
phase        ...############################################
Ready        .......###########....####################.....
Initialized  ...############################################
setup        ---____________________________________________
main         ...----###########====#################X##X~~~~
  startup       xxxx.                               .
  readiness         .........xxxxxx.......     .........
  liveness          ......................     ....xx...
plain        ...############################################

. waiting   ~ in trouble   - starting   = not ready
# ready   _ ended   X exit   . probe passed   x failed
^ an agent starts

08:00:00  the agent saw the pod for the first time
";
    assert!(page.lines().all(|line| line.is_ascii()), "{page}");
    assert!(page.starts_with(expected), "{page}");
    assert!(
        page.contains(
            "08:00:50  container \"main\" exited with code 143, stopped\n            because its liveness probe failed"
        ),
        "{page}"
    );
    let wide = text(&build(&eventful()), TextStyle { width: 100, colours: true, ascii: false });
    assert!(wide.contains("\u{1b}[32m█") && wide.contains('✖') && wide.contains('┄'), "{wide}");
    assert!(text(&build(&eventful()), TextStyle { width: 1, ..PLAIN }).lines().count() > 10);
}

/// Without colours nothing but the characters tells states apart.
#[test]
fn every_state_of_a_container_has_a_character_of_its_own() {
    for ascii in [false, true] {
        let page = text(&build(&eventful()), TextStyle { width: 100, colours: false, ascii });
        let legend = page.lines().find(|line| line.contains("in trouble")).expect("a legend");
        let letters: Vec<&str> = legend.split("   ").take(7).filter_map(|part| part.split(' ').next()).collect();
        let different: std::collections::BTreeSet<&str> = letters.iter().copied().collect();
        assert_eq!(different.len(), letters.len(), "{legend}");
        let trouble = if ascii { "X~~~~" } else { "✖▚▚▚▚" };
        assert!(page.lines().any(|line| line.starts_with("main") && line.contains(trouble)), "{page}");
    }
}

/// A pair of brackets for each element, and nothing fetched from anywhere.
fn is_well_formed(xml: &str) {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("an end of the tag");
        let tag = &rest[start + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{tag}");
        } else if !tag.ends_with('/') && !tag.starts_with('!') && !["meta"].contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
    let links = xml.replace("http://www.w3.org/2000/svg", "");
    assert!(!links.contains("http") && !links.contains("<script") && !links.contains("@import"));
}

#[test]
fn the_picture_is_whole_escaped_and_stands_alone() {
    let picture = svg(&build(&eventful()), &Times::Utc);
    is_well_formed(&picture);
    for part in [
        "<title id=\"kt-title\">Timeline of pod shop/web</title>",
        "<desc id=\"kt-desc\">From 2027-01-15 08:00:00 to 08:01:00 UTC",
        "prefers-color-scheme: dark",
        "&lt;503&gt; &amp; &quot;gone&quot;",
        "no agent for 8 s",
        ">143</text>",
    ] {
        assert!(picture.contains(part), "{part}");
    }
    assert!(!picture.contains("<503>"));
}

#[test]
fn the_page_has_the_picture_and_every_change_with_its_evidence() {
    let timeline = build(&eventful());
    let page = html(&timeline, &Caption::default());
    is_well_formed(&page);
    assert_eq!(page.matches("<tr class=").count(), timeline.notes.len());
    assert!(page.contains(
        "<small>because readiness probe failed 3 times in a row (failureThreshold 3) at 08:00:23: &quot;&lt;503&gt;"
    ));
    assert!(page.contains("<li class=\"bad\"") && page.contains("<b>CrashLoopBackOff</b>"));
}

#[test]
fn times_may_count_from_zero_and_a_page_may_show_more() {
    let timeline = build(&eventful());
    let times = Times::FromZero { told: "simulated with seed 7".to_owned() };
    let picture = svg(&timeline, &times);
    assert!(picture.contains("<desc id=\"kt-desc\">simulated with seed 7, 1 min."), "{picture}");
    assert!(picture.contains(">simulated with seed 7 · 1 min</text>") && !picture.contains("UTC"));
    assert!(picture.contains("class=\"kt-axis\">00:00:30</text>"), "{picture}");
    let row = |container: Option<&str>| Row {
        tone: Tone::Bad,
        topic: "hang".to_owned(),
        container: container.map(str::to_owned),
        text: "a < b".to_owned(),
    };
    let sections = vec![Section {
        heading: "Summary",
        sentences: vec!["x & y".to_owned()],
        rows: vec![row(None), row(Some("main"))],
    }];
    let page = html(&timeline, &Caption { command: "keelet simulate", origin: "a simulation", times, sections });
    is_well_formed(&page);
    for part in [
        "<title>shop/web · keelet simulate</title>",
        "<p>simulated with seed 7 · 1 min</p>",
        "<h2>Summary</h2>\n<p>x &amp; y</p>",
        "<tr class=\"bad\"><td>hang</td><td><i>pod</i></td><td>a &lt; b</td></tr>",
        "<td>hang</td><td>main</td>",
        "Drawn by keelet from a simulation. Times count from its beginning;",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn the_same_history_gives_the_same_picture() {
    let draw = || {
        let timeline = build(&eventful());
        [svg(&timeline, &Times::Utc), html(&timeline, &Caption::default()), json(&timeline), text(&timeline, PLAIN)]
    };
    assert_eq!(draw(), draw());
}

#[test]
fn the_model_is_json() {
    let value: serde_json::Value = serde_json::from_str(&json(&build(&eventful()))).unwrap();
    assert_eq!(value["format"], "keelet.dev/timeline/v1");
    assert_eq!(value["lanes"][0]["spans"][0]["state"], "pending");
    assert_eq!(value["from"], "2027-01-15T08:00:00Z");
}

/// A simulation may hand in thousands of attempts; what would fall on one spot is drawn once.
#[test]
fn many_attempts_do_not_make_a_huge_picture() {
    let mut stage = up(WEB);
    stage.seconds(1200);
    let timeline = build(&stage);
    assert!(lane(&timeline, "main").ticks.len() > 2400);
    assert!(svg(&timeline, &Times::Utc).len() < 250_000, "{}", svg(&timeline, &Times::Utc).len());
}

#[test]
fn a_pod_without_a_journal_has_an_empty_picture() {
    let stage = Stage::new(WEB);
    let timeline = build(&stage);
    assert!(timeline.lanes.is_empty());
    is_well_formed(&svg(&timeline, &Times::Utc));
    assert!(html(&timeline, &Caption::default()).contains("Nothing has changed in this time."));
    let page = text(&timeline, PLAIN);
    assert!(page.starts_with("pod shop/web") && page.ends_with("\n\nnothing is known of this pod in this time\n"));
}
