//! What drives report of their wear: a figure that is accepted can be, and a rating has two ends in order. The first byte of
//! an input says whose report follows.

use crate::bytes::{Bytes, with_file};
use crate::kernel::answering;
use fragmend_device::health::logs::{self, Page, Unfit, statistics};
use fragmend_layout::DriveHealth;
use fragmend_sys::{ata, nvme};

/// A report.
pub fn health(input: &[u8]) -> bool {
    let mut bytes = Bytes::new(input);
    let kind = bytes.u8();
    let page = |bytes: &mut Bytes| -> Page {
        let (taken, mut page) = (bytes.up_to(512), [0; 512]);
        page[..taken.len()].copy_from_slice(taken);
        page
    };
    let found = match kind % 5 {
        0 => logs::nvme(&page(&mut bytes)),
        1 => {
            let (general, solid_state) = (page(&mut bytes), page(&mut bytes));
            let _ = (statistics::are_in(&general), statistics::lists(&general, kind));
            let general = (kind & 0x80 == 0).then_some(&general);
            logs::ata(general, &solid_state, bytes.u64().max(512))
        }
        2 => with_file(&[], |any| {
            // As the kernel hands it on.
            let ask = || nvme::health_log(&any.file);
            answering(&input[1..], ask).0.map_or(Err(Unfit::Empty), |log| logs::nvme(&log))
        }),
        3 => with_file(&[], |any| {
            let ask = || ata::read_log(&any.file, statistics::LOG, statistics::SOLID_STATE.into());
            answering(&input[1..], ask)
                .0
                .map_or(Err(Unfit::Empty), |log| logs::ata(None, &log, 512))
        }),
        _ => {
            let Ok(text) = std::str::from_utf8(&input[1..]) else { return false };
            match text.split_once('\n') {
                Some((life, reserve)) => logs::tenths(life, Some(reserve)),
                None => logs::tenths(text, None),
            }
        }
    };
    found.iter().for_each(sensible);
    found.is_ok()
}

fn sensible(health: &DriveHealth) {
    assert!((0.0..=2.55).contains(&health.used_share), "{health:?}");
    assert!(!health.life_used_up || health.used_share >= 1.0, "{health:?}");
    assert_eq!(health.rated_bytes.is_none(), health.unrated().is_some());
    if let Some(rated) = health.rated_bytes {
        assert!(0 < rated.low && rated.low <= rated.high && health.written_bytes.is_some());
    }
    let text = serde_json::to_string(health).expect("it is data");
    let again: DriveHealth = serde_json::from_str(&text).expect("what was written is read");
    assert_eq!(again.written_bytes, health.written_bytes);
}
