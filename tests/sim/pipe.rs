//! A kernel pipe: it accepts bytes up to its capacity, and outlives its writer.

use std::collections::VecDeque;

/// Small, so that it is often full.
const ROOM_BYTES: usize = 700;

#[derive(Debug, Default)]
pub struct Pipe(VecDeque<u8>);

impl Pipe {
    /// Accepts the start of `bytes`, at most `bytes_max`; returns how much.
    pub fn put(&mut self, bytes: &[u8], bytes_max: usize) -> usize {
        let taken = bytes.len().min(bytes_max).min(ROOM_BYTES - self.0.len());
        self.0.extend(&bytes[..taken]);
        taken
    }

    /// Returns at most `bytes_max`.
    pub fn get(&mut self, bytes_max: usize) -> Vec<u8> {
        let given = self.0.len().min(bytes_max);
        self.0.drain(..given).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
