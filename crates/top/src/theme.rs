//! How things look: each meaning has a character or a word, and where there are colours a colour besides.

use crate::map::{Cell, Shown};
use ratatui::style::{Color, Modifier, Style};

/// With colour, or without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Theme {
    /// Whether colours are used.
    pub colour: bool,
}

impl Theme {
    /// By the variables `NO_COLOR` (<https://no-color.org>) and `TERM`: no colour if the first is set and not empty, or the second
    /// names a terminal that has none, or none at all.
    pub fn of(no_color: Option<&str>, term: Option<&str>) -> Self {
        let refused = no_color.is_some_and(|value| !value.is_empty());
        let plain = |term: &str| {
            term.is_empty()
                || term == "dumb"
                || term.starts_with("vt")
                || term.ends_with("-m")
                || term.ends_with("-mono")
        };
        Self { colour: !refused && !term.is_none_or(plain) }
    }

    fn colour(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// A heading, or a key.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The selected line.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Something that needs attention.
    pub fn alert(self) -> Style {
        self.colour(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// A cell of the map: its character, and its colour.
    pub fn cell(self, cell: Cell) -> (char, Style) {
        let (still, read, colour) = match cell.shown {
            Shown::Nothing => ('.', '=', Color::DarkGray),
            Shown::Used => ('-', '=', Color::Blue),
            Shown::Fragmented => ('f', 'F', Color::Red),
            Shown::Planned => ('p', 'P', Color::Yellow),
            Shown::Moved => ('m', 'M', Color::Green),
        };
        let style = self.colour(colour);
        if cell.read { (read, style.add_modifier(Modifier::BOLD)) } else { (still, style) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_state_of_a_cell_has_a_character_of_its_own() {
        let theme = Theme { colour: false };
        let all = [Shown::Nothing, Shown::Used, Shown::Fragmented, Shown::Planned, Shown::Moved];
        let still: BTreeSet<char> =
            all.iter().map(|s| theme.cell(Cell { shown: *s, read: false }).0).collect();
        let read: BTreeSet<char> =
            all.iter().map(|s| theme.cell(Cell { shown: *s, read: true }).0).collect();
        // What is read is data, also where nothing else is known of it.
        assert_eq!((still.len(), read.len(), still.intersection(&read).count()), (5, 4, 0));
        for shown in all {
            let (_, style) = theme.cell(Cell { shown, read: false });
            assert_eq!(style, Style::new());
        }
    }

    #[test]
    fn colours_are_used_where_there_are_any_and_nobody_refuses_them() {
        let colour = |no_color, term| Theme::of(no_color, term).colour;
        assert!(colour(None, Some("xterm-256color")) && colour(Some(""), Some("screen")));
        assert!(!colour(Some("1"), Some("xterm")));
        for term in [None, Some(""), Some("dumb"), Some("vt100"), Some("xterm-mono")] {
            assert!(!colour(None, term), "{term:?}");
        }
    }
}
