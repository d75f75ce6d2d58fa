//! Documents that a report is made from: they are refused as a whole with a reason in one line, or the page of them is small,
//! and nothing in them adds an element, an attribute or a control character to it.

use fragmend_page::{Inputs, PageReport, html};

/// The most bytes of a page of one short document.
const LARGEST: usize = 2 << 20;

/// A document, or several.
pub fn run(input: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(input) else { return false };
    let mut inputs = Inputs::default();
    if let Err(e) = inputs.add("document", text) {
        assert!(!e.to_string().contains(char::is_control), "{e}");
        assert!(inputs.names.is_empty() && inputs.scans.is_empty() && inputs.plans.is_empty());
        return false;
    }
    let report = PageReport::of(&inputs);
    let page = html(&report);
    assert!(page.len() < LARGEST, "a page of {} bytes", page.len());
    let elements = |name: &str| page.matches(name).count();
    assert_eq!((elements("<script"), elements("<style")), (scripts(&report), 1));
    for forbidden in ["<iframe", "<img", "<object", "<link"] {
        assert_eq!(elements(forbidden), 0, "{forbidden}");
    }
    let shown = |c: char| !c.is_control() || c == '\n';
    assert!(page.chars().all(shown), "a control character");
    true
}

/// The page's own, and one with the data of each map.
fn scripts(report: &PageReport) -> usize {
    1 + report.maps.len()
}
