//! Arbitrary journal files can be read to their end, and every way to read them gives the same history.

#![no_main]

use codex_shim::testing::history::{Fold, Rows, Seen, UiFold};
use codex_shim::testing::journal::Record;
use codex_shim::testing::journal::reader::{Reader, Step};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("000000010000-001.jsonl"), data).expect("a file");
    let mut reader = Reader::new(dir.path(), None);
    let (mut fold, mut rows, mut ui, mut told) = (Fold::default(), Rows::default(), UiFold::default(), Vec::new());
    let mut records = 0;
    loop {
        match reader.step().expect("it can be read") {
            Step::Record { at, bytes } => {
                records += 1;
                assert!(at.offset < data.len() as u64);
                match Record::parse(bytes) {
                    Ok(record) => {
                        let seen = Seen::of(&record, None);
                        fold.take(&at, &seen, &mut rows);
                        ui.take(&seen, &mut told);
                    }
                    Err(_) => fold.unreadable(&at, &mut rows),
                }
            }
            Step::Lost { .. } => {}
            Step::End => break,
        }
        assert!(records <= data.len());
    }
    fold.silence(u64::MAX, &mut rows);
    assert!(!fold.awaits_silence());
    // A stored and restored fold is unchanged.
    let kept = serde_json::to_string(&fold).expect("it can be kept");
    assert_eq!(serde_json::from_str::<Fold>(&kept).expect("it can be read"), fold);
    for event in &rows.events {
        assert!(serde_json::from_str::<serde_json::Value>(&event.payload_preview).is_ok(), "{}", event.payload_preview);
    }
    for event in &told {
        assert!(serde_json::to_string(event).is_ok());
    }
});
