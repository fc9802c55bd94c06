//! What the two sides have in common: lines that they write when they may, and lines that they have got.

use super::pipe::Pipe;

/// A line as a side has said it.
#[derive(Debug, Clone)]
pub struct Said {
    pub bytes: Vec<u8>,
    /// The same without what was put in front of the user's words, where that stands in it.
    pub plain: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub struct Mouth {
    /// Lines, as they were begun to be written.
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

    pub fn write(&mut self, pipe: &mut Pipe, bytes_max: usize) {
        let taken = pipe.put(&self.unwritten, bytes_max);
        self.unwritten.drain(..taken);
    }

    /// It says no more, wherever it is.
    pub fn shut(&mut self) {
        self.unwritten.clear();
    }

    pub fn is_silent(&self) -> bool {
        self.unwritten.is_empty()
    }
}

#[derive(Debug, Default)]
pub struct Ear {
    /// Whole lines.
    pub heard: Vec<Vec<u8>>,
    part: Vec<u8>,
}

impl Ear {
    /// Takes bytes; gives the lines that they complete.
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
