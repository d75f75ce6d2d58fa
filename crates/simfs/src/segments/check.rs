//! What `fsck` compares: the segment information table, the addresses of all files, and the nodes on the drive.

use super::node::{HOLE, is_place};
use super::sections::{Kind, State as Use};
use super::state::{Owner, State};

impl State {
    /// See [`crate::file_system::FileSystem::check`].
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let (mut used, mut placed) = (0, 0);
        for (inode, file) in self.files.iter() {
            if self.files.named(&file.attributes.path) != Some(inode) {
                return Err(format!("inode {inode} has the name of another file"));
            }
            for (number, node) in &file.nodes {
                let what = format!("node {number} of inode {inode}");
                used += 1;
                if is_place(node.place) {
                    placed += 1;
                    let owner = Owner { inode, number: *number };
                    self.check_place(node.place, owner, Kind::Node, &what)?;
                }
                let addresses = node.addresses.iter().filter(|address| **address != HOLE).count();
                if addresses != node.used as usize {
                    return Err(format!("{what} has {addresses} addresses and not {}", node.used));
                }
                used += addresses as u64;
                let first = self.capacity.first(*number);
                for (block, address) in
                    (first..).zip(&node.addresses).filter(|(_, a)| is_place(**a))
                {
                    placed += 1;
                    let owner = Owner { inode, number: block as u32 };
                    let what = format!("block {block} of inode {inode}");
                    self.check_place(*address, owner, Kind::Data, &what)?;
                }
                self.check_node(inode, *number, &what)?;
            }
        }
        if used != self.used {
            return Err(format!("{used} blocks are used, and not {}", self.used));
        }
        if self.files.names() != self.files.iter().count() {
            return Err("a name leads to no file".into());
        }
        self.check_sections(placed)
    }

    fn check_place(&self, place: u32, owner: Owner, kind: Kind, what: &str) -> Result<(), String> {
        if !self.geometry.is_main(place) {
            return Err(format!("{what} is at {place}, outside the main area"));
        }
        let (section, _) = self.locate(place);
        let is_its = self.is_valid(place)
            && self.owner(place) == owner
            && self.sections.get(section).kind == kind;
        if is_its { Ok(()) } else { Err(format!("{what} is at {place}, which is not its block")) }
    }

    /// A node that is not dirty is on the drive as it is in memory, where that keeps content.
    fn check_node(&self, inode: u32, number: u32, what: &str) -> Result<(), String> {
        let file = self.files.get(inode).map_err(|error| error.to_string())?;
        let node = &file.nodes[&number];
        if node.dirty != self.dirty_nodes.contains(&(inode, number)) {
            return Err(format!("{what} is dirty, or not"));
        }
        if node.dirty || !self.machine.keeps_content() || !self.machine.is_on() {
            return Ok(());
        }
        let expected =
            self.files.node_block(inode, number, 0).map_err(|error| error.to_string())?;
        let found = self.node_at(node.place);
        let is_same = found.is_some_and(|found| {
            (found.inode, found.number) == (inode, number)
                && found.addresses == expected.addresses
                && found.attributes == expected.attributes
        });
        if is_same { Ok(()) } else { Err(format!("{what} is not what is at {}", node.place)) }
    }

    fn check_sections(&self, placed: u64) -> Result<(), String> {
        let mut valid = 0;
        for (number, section) in self.sections.iter() {
            let offsets: Vec<u32> = self.sections.valid_in(number).collect();
            valid += offsets.len() as u64;
            if offsets.len() as u32 != section.valid {
                let count = offsets.len();
                return Err(format!(
                    "section {number} has {count} valid blocks, not {}",
                    section.valid
                ));
            }
            if offsets.iter().any(|offset| !self.sections.is_held(number, *offset)) {
                return Err(format!("a valid block of section {number} is not held"));
            }
            let held =
                (0..self.geometry.section).any(|offset| self.sections.is_held(number, offset));
            if held && section.state == Use::Free {
                return Err(format!("section {number} is free, and a block of it is held"));
            }
            let is_open = self.logs.iter().any(|log| log.is_open && log.section == number);
            if is_open != (section.state == Use::Open) {
                return Err(format!("section {number} is open, or no log has it"));
            }
        }
        if valid == placed {
            Ok(())
        } else {
            Err(format!("{valid} blocks are valid, {placed} in use"))
        }
    }
}
