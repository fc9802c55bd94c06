//! The queues between one client and a server on pipes: a direction each way.

use std::time::Duration;

use super::direction::Direction;
use super::pipes::{ReadEnd, WriteEnd};
use crate::driver::{Carrier, Decided, Links, other};
use crate::engine::{Engine, Incoming, Injection, Passage, Token};
use crate::wire::{Conn, Frame, Framer, Line, LineEnd, Side};

/// Both directions.
#[derive(Debug)]
pub struct Pair<S, K> {
    pub from_client: Direction<S, K>,
    pub from_server: Direction<S, K>,
}

impl<S: ReadEnd, K: WriteEnd> Pair<S, K> {
    pub fn direction(&mut self, from: Side) -> &mut Direction<S, K> {
        match from {
            Side::Client => &mut self.from_client,
            Side::Server => &mut self.from_server,
        }
    }

    fn framer(&self, from: Side) -> &Framer {
        match from {
            Side::Client => &self.from_client.framer,
            Side::Server => &self.from_server.framer,
        }
    }
}

impl<S: ReadEnd, K: WriteEnd> Links for Pair<S, K> {
    type Unit = Frame;

    fn line<'a>(&'a self, from: Side, frame: &'a Frame) -> (Line<'a>, Incoming<'a>) {
        match frame {
            Frame::Line { range, end } => {
                let line = self.framer(from).line(range.clone(), *end);
                (line, Incoming::Line(line))
            }
            Frame::Piece { .. } => (Line::unseen(LineEnd::EndOfStream), Incoming::Piece),
            Frame::LastPiece { line_bytes, end, .. } => {
                (Line::unseen(*end), Incoming::LastPiece { line_bytes: *line_bytes })
            }
        }
    }

    fn queue(&mut self, _: Conn, from: Side, frame: Frame, decided: Decided) -> Option<usize> {
        let direction = self.direction(from);
        let Decided { before, hold, line, mark } = decided;
        for own in before {
            direction.outgoing.add_own(LineEnd::Newline.ends(own.bytes));
        }
        if let Some(token) = hold {
            direction.outgoing.hold(token);
        }
        let (range, end) = match &frame {
            Frame::Line { range, end } | Frame::LastPiece { range, end, .. } => (range.clone(), *end),
            Frame::Piece { range } => (range.clone(), LineEnd::EndOfStream),
        };
        let forwarded_bytes = match line {
            Passage::Forward => {
                let bytes = range.len();
                direction.outgoing.add(range);
                Some(bytes)
            }
            Passage::Replace(own) => {
                let bytes = end.ends(own.bytes);
                let length = bytes.len();
                direction.outgoing.add_own(bytes);
                Some(length)
            }
            Passage::Withhold => None,
        };
        if let Some(token) = mark {
            direction.outgoing.mark(token, forwarded_bytes.unwrap_or_default());
        }
        if forwarded_bytes.is_some() {
            direction.seam.frame_queued(&frame, &mut direction.outgoing);
        }
        forwarded_bytes
    }

    fn send(&mut self, _: Conn, to: Side, lines: Vec<Vec<u8>>, mark: Option<Token>) {
        let bytes = lines.into_iter().flat_map(|line| LineEnd::Newline.ends(line)).collect();
        self.direction(other(to)).inject(bytes, mark);
    }

    fn send_held(&mut self, _: Conn, line: Vec<u8>, end: LineEnd) {
        self.from_client.inject(end.ends(line), None);
    }

    fn send_late(&mut self, _: &[Conn], line: Vec<u8>) {
        self.from_server.inject(LineEnd::Newline.ends(line), None);
    }

    fn carrier(&mut self, _: &Engine, injection: Injection) -> Carrier {
        Carrier::On(injection)
    }

    fn recall(&mut self, token: Token) -> bool {
        self.from_client.recall(token)
    }

    fn release(&mut self, token: Token) {
        self.from_client.release(token);
        self.from_server.release(token);
    }

    fn flush(&mut self, _: Conn, to: Side, elapsed: Duration, reached: &mut Vec<Token>) {
        self.direction(other(to)).flush(elapsed, reached);
    }

    fn conns(&self) -> Vec<Conn> {
        vec![Conn::OWN]
    }
}
