//! Tests of the page as text: its policy names its own script and style.

use super::*;
use crate::inputs::Inputs;

#[test]
fn the_policy_permits_what_is_there_and_nothing_else() {
    let page = html(&PageReport::of(&Inputs::default()));
    let between = |open: &str, close: &str| {
        let start = page.find(open).unwrap() + open.len();
        &page[start..start + page[start..].find(close).unwrap()]
    };
    for (kind, text) in
        [("style", between("<style>", "</style>")), ("script", between("<script>", "</script>"))]
    {
        let source = format!("{kind}-src '{}'", hash(text));
        assert!(
            page.contains(&source.replace('\'', "&#39;")) || page.contains(&source),
            "{source}"
        );
    }
    assert!(page.contains("default-src 'none'"));
    for forbidden in ["http://", "https://", "src=", "style=", "onclick", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}
