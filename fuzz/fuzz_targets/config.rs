//! An arbitrary config file is either applied or reported.

#![no_main]

use std::ffi::OsString;

use codex_shim::testing::config::{Environment, Flags, Settings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("config.toml"), data).expect("a file");
    let home = dir.path().as_os_str().to_owned();
    let environment = Environment::of(move |name| match name {
        "CODEX_SHIM_HOME" => Some(home.clone()),
        "PATH" => Some(OsString::from("/usr/bin")),
        _ => None,
    });
    let (settings, complaints) = Settings::load(Flags::default(), &environment);
    for row in settings.rows() {
        let _ = format!("{row:?}");
    }
    for complaint in complaints {
        assert!(!format!("{complaint}").is_empty());
    }
});
