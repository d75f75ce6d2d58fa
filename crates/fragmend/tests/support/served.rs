//! A drive of the lab that `fragmend lab serve` serves; see [`fragmend_testbed::served`].

pub use fragmend_testbed::served::*;
