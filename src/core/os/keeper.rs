//! Children that end with this process, however it ends.
//!
//! Linux does it: the kernel signals the child when the *thread* that has started it ends. Elsewhere a keeper does it, a shell that waits
//! on a pipe which only we hold open. A child whose stdin is a pipe of ours sees its end in any case.

use std::io::{self, PipeWriter, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use super::signals::Signal;

/// Waits for a line, and signals the process in `$1` by the number in `$2`, unless the line says that this has been reaped.
const KEEPER: &str = "trap '' HUP INT TERM; line=; read -r line; [ \"$line\" = reaped ] || kill \"-$2\" \"$1\"";

/// Sees to it that a child ends with this process. Without [`Keeper::reaped`], the child is signalled when this is dropped.
#[derive(Debug)]
pub struct Keeper(Option<Watch>);

#[derive(Debug)]
struct Watch {
    shell: Child,
    /// Its end tells the shell that we have ended.
    alive: Option<PipeWriter>,
}

/// Starts `command`, which gets `signal` when this process ends. Its own children are neither tracked nor ended. On Linux the calling
/// *thread* counts, so call this from one that outlives it. Elsewhere the child lives on if we end before its keeper is started.
pub fn spawn(command: &mut Command, signal: Signal) -> io::Result<(Child, Keeper)> {
    #[cfg(target_os = "linux")]
    if !super::portable::is_portable() {
        super::launch::end_with_parent(command, signal);
        return Ok((command.spawn()?, Keeper(None)));
    }
    let child = command.spawn()?;
    // A system that can start the child and no keeper is at its limit, and the child is what the user wants.
    let keeper = Watch::start(child.id(), signal).ok();
    Ok((child, Keeper(keeper)))
}

impl Watch {
    fn start(pid: u32, signal: Signal) -> io::Result<Watch> {
        let (ending, alive) = io::pipe()?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", KEEPER, "codex-shim-keeper", &pid.to_string(), &signal.as_raw().to_string()]);
        shell.stdin(ending).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Watch { shell: shell.spawn()?, alive: Some(alive) })
    }
}

impl Keeper {
    /// The child has been reaped: another process may get its id.
    pub fn reaped(&mut self) {
        if let Some(Watch { alive: Some(alive), .. }) = &mut self.0 {
            let _ = alive.write_all(b"reaped\n");
        }
        self.0 = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Not only by the end of the pipe, which a program may hold that another thread has just started.
        if let Some(mut alive) = self.alive.take() {
            let _ = alive.write_all(b"signal\n");
        }
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().expect("sleep runs")
    }

    #[test]
    fn keeper_signals_the_child_of_a_process_that_ends() {
        for signal in [Signal::TERM, Signal::KILL] {
            let mut child = sleeper();
            drop(Watch::start(child.id(), signal).expect("a shell"));
            assert_eq!(child.wait().expect("it is ours").signal(), Some(signal.as_raw()));
        }
    }

    #[test]
    fn keeper_spares_another_process_with_the_id() {
        let mut other = sleeper();
        let mut keeper = Keeper(Some(Watch::start(other.id(), Signal::KILL).expect("a shell")));
        keeper.reaped();
        assert!(matches!(other.try_wait(), Ok(None)), "it was signalled");
        other.kill().expect("it is ours");
        other.wait().expect("it ends");
    }

    #[test]
    fn nobody_else_holds_the_pipe_of_a_keeper() {
        let mut first = sleeper();
        let watch = Watch::start(first.id(), Signal::TERM).expect("a shell");
        let mut later = sleeper();
        drop(watch);
        assert_eq!(first.wait().expect("it is ours").signal(), Some(Signal::TERM.as_raw()));
        later.kill().expect("it is ours");
        later.wait().expect("it ends");
    }
}
