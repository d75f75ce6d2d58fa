//! Parses what drives report of their wear. A drive, or what stands between, may answer anything.

use fragmend_layout::DriveHealth;

/// Why a report says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is empty, or has not what is looked for.
    Empty,
    /// It cannot be.
    Senseless,
}

/// A log page of NVMe, a page of a log of ATA.
pub type Page = [u8; 512];

/// The log page SMART / Health Information (NVM Express Base Specification 2.0, "SMART / Health Information Log Page").
///
/// # Errors
/// See [`Unfit`].
pub fn nvme(log: &Page) -> Result<DriveHealth, Unfit> {
    /// Data are counted in thousands of 512 bytes.
    const UNIT: u128 = 512_000;
    const SPARE_LOW: u8 = 1 << 0;
    const READ_ONLY: u8 = 1 << 3;
    // Every drive has a temperature and a spare, or at least counts the hours.
    if log.iter().all(|byte| *byte == 0) {
        return Err(Unfit::Empty);
    }
    let [warning, _, _, spare, _, used, ..] = *log;
    // A share of its own first size in per cent; all ones are what a drive that is gone reads as.
    if spare > 100 {
        return Err(Unfit::Senseless);
    }
    let units = log[48..64].try_into().map_or(0, u128::from_le_bytes);
    // Zero means that they are not reported.
    let written = units.checked_mul(UNIT).and_then(|bytes| u64::try_from(bytes).ok());
    let health = DriveHealth::of_percent(used, written.filter(|bytes| *bytes > 0));
    Ok(DriveHealth {
        spare_low: warning & SPARE_LOW != 0,
        read_only: warning & READ_ONLY != 0,
        ..health
    })
}

/// The log Device Statistics of ATA (ACS-4, "Device Statistics log").
pub mod statistics {
    use super::Page;

    /// The log that lists the others.
    pub const DIRECTORY: u8 = 0x00;
    /// The log itself.
    pub const LOG: u8 = 0x04;
    /// Its page General Statistics.
    pub const GENERAL: u8 = 0x01;
    /// Its page Solid State Device Statistics.
    pub const SOLID_STATE: u8 = 0x07;

    /// Whether a drive has the log up to the page [`SOLID_STATE`], by the [`DIRECTORY`]: a word for each log is the number
    /// of its pages.
    pub fn are_in(directory: &Page) -> bool {
        let at = usize::from(LOG) * 2;
        let pages = u16::from_le_bytes([directory[at], directory[at + 1]]);
        pages > u16::from(SOLID_STATE)
    }

    /// Whether a page is in the list of supported pages, which page 0 of the log is.
    pub fn lists(list: &Page, page: u8) -> bool {
        let entries = usize::from(list[8]);
        number(list) == 0 && list[9..].iter().take(entries).any(|listed| *listed == page)
    }

    /// The number that a page says it has.
    pub(super) fn number(page: &Page) -> u8 {
        page[2]
    }

    /// The statistic at an offset of a page, if the drive supports it and it is valid.
    pub(super) fn at(page: &Page, offset: usize) -> Option<u64> {
        const SUPPORTED: u64 = 1 << 63;
        const VALID: u64 = 1 << 62;
        let word = page.get(offset..offset + 8)?.try_into().map(u64::from_le_bytes).ok()?;
        (word & SUPPORTED != 0 && word & VALID != 0).then_some(word & 0x00FF_FFFF_FFFF_FFFF)
    }
}

/// Two pages of the log Device Statistics: General Statistics, if there is one, and Solid State Device Statistics.
/// Sectors are logical ones of `sector_bytes`.
///
/// # Errors
/// See [`Unfit`].
pub fn ata(
    general: Option<&Page>,
    solid_state: &Page,
    sector_bytes: u64,
) -> Result<DriveHealth, Unfit> {
    /// Percentage Used Endurance Indicator: one byte.
    const USED: usize = 8;
    /// Logical Sectors Written: six bytes.
    const WRITTEN: usize = 24;
    let wrong = |page: &Page, number: u8| statistics::number(page) != number;
    if wrong(solid_state, statistics::SOLID_STATE)
        || general.is_some_and(|page| wrong(page, statistics::GENERAL))
    {
        return Err(Unfit::Senseless);
    }
    let used = statistics::at(solid_state, USED).ok_or(Unfit::Empty)?;
    let used = u8::try_from(used).map_err(|_| Unfit::Senseless)?;
    let sectors = general.and_then(|page| statistics::at(page, WRITTEN));
    let sectors = sectors.filter(|sectors| *sectors > 0 && *sectors < 1 << 48);
    Ok(DriveHealth::of_percent(used, sectors.and_then(|n| n.checked_mul(sector_bytes))))
}

/// The estimates of the life of an eMMC or a UFS, of its two kinds of flash, as sysfs has them ("0x01 0x02"), and how far
/// its reserve is used (JESD84-B51, `DEVICE_LIFE_TIME_EST_TYP_A` and `_B`, `PRE_EOL_INFO`; JESD220, bDeviceLifeTimeEstA and
/// B, bPreEOLInfo). The kind that has used more counts.
///
/// # Errors
/// See [`Unfit`].
pub fn tenths(life: &str, reserve: Option<&str>) -> Result<DriveHealth, Unfit> {
    /// More than all of its life is used.
    const EXCEEDED: u8 = 0x0B;
    /// Nine tenths of the reserved blocks are used.
    const URGENT: u8 = 0x03;
    let number = |text: &str| {
        let is_number = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = text.strip_prefix("0x").filter(|digits| digits.len() <= 2).filter(is_number);
        u8::from_str_radix(digits.unwrap_or_default(), 16).map_err(|_| Unfit::Senseless)
    };
    let mut most = 0;
    for word in life.split_whitespace().take(2) {
        most = number(word)?.max(most);
    }
    match most {
        0 => return Err(Unfit::Empty),
        1..=EXCEEDED => {}
        _ => return Err(Unfit::Senseless),
    }
    let reserve = reserve.map(str::trim).and_then(|text| number(text).ok());
    Ok(DriveHealth { spare_low: reserve == Some(URGENT), ..DriveHealth::of_tenth(most) })
}

#[cfg(test)]
#[path = "logs_tests.rs"]
mod tests;
