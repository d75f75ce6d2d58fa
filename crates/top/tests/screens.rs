//! What is shown, cell by cell, on a screen that is no terminal. `FRAGMEND_WRITE_SCREENS=1` writes the expected screens anew, to be
//! looked at before they are committed.

use fragmend_apply::{Event, Outcome, Receipt, Summary as Applied};
use fragmend_layout::{
    ByteRange, CostSource, Extent, ExtentKind, FileId, Layout, ObservedLoad, ObservedRequests,
};
use fragmend_plan::file::FORMAT;
use fragmend_plan::{FileLoss, Plan, PlannedFile, PlannedRange, Settings, Summary};
use fragmend_top::state::Period;
use fragmend_top::{Action, BlockMap, Change, Key, Offer, State, Theme, draw};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const PLAIN: Theme = Theme { colour: false };

fn file(inode: u64) -> FileId {
    FileId { device: 7, inode, generation: 1 }
}

fn loss(inode: u64, path: &str, lost: f64, fragments: u64) -> FileLoss {
    FileLoss {
        path: PathBuf::from(path),
        file: file(inode),
        size: 32 * MIB,
        fragments,
        requests: 4000 * inode,
        seconds: 2.0 * lost,
        seconds_lost: lost,
    }
}

fn range(offset: u64, length: u64) -> PlannedRange {
    PlannedRange {
        offset,
        length,
        extents: 512,
        seen: 9,
        requests_before: 512,
        requests_after: 8,
        seconds_saved: 0.1,
        space_cost_bytes: 0,
        slow_at: None,
        reason: String::new(),
    }
}

/// A plan that moves a file of 16 MiB in two ranges.
fn offer() -> Arc<Offer> {
    let path = Path::new("/srv/db/orders.db");
    let mut layout = Layout::new(file(1), 16 * MIB);
    for n in 0..16 {
        let (logical, physical) = (n * MIB, (256 + 4 * n) * MIB);
        layout.push(Extent { logical, physical, length: MIB, kind: ExtentKind::Data });
    }
    let summary = Summary {
        seconds_before: 2.0,
        seconds_after: 1.1,
        seconds_saved: 0.9,
        bytes_to_move: 16 * MIB,
        ranges: 2,
        files: 1,
        cost_source: Some(CostSource::Observed),
        worth: true,
        verdict: "worth it: 900.0 ms less waiting (45 %) for 16.0 MiB written".into(),
        ..Summary::default()
    };
    let ranges = vec![range(0, 8 * MIB), range(8 * MIB, 8 * MIB)];
    let planned = PlannedFile { path: path.into(), file: file(1), size: 16 * MIB, ranges };
    let plan = Plan {
        format: FORMAT.into(),
        schema_version: 1,
        settings: Settings::default(),
        devices: Vec::new(),
        summary,
        files: vec![planned],
        left_alone: Vec::new(),
    };
    let layouts = [(path.display().to_string(), layout)].into();
    Arc::new(Offer { plan, recorded: Duration::from_secs(42), layouts })
}

fn period() -> Period {
    let class = |write, count, total_ns| ObservedRequests {
        write,
        up_to_bytes: 4096,
        up_to_in_flight: 1,
        count,
        bytes: count * 4096,
        in_flight: count,
        total_ns,
    };
    let requests = vec![class(false, 5200, 936_000_000), class(true, 12, 14_400_000)];
    let load = ObservedLoad { name: "sda".into(), requests, ..ObservedLoad::default() };
    Period { seconds: 1.0, watched: 1.0, loads: vec![load], lost: 0, places: 1.0 }
}

/// A state in which everything is known, after some seconds.
fn busy() -> State {
    let mut state = State::new("ext4, 1.0 GiB  /srv".into(), 1024 * MIB);
    let extents = |first: u64, end: u64, fragmented| {
        (ByteRange { start: first * MIB, end: end * MIB }, fragmented)
    };
    let map = BlockMap::of(
        1024 * MIB,
        &[extents(0, 300, false), extents(256, 320, true), extents(600, 700, false)],
    );
    let losses = vec![
        loss(1, "/srv/db/orders.db", 0.31, 8192),
        loss(2, "/srv/mail/a-directory-with-a-long-name/and-another-one/mailbox.mbox", 0.02, 77),
        loss(3, "/srv/whole", 0.0, 1),
    ];
    let read = vec![ByteRange { start: 256 * MIB, end: 264 * MIB }];
    for change in [
        Change::Attached,
        Change::Scanned { map, files: 1234, fragmented: 56 },
        Change::Period(period()),
        Change::Pressure(Some(0.123)),
        Change::Losses { losses, seconds: 1.0, read },
        Change::Known(file(2), "Download: finished, from example.org".into()),
        Change::Offered(offer()),
    ] {
        assert!(state.update(change, Duration::from_secs(1)).is_none());
    }
    state
}

fn press(state: &mut State, key: char, at: u64) -> Option<Action> {
    state.update(Change::Key(Key::Char(key)), Duration::from_secs(at))
}

fn press_all(state: &mut State, keys: &str) {
    keys.chars().for_each(|key| drop(press(state, key, 3)));
}

fn receipt(offset: u64, outcome: Outcome) -> Change {
    let path = Path::new("/srv/db/orders.db").into();
    Change::Run(Box::new(Event::Range(Receipt::blank(
        path,
        &range(offset, 8 * MIB),
        outcome,
        Some(512),
    ))))
}

fn applied(interrupted: bool, ranges: u64) -> Change {
    let summary = Applied {
        interrupted,
        ranges_moved: ranges,
        moved_bytes: ranges * 8 * MIB,
        extents_before: 512 * ranges,
        extents_after: ranges,
        ranges_left: u64::from(interrupted),
        ..Applied::default()
    };
    Change::RunEnded(Ok(Box::new(summary)))
}

fn drawn(state: &State, theme: Theme, columns: u16, lines: u16) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| draw(state, theme, frame)).unwrap();
    terminal.backend().clone()
}

/// The text of a screen, without spaces at the ends of lines.
fn text(screen: &TestBackend) -> String {
    let buffer = screen.buffer();
    let line = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned() + "\n"
    };
    buffer.content.chunks(buffer.area.width.into()).map(line).collect()
}

/// Compares a screen with the one of this name.
fn expect(name: &str, state: &State, columns: u16, lines: u16) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screens").join(name);
    let shown = text(&drawn(state, PLAIN, columns, lines));
    if std::env::var_os("FRAGMEND_WRITE_SCREENS").is_some() {
        std::fs::write(&path, &shown).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, expected, "{name} shows:\n{shown}");
}

#[test]
fn at_first_it_says_what_it_waits_for() {
    let state = State::new("ext4, 1.0 GiB  /srv".into(), 1024 * MIB);
    expect("first.txt", &state, 80, 24);
}

#[test]
fn all_is_shown_in_80_columns_and_24_lines() {
    let mut state = busy();
    state.update(Change::Key(Key::Down), Duration::from_secs(2));
    state.update(Change::Key(Key::Down), Duration::from_secs(2));
    expect("busy.txt", &state, 80, 24);
    expect("busy-large.txt", &state, 120, 40);
    press(&mut state, '?', 2);
    expect("help.txt", &state, 80, 24);
}

#[test]
fn a_plan_is_started_after_a_question_and_can_pause_and_go_on() {
    let mut state = busy();
    assert!(press(&mut state, 's', 3).is_none(), "it asks first");
    expect("question.txt", &state, 80, 24);
    // A new plan does not change what was asked for, and no other key answers.
    state.update(Change::Offered(offer()), Duration::from_secs(4));
    assert!(press(&mut state, 'x', 4).is_none());
    assert!(press(&mut state, 'n', 4).is_none());
    assert!(press(&mut state, 'y', 4).is_none(), "it was declined");
    press(&mut state, 's', 5);
    let asked = Arc::clone(state.offer.as_ref().unwrap());
    let Some(Action::Apply(begun)) = press(&mut state, 'y', 10) else { panic!("it begins") };
    assert!(Arc::ptr_eq(&begun, &asked));
    state.update(receipt(0, Outcome::Moved), Duration::from_secs(14));
    expect("moving.txt", &state, 80, 24);
    assert!(matches!(press(&mut state, 'p', 15), Some(Action::EndRun)));
    assert!(press(&mut state, 'p', 15).is_none() && press(&mut state, 'r', 15).is_none());
    assert!(state.update(applied(true, 1), Duration::from_secs(16)).is_none());
    expect("paused.txt", &state, 80, 24);
    assert!(press(&mut state, 's', 17).is_none(), "there is one already");
    let Some(Action::Apply(again)) = press(&mut state, 'r', 18) else { panic!("it goes on") };
    assert!(Arc::ptr_eq(&again, &asked), "the same plan");
    state.update(receipt(8 * MIB, Outcome::Moved), Duration::from_secs(20));
    let done = state.update(applied(false, 1), Duration::from_secs(21));
    assert!(matches!(done, Some(Action::Renew)), "layouts are others now");
    expect("done.txt", &state, 80, 24);
}

#[test]
fn quitting_ends_a_run_first_and_only_once_it_has_ended_everything() {
    let mut state = busy();
    assert!(matches!(press(&mut state, 'q', 3), Some(Action::Quit)));
    press(&mut state, 's', 3);
    press(&mut state, 'y', 3);
    assert!(matches!(press(&mut state, 'q', 4), Some(Action::EndRun)));
    expect("quitting.txt", &state, 80, 24);
    assert!(matches!(state.update(applied(true, 0), Duration::from_secs(5)), Some(Action::Quit)));
    // So does a signal, and Ctrl-C, whatever is in front.
    for change in [Change::Ending, Change::Key(Key::Interrupt)] {
        let mut state = busy();
        press(&mut state, '?', 3);
        assert!(matches!(state.update(change, Duration::from_secs(4)), Some(Action::Quit)));
    }
    // Quitting while it is to pause is no pause.
    let mut state = busy();
    press_all(&mut state, "syp");
    state.update(Change::Ending, Duration::from_secs(4));
    assert!(matches!(state.update(applied(true, 0), Duration::from_secs(5)), Some(Action::Quit)));
}

#[test]
fn a_run_stops_for_good_and_one_that_cannot_begin_says_why() {
    let mut state = busy();
    press_all(&mut state, "sy");
    assert!(matches!(press(&mut state, 'x', 4), Some(Action::EndRun)));
    let ended = state.update(applied(true, 1), Duration::from_secs(5));
    assert!(matches!(ended, Some(Action::Renew)) && press(&mut state, 'r', 5).is_none());
    let mut state = busy();
    press_all(&mut state, "sy");
    let why = "another fragmend is at work there".to_owned();
    state.update(Change::RunEnded(Err(why)), Duration::from_secs(4));
    assert!(text(&drawn(&state, PLAIN, 80, 24)).contains("nothing was moved: another fragmend"));
    // Stopped while it is paused.
    let mut state = busy();
    press_all(&mut state, "syp");
    state.update(applied(true, 0), Duration::from_secs(5));
    assert!(matches!(press(&mut state, 'x', 6), Some(Action::Renew)));
}

#[test]
fn colour_adds_to_what_characters_say() {
    let state = busy();
    let (plain, coloured) =
        (drawn(&state, PLAIN, 80, 24), drawn(&state, Theme { colour: true }, 80, 24));
    assert_eq!(text(&plain), text(&coloured));
    let colours = |screen: &TestBackend| {
        let all = screen.buffer().content.iter();
        all.filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(colours(&plain), 0);
    assert!(colours(&coloured) > 80);
}

#[test]
fn no_name_breaks_the_screen() {
    let wide = format!("/srv/{}", "\u{540d}".repeat(19));
    let names = [
        "/srv/\x1b[2J\x1b]0;title\x07",
        "/srv/new\nline\rreturn\ttab",
        "/srv/\u{202e}txt.exe\u{2066}",
        "/srv/\u{9b}31m\u{85}\u{200b}",
        "/srv/\u{540d}\u{524d}\u{1f600}\u{1f468}\u{200d}\u{1f469}e\u{301}\u{5d0}\u{5d1}",
        &wide,
    ];
    let mut state = busy();
    let losses = names.iter().zip(1..).map(|(name, n)| loss(n, name, 1.0 / n as f64, 9)).collect();
    let change = Change::Losses { losses, seconds: 1.0, read: Vec::new() };
    state.update(change, Duration::from_secs(2));
    state.update(Change::Notice(names.concat()), Duration::from_secs(2));
    for (columns, lines) in [(80, 24), (200, 60), (60, 16), (59, 15), (5, 2), (1, 1)] {
        let shown = text(&drawn(&state, PLAIN, columns, lines));
        let hostile = |c: &char| {
            c.is_control() && *c != '\n'
                || ('\u{200b}'..='\u{200f}').contains(c)
                || ('\u{202a}'..='\u{202e}').contains(c)
                || ('\u{2066}'..='\u{2069}').contains(c)
        };
        let found: Vec<char> = shown.chars().filter(hostile).collect();
        assert!(found.is_empty(), "{found:?} in {shown}");
        assert_eq!(shown.lines().count(), usize::from(lines));
    }
    let shown = text(&drawn(&state, PLAIN, 80, 24));
    assert!(shown.contains(r"\x1b[2J") && shown.contains(r"new\nline"), "{shown}");
}
