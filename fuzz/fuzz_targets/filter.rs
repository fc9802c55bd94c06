//! Arbitrary filters: reading never panics, what is printed reads the same, and a completion goes on with its text.

#![no_main]

use codex_shim::testing::history::{Facts, Filter, FilterChoices, FilterPlace, complete};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let place = FilterPlace { home: Some("/h/me"), folder: Some("/w/a b"), ..FilterPlace::nowhere(1 << 50) };
    if let Ok(filter) = Filter::read(&text, &place) {
        let printed = filter.to_string();
        assert_eq!(Filter::read(&printed, &place).as_ref(), Ok(&filter), "{text:?} {printed:?}");
        filter.passes(&Facts { text: &text, ..Facts::default() });
    }
    for completed in complete(&text, &FilterChoices::default()) {
        assert!(completed.len() > text.len(), "{text:?} {completed:?}");
    }
});
