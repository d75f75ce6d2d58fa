//! The list of files.

use crate::files::Row;
use crate::state::State;
use crate::theme::Theme;
use fragmend_report::{Unit, human};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// Columns before the path.
const FIGURES: usize = 44;

/// Draws the part of the list in which the selected row is; below that, what its file is to its program.
pub fn draw(state: &State, theme: Theme, area: Rect, frame: &mut Frame<'_>) {
    let rows = state.files.rows();
    let head = format!("{:>9} {:>9} {:>10} {:>11}  ", "lost/s", "req/s", "fragments", "to move");
    let by = format!("file (by {})", state.files.sort().name());
    let mut lines = vec![Line::styled(head + &by, theme.strong())];
    let space = usize::from(area.height.saturating_sub(1));
    let selected = state.files.selected();
    let known = selected.and_then(|at| rows.get(at)?.known.as_ref());
    // The line of what the selected file is comes below it.
    let below = usize::from(known.is_some());
    let first = selected.map_or(0, |at| (at + 1 + below).saturating_sub(space));
    let width = usize::from(area.width).saturating_sub(FIGURES);
    for (index, row) in rows.iter().enumerate().skip(first).take(space.saturating_sub(below)) {
        let text = line(row, width);
        let style = if selected == Some(index) { theme.selected() } else { Default::default() };
        lines.push(Line::styled(text, style));
        let known = known.filter(|_| selected == Some(index));
        lines.extend(known.map(|known| Line::raw(format!("{:>10}{known}", ""))));
    }
    if rows.is_empty() {
        lines.push(Line::raw("no file is read from the device now"));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn line(row: &Row, width: usize) -> String {
    let lost = human(row.lost, Unit::Seconds);
    let requests = human(row.requests, Unit::Count);
    let fragments = human(row.fragments as f64, Unit::Count);
    let to_move = match row.to_move {
        0 => "-".into(),
        bytes => human(bytes as f64, Unit::Bytes),
    };
    let path = end_of(&row.path, width);
    format!("{lost:>9} {requests:>9} {fragments:>10} {to_move:>11}  {path}")
}

/// The end of a path, in at most so many columns: names differ there.
fn end_of(path: &str, width: usize) -> String {
    if Span::raw(path).width() <= width {
        return path.to_owned();
    }
    let mut rest = path.chars();
    while Span::raw(rest.as_str()).width() + 2 > width {
        if rest.next().is_none() {
            break;
        }
    }
    format!("..{}", rest.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_path_is_shown() {
        assert_eq!(end_of("/a/b", 4), "/a/b");
        assert_eq!(end_of("/a/bcd", 5), "..bcd");
        // Two columns each.
        assert_eq!(end_of("/\u{540d}\u{540d}\u{540d}", 7), "/\u{540d}\u{540d}\u{540d}");
        assert_eq!(end_of("/\u{540d}\u{540d}\u{540d}", 6), "..\u{540d}\u{540d}");
        assert_eq!(end_of("/\u{540d}\u{540d}\u{540d}", 5), "..\u{540d}");
        assert_eq!(end_of("/abc", 1), "..");
    }
}
