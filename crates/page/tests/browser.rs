//! The page in a real browser: it opens without a complaint, shows the figures of its documents, and each control works, by
//! pointer and by keyboard.

mod support;

use fragmend_page::map::{MOST_CELLS, State};
use fragmend_page::{Inputs, PageReport};
use fragmend_report::{Unit, human};
use fragmend_testbed::browser::Browser;
use fragmend_testbed::scratch;
use serde_json::Value;
use std::path::PathBuf;
use support::{BYTES, File, a_million_extents, files, inputs, page, scan};
use tempfile::TempDir;

/// A page in a file of its own.
struct Written {
    path: PathBuf,
    report: PageReport,
    bytes: usize,
    _directory: TempDir,
}

fn written(inputs: &Inputs) -> Written {
    let directory = scratch::directory("page");
    let path = directory.path().join("report.html");
    let (report, text) = page(inputs);
    std::fs::write(&path, &text).unwrap();
    Written { path, report, bytes: text.len(), _directory: directory }
}

/// A browser with a page that it has not complained of.
fn opened(written: &Written, size: (u32, u32), dark: bool) -> Browser {
    let mut browser = Browser::start();
    browser.look(size, dark);
    browser.open(&written.path);
    is_content(&mut browser);
    browser
}

fn is_content(browser: &mut Browser) {
    assert_eq!(browser.text("document.documentElement.dataset.ready"), "yes");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let requested = browser.requested();
    assert!(requested.iter().all(|url| url.starts_with("file://")), "{requested:?}");
    assert!(requested.len() <= 1, "{requested:?}");
}

/// The texts of all elements.
fn texts(browser: &mut Browser, selector: &str) -> Vec<String> {
    let expression = format!(
        "[...document.querySelectorAll({selector:?})].map((one) => one.textContent.trim())"
    );
    serde_json::from_value(browser.eval(&expression)).unwrap()
}

#[test]
fn it_shows_the_figures_of_its_documents() {
    let written = written(&inputs());
    let mut browser = opened(&written, (1280, 900), false);
    let answer = &written.report.answer;
    // Numbers and their units are not parted at the end of a line.
    let plain = |texts: Vec<String>| texts.into_iter().map(|text| text.replace('\u{a0}', " "));
    let heads: Vec<String> = plain(texts(&mut browser, "h1")).collect();
    assert_eq!(heads, [answer.sentence.as_str()]);
    assert_eq!(
        answer.sentence,
        "Mending has saved 3.0 s of 12.5 s that the same reads wait for the device (24.0 %), as measured; 3.5 s was predicted."
    );
    let asked: Vec<String> = plain(texts(&mut browser, ".questions dd")).collect();
    assert_eq!(texts(&mut browser, ".questions dt")[2], "What did it cost?");
    assert_eq!(asked[0], answer.is_it_bad);
    assert!(asked[1].starts_with("/srv/db/orders.sqlite (3.5 s in each replay)"), "{}", asked[1]);
    assert!(asked[2].contains("6.0 MiB"), "{}", asked[2]);
    assert!(asked[3].contains("in 96 fragments before, in 2 now"), "{}", asked[3]);
    assert!(browser.text("document.title").contains(&answer.sentence));

    // The map's cells are those of the report, and these add up to the file system.
    let map = &written.report.maps[0];
    let drawn = browser.eval("JSON.parse(document.querySelector('figure.map script').textContent)");
    assert_eq!(drawn["cells"].as_array().unwrap().len(), map.cells.len());
    let sum: u64 = map.totals.iter().sum();
    assert_eq!((map.bytes, sum), (BYTES, BYTES));
    let bytes_of = |state: State| map.totals[state as usize];
    // What was moved is not to be moved any more.
    assert_eq!(bytes_of(State::Moved), 6 << 20);
    assert_eq!(bytes_of(State::ToMove), 4 << 20);
    assert_eq!(bytes_of(State::Used), 24 << 20);
    assert_eq!(bytes_of(State::Free), BYTES / 4 - 4096);
    let key = texts(&mut browser, "figure.map .key li");
    for (line, state) in key.iter().zip(State::ALL) {
        let expected = format!("{}: {}", state.words(), human(bytes_of(state) as f64, Unit::Bytes));
        assert!(line.starts_with(&expected), "{line}: {expected}");
    }

    // Files by time lost; each figure with its unit.
    let rows = "#files tbody tr";
    let files = texts(&mut browser, &format!("{rows} td:first-child"));
    assert_eq!(files, ["/srv/db/orders.sqlite", "/srv/db/wal", "/srv/log/access.log"]);
    let first = texts(&mut browser, &format!("{rows}:first-child td.number"));
    assert_eq!(first, ["3.5 s", "6.0 MiB", "12.5 MiB", "200", "1", "200", "1"]);
    let blocks = texts(&mut browser, "#files .extents");
    assert_eq!(blocks.len(), 3);
    for (section, figure) in [
        ("#receipts", "EXT4_IOC_MOVE_EXT"),
        ("#receipts", "no better place"),
        ("#measured", "85.7 % of what was predicted"),
        ("#free", "64.0 MiB are free, in 2 runs"),
        ("#device", "8 dies work side by side"),
        ("#lab", "the host merges fewer"),
        ("#plan", "worth it: 3.8 s less waiting"),
        ("#scans", "1 (swap file)"),
    ] {
        let text = browser.text(&format!("document.querySelector({section:?}).textContent"));
        assert!(text.contains(figure), "{section}: {text}");
    }
    // What is drawn has a size: no element is within one that does not draw what it contains.
    let nested = "document.querySelectorAll('path > *, line > *, rect > *').length";
    assert_eq!(browser.eval(nested), 0);
    let flat = "[...document.querySelectorAll('.chart svg .series path')].filter((one) => one.getBoundingClientRect().width === 0).length";
    assert_eq!(browser.eval(flat), 0);
    // The curve has its five points and the chosen one, in a table, too.
    let points = texts(&mut browser, "#plan figure tbody tr td:nth-child(2)");
    assert_eq!(points, ["0 B", "4.0 MiB", "10.0 MiB", "20.0 MiB", "33.0 MiB", "10.0 MiB"]);
}

/// A picture of the map as numbers: how many pixels are of a colour that a variable of the style has.
fn pixels(browser: &mut Browser, variable: &str) -> u64 {
    let expression = format!(
        "(() => {{
            const canvas = document.querySelector('figure.map > canvas');
            const copy = document.createElement('canvas');
            [copy.width, copy.height] = [canvas.width, canvas.height];
            const probe = copy.getContext('2d', {{ willReadFrequently: true }});
            probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('{variable}').trim();
            probe.fillRect(0, 0, 1, 1);
            const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
            probe.clearRect(0, 0, 1, 1);
            probe.drawImage(canvas, 0, 0);
            const all = probe.getImageData(0, 0, canvas.width, canvas.height).data;
            let found = 0;
            for (let at = 0; at < all.length; at += 4)
                if (all[at] === r && all[at + 1] === g && all[at + 2] === b && all[at + 3] === 255) found++;
            return found;
        }})()"
    );
    browser.eval(&expression).as_u64().unwrap()
}

#[test]
fn every_control_works() {
    let written = written(&inputs());
    let mut browser = opened(&written, (1280, 900), false);
    let background = "getComputedStyle(document.body).backgroundColor";
    let set = |browser: &mut Browser, selector: &str, value: &str, event: &str| {
        browser.eval(&format!(
            "(() => {{ const one = document.querySelector({selector:?}); one.value = {value:?}; one.dispatchEvent(new Event({event:?}, {{bubbles: true}})); }})()"
        ));
    };

    // Colours, of the map as well.
    assert_eq!(browser.text(background), "rgb(255, 255, 255)");
    let light = pixels(&mut browser, "--moved");
    assert!(light > 100, "{light}");
    set(&mut browser, "#theme", "dark", "change");
    assert_eq!(browser.text(background), "rgb(20, 23, 27)");
    assert_eq!(pixels(&mut browser, "--moved"), light);
    set(&mut browser, "#theme", "auto", "change");
    browser.look((1280, 900), true);
    assert_eq!(browser.text(background), "rgb(20, 23, 27)");
    assert_eq!(pixels(&mut browser, "--moved"), light);
    set(&mut browser, "#theme", "light", "change");
    assert_eq!(browser.text(background), "rgb(255, 255, 255)");

    // The order of cells: as many of each state, elsewhere.
    let picture = "document.querySelector('figure.map > canvas').toDataURL()";
    let rows = browser.text(picture);
    set(&mut browser, ".order", "hilbert", "change");
    assert_ne!(browser.text(picture), rows);
    assert_eq!(pixels(&mut browser, "--moved"), light);
    set(&mut browser, ".order", "rows", "change");
    assert_eq!(browser.text(picture), rows);

    // What is highlighted.
    let cells_of = |state: State| {
        written.report.maps[0].cells.iter().filter(|cell| cell.state == state).count()
    };
    let all = written.report.maps[0].cells.len();
    set(&mut browser, ".highlight", &(State::Moved as usize).to_string(), "change");
    assert_eq!(
        texts(&mut browser, ".found"),
        [format!("{} of {all} cells", cells_of(State::Moved))]
    );
    assert_eq!(pixels(&mut browser, "--moved"), light);
    assert_eq!(pixels(&mut browser, "--used"), 0);
    set(&mut browser, ".highlight", "", "change");
    set(&mut browser, ".find", "VIDEO", "input");
    let of_video = (24 << 20) / written.report.maps[0].cell_bytes;
    assert_eq!(texts(&mut browser, ".found"), [format!("{of_video} of {all} cells")]);
    set(&mut browser, ".find", "", "input");

    // Sorted by name, both ways, and by a number.
    let names = "#files tbody tr td:first-child";
    let by = |n: u32| format!("document.querySelector('#files th:nth-child({n}) button').click()");
    browser.eval(&by(1));
    assert_eq!(
        texts(&mut browser, names),
        ["/srv/db/orders.sqlite", "/srv/db/wal", "/srv/log/access.log"]
    );
    assert_eq!(texts(&mut browser, "#files th[aria-sort=ascending]"), ["file"]);
    browser.eval(&by(1));
    assert_eq!(
        texts(&mut browser, names),
        ["/srv/log/access.log", "/srv/db/wal", "/srv/db/orders.sqlite"]
    );
    browser.eval(&by(3));
    // What has no figure is last, whatever the order.
    assert_eq!(
        texts(&mut browser, names),
        ["/srv/db/orders.sqlite", "/srv/db/wal", "/srv/log/access.log"]
    );
    browser.eval(&by(3));
    assert_eq!(
        texts(&mut browser, names),
        ["/srv/db/wal", "/srv/db/orders.sqlite", "/srv/log/access.log"]
    );

    // The filter of a long table: that of the map has a row for each part.
    browser.eval("document.querySelector('#map details').open = true");
    set(&mut browser, "#map input.filter", "video", "input");
    let shown =
        "[...document.querySelectorAll('#map tbody tr')].filter((row) => !row.hidden).length";
    assert_eq!(browser.eval(shown), 6, "24 of 256 MiB in 64 parts");
    assert_eq!(texts(&mut browser, "#map output.filtered"), ["6 of 64 rows"]);
    is_content(&mut browser);
}

/// What a pointer or a key chooses is said in words.
#[test]
fn cells_are_named_by_pointer_and_by_keyboard() {
    let written = written(&inputs());
    let mut browser = opened(&written, (1280, 900), false);
    let map = &written.report.maps[0];
    let side = 128;
    assert!(map.cells.len() == MOST_CELLS && map.cell_bytes == 16 << 10);
    let canvas = "document.querySelector('figure.map > canvas')";
    browser.eval(&format!("{canvas}.scrollIntoView()"));
    let place = browser.eval(&format!("(() => {{ const b = {canvas}.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; }})()"));
    let at = |n: usize| place[n].as_f64().unwrap();
    // The video begins at 96 MiB.
    let cell = (96 << 20) / map.cell_bytes as usize;
    let (x, y) = (
        at(0) + (cell % side) as f64 * at(2) / side as f64 + 1.0,
        at(1) + (cell / side) as f64 * at(3) / side as f64 + 1.0,
    );
    browser.point((x, y), false);
    let chosen = |browser: &mut Browser| texts(browser, "output.cell").remove(0);
    let said = chosen(&mut browser);
    let expected = format!("Cell {} of 16384, from byte {}", cell + 1, 96 << 20);
    assert!(said.starts_with(&expected) && said.contains("100 % used, in order"), "{said}");
    assert!(said.contains("/srv/www/video.mp4"), "{said}");

    browser.eval(&format!("{canvas}.focus()"));
    browser.press("Home");
    assert!(
        chosen(&mut browser).starts_with("Cell 1 of") && chosen(&mut browser).contains("metadata")
    );
    for (key, cell) in [
        ("ArrowRight", 2),
        ("ArrowDown", 130),
        ("ArrowLeft", 129),
        ("ArrowLeft", 129),
        ("ArrowUp", 1),
        ("ArrowUp", 1),
        ("End", 16384),
    ] {
        browser.press(key);
        let said = chosen(&mut browser);
        assert!(said.starts_with(&format!("Cell {cell} of")), "{key}: {said}");
    }
    // From one highlighted cell to the next.
    browser.eval("(() => { const one = document.querySelector('.highlight'); one.value = '2'; one.dispatchEvent(new Event('change')); })()");
    browser.press("PageDown");
    assert!(
        chosen(&mut browser).starts_with(&format!("Cell {} of", cell + 1)),
        "{}",
        chosen(&mut browser)
    );
    browser.press("PageUp");
    assert!(chosen(&mut browser).contains("video"), "{}", chosen(&mut browser));
    is_content(&mut browser);
}

/// A reader without eyes or mouse: landmarks, names of all that can be operated, captions, and the order of the focus.
#[test]
fn it_is_usable_by_keyboard_and_screen_reader() {
    let written = written(&inputs());
    let mut browser = opened(&written, (1280, 900), false);
    let tree = browser.call("Accessibility.getFullAXTree", &serde_json::json!({}));
    let nodes: Vec<&Value> =
        tree["nodes"].as_array().unwrap().iter().filter(|n| n["ignored"] == false).collect();
    let named = |role: &str| -> Vec<&str> {
        let of_role = nodes.iter().filter(|n| n["role"]["value"] == role);
        of_role.map(|n| n["name"]["value"].as_str().unwrap_or_default()).collect()
    };
    for role in ["main", "banner", "navigation", "contentinfo"] {
        assert_eq!(named(role).len(), 1, "{role}");
    }
    for role in
        ["button", "link", "combobox", "searchbox", "application", "image", "table", "region"]
    {
        let names = named(role);
        assert!(
            !names.is_empty() && names.iter().all(|name| !name.is_empty()),
            "{role}: {names:?}"
        );
    }
    let unnamed = "document.querySelectorAll('table:not(:has(caption))').length";
    assert_eq!(browser.eval(unnamed), 0);
    assert_eq!(browser.text("document.documentElement.lang"), "en");

    // The first key leads past the head of the page.
    let focus = "document.activeElement.textContent";
    browser.press("Tab");
    assert_eq!(browser.text(focus), "Skip to the answer");
    browser.press("Enter");
    assert_eq!(browser.text("location.hash"), "#answer");
    // All that can be operated is reached in the order of the page.
    let order = browser.eval(
        "[...document.querySelectorAll('a, button, select, input, summary, [tabindex=\"0\"]')].filter((one) => one.tabIndex > 0).length",
    );
    assert_eq!(order, 0);
}

/// Text and marks against what is behind them, in both colours (WCAG 2.2, 1.4.3 and 1.4.11).
#[test]
fn colours_are_apart() {
    let written = written(&inputs());
    for dark in [false, true] {
        let mut browser = opened(&written, (1280, 900), dark);
        let mut luminance = |name: &str| {
            let text = browser.text(&format!(
                "getComputedStyle(document.documentElement).getPropertyValue('{name}').trim()"
            ));
            let channel = |at: usize| {
                let value = f64::from(u8::from_str_radix(&text[at..at + 2], 16).unwrap()) / 255.0;
                if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
        };
        let mut contrast = |a: &str, b: &str| {
            let (a, b) = (luminance(a), luminance(b));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        for (text, behind) in [
            ("--fg", "--bg"),
            ("--muted", "--bg"),
            ("--accent", "--bg"),
            ("--warn", "--bg"),
            ("--fg", "--panel"),
            ("--muted", "--panel"),
        ] {
            let found = contrast(text, behind);
            assert!(found >= 4.5, "{text} on {behind}, dark: {dark}: {found:.2}");
        }
        for mark in ["--metadata", "--used", "--fragmented", "--to-move", "--moved", "--line"] {
            let found = contrast(mark, "--bg");
            assert!(found >= 3.0, "{mark}, dark: {dark}: {found:.2}");
        }
    }
}

/// On a phone nothing is wider than the window, and on paper everything is there.
#[test]
fn it_fits_a_phone_and_paper() {
    let written = written(&inputs());
    let mut browser = opened(&written, (360, 740), true);
    assert_eq!(browser.eval("document.documentElement.scrollWidth <= innerWidth"), true);
    let pdf = browser.pdf();
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 20_000, "{}", pdf.len());
    // It is as it was.
    assert_eq!(browser.eval("document.querySelectorAll('details[open]').length"), 0);
    assert_eq!(browser.text("getComputedStyle(document.body).backgroundColor"), "rgb(20, 23, 27)");
    is_content(&mut browser);
}

/// Whatever a name contains, it is text.
#[test]
fn hostile_names_are_shown_and_nothing_else() {
    let names = [
        "/srv/</script><script>document.title='pwned'</script>",
        "/srv/<img src=x onerror=\"document.title='pwned'\">",
        "/srv/\u{202e}gnp.exe\u{2066}",
        "/srv/a\u{0}b\u{1b}[2J\u{7}\n",
        "/srv/\" onmouseover=\"document.title='pwned'\" x=\"",
        "/srv/${document.title='pwned'}&lt;b&gt;\u{2028}",
        "/srv/</script x><b>",
        "/srv/<!--<script x",
    ];
    let file = |(at, name): (usize, &&str)| File {
        path: (*name).to_owned(),
        extents: 2,
        extent_bytes: 1 << 20,
        physical: (4 + 8 * at as u64) << 20,
    };
    let files: Vec<File> = names.iter().enumerate().map(file).collect();
    let mut inputs = Inputs::default();
    inputs.add("</title><script>document.title='pwned'</script>", &scan(&files, BYTES)).unwrap();
    let mut events = support::events();
    for name in names {
        let quoted = serde_json::to_string(name).unwrap();
        events = events.replacen("\"/srv/db/orders.sqlite\"", &quoted, 1);
    }
    inputs.add("<b>events\u{202e}", &events).unwrap();
    let written = written(&inputs);
    let mut browser = opened(&written, (1280, 900), false);
    assert!(browser.text("document.title").starts_with("fragmend report: "));
    assert_eq!(
        browser.eval("document.querySelectorAll('img, iframe, b, script:not([type])').length"),
        1,
        "its own script"
    );
    let mut shown = texts(&mut browser, "#files tbody td:first-child bdi");
    let mut expected: Vec<String> =
        names.iter().map(|name| fragmend_layout::printable(*name).to_string()).collect();
    shown.sort();
    expected.sort();
    assert_eq!(shown, expected);
    let text = browser.text("document.documentElement.textContent");
    let is_control = |c: char| {
        c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c) || c == '\u{0}'
    };
    assert!(!text.contains(is_control));
    // The map names them, too.
    let named: Vec<String> = serde_json::from_value(
        browser.eval("JSON.parse(document.querySelector('figure.map script').textContent).names"),
    )
    .unwrap();
    assert!(
        named.iter().all(|name| expected.contains(name)) && named.len() == names.len(),
        "{named:?}"
    );
    is_content(&mut browser);
}

/// The size of a page does not follow that of its inputs.
#[test]
fn a_page_of_a_million_extents_is_small() {
    let written = written(&a_million_extents());
    assert_eq!(written.report.scans[0].extents_placed, 1_000_000);
    assert!(written.bytes < 5 << 20, "{} bytes", written.bytes);
    assert_eq!(written.report.maps[0].cells.len(), MOST_CELLS);
    let mut browser = Browser::start();
    browser.look((1280, 900), false);
    browser.open(&written.path);
    is_content(&mut browser);
    assert_eq!(texts(&mut browser, "#files tbody tr").len(), fragmend_page::MOST_FILES);
}

/// Two makings of the same inputs, and a page without any.
#[test]
fn the_same_documents_make_the_same_page() {
    assert_eq!(page(&inputs()).1, page(&inputs()).1);
    let scanned = |files: &[File]| {
        let mut inputs = Inputs::default();
        inputs.add("scan.json", &scan(files, BYTES)).unwrap();
        page(&inputs).0.answer.sentence
    };
    let all = files();
    assert_eq!(
        scanned(&all),
        "3 of 4 files are fragmented; all are in 228 extents, where 4 would do. Whether that costs time, a scan alone cannot say."
    );
    // A run that moved nothing leaves the answer to the plan, which may be to leave it.
    let mut inputs = Inputs::default();
    let nothing = support::events().replace("\"ranges_moved\":2", "\"ranges_moved\":0");
    let nothing = nothing.replace("\"measurement\":{", "\"unknown\":{");
    inputs.add("events.jsonl", &nothing).unwrap();
    let mut plan = support::plan_document();
    plan["worth"] = false.into();
    plan["verdict"] = "not worth it: the device does not care".into();
    inputs.add("plan.json", &plan.to_string()).unwrap();
    let answer = page(&inputs).0.answer;
    assert_eq!(answer.sentence, "Leave it as it is: the device does not care.");
    assert_eq!(answer.what_did_it_change, "Nothing: no range was moved.");
    assert_eq!(scanned(&all[2..3]), "None of 1 file is fragmented: leave it as it is.");
    assert!(page(&Inputs::default()).0.answer.sentence.starts_with("The inputs say nothing"));
}
