//! What the two sides have in common: lines that they write when they may, and lines that they have got.

use super::pipe::Pipe;

#[derive(Debug, Default)]
pub struct Mouth {
    /// Lines, as they were begun to be written.
    pub said: Vec<String>,
    unwritten: Vec<u8>,
}

impl Mouth {
    pub fn say(&mut self, line: String) {
        self.unwritten.extend_from_slice(line.as_bytes());
        self.unwritten.push(b'\n');
        self.said.push(line);
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
    pub heard: Vec<String>,
    part: Vec<u8>,
}

impl Ear {
    /// Takes bytes; gives the lines that they complete.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        self.part.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.part.drain(..=end).collect();
            lines.push(String::from_utf8(line[..end].to_vec()).expect("both sides speak UTF-8"));
        }
        self.heard.extend(lines.iter().cloned());
        lines
    }
}
