//! What is in front of everything else: the keys, and the question before anything is written.

use super::text::costs;
use crate::run::Offer;
use crate::theme::Theme;
use fragmend_report::{Unit, human};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

/// Draws a frame with lines in the middle of the screen.
fn dialog(title: &str, lines: Vec<Line<'static>>, theme: Theme, area: Rect, frame: &mut Frame<'_>) {
    let height = (lines.len() as u16 + 2).min(area.height);
    let width = 58.min(area.width);
    let at = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    // ASCII: a line-drawing character is not known to every terminal.
    let border = ratatui::symbols::border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    };
    let title = Line::styled(format!(" {title} "), theme.strong());
    let block = Block::bordered().border_set(border).title(title);
    frame.render_widget(Clear, at);
    frame.render_widget(Paragraph::new(lines).block(block).wrap(Wrap { trim: false }), at);
}

/// Asks whether to carry out a plan: what is written, and what it saves.
pub fn confirm(offer: &Offer, theme: Theme, area: Rect, frame: &mut Frame<'_>) {
    let summary = &offer.plan.summary;
    let bytes = human(summary.bytes_to_move as f64, Unit::Bytes);
    let saved = human(summary.seconds_saved, Unit::Seconds);
    let recorded = human(offer.recorded.as_secs_f64(), Unit::Seconds);
    let mut lines = vec![
        Line::raw(format!("Write {bytes} in {} ranges of {} files", summary.ranges, summary.files)),
        Line::raw(format!("to save {saved} of waiting in each {recorded} like those")),
        Line::raw("that were recorded (predicted,"),
        Line::raw(format!("{})?", costs(summary))),
    ];
    if summary.space_cost_bytes > 0 {
        let cost = human(summary.space_cost_bytes as f64, Unit::Bytes);
        lines.push(Line::raw(format!("It needs {cost} of space for good: what is shared.")));
    }
    lines.push(Line::raw(""));
    lines.push(Line::styled("y  start        n  do not", theme.strong()));
    dialog("start", lines, theme, area, frame);
}

/// The keys, and what the figures mean.
pub fn help(theme: Theme, area: Rect, frame: &mut Frame<'_>) {
    let lines = [
        "s        start: shows what is written, and asks",
        "p r x    pause, resume, stop, at the next safe point",
        "o        sort by time lost, fragments, bytes to move",
        "up down  select a file; page up, page down",
        "q        quit; a run ends at its next safe point",
        "",
        "lost/s   time that programs wait each second because of",
        "         a file's fragments (predicted, as in the plan)",
        "req/s    requests to the device for it (predicted)",
        "to move  bytes of it that the plan moves",
        "",
        "any key goes on",
    ];
    let lines = lines.iter().map(|line| Line::raw(*line)).collect();
    dialog("help", lines, theme, area, frame);
}
