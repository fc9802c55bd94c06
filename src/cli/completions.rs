//! `codex-shim completions`: shell completion scripts and manual pages.
//!
//! The script calls codex-shim for every completion, with [`VARIABLE`] set and the words of the command line after `--`, so
//! completions know the current sessions, threads and requests.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Command, ValueHint};
use clap_complete::Shell;
use clap_complete::env::Shells;

use super::{FAILED, say, screen};

/// Names the shell that calls for a completion.
pub(super) const VARIABLE: &str = "CODEX_SHIM_COMPLETE";

/// The name by which the script calls us.
const PROGRAM: &str = "codex-shim";

/// Print shell completions, or write manual pages
///
/// Completions know your sessions, threads, pending requests and the targets of `wrap`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The shell runs `codex-shim` from PATH to complete a word. If you keep the
output in a file, write the file again after an upgrade.

Examples:
  source <(codex-shim completions bash)          in ~/.bashrc
  source <(codex-shim completions zsh)           in ~/.zshrc, after compinit
  codex-shim completions fish | source           in ~/.config/fish/config.fish
  codex-shim completions zsh > ~/.zfunc/_codex-shim
  codex-shim completions --man ~/.local/share/man/man1")]
pub(super) struct CompletionsArguments {
    /// The shell
    #[arg(required_unless_present = "man")]
    shell: Option<Shell>,
    /// Write a manual page of each command into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "shell", value_hint = ValueHint::DirPath)]
    man: Option<PathBuf>,
}

/// Prints the script, or writes the pages. `command` is the root command.
pub(super) fn run(arguments: &CompletionsArguments, command: Command) -> i32 {
    if let Some(dir) = &arguments.man {
        return match std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir)) {
            Ok(()) => 0,
            Err(error) => {
                say(&format!("write manual pages to {}: {error}", dir.display()));
                FAILED
            }
        };
    }
    let Some(shell) = arguments.shell else { unreachable!("BUG: clap has asked for one of the two") };
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).expect("BUG: each shell of the one list is in the other");
    let mut script = Vec::new();
    match completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script) {
        Ok(()) => screen::print(&String::from_utf8_lossy(&script)),
        Err(error) => {
            say(&format!("write completions for {shell}: {error}"));
            FAILED
        }
    }
}

/// Answers a completion call: `args` is `--` and the words of the command line. Any other form is not a completion call.
pub(super) fn answer(shell: &str, args: &[OsString], command: impl FnOnce() -> Command) -> Option<i32> {
    let (escape, words) = args.split_first()?;
    if escape != "--" || words.is_empty() {
        return None;
    }
    let shells = Shells::builtins();
    let mut completions = Vec::new();
    let mut command = command();
    command.build();
    let here = std::env::current_dir().ok();
    // An error is dropped, because it would appear in the user's command line.
    if let Some(completer) = shells.completer(shell) {
        let _ = completer.write_complete(&mut command, words.to_vec(), here.as_deref(), &mut completions);
    }
    Some(screen::print(&String::from_utf8_lossy(&completions)))
}
