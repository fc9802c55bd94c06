//! Shared by both sides: outgoing lines, written when the pipe accepts them, and received lines.

use super::pipe::Pipe;

/// A line that a side has sent.
#[derive(Debug, Clone)]
pub struct Said {
    pub bytes: Vec<u8>,
    /// The same without the text before the user's words, if it has any.
    pub plain: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub struct Mouth {
    /// Lines whose writing has begun.
    pub said: Vec<Said>,
    unwritten: Vec<u8>,
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
    }

    /// It stops sending, even in the middle of a line.
    pub fn shut(&mut self) {
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
        while let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = self.part.drain(..=end).collect();
            line.pop();
            lines.push(line);
        }
        self.heard.extend(lines.iter().cloned());
        lines
    }
}
