//! The start of a shell in a terminal of ours: its arguments, variables and files, so that it reads what it would read without
//! us, in the same order and with the same variables, and then the hook.
//!
//! bash and fish take the hook as an option. zsh has no such option: it reads its files from `ZDOTDIR`, so one file of ours is
//! its `.zshenv`, which puts the user's ZDOTDIR back at once. Only the system's own `zshenv` is read before that, and sees our
//! ZDOTDIR. zsh without startup files shows what that file makes of it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::hooks::{ShellKind, script};
use crate::files::Folder;

/// A shell to run in a terminal of ours.
#[derive(Debug)]
pub struct Startup {
    pub words: Vec<OsString>,
    pub variables: Vec<(&'static str, OsString)>,
    /// A message for the user if the hook cannot be loaded.
    pub warning: Option<String>,
}

impl Startup {
    /// Writes the files of a shell to `dir`. Its hook starts `own_program`.
    pub fn new(kind: ShellKind, program: &Path, dir: &Path, own_program: &str) -> io::Result<Startup> {
        let hook = script(kind, own_program);
        Folder::make_home(dir.parent().expect("BUG: it is in our home"))?;
        Folder::make(dir)?;
        let word = program.as_os_str().to_owned();
        match kind {
            ShellKind::Bash => {
                let start = dir.join("bashrc");
                write_file(&start, &format!("[ ! -r ~/.bashrc ] || . ~/.bashrc\n{hook}"))?;
                Ok(Startup::of(vec![word, "--rcfile".into(), start.into(), "-i".into()]))
            }
            ShellKind::Zsh => Ok(Startup { words: vec![word, "-i".into()], ..zsh(program, dir, &hook)? }),
            ShellKind::Fish => Ok(Startup::of(vec![word, "-i".into(), "--init-command".into(), hook.into()])),
        }
    }

    fn of(words: Vec<OsString>) -> Startup {
        Startup { words, variables: Vec::new(), warning: None }
    }
}

/// Without variables, zsh starts as it would without us.
fn zsh(program: &Path, dir: &Path, hook: &str) -> io::Result<Startup> {
    let folder = dir.join("zsh");
    let hook_file = folder.join("hook.zsh");
    write_file(&hook_file, hook)?;
    let quoted = format!("'{}'", hook_file.to_string_lossy().replace('\'', r"'\''"));
    write_file(&folder.join(".zshenv"), &include_str!("hooks/zshenv.zsh").replace("@HOOK@", &quoted))?;
    let folder = folder.into_os_string();
    let users = Zdotdir::after_system_file(program, None);
    let ours = Zdotdir::after_system_file(program, Some(&folder));
    match users.filter(|_| ours.is_some_and(|ours| ours.value.as_ref() == Some(&folder))) {
        Some(users) => {
            let variables = vec![("ZDOTDIR", folder), ("CODEX_SHIM_ZDOTDIR", users.marked())];
            Ok(Startup { variables, ..Startup::of(Vec::new()) })
        }
        None => {
            let warning = "the hook is not loaded: the system's zshenv sets ZDOTDIR; add \
                           `eval \"$(codex-shim hook zsh)\"` to your .zshrc";
            Ok(Startup { warning: Some(warning.to_owned()), ..Startup::of(Vec::new()) })
        }
    }
}

/// The ZDOTDIR of a zsh.
#[derive(Debug, PartialEq, Eq)]
struct Zdotdir {
    value: Option<OsString>,
    is_exported: bool,
}

impl Zdotdir {
    /// What it is once zsh has read the system's `zshenv`, which it always reads; `None` if zsh does not say.
    /// `before` replaces the one in our environment.
    fn after_system_file(program: &Path, before: Option<&OsStr>) -> Option<Zdotdir> {
        // The file may print something, too.
        let mut command = Command::new(program);
        command.args(["-f", "-c", r#"builtin printf '\0%s\0%s\0' "${(t)ZDOTDIR}" "${ZDOTDIR-}""#]);
        if let Some(before) = before {
            command.env("ZDOTDIR", before);
        }
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?.stdout;
        Zdotdir::parse(&output)
    }

    fn parse(output: &[u8]) -> Option<Zdotdir> {
        let mut parts = output.rsplit(|byte| *byte == 0).skip(1);
        let (value, kind) = (parts.next()?, parts.next()?);
        parts.next()?;
        let value = (!kind.is_empty()).then(|| OsString::from_vec(value.to_vec()));
        let is_exported = value.is_none() || memchr::memmem::find(kind, b"export").is_some();
        Some(Zdotdir { value, is_exported })
    }

    /// For our `.zshenv`: empty if it is not set; else `=` or, if it is not exported, `-`, and the value.
    fn marked(&self) -> OsString {
        let mark = if self.is_exported { b"=" } else { b"-" };
        let marked = self.value.as_ref().map(|value| [mark.as_slice(), value.as_bytes()].concat());
        OsString::from_vec(marked.unwrap_or_default())
    }
}

/// Writes a file of ours atomically, because other shells may be reading it.
fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let (dir, name) = (path.parent(), path.file_name());
    let (dir, name) = dir.zip(name).expect("BUG: it is in a folder of ours");
    Folder::make(dir)?.put(name, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zdotdir_is_read_from_the_end_of_the_output() {
        let check = |output: &[u8], expect: Option<&[u8]>| {
            let read = Zdotdir::parse(output).map(|zdotdir| zdotdir.marked().into_vec());
            assert_eq!(read.as_deref(), expect, "{output:?}");
        };
        check(b"\0\0\0", Some(b""));
        check(b"\0scalar-export\0/a b\xff\0", Some(b"=/a b\xff"));
        check(b"\0scalar\0/a\0", Some(b"-/a"));
        check(b"\0scalar\0\0", Some(b"-"));
        check(b"hello\n\0x\0\0scalar-export\0/a\0", Some(b"=/a"));
        check(b"", None);
        check(b"zsh: command not found", None);
        check(b"scalar\0/a\0", None);
    }
}
