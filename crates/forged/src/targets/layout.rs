//! The invariants of every layout, wherever it was read from.

use fragmend_layout::{ByteRange, DeviceLimits, Layout, Measures};

/// Checks a layout; nothing in it may be beyond `device_end` bytes.
///
/// # Panics
/// When it breaks an invariant.
pub fn check(layout: &Layout, device_end: Option<u64>) {
    let mut end = 0;
    for extent in layout.extents() {
        assert!(extent.logical >= end, "out of order: {extent:?} after {end}");
        end = extent.logical.checked_add(extent.length).expect("an extent has an end");
        assert_eq!(extent.range().end, end);
        if let Some(device_end) = device_end {
            assert!(extent.length > 0, "nothing in it: {extent:?}");
            assert!(extent.physical_end() <= device_end, "{extent:?} beyond {device_end}");
        }
    }
    let all = ByteRange { start: 0, end: u64::MAX };
    let many = layout.extents().len();
    let addressed = layout.extents().iter().filter(|e| e.kind.is_addressed()).count();
    assert!(layout.within(all).count() <= many);
    assert!(layout.runs().count() <= addressed && layout.breaks().count() <= addressed);
    assert!(layout.fragments(all) <= addressed as u64);
    assert!(layout.shared().extents().len() <= many);
    assert!(layout.shared_bytes(all) <= layout.stored_bytes(all));
    let limits =
        DeviceLimits { largest_extent: 128 << 20, readahead: 128 << 10, max_request: 512 << 10 };
    let mut fragments = 0;
    let measures = Measures::of(layout, &limits, |_, _| fragments += 1);
    assert!(fragments <= addressed && measures.ideal_extents <= measures.extents);
    assert!(measures.requests_best <= measures.requests_now);
    assert!(measures.dof() >= 0.0);
}
