//! `codex-shim wrap` and `unwrap`: put codex-shim where a tool looks for codex, and undo that.
//!
//! Each change is recorded in `wrapped.json` in our home with the previous content. [`unwrap`] restores it byte for byte, and
//! leaves anything that was changed since alone.
//!
//! *Settings files.* A plain file is replaced by a rename, so a crash leaves the old or the new text. But a rename creates a new file
//! with this process's owner, without other hard links, and without attributes such as access lists. A file that would lose one of
//! these is written in place, with a backup of the old text beside it until the new text is on disk. A symbolic link stays, and its
//! target is rewritten.

mod login;
mod login_file;
mod plan;
mod setting;
mod taken_back;

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::requests::print_json;
use super::{CliError, Done};
use super::{complete, say, screen};
use crate::config::{Environment, Flags, Settings};
use crate::files;
use crate::files::Folder;
use crate::os::fs::{Access, check_access, has_attributes, open_unlinked, sync};
use crate::relay::locate::{OwnPath, SHARED_LINK, WRAPPED_FILE};
pub(super) use login_file::{LoginFileArguments, run as run_login_file};
pub(super) use plan::{Look, Made, looks};
use plan::{Plan, Planner};
use setting::Tool;
pub(super) use setting::targets;
use taken_back::unwrap;

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
  codex                 have the hub started at login (see `codex-shim hub`)

Examples:
  codex-shim wrap vscode --dry-run
  codex-shim wrap path
  codex-shim wrap vscode --shared      its clients join the hub
  codex-shim wrap ~/bin --yes")]
pub(super) struct WrapArguments {
    /// A tool, `path`, a folder, the path of a codex, or `codex`
    #[arg(add = complete::targets())]
    target: Option<String>,
    /// Only show the change
    #[arg(long)]
    dry_run: bool,
    /// Let the tool join the hub: its clients share one server with all others
    #[arg(long)]
    shared: bool,
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
    /// Its clients join the hub.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shared: bool,
    #[serde(flatten)]
    change: WrapChange,
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
            WrapChange::Link { .. } | WrapChange::Login { .. } => self.path.clone(),
            WrapChange::File { .. } => self.link.clone().unwrap_or_else(|| home.join(SHARED_LINK)),
        }
    }

    /// Name of the wrap for `wrap` and `unwrap`.
    fn name(&self) -> String {
        match self.change {
            WrapChange::Link { .. } => self.path.display().to_string(),
            WrapChange::File { .. } | WrapChange::Login { .. } => self.target.clone(),
        }
    }

    /// The step before the change has an effect.
    fn then(&self) -> String {
        match Tool::named(&self.target) {
            None if matches!(self.change, WrapChange::Login { .. }) => {
                "the hub starts at your next login; `codex-shim hub start` starts it now".to_owned()
            }
            Some(tool) => format!("{}: {}", self.target, tool.then),
            None => "programs that run keep the codex that they have started; restart them".to_owned(),
        }
    }
}

/// The kind of change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
enum WrapChange {
    /// A link to us was created; an existing file was renamed to `set_aside`.
    Link { to: PathBuf, set_aside: Option<PathBuf> },
    /// A file was rewritten or, without `before`, created.
    File { before: Option<String>, after: String },
    /// A file was written that has the hub started at login, and a link that enables it; `made` are the folders made for them.
    Login { text: String, enabled: Option<PathBuf>, made: Vec<PathBuf> },
}

pub(super) fn run_unwrap(arguments: &UnwrapArguments, environment: &Environment) -> Done {
    let (settings, _) = Settings::load(Flags::default(), environment);
    unwrap(arguments, &home(&settings)?, environment)
}

fn home(settings: &Settings) -> Result<PathBuf, String> {
    settings.home.value.clone().ok_or_else(|| "neither CODEX_SHIM_HOME nor HOME is set".to_owned())
}

pub(super) fn run_wrap(arguments: &WrapArguments, environment: &Environment) -> Done {
    let Some(target) = arguments.target.as_deref() else {
        let all = Tool::all();
        return Err(CliError::usage(format!(
            "no target; name one of {all}, `path`, a folder, the path of a codex, or `codex`"
        )));
    };
    let (settings, _) = Settings::load(Flags::default(), environment);
    let home = &home(&settings)?;
    let ourselves = OwnPath::find(environment).map_err(|error| format!("find this program: {error}"))?;
    let all = read(home)?;
    let shared = arguments.shared;
    let plan =
        Planner { ourselves: &ourselves, home, all: &all, settings: &settings, environment, shared }.plan(target)?;
    let (path, change, then) = match &plan {
        Plan::Nothing => {
            return Ok(match arguments.json {
                true => print_json(&json!({ "target": target, "already": true, "done": false })),
                false => screen::print(&format!("{target}: already wrapped\n")),
            });
        }
        Plan::Do(wrapped) => (&wrapped.path, shown(wrapped), wrapped.then()),
        Plan::Mend { link, from, is_relinked, record } => {
            let mut change = String::new();
            if *is_relinked {
                change.push_str(&relinked(link, &ourselves.path, from.as_deref()));
            }
            change.push_str(&pinned(record.as_ref()));
            let was = record.as_ref().and_then(|record| all.iter().find(|was| was.path == record.path));
            change.push_str(joins(record.as_ref().filter(|_| was.is_none_or(|was| !was.shared))));
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
    let printed = match (arguments.json, arguments.dry_run) {
        (true, true) => return Ok(told(false)),
        (false, true) => return Ok(screen::print(&change)),
        (true, false) if !arguments.yes => {
            return Err(CliError::failed("--json needs --yes or --dry-run; nothing changed"));
        }
        (true, false) => 0,
        (false, false) => screen::print(&change),
    };
    if !arguments.yes && !is_agreed()? {
        return Ok(printed.max(screen::print("nothing changed\n")));
    }
    carry_out(&plan, &ourselves.path, home, &all)?;
    Ok(printed.max(match arguments.json {
        true => told(true),
        false => {
            let end = if then.is_empty() { "" } else { "\n" };
            screen::print(&format!(
                "done; `codex-shim doctor` tries it, `codex-shim unwrap` takes it back\n{then}{end}"
            ))
        }
    }))
}

/// Carries out a plan. The change is recorded first, so that it can always be undone.
fn carry_out(plan: &Plan, ourselves: &Path, home: &Path, all: &[Wrapped]) -> Result<(), String> {
    let with = |wrapped: &Wrapped| -> Vec<Wrapped> {
        all.iter().filter(|other| other.path != wrapped.path).chain([wrapped]).cloned().collect()
    };
    match plan {
        Plan::Nothing => Ok(()),
        Plan::Do(wrapped) => {
            if matches!(wrapped.change, WrapChange::File { .. }) {
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

/// The message about a tool that joins the hub.
fn joins(record: Option<&Wrapped>) -> &'static str {
    if record.is_some_and(|record| record.shared) { "let its clients join the hub\n" } else { "" }
}

fn shown(wrapped: &Wrapped) -> String {
    let path = wrapped.path.display();
    let change = match &wrapped.change {
        WrapChange::Login { text, enabled, .. } => login::shown(&wrapped.path, text, enabled.as_deref()),
        WrapChange::Link { to, set_aside: None } => format!("link {path} to {}\n", to.display()),
        WrapChange::Link { to, set_aside: Some(aside) } => {
            format!("rename {path} to {}\nlink {path} to {}\n", aside.display(), to.display())
        }
        WrapChange::File { before, after } => {
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
    format!("{change}{}{}", pinned(Some(wrapped)), joins(Some(wrapped)))
}

/// An escaped line of a file; its tabs stay tabs.
fn with_tabs(line: &str) -> String {
    line.split('\t').map(screen::plain).collect::<Vec<_>>().join("\t")
}

fn is_agreed() -> Result<bool, String> {
    if !io::stdin().is_terminal() {
        return Err("nothing changed; `--yes` skips the question".to_owned());
    }
    screen::forget_typed_ahead();
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
        WrapChange::Link { to, set_aside } => {
            if let Some(aside) = set_aside {
                fs::rename(path, aside).map_err(|error| failed("rename", error))?;
            }
            std::os::unix::fs::symlink(to, path).map_err(|error| failed("link", error))
        }
        WrapChange::File { before: _, after } => rewrite(path, after),
        WrapChange::Login { text, enabled, made } => login::apply(path, text, enabled.as_deref(), made),
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

/// Suffix of the new file before it replaces the old one.
const NEW: &str = "codex-shim-new";

/// Suffix of the backup while a file is written in place.
const BACKUP: &str = "codex-shim-backup";

/// Whether a file can be rewritten or, if it does not exist, created.
pub(super) fn check(path: &Path) -> Result<(), String> {
    target(path).map(drop)
}

/// Rewrites a file, or creates it if it does not exist.
pub(super) fn rewrite(path: &Path, text: &str) -> Result<(), String> {
    let LinkTarget { path, was } = target(path)?;
    let failed = |error: io::Error| format!("write {}: {error}", path.display());
    let Some(was) = was else { return put(&path, text, None).map(drop).map_err(failed) };
    let is_replaced = is_plain(&path, &was) && put(&path, text, Some(&was)).map_err(failed)?;
    if is_replaced { Ok(()) } else { in_place(&path, text) }
}

/// The file behind a path.
struct LinkTarget {
    /// With all links resolved.
    path: PathBuf,
    /// `None` if it does not exist.
    was: Option<Metadata>,
}

fn target(path: &Path) -> Result<LinkTarget, String> {
    let at = path.display();
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(LinkTarget { path: path.to_owned(), was: None });
        }
        Err(error) => return Err(format!("look at {at}: {error}")),
        Ok(_) => {}
    }
    let target = path.canonicalize().map_err(|error| {
        format!("{at} is a link that has no target ({error}); create the target, or remove the link")
    })?;
    let shown = target.display();
    let was = target.metadata().map_err(|error| format!("look at {shown}: {error}"))?;
    if !was.is_file() {
        return Err(format!("{shown} is not a regular file; it is left unchanged"));
    }
    let mode = was.permissions().mode() & 0o7777;
    let by_hand = "or change the setting where that file comes from";
    if mode & 0o200 == 0 {
        return Err(format!("{shown} is read-only (mode {mode:04o}): run `chmod u+w {shown}` first, {by_hand}"));
    }
    match check_access(&target, Access::WRITE_OK) {
        Ok(()) => Ok(LinkTarget { path: target, was: Some(was) }),
        Err(error) => Err(format!("{shown} cannot be written ({error}): check its owner, {by_hand}")),
    }
}

/// Whether a new file could replace this one without losing anything.
fn is_plain(path: &Path, was: &Metadata) -> bool {
    was.nlink() == 1 && !has_attributes(path)
}

/// Replaces a file and keeps its mode. Returns false, with nothing changed, if the new file cannot have the same owner or the
/// old one cannot be replaced, such as a mount point.
fn put(path: &Path, text: &str, was: Option<&Metadata>) -> io::Result<bool> {
    let beside = path.with_added_extension(NEW);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = files::create_file(&beside)?;
    let mut done = || {
        if let Some(was) = was {
            let is = file.metadata()?;
            if (is.uid(), is.gid()) != (was.uid(), was.gid()) {
                return Ok(false);
            }
            file.set_permissions(was.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        sync(&file)?;
        match fs::rename(&beside, path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
            renamed => renamed.map(|()| true),
        }
    };
    let done = done();
    if !matches!(done, Ok(true)) {
        let _ = fs::remove_file(&beside);
    }
    done
}

/// Overwrites the text of a file. A backup stays beside it until the new text is on disk.
fn in_place(path: &Path, text: &str) -> Result<(), String> {
    let at = path.display();
    let failed = |error: io::Error| format!("write {at}: {error}");
    let backup = path.with_added_extension(OsString::from(BACKUP));
    let kept = backup.display();
    let file = open_unlinked(path).map_err(failed)?;
    let before = fs::read(path).map_err(failed)?;
    let saved = files::create_file(&backup).and_then(|mut backup| {
        backup.write_all(&before)?;
        sync(&backup)
    });
    match saved {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(format!(
                "{kept} is left from a write that was cut short: keep the text that you want as {at}, and remove {kept}"
            ));
        }
        Err(error) => {
            let _ = fs::remove_file(&backup);
            return Err(format!("write {kept}: {error}"));
        }
        Ok(()) => {}
    }
    if let Err(error) = overwrite(&file, text.as_bytes()) {
        return Err(match overwrite(&file, &before) {
            Ok(()) => {
                let _ = fs::remove_file(&backup);
                failed(error)
            }
            Err(_) => format!("write {at}: {error}; its old text is kept as {kept}"),
        });
    }
    fs::remove_file(&backup).map_err(|error| format!("remove {kept}: {error}"))
}

fn overwrite(file: &File, text: &[u8]) -> io::Result<()> {
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)?;
    sync(file)
}
