//! Checkpoints over real files: the stored state, and the text read again when one is loaded.

use super::tests::{Lab, piece, told};
use super::*;

#[test]
fn checkpoint_holds_no_streamed_text_and_loads_whole() {
    let lab = Lab::new();
    let key = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let (half, rest) = key.split_at(20);
    lab.append(1, 1, &[told(1_000, "a"), piece(2_000, &format!("use {half}")), piece(3_000, &format!("{rest} now"))]);
    let mut follower = follow::Follower::new(&lab.journal(), None);
    let mut reached = committed::Reached::default();
    for records in 1..=4 {
        let Ok(follow::Next::Record { at, bytes, .. }) = follower.next(follow::Patience::None) else {
            panic!("a record")
        };
        let record = crate::journal::Record::parse(bytes).expect("a record");
        reached.fold.take(&at, &crate::history::Seen::of(&record, None), &mut crate::history::Rows::default());
        reached.position = follower.position().cloned();
        let (mut database, _) = committed::Database::open(&lab.history(), "s").expect("a history");
        database.commit(&crate::history::Rows::default(), 0, &reached).expect("it is committed");
        drop(database);
        // The journal, in a folder of its own, holds the text.
        let entries = std::fs::read_dir(lab.session()).expect("a folder").map(|entry| entry.expect("an entry").path());
        let files: Vec<std::path::PathBuf> = entries.filter(|path| path.is_file()).collect();
        assert!(files.contains(&lab.history()), "{files:?}");
        for path in files {
            let bytes = std::fs::read(&path).expect("a file");
            assert!(memchr::memmem::find(&bytes, half.as_bytes()).is_none(), "{} after {records}", path.display());
        }
        let (mut database, _) = committed::Database::open(&lab.history(), "s").expect("a history");
        reached = database.load(&lab.journal()).expect("it can be read").0.expect("a checkpoint").reached;
    }
    let mut rows = crate::history::Rows::default();
    reached.fold.silence(u64::MAX, &mut rows);
    let joined = rows.events.last().expect("the pieces").payload_preview.clone();
    assert!(joined.contains("use [redacted] now") && rows.events.len() == 1, "{joined}");
}
