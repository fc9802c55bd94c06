//! `codex-shim completions`: what a shell needs to complete our commands, and our manual pages.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use super::{FAILED, say, screen};

/// Print what a shell needs to complete commands of codex-shim, or write its manual pages
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim completions bash > ~/.local/share/bash-completion/completions/codex-shim
  codex-shim completions zsh > ~/.zfunc/_codex-shim
  codex-shim completions fish > ~/.config/fish/completions/codex-shim.fish
  codex-shim completions --man ~/.local/share/man/man1")]
pub(super) struct CompletionsArguments {
    /// The shell
    #[arg(required_unless_present = "man")]
    shell: Option<Shell>,
    /// Write a manual page of each command into this folder instead, which is made where it is not there
    #[arg(long, value_name = "DIR", conflicts_with = "shell")]
    man: Option<PathBuf>,
}

/// `command` is all of ours.
pub(super) fn run(arguments: &CompletionsArguments, mut command: Command) -> i32 {
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
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "codex-shim", &mut script);
    screen::print(&String::from_utf8_lossy(&script))
}
