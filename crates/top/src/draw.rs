//! The state as cells. What is most important is in the first lines; nothing is told by colour alone, and nothing by a place
//! beyond 80 columns or 24 lines.

mod dialogs;
mod table;
mod text;

use crate::map::{Cell, Shown};
use crate::state::{Dialog, State};
use crate::theme::Theme;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

/// The smallest screen.
const LEAST: (u16, u16) = (60, 16);
/// Lines of everything but the map and the list.
const FIXED: u16 = 8;
/// Lines of the list that come before those of a larger map.
const LISTED: u16 = 9;
/// Lines of the map at most.
const MOST_MAP: u16 = 24;

/// Draws the state on a frame of any size.
pub fn draw(state: &State, theme: Theme, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let small = format!("{} columns and {} lines are needed; q quits", LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(small).wrap(Wrap { trim: true }), area);
        return;
    }
    let rest = area.height - FIXED;
    let map_lines = rest.saturating_sub(LISTED).max(rest / 3).clamp(3, MOST_MAP);
    let lines = [1, 1, map_lines, 1, 3].map(Constraint::Length);
    let below = [Constraint::Min(3), Constraint::Length(1), Constraint::Length(1)];
    let parts = Layout::vertical(lines.into_iter().chain(below)).split(area);
    let line = |text: Line<'static>, at: Rect, frame: &mut Frame<'_>| {
        frame.render_widget(Paragraph::new(text), at);
    };
    line(text::title(state, theme), parts[0], frame);
    line(text::load(state, theme), parts[1], frame);
    map(state, theme, parts[2], frame);
    line(legend(theme), parts[3], frame);
    let plan = Paragraph::new(text::plan(state, theme, parts[4].width)).wrap(Wrap { trim: true });
    frame.render_widget(plan, parts[4]);
    table::draw(state, theme, parts[5], frame);
    line(text::notice(state, theme), parts[6], frame);
    line(text::keys(state, theme), parts[7], frame);
    match &state.dialog {
        Dialog::None => {}
        Dialog::Help => dialogs::help(theme, area, frame),
        Dialog::Confirm(offer) => dialogs::confirm(offer, theme, area, frame),
    }
}

/// The file system, row by row from its first address to its last.
fn map(state: &State, theme: Theme, area: Rect, frame: &mut Frame<'_>) {
    let count = usize::from(area.width) * usize::from(area.height);
    let cells = (0..count).map(|index| theme.cell(state.map.cell(index, count)));
    let cells: Vec<_> = cells.collect();
    let row = |cells: &[(char, ratatui::style::Style)]| {
        let alike = cells.chunk_by(|a, b| a.1 == b.1);
        alike
            .map(|run| Span::styled(run.iter().map(|cell| cell.0).collect::<String>(), run[0].1))
            .collect::<Line<'_>>()
    };
    let lines: Vec<Line<'_>> = cells.chunks(area.width.into()).map(row).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn legend(theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (shown, name) in [
        (Shown::Nothing, "unknown or free"),
        (Shown::Used, "used"),
        (Shown::Fragmented, "fragmented"),
        (Shown::Planned, "to move"),
        (Shown::Moved, "moved"),
    ] {
        let (character, style) = theme.cell(Cell { shown, read: false });
        spans.push(Span::styled(character.to_string(), style));
        spans.push(Span::raw(format!(" {name}  ")));
    }
    spans.push(Span::styled("=FPM", theme.strong()));
    spans.push(Span::raw(" read now"));
    spans.into()
}
