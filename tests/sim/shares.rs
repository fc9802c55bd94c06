//! Worlds in parallel. The limit on file sizes, which makes a disk full, applies to a whole process; so a test gives a share of its
//! work to a process for each core.

use std::process::{Command, Stdio};
use std::thread::available_parallelism;

/// The variables by which a process knows its share.
const INDEX: &str = "SIM_SHARE";
const COUNT: &str = "SIM_SHARES";

/// Every `count`th number, from `index` on.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    pub index: u64,
    pub count: u64,
}

impl Share {
    /// The share of this process; `None` if it gives shares to others.
    pub fn given() -> Option<Share> {
        Some(Share { index: super::setting(INDEX)?, count: super::setting(COUNT)? })
    }

    /// Whoever waits for a share has other tests beside it, which need the processor rarely and then at once.
    pub fn gives_way(self) {
        // A system may not allow it.
        let _ = rustix::process::nice(10);
    }

    pub fn has(self, number: u64) -> bool {
        number % self.count == self.index
    }
}

/// Runs `test` of this program in a process for each core, and returns the outputs.
///
/// # Panics
///
/// If one of them fails, with its output.
pub fn run(test: &str) -> Vec<String> {
    let program = std::env::current_exe().expect("it runs");
    let count = available_parallelism().map_or(1, usize::from);
    let start = |index: usize| {
        let mut command = Command::new(&program);
        command.args([test, "--exact", "--nocapture"]).env(INDEX, index.to_string()).env(COUNT, count.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    };
    let children: Vec<_> = (0..count).map(start).collect();
    // One thread for each, since a full pipe would hold up a process.
    let waiting: Vec<_> = children.into_iter().map(|child| std::thread::spawn(|| child.wait_with_output())).collect();
    let outputs =
        waiting.into_iter().map(|thread| thread.join().expect("it only waits").expect("its output can be read"));
    let outputs: Vec<_> = outputs.collect();
    for output in &outputs {
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{error}");
    }
    outputs.into_iter().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).collect()
}
