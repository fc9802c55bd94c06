//! The least relay: what no relay that records can do without.
//!
//! It waits for bytes of either side, reads them, appends all complete lines to a file, and forwards them. It parses nothing, has
//! one thread, and never waits for a slow reader in a clever way. Its cost beyond that of a pair of `cat` is the price of
//! a journal that has each line before the other side has it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};

/// The head of a record, as long as the relay's own.
const HEAD: &[u8] = br#"{"at":1790000000000000,"from":"server","line":"#;

/// Runs the program behind a relay that records in the current folder.
pub fn relay(program: &[String]) {
    let mut command = Command::new(&program[0]);
    let mut child = command.args(&program[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut journal = File::create("least.jsonl").unwrap();
    let file = |fd: std::os::fd::BorrowedFd<'_>| File::from(fd.try_clone_to_owned().unwrap());
    let mut down = Way::new(file(child.stdout.as_ref().unwrap().as_fd()), file(std::io::stdout().as_fd()));
    let to_server = child.stdin.take().unwrap();
    let mut up = Some(Way::new(file(std::io::stdin().as_fd()), File::from(std::os::fd::OwnedFd::from(to_server))));
    loop {
        let mut ready = vec![PollFd::new(&down.from, PollFlags::IN)];
        ready.extend(up.as_ref().map(|up| PollFd::new(&up.from, PollFlags::IN)));
        poll(&mut ready, None).unwrap();
        let ready: Vec<bool> = ready.iter().map(|ready| !ready.revents().is_empty()).collect();
        if ready[0] && !down.pass(&mut journal) {
            break;
        }
        if ready.get(1) == Some(&true) && up.as_mut().is_some_and(|up| !up.pass(&mut journal)) {
            up = None;
        }
    }
    child.wait().unwrap();
}

/// Listens at one socket, and passes the clients on to the server at another one, each on a thread: what no hub that records can do
/// without. It appends to one file for all what it has read before it forwards it, and knows neither frames nor messages.
pub fn hub(socket: &str, server: &str) {
    let journal = File::create("least-hub.jsonl").unwrap();
    for client in UnixListener::bind(socket).unwrap().incoming() {
        let (client, server) = (client.unwrap(), UnixStream::connect(server).unwrap());
        let journal = journal.try_clone().unwrap();
        std::thread::spawn(move || pass_both_ways(&client, &server, &journal));
    }
}

fn pass_both_ways(client: &UnixStream, server: &UnixStream, mut journal: &File) {
    let mut records = vec![0; HEAD.len() + (64 << 10)];
    records[..HEAD.len()].copy_from_slice(HEAD);
    loop {
        let mut ready = [client, server].map(|end| PollFd::new(end, PollFlags::IN));
        poll(&mut ready, None).unwrap();
        let ready = ready.map(|ready| !ready.revents().is_empty());
        for (is_ready, mut from, mut to) in [(ready[0], client, server), (ready[1], server, client)] {
            if !is_ready {
                continue;
            }
            let read = from.read(&mut records[HEAD.len()..]).unwrap_or(0);
            let end = HEAD.len() + read;
            if read == 0
                || journal.write_all(&records[..end]).is_err()
                || to.write_all(&records[HEAD.len()..end]).is_err()
            {
                return;
            }
        }
    }
}

/// The way from one side to the other.
struct Way {
    from: File,
    to: File,
    /// The beginning of a line whose rest was not read yet.
    held: Vec<u8>,
    records: Vec<u8>,
    chunk: Vec<u8>,
}

impl Way {
    fn new(from: File, to: File) -> Way {
        Way { from, to, held: Vec::new(), records: Vec::new(), chunk: vec![0; 64 << 10] }
    }

    /// Forwards what there is; whether there will be more.
    fn pass(&mut self, journal: &mut File) -> bool {
        let read = self.from.read(&mut self.chunk).unwrap();
        let new = &self.chunk[..read];
        let Some(end) = memchr::memrchr(b'\n', new) else {
            self.held.extend_from_slice(new);
            return read > 0;
        };
        self.held.extend_from_slice(&new[..=end]);
        self.records.clear();
        for line in self.held.split_inclusive(|byte| *byte == b'\n') {
            self.records.extend_from_slice(HEAD);
            self.records.extend_from_slice(line);
        }
        let is_sent = journal.write_all(&self.records).is_ok() && self.to.write_all(&self.held).is_ok();
        self.held.clear();
        self.held.extend_from_slice(&new[end + 1..]);
        is_sent
    }
}
