//! Block traces and scans that the lab reads: an error names an existing line; what is accepted can be replayed, or is on the drive.

use super::toml::names_its_line;
use fragmend_lab::presets;
use fragmend_lab::scan::Scan;
use fragmend_lab::setup::Setup;
use fragmend_lab::trace::replay::{Speed, replay};
use fragmend_lab::trace::{Request, Requests};

/// Requests that are replayed, of which none is longer: more would take long, and show nothing else.
const REPLAYED: usize = 16;
const LONGEST: u64 = 1 << 20;

/// A block trace in any of the formats.
pub fn block_trace(input: &[u8]) -> bool {
    let parsed: Result<Vec<Request>, _> = Requests::new(input, "trace").collect();
    let all = match parsed {
        Ok(all) => all,
        Err(bad) => {
            assert!(bad.line >= 1 && bad.line <= input.split(|b| *b == b'\n').count(), "{bad}");
            assert!(!bad.why.chars().any(char::is_control), "{:?}", bad.why);
            return false;
        }
    };
    assert!(all.iter().all(|request| request.end() >= request.offset));
    if all.len() <= REPLAYED && all.iter().all(|request| request.bytes <= LONGEST) {
        thread_local! {
            static CARD: Setup = presets::named("sd-kingston").expect("a drive of the lab");
        }
        let setup = CARD.with(Setup::clone);
        let requests = Requests::new(input, "trace");
        let played = replay(requests, &mut *setup.device(), 0, &setup.host, Speed::Fastest);
        let played = played.expect("a trace that was parsed");
        assert_eq!(played.requests, all.len() as u64);
    }
    !all.is_empty()
}

/// A scan with layouts, on a drive of 4 GiB.
pub fn scan(input: &[u8]) -> bool {
    const UNITS: u32 = 1 << 20;
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let scan = match Scan::parse(text, "scan.json") {
        Ok(scan) => scan,
        Err(bad) => return names_its_line(text, &bad),
    };
    let Ok(placed) = scan.onto(4096, UNITS) else { return false };
    assert!(placed.end() <= UNITS && placed.gaps_ppm <= 1_000_000);
    assert!(placed.used.windows(2).all(|two| two[0].end() <= two[1].start));
    for file in placed.files.values() {
        for extent in file.within(0, file.units().min(1000)) {
            let holds = |used: &fragmend_lab::scan::Units| {
                used.start <= extent.start && extent.end() <= used.end()
            };
            assert!(placed.used.iter().any(holds), "{extent:?} is nowhere");
        }
    }
    true
}
