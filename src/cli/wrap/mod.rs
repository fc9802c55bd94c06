//! `codex-shim wrap` and `unwrap`: put codex-shim where a tool looks for codex, and undo that.
//!
//! Each change is recorded in `wrapped.json` in our home with the previous content. [`unwrap`] restores it byte for byte, and
//! leaves anything that was changed since alone.

mod plan;
mod rewrite;
mod setting;
mod taken_back;

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use plan::{Plan, Planner};
use rewrite::rewrite;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setting::Tool;
use taken_back::unwrap;

use super::error::{CliError, Done};
use super::requests::print_json;
use super::{complete, say, screen};
use crate::config::{Environment, Flags, Settings};
use crate::files::Folder;
use crate::relay::locate::{OwnPath, SHARED_LINK, WRAPPED_FILE};
pub(super) use plan::{Look, Made, looks};
pub(super) use setting::targets;

/// Put codex-shim in front of a tool that runs codex
///
/// It shows the change and asks first. `unwrap` undoes it. Wrapping twice changes nothing. The codex that PATH has now is
/// pinned, so an editor that you start from the desktop runs it, too. `codex-shim doctor` runs each wrap.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Targets:
  vscode, vscode-insiders, vscodium, cursor, windsurf, zed, openclaw
                        change the setting of that tool
  path                  link `codex` in a folder of yours that is early in PATH
  a folder              link `codex` in that folder
  the path of a codex   rename it, and put a link in its place

Examples:
  codex-shim wrap vscode --dry-run
  codex-shim wrap path
  codex-shim wrap ~/bin --yes")]
pub(super) struct WrapArguments {
    /// A tool, `path`, a folder, or the path of a codex
    #[arg(add = complete::targets())]
    target: Option<String>,
    /// Only show the change
    #[arg(long)]
    dry_run: bool,
    /// Do not ask first
    #[arg(short, long)]
    yes: bool,
    /// Print one JSON document; needs --yes or --dry-run
    #[arg(long)]
    json: bool,
}

/// Undo what `wrap` has changed
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if TARGET is not wrapped.

Examples:
  codex-shim unwrap                  undo everything
  codex-shim unwrap vscode
  codex-shim unwrap --forget vscode
  codex-shim unwrap --dry-run")]
pub(super) struct UnwrapArguments {
    /// As it was given to `wrap` [default: everything]
    #[arg(add = complete::targets())]
    target: Option<String>,
    /// Leave anything that was changed since as it is, and forget that it was wrapped
    #[arg(long)]
    forget: bool,
    /// Only show the change
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A recorded change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Wrapped {
    /// The target it was made for.
    target: String,
    /// The changed file or link.
    path: PathBuf,
    /// The link to us that a setting names. Version 0.1 had one link for all tools and did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<PathBuf>,
    /// The codex that a setting named before; the tool with that setting still gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    codex: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pinned: Option<Pinned>,
    #[serde(flatten)]
    change: Change,
}

/// The codex that `wrap` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pinned {
    codex: PathBuf,
    /// The folders that it needs on PATH.
    #[serde(default)]
    folders: Vec<PathBuf>,
}

impl Wrapped {
    /// The link to us.
    fn link(&self, home: &Path) -> PathBuf {
        match self.change {
            Change::Link { .. } => self.path.clone(),
            Change::File { .. } => self.link.clone().unwrap_or_else(|| home.join(SHARED_LINK)),
        }
    }

    /// Name of the wrap for `wrap` and `unwrap`.
    fn name(&self) -> String {
        match self.change {
            Change::Link { .. } => self.path.display().to_string(),
            Change::File { .. } => self.target.clone(),
        }
    }

    /// The step before the change has an effect.
    fn then(&self) -> String {
        match Tool::named(&self.target) {
            Some(tool) => format!("{}: {}", self.target, tool.then),
            None => "programs that run keep the codex that they have started; restart them".to_owned(),
        }
    }
}

/// The kind of change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
enum Change {
    /// A link to us was created; an existing file was renamed to `set_aside`.
    Link { to: PathBuf, set_aside: Option<PathBuf> },
    /// A file was rewritten or, without `before`, created.
    File { before: Option<String>, after: String },
}

pub(super) fn run_unwrap(arguments: &UnwrapArguments, environment: &Environment) -> Done {
    let (settings, _) = Settings::load(Flags::default(), environment);
    unwrap(arguments, &home(&settings)?)
}

fn home(settings: &Settings) -> Result<PathBuf, String> {
    settings.home.value.clone().ok_or_else(|| "neither CODEX_SHIM_HOME nor HOME is set".to_owned())
}

pub(super) fn run_wrap(arguments: &WrapArguments, environment: &Environment) -> Done {
    let Some(target) = arguments.target.as_deref() else {
        let all = Tool::all();
        return Err(CliError::usage(format!("no target; name one of {all}, `path`, a folder, or the path of a codex")));
    };
    let (settings, _) = Settings::load(Flags::default(), environment);
    let home = &home(&settings)?;
    let ourselves = OwnPath::find(environment).map_err(|error| format!("find this program: {error}"))?;
    let all = read(home)?;
    let plan = Planner { ourselves: &ourselves, home, all: &all, settings: &settings, environment }.plan(target)?;
    let (path, change, then) = match &plan {
        Plan::Nothing => {
            return Ok(match arguments.json {
                true => print_json(&json!({ "target": target, "already": true, "done": false })),
                false => screen::print(&format!("{}: that is done already\n", target)),
            });
        }
        Plan::Do(wrapped) => (&wrapped.path, shown(wrapped), wrapped.then()),
        Plan::Mend { link, from, is_relinked, record } => {
            let mut change = String::new();
            if *is_relinked {
                change.push_str(&relinked(link, &ourselves.path, from.as_deref()));
            }
            change.push_str(&pinned(record.as_ref()));
            (link, change, record.as_ref().map(Wrapped::then).unwrap_or_default())
        }
    };
    let told = |done: bool| {
        print_json(
            &json!({ "target": target, "path": path, "change": change, "then": then, "already": false, "done": done }),
        )
    };
    if !ourselves.is_on_path {
        let own = ourselves.path.display();
        say(&format!(
            "codex-shim is not on PATH: the link leads to {own} and breaks if that file moves; put codex-shim in a folder on \
             PATH (`cargo install --path .`), and wrap again"
        ));
    }
    match (arguments.json, arguments.dry_run) {
        (true, true) => return Ok(told(false)),
        (false, true) => return Ok(screen::print(&change)),
        (true, false) if !arguments.yes => {
            return Err(CliError::failed("--json needs --yes or --dry-run; nothing changed"));
        }
        (true, false) => {}
        (false, false) => drop(screen::print(&change)),
    }
    if !arguments.yes && !is_agreed()? {
        return Ok(screen::print("nothing changed\n"));
    }
    carry_out(&plan, &ourselves.path, home, &all)?;
    Ok(match arguments.json {
        true => told(true),
        false => {
            let end = if then.is_empty() { "" } else { "\n" };
            screen::print(&format!(
                "done; `codex-shim doctor` tries it, `codex-shim unwrap` takes it back\n{then}{end}"
            ))
        }
    })
}

/// Carries out a plan. The change is recorded first, so that it can always be undone.
fn carry_out(plan: &Plan, ourselves: &Path, home: &Path, all: &[Wrapped]) -> Result<(), String> {
    let with = |wrapped: &Wrapped| -> Vec<Wrapped> {
        all.iter().filter(|other| other.path != wrapped.path).chain([wrapped]).cloned().collect()
    };
    match plan {
        Plan::Nothing => Ok(()),
        Plan::Do(wrapped) => {
            if matches!(wrapped.change, Change::File { .. }) {
                link_called_codex(&wrapped.link(home), ourselves, home)?;
            }
            write(home, &with(wrapped))?;
            apply(wrapped)
        }
        Plan::Mend { link, is_relinked, record, .. } => {
            if let Some(record) = record {
                write(home, &with(record))?;
            }
            if !is_relinked {
                return Ok(());
            }
            link_called_codex(link, ourselves, home).inspect_err(|_| {
                // The link is correct. If the record cannot be written, `unwrap` reports what it finds.
                let _ = write(home, all);
            })
        }
    }
}

/// Creates or redirects the link that a setting names. It is called `codex`, because tools query the program for things that
/// only `codex` answers.
fn link_called_codex(link: &Path, ourselves: &Path, home: &Path) -> Result<(), String> {
    make_folder(link, home).map_err(|error| format!("link {}: {error}", link.display()))?;
    if fs::read_link(link).ok().as_deref() == Some(ourselves) {
        return Ok(());
    }
    let beside = link.with_extension("codex-shim-new");
    // Left over from an interrupted attempt.
    let _ = fs::remove_file(&beside);
    let made = std::os::unix::fs::symlink(ourselves, &beside).and_then(|()| fs::rename(&beside, link));
    made.map_err(|error| format!("link {}: {error}", link.display()))
}

/// Creates the folder of a link in our home. Other links are in folders of the user.
fn make_folder(link: &Path, home: &Path) -> io::Result<()> {
    let Some(below) = link.parent().and_then(|folder| folder.strip_prefix(home).ok()) else { return Ok(()) };
    Folder::make_home(home)?;
    let mut folder = home.to_owned();
    for part in below {
        folder.push(part);
        Folder::make(&folder)?;
    }
    Ok(())
}

/// The message about a link that will be redirected.
fn relinked(link: &Path, to: &Path, from: Option<&Path>) -> String {
    let from = from.map(|from| format!(" and no longer to {}", from.display())).unwrap_or_default();
    format!("link {} to {}{from}\n", link.display(), to.display())
}

/// The message about the pinned codex.
fn pinned(record: Option<&Wrapped>) -> String {
    let pinned = record.and_then(|record| record.pinned.as_ref());
    pinned.map(|pinned| format!("pin {}\n", pinned.codex.display())).unwrap_or_default()
}

fn shown(wrapped: &Wrapped) -> String {
    let path = wrapped.path.display();
    let change = match &wrapped.change {
        Change::Link { to, set_aside: None } => format!("link {path} to {}\n", to.display()),
        Change::Link { to, set_aside: Some(aside) } => {
            format!("rename {path} to {}\nlink {path} to {}\n", aside.display(), to.display())
        }
        Change::File { before, after } => {
            let before: Vec<&str> = before.as_deref().unwrap_or_default().lines().collect();
            let after: Vec<&str> = after.lines().collect();
            let same = |(one, other): &(&&str, &&str)| one == other;
            let head = before.iter().zip(&after).take_while(same).count();
            let tail = before[head..].iter().rev().zip(after[head..].iter().rev()).take_while(same).count();
            let mut text = format!("change {path}\n");
            before[head..before.len() - tail]
                .iter()
                .for_each(|line| text.push_str(&format!("- {}\n", with_tabs(line))));
            after[head..after.len() - tail].iter().for_each(|line| text.push_str(&format!("+ {}\n", with_tabs(line))));
            text
        }
    };
    format!("{change}{}", pinned(Some(wrapped)))
}

/// An escaped line of a file; its tabs stay tabs.
fn with_tabs(line: &str) -> String {
    line.split('\t').map(screen::plain).collect::<Vec<_>>().join("\t")
}

fn is_agreed() -> Result<bool, String> {
    if !io::stdin().is_terminal() {
        return Err("nothing changed; `--yes` skips the question".to_owned());
    }
    let asked = io::stdout().write_all(b"do it? [y/N] ").and_then(|()| io::stdout().flush());
    asked.map_err(|error| format!("ask: {error}"))?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| format!("read the answer: {error}"))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn apply(wrapped: &Wrapped) -> Result<(), String> {
    let path = &wrapped.path;
    let failed = |what: &str, error: io::Error| format!("{what} {}: {error}", path.display());
    match &wrapped.change {
        Change::Link { to, set_aside } => {
            if let Some(aside) = set_aside {
                fs::rename(path, aside).map_err(|error| failed("rename", error))?;
            }
            std::os::unix::fs::symlink(to, path).map_err(|error| failed("link", error))
        }
        Change::File { before: _, after } => rewrite(path, after),
    }
}

fn read(home: &Path) -> Result<Vec<Wrapped>, String> {
    let path = home.join(WRAPPED_FILE);
    match Folder::home(home).and_then(|home| home.read(WRAPPED_FILE)) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| format!("read {}: {error}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("read {}: {error}", path.display())),
    }
}

fn write(home: &Path, wrapped: &[Wrapped]) -> Result<(), String> {
    let text = serde_json::to_string_pretty(wrapped).expect("BUG: plain data is JSON");
    let written = Folder::make_home(home).and_then(|home| home.put(WRAPPED_FILE, format!("{text}\n").as_bytes()));
    written.map_err(|error| format!("write {}: {error}", home.join(WRAPPED_FILE).display()))
}
