//! Bounds-checked access to a guest's memory.

use super::{Errno, FAULT, INVAL, PIECES_MAX};

pub(super) type Memory = [u8];

fn range(at: i32, length: usize) -> std::ops::Range<usize> {
    let start = at as u32 as usize;
    start..start.saturating_add(length)
}

pub(super) fn bytes_at(memory: &mut Memory, at: i32, length: i32) -> Result<&mut [u8], Errno> {
    memory.get_mut(range(at, length as u32 as usize)).ok_or(FAULT)
}

pub(super) fn put(memory: &mut Memory, at: i32, bytes: &[u8]) -> Result<(), Errno> {
    memory.get_mut(range(at, bytes.len())).ok_or(FAULT)?.copy_from_slice(bytes);
    Ok(())
}

pub(super) fn take<const N: usize>(memory: &Memory, at: i32) -> Result<[u8; N], Errno> {
    let bytes = memory.get(range(at, N)).ok_or(FAULT)?;
    bytes.try_into().map_err(|_| FAULT)
}

/// Addresses of `count` entries of `size` bytes each from `at`; fails if they exceed the address space.
pub(super) fn entries(at: i32, count: u32, size: u32) -> Result<impl Iterator<Item = i32>, Errno> {
    let at = at as u32;
    let length = count.checked_mul(size).ok_or(INVAL)?;
    at.checked_add(length).ok_or(FAULT)?;
    Ok((0..count).map(move |index| (at + index * size) as i32))
}

/// Addresses and lengths of the buffers of a vectored read or write.
pub(super) fn pieces(memory: &Memory, at: i32, count: i32) -> Result<Vec<(i32, i32)>, Errno> {
    let count = (count as u32).min(PIECES_MAX);
    entries(at, count, 8)?
        .map(|entry| {
            let [a, b, c, d, e, f, g, h] = take::<8>(memory, entry)?;
            Ok((i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h])))
        })
        .collect()
}
