//! `kill -9` at any instant, under load: everything a side had received is on record, once and in order.

use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

use codex_shim::testing::wire::Side;

use crate::support::eventually;
use crate::support::shim::Home;

const KILLS: u64 = 100;

/// The part of `bytes` up to its last newline.
fn complete_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &bytes[..end]
}

/// Well-spread numbers, the same in each run.
pub fn spread(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Writes lines of varied lengths to a relay in front of `tee`, kills the relay once `bytes_min` bytes have come back,
/// and compares the output of both sides with the record.
fn kill_once(number: u64, bytes_min: usize, fill_max: usize) {
    let home = Home::new();
    let received = home.beside().join("received");
    let received_arg = received.to_str().expect("the path is UTF-8").to_owned();
    let mut command = home.shim(&["run", "--session", "s", "--", "tee", &received_arg]);
    let mut relay = command.stderr(std::process::Stdio::null()).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    let mut stdout = relay.stdout.take().expect("stdout is piped");

    let writer = std::thread::spawn(move || {
        for line in 0u64.. {
            let fill = "x".repeat(spread(line) as usize % fill_max);
            if writeln!(stdin, "{{\"id\":{line},\"fill\":\"{fill}\"}}").is_err() {
                return;
            }
        }
    });
    let (mut back, mut chunk) = (Vec::new(), [0; 8192]);
    while back.len() <= bytes_min {
        let read = stdout.read(&mut chunk).expect("stdout can be read");
        assert!(read > 0, "the relay ended by itself");
        back.extend_from_slice(&chunk[..read]);
    }
    relay.kill().expect("it runs");
    stdout.read_to_end(&mut back).expect("stdout ends with the relay");
    writer.join().expect("the writer ends with the relay");
    assert_eq!(relay.wait().expect("it was killed").signal(), Some(9));

    let journal = home.journal();
    let child = journal.events[0].1["pid"].as_u64().expect("the child's pid is on record");
    eventually("the child's end", || gone(child).then_some(()));
    let received = std::fs::read(received).expect("tee has a file");
    for (side, seen) in [(Side::Client, &received), (Side::Server, &back)] {
        let recorded = journal.bytes(side);
        let seen = complete_lines(seen);
        assert!(
            recorded.starts_with(seen),
            "kill {number}: {side:?}: {} recorded, {} seen",
            recorded.len(),
            seen.len()
        );
    }
    assert!(journal.gaps.is_empty());
    assert_eq!(journal.headers.len() > 1, bytes_min > 36 << 20);
}

/// Whether a process has ended, including a zombie.
fn gone(pid: u64) -> bool {
    let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat"))).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn a_hundred_kills_lose_no_line() {
    (0..KILLS).for_each(|number| kill_once(number, spread(number) as usize % 400_000, 300));
}

#[test]
fn kills_in_a_later_segment_lose_no_line() {
    // Each line is recorded once per direction, so the first segment is full at half its size.
    (0..3).for_each(|number| kill_once(number, (36 << 20) + spread(number) as usize % (8 << 20), 20_000));
}
