//! What files are to their programs, as text: each file with its program, and each advice once.

use fragmend_known::Known;
use fragmend_layout::printable;
use std::collections::BTreeMap;

/// The section of a page of text; nothing where no file is known. Of each file its path, as it is shown, and what it is.
pub fn text(files: impl IntoIterator<Item = (String, Known)>) -> String {
    let (mut text, mut advice) = (String::new(), BTreeMap::new());
    for (path, known) in files {
        if text.is_empty() {
            text.push_str("What is known of these files:\n\n");
        }
        text.push_str(&format!("  {path}\n     {}\n", printable(&known.to_string())));
        advice.extend(known.advice.map(|advice| (advice.text, (known.program, advice.source))));
    }
    for (what, (program, source)) in &advice {
        text.push_str(&format!("\n  {program} against fragments: {what}\n     ({source})\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_known::Advice;

    #[test]
    fn each_file_is_named_and_each_advice_comes_once() {
        let known = |what: &str| Known {
            program: "SQLite".into(),
            what: what.into(),
            advice: Some(Advice { text: "grow".into(), source: "a page".into() }),
        };
        let files = [("/a", "database"), ("/b", "log \u{1b}[2J")]
            .map(|(path, what)| (path.to_owned(), known(what)));
        let expected = "What is known of these files:\n\n  /a\n     SQLite: database\n  /b\n     SQLite: log \\x1b[2J\n\n  \
                        SQLite against fragments: grow\n     (a page)\n";
        assert_eq!(text(files), expected);
        assert_eq!(text([]), "");
    }
}
