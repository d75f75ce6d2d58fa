//! The promises of each parser.

pub mod ext4;
pub mod f2fs;
pub mod health;
pub mod ioctls;
pub mod known;
pub mod lab;
pub mod layout;
pub mod page;
pub mod plan;
pub mod policy;
pub mod profile;
pub mod record;
pub mod space;
pub mod store;
pub mod text;
pub mod toml;
pub mod trace;
