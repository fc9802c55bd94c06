//! Shared by both sides: outgoing lines, written when the pipe accepts them, and received lines.

use serde_json::Value;

use super::pipe::Pipe;

/// A line that a side has sent.
#[derive(Debug, Clone)]
pub struct Said {
    pub bytes: Vec<u8>,
    /// The same without the text before the user's words, if it has any.
    pub plain: Option<Vec<u8>>,
}

impl Said {
    /// Its first bytes, of which nothing is left out unless they are whole.
    pub fn cut(&self, length: usize) -> Said {
        let (bytes, missing) = (self.bytes[..length].to_vec(), self.bytes.len() - length);
        let is_whole = serde_json::from_slice::<Value>(&bytes).is_ok();
        let plain = self.plain.as_ref().filter(|_| is_whole).map(|plain| plain[..plain.len() - missing].to_vec());
        Said { bytes, plain }
    }
}

#[derive(Debug, Default)]
pub struct Mouth {
    /// Lines whose writing has begun.
    pub said: Vec<Said>,
    unwritten: Vec<u8>,
    /// It closes its end once everything is written.
    ends: bool,
}

impl Mouth {
    pub fn say(&mut self, bytes: Vec<u8>) {
        self.say_both(Said { bytes, plain: None });
    }

    pub fn say_both(&mut self, said: Said) {
        self.unwritten.extend_from_slice(&said.bytes);
        self.unwritten.push(b'\n');
        self.said.push(said);
    }

    pub fn write(&mut self, pipe: &Pipe, bytes_max: usize) {
        let taken = pipe.put(&self.unwritten, bytes_max);
        self.unwritten.drain(..taken);
        if self.ends && self.unwritten.is_empty() {
            pipe.close();
        }
    }

    /// It says no more, and its last line has no end if `is_cut`.
    pub fn end(&mut self, is_cut: bool) {
        self.ends = true;
        if is_cut && self.unwritten.pop().is_some() && self.said.last().is_some_and(|said| said.bytes.is_empty()) {
            // Nothing comes of an empty line that has no end.
            self.said.pop();
        }
    }

    /// It stops sending, even in the middle of a line.
    pub fn shut(&mut self) {
        self.ends = true;
        self.unwritten.clear();
    }

    pub fn is_silent(&self) -> bool {
        self.unwritten.is_empty()
    }
}

#[derive(Debug, Default)]
pub struct Ear {
    pub heard: Vec<Vec<u8>>,
    part: Vec<u8>,
}

impl Ear {
    /// Receives bytes; returns the lines that they complete.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.part.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = memchr::memchr(b'\n', &self.part) {
            let mut line: Vec<u8> = self.part.drain(..=end).collect();
            line.pop();
            lines.push(line);
        }
        self.heard.extend(lines.iter().cloned());
        lines
    }

    /// No more comes; returns a last line that has no end.
    pub fn end(&mut self) -> Option<Vec<u8>> {
        let last = std::mem::take(&mut self.part);
        let last = (!last.is_empty()).then_some(last);
        self.heard.extend(last.clone());
        last
    }
}
