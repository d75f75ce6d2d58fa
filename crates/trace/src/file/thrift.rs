//! Thrift's compact protocol, as far as Parquet's footer and page headers use it, for checking sizes before
//! memory is allocated for them: nothing is allocated here, lengths are compared with the bytes that are
//! present, and nesting is limited.

/// The limit of nesting; Parquet's own structures nest nine deep.
const MAX_DEPTH: u32 = 16;

/// The type of a field or an element (the protocol's numbers).
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

/// A cursor over bytes. Every step returns `None` where the bytes end or are malformed.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    rest: &'a [u8],
}

/// The header of a field.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub id: i64,
    kind: u8,
}

impl<'a> Walk<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The number of bytes that are not walked yet.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Walks a structure and calls `on` at each field; a field for which `on` returns false is skipped.
    pub(super) fn structure(
        &mut self,
        mut on: impl FnMut(&mut Self, Field) -> Option<bool>,
    ) -> Option<()> {
        let mut id = 0;
        while let Some(field) = self.field(id)? {
            id = field.id;
            if !on(self, field)? {
                self.skip(field.kind, MAX_DEPTH)?;
            }
        }
        Some(())
    }

    /// The value of an integer field.
    pub(super) fn integer(&mut self, field: Field) -> Option<i64> {
        match field.kind {
            I16 | I32 | I64 => self.zigzag(),
            _ => None,
        }
    }

    /// Whether a field is a structure, which can then be walked.
    pub(super) fn is_structure(field: Field) -> bool {
        field.kind == STRUCT
    }

    /// The number of elements of a list field, which is skipped.
    pub(super) fn list_length(&mut self, field: Field) -> Option<usize> {
        if field.kind != LIST {
            return None;
        }
        let (length, _) = self.clone().list()?;
        self.skip(LIST, MAX_DEPTH)?;
        Some(length)
    }

    fn field(&mut self, last: i64) -> Option<Option<Field>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let id = match byte >> 4 {
            0 => self.zigzag()?,
            delta => last.checked_add(delta.into())?,
        };
        Some(Some(Field { id, kind: byte & 0xf }))
    }

    fn list(&mut self) -> Option<(usize, u8)> {
        let byte = self.byte()?;
        let length = match byte >> 4 {
            15 => usize::try_from(self.varint()?).ok()?,
            short => short.into(),
        };
        // Every element has a size of at least one byte.
        (length <= self.rest.len()).then_some((length, byte & 0xf))
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        let deeper = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE => Some(()),
            BYTE => self.take(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.take(8),
            BINARY => {
                let length = self.varint()?;
                self.take(usize::try_from(length).ok()?)
            }
            LIST | SET => {
                let (length, element) = self.list()?;
                for _ in 0..length {
                    // In a list, unlike in a field, a truth value is a byte of its own.
                    match element {
                        TRUE | FALSE => self.take(1)?,
                        _ => self.skip(element, deeper)?,
                    }
                }
                Some(())
            }
            STRUCT => {
                let mut id = 0;
                while let Some(field) = self.field(id)? {
                    id = field.id;
                    self.skip(field.kind, deeper)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn take(&mut self, bytes: usize) -> Option<()> {
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_is_walked_to_its_end() {
        // 1: i32 = 2, 2: binary "ab", 4: list of two structures, of which the first has 1: true.
        let bytes = [0x15, 0x04, 0x18, 0x02, b'a', b'b', 0x29, 0x2c, 0x11, 0, 0, 0, 0xff];
        let (mut walk, mut seen) = (Walk::new(&bytes), Vec::new());
        walk.structure(|walk, field| {
            seen.push(match field.id {
                1 => walk.integer(field)?,
                4 => walk.list_length(field)? as i64,
                _ => return Some(false),
            });
            Some(true)
        })
        .unwrap();
        assert_eq!((seen, walk.left()), (vec![2, 2], 1));
    }

    #[test]
    fn what_is_announced_must_be_there_and_nesting_ends() {
        let over = |bytes: &[u8]| Walk::new(bytes).structure(|_, _| Some(false));
        assert!(over(&[0x18, 0x7f, 0]).is_none(), "a text beyond the end");
        assert!(over(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]).is_none(), "a long list");
        assert!(over(&[0x1c; 1000]).is_none(), "structures in structures");
        assert!(over(&[0x19; 1000]).is_none(), "a list of no known kind");
        assert!(over(&[]).is_none() && over(&[0]).is_some());
    }
}
