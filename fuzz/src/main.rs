//! One program for all targets: libFuzzer generates inputs; `$FUZZ_TARGET` names the target that runs on
//! them.

#![no_main]

use fragmend_forged::Target;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        Target::named(&name).unwrap_or_else(|| panic!("no target {name:?}: set FUZZ_TARGET"))
    });
    target.check(input);
});
