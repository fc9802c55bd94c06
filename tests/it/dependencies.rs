//! Dependencies: acceptable licences and inspectable sources.

use std::process::Command;

use serde_json::Value;

/// Licences that permit everyone to use and redistribute the result.
const LICENCES: [&str; 13] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

fn packages() -> Vec<Value> {
    let metadata = ["metadata", "--offline", "--locked", "--format-version", "1", "--all-features"];
    let mut cargo = Command::new(env!("CARGO"));
    // Crates for other systems need not be present here.
    let host = Command::new("rustc").arg("-vV").output().expect("there is a compiler");
    let host = String::from_utf8(host.stdout).expect("UTF-8");
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).expect("it says for what it compiles");
    let output = cargo
        .args(metadata)
        .args(["--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// Whether the listed licences satisfy an SPDX expression.
fn is_allowed(expression: &str) -> bool {
    expression.replace('/', " OR ").split(" AND ").all(|part| {
        let part = part.trim_matches(['(', ')', ' ']);
        part.split(" OR ").any(|licence| LICENCES.contains(&licence.trim_matches(['(', ')', ' '])))
    })
}

#[test]
fn dependencies_may_be_used_and_come_from_the_registry() {
    let packages = packages();
    assert!(packages.len() > 50, "these are all of them: {}", packages.len());
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_allowed(licence), "{name} is under `{licence}`");
        let source = package["source"].as_str().unwrap_or_default();
        let is_ours = source.is_empty() && name.starts_with(env!("CARGO_PKG_NAME"));
        assert!(is_ours || source.starts_with("registry+"), "{name} comes from `{source}`");
    }
}

#[test]
fn licences_are_read() {
    for allowed in ["MIT", "MIT OR Apache-2.0", "MIT/GPL-3.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(is_allowed(allowed), "{allowed}");
    }
    for refused in ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH something"] {
        assert!(!is_allowed(refused), "{refused}");
    }
}
