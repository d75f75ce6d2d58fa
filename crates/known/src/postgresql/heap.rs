//! Rows of PostgreSQL's catalogues, in pages of its heap (src/include/storage/bufpage.h and itemid.h,
//! src/include/access/htup_details.h), and the map of catalogues to files (src/backend/utils/cache/relmapper.c).

use crate::bytes::{le16, le32};

/// Bytes of a page as it is built by default.
pub const PAGE: usize = 8192;

/// Calls `visit` with the columns of each row in a page that is known neither to be deleted nor to come of a transaction that
/// was rolled back: one that is being changed may come twice.
pub fn rows(page: &[u8], mut visit: impl FnMut(&[u8])) {
    const LAYOUT_VERSION: u16 = 4;
    const ITEMS_AT: usize = 24;
    let lower = le16(page, 12).map_or(0, usize::from).min(page.len());
    if page.len() != PAGE || le16(page, 18) != Some(PAGE as u16 | LAYOUT_VERSION) {
        return;
    }
    for item in page.get(ITEMS_AT..lower).unwrap_or_default().chunks_exact(4) {
        let item = le32(item, 0).unwrap_or(0);
        let (offset, state, length) = (item & 0x7FFF, item >> 15 & 3, item >> 17);
        const NORMAL: u32 = 1;
        let tuple = page.get(offset as usize..(offset + length) as usize);
        if let (NORMAL, Some(columns)) = (state, tuple.and_then(columns)) {
            visit(columns);
        }
    }
}

/// The columns of a row that may be visible.
fn columns(tuple: &[u8]) -> Option<&[u8]> {
    const XMAX_LOCK_ONLY: u16 = 0x0080;
    const XMIN_COMMITTED: u16 = 0x0100;
    const XMIN_INVALID: u16 = 0x0200;
    const XMAX_COMMITTED: u16 = 0x0400;
    let mask = le16(tuple, 20)?;
    let rolled_back = mask & (XMIN_COMMITTED | XMIN_INVALID) == XMIN_INVALID;
    let deleted = mask & (XMAX_COMMITTED | XMAX_LOCK_ONLY) == XMAX_COMMITTED;
    let columns = tuple.get(usize::from(*tuple.get(22)?)..)?;
    (!rolled_back && !deleted).then_some(columns)
}

/// The number of the file of a catalogue, of `pg_filenode.map`.
pub fn mapped(map: &[u8], catalogue: u32) -> Option<u32> {
    const MAGIC: u32 = 0x0059_2717;
    const MOST: usize = 64;
    let count = le32(map, 4).filter(|_| le32(map, 0) == Some(MAGIC))? as usize;
    let pairs = map.get(8..)?.chunks_exact(8).take(count.min(MOST));
    let mut pairs = pairs.filter_map(|pair| Some((le32(pair, 0)?, le32(pair, 4)?)));
    pairs.find(|(number, _)| *number == catalogue).map(|(_, file)| file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with these rows: their masks, and a byte of data each.
    pub fn page(of: &[(u16, u8)]) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        let mut put = |at: usize, value: &[u8]| page[at..at + value.len()].copy_from_slice(value);
        put(18, &(PAGE as u16 | 4).to_le_bytes());
        put(12, &(24 + 4 * of.len() as u16).to_le_bytes());
        for (n, (mask, byte)) in of.iter().enumerate() {
            let at = PAGE - 32 * (n + 1);
            put(24 + 4 * n, &(at as u32 | 1 << 15 | 25 << 17).to_le_bytes());
            put(at + 20, &mask.to_le_bytes());
            put(at + 22, &[24, 0, *byte]);
        }
        page
    }

    #[test]
    fn rows_are_those_that_may_be_visible() {
        // Committed; rolled back; frozen; deleted; locked; being deleted.
        let some = [(0x100, 1), (0x200, 2), (0x300, 3), (0x500, 4), (0x580, 5), (0x100, 6)];
        let mut found = Vec::new();
        rows(&page(&some), |columns| found.push(columns.to_vec()));
        assert_eq!(found, [[1], [3], [5], [6]]);
    }

    #[test]
    fn items_beyond_the_page_are_no_rows() {
        let good = page(&[(0x100, 1)]);
        let count = |page: &[u8]| {
            let mut count = 0;
            rows(page, |_| count += 1);
            count
        };
        assert_eq!(count(&good), 1);
        for (at, value) in
            [(18, 5), (24, 0xFF), (26, 0xFF), (25, 0), (12, 24), (PAGE - 32 + 22, 26)]
        {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(count(&bad), 0, "{at}");
        }
        assert_eq!(count(&good[..PAGE - 1]), 0);
        let mut many = good;
        (many[12], many[13]) = (0xFF, 0xFF);
        assert_eq!(count(&many), 1);
    }

    #[test]
    fn a_catalogue_has_a_file_in_the_map() {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
        let map = words(&[0x592717, 2, 1259, 16000, 1249, 16001, 1247, 16002]);
        assert_eq!([1259, 1249, 1247].map(|of| mapped(&map, of)), [Some(16000), Some(16001), None]);
        assert_eq!(mapped(&words(&[0x592718, 1, 1259, 16000]), 1259), None);
        assert_eq!(mapped(&words(&[0x592717, u32::MAX, 1259, 16000]), 1259), Some(16000));
        assert_eq!(mapped(&map[..10], 1259), None);
    }
}
