//! `codex-shim wrap` and `unwrap`: puts us where a tool looks for codex, and takes us away again.
//!
//! What was done is kept in `wrapped.json` in our home, with what stood there before; [`unwrap`] gives that back byte for
//! byte, and leaves alone what somebody has changed since.

mod setting;
mod taken_back;

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::requests::print_json;
use super::{FAILED, say, screen};
use crate::config::{Environment, Flags, Settings};
use crate::relay::locate::{SET_ASIDE, WRAPPED_FILE};
use crate::store::make_dir;
use setting::{NoPlace, value_of, with_member};
use taken_back::unwrap;

/// A link to us, in our home, by the name that tools expect.
const LINK: &str = "bin/codex";

/// Put codex-shim where a tool looks for codex
///
/// TARGET is `path` (a link called codex in a folder of yours that PATH names before the real one), a folder, the path of a
/// codex (which is set aside, and found there by us), or a tool whose setting is changed: vscode, vscode-insiders, cursor,
/// openclaw. The change is shown first; nothing is done twice; `unwrap` takes it back.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim wrap path
  codex-shim wrap ~/bin --yes
  codex-shim wrap vscode --dry-run
  codex-shim unwrap              takes everything back")]
pub(super) struct WrapArguments {
    /// `path`, a folder, the path of a codex, or a tool
    target: String,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Print one JSON document; it does nothing without --yes, or --dry-run
    #[arg(long)]
    json: bool,
}

/// Take back what `wrap` has done
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim unwrap
  codex-shim unwrap vscode
  codex-shim unwrap --dry-run")]
pub(super) struct UnwrapArguments {
    /// As it was given to `wrap`; without it, everything
    target: Option<String>,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Something that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Wrapped {
    /// What it was done for.
    target: String,
    /// Where.
    path: PathBuf,
    /// The codex that a setting named before, which is what we start for whoever starts us by its link.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    named: Option<Named>,
    #[serde(flatten)]
    change: Change,
}

/// A codex that a setting named, and the link to us that the setting names instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    codex: PathBuf,
    link: PathBuf,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
enum Change {
    /// A link to us was made; what had its name is called this now.
    Link { to: PathBuf, set_aside: Option<PathBuf> },
    /// A file was rewritten: from this, or from none, to that.
    File { before: Option<String>, after: String },
}

pub(super) fn run_wrap(arguments: &WrapArguments, environment: &Environment) -> i32 {
    let (settings, _) = Settings::load(Flags::default(), environment);
    let done = home(&settings).and_then(|home| wrap(arguments, &home, environment));
    finish(done)
}

pub(super) fn run_unwrap(arguments: &UnwrapArguments, environment: &Environment) -> i32 {
    let (settings, _) = Settings::load(Flags::default(), environment);
    finish(home(&settings).and_then(|home| unwrap(arguments, &home)))
}

fn finish(done: Result<i32, String>) -> i32 {
    done.unwrap_or_else(|why| {
        say(&why);
        FAILED
    })
}

fn home(settings: &Settings) -> Result<PathBuf, String> {
    settings.home.value.clone().ok_or_else(|| "neither CODEX_SHIM_HOME nor HOME is set".to_owned())
}

fn wrap(arguments: &WrapArguments, home: &Path, environment: &Environment) -> Result<i32, String> {
    let ourselves = std::env::current_exe().map_err(|error| format!("find this program: {error}"))?;
    let Some(wrapped) = plan(&arguments.target, &ourselves, home, environment)? else {
        return Ok(match arguments.json {
            true => print_json(&json!({ "target": arguments.target, "already": true, "done": false })),
            false => screen::print(&format!("{}: that is done already\n", arguments.target)),
        });
    };
    let mut all = read(home)?;
    // Only its record says what the codex that was set aside was called.
    let set_aside = |change: &Change| match change {
        Change::Link { set_aside, .. } => set_aside.clone().filter(|aside| aside.symlink_metadata().is_ok()),
        Change::File { .. } => None,
    };
    let earlier = all.iter().find(|other| other.path == wrapped.path).and_then(|other| set_aside(&other.change));
    if let Some(aside) = earlier {
        let (path, aside) = (wrapped.path.display(), aside.display());
        return Err(format!(
            "{path} was wrapped before, and {aside} is still set aside for it: `codex-shim unwrap` first"
        ));
    }
    let told = |done: bool| {
        let (target, path, change) = (&wrapped.target, &wrapped.path, shown(&wrapped));
        print_json(&json!({ "target": target, "path": path, "change": change, "already": false, "done": done }))
    };
    match (arguments.json, arguments.dry_run) {
        (true, true) => return Ok(told(false)),
        (false, true) => return Ok(screen::print(&shown(&wrapped))),
        (true, false) if !arguments.yes => {
            return Err("nothing was done; with --json say --yes or --dry-run".to_owned());
        }
        (true, false) => {}
        (false, false) => drop(screen::print(&shown(&wrapped))),
    }
    if !arguments.yes && !is_agreed()? {
        return Ok(screen::print("nothing was done\n"));
    }
    all.retain(|other| other.path != wrapped.path);
    all.push(wrapped.clone());
    let link = wrapped.named.as_ref().map_or_else(|| home.join(LINK), |named| named.link.clone());
    link_called_codex(&link, &ourselves)?;
    // What is done can be taken back from before it is done.
    write(home, &all)?;
    apply(&wrapped)?;
    Ok(match arguments.json {
        true => told(true),
        false => screen::print("done; `codex-shim unwrap` takes it back\n"),
    })
}

/// What is to be done; `None` where it is.
fn plan(target: &str, ourselves: &Path, home: &Path, environment: &Environment) -> Result<Option<Wrapped>, String> {
    if let Some((file, names)) = tool(target, environment) {
        return in_setting(target, file, names, ourselves, home);
    }
    let path = match target {
        "path" if leads_to_us(environment, ourselves) => return Ok(None),
        "path" => folder_ahead(environment)?.join("codex"),
        _ => {
            let path = PathBuf::from(target);
            match (path.is_dir(), path.file_name().is_some_and(|name| name == "codex")) {
                (true, _) => path.join("codex"),
                (false, true) => path,
                (false, false) => {
                    return Err(format!(
                        "`{target}` is neither `path`, a folder, the path of a codex, nor one of {}",
                        TOOLS.join(", ")
                    ));
                }
            }
        }
    };
    let path = std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if path.canonicalize().ok() == ourselves.canonicalize().ok() {
        return Ok(None);
    }
    let set_aside = path.symlink_metadata().is_ok().then(|| path.with_file_name(SET_ASIDE));
    if let Some(aside) = &set_aside
        && aside.symlink_metadata().is_ok()
    {
        return Err(installed_over(&path, aside));
    }
    let change = Change::Link { to: ourselves.to_owned(), set_aside };
    Ok(Some(Wrapped { target: target.to_owned(), path, named: None, change }))
}

const TOOLS: [&str; 4] = ["vscode", "vscode-insiders", "cursor", "openclaw"];

/// The names that lead to the setting of a tool for codex.
fn names_of(target: &str) -> &'static [&'static str] {
    match target {
        "openclaw" => &["plugins", "entries", "codex", "config", "appServer", "command"],
        _ => &["chatgpt.cliExecutable"],
    }
}

/// Where a tool keeps its settings, and the names that lead to the one for codex.
fn tool(target: &str, environment: &Environment) -> Option<(PathBuf, &'static [&'static str])> {
    let home = environment.get("HOME").map(PathBuf::from)?;
    let config = match (cfg!(target_os = "macos"), environment.get("XDG_CONFIG_HOME")) {
        (true, _) => home.join("Library/Application Support"),
        (false, Some(config)) => PathBuf::from(config),
        (false, None) => home.join(".config"),
    };
    let code = |name: &str| Some((config.join(name).join("User/settings.json"), names_of(target)));
    match target {
        "vscode" => code("Code"),
        "vscode-insiders" => code("Code - Insiders"),
        "cursor" => code("Cursor"),
        "openclaw" => Some((home.join(".openclaw/openclaw.json"), names_of(target))),
        _ => None,
    }
}

fn in_setting(
    target: &str,
    file: PathBuf,
    names: &[&str],
    ourselves: &Path,
    home: &Path,
) -> Result<Option<Wrapped>, String> {
    let before = match fs::read_to_string(&file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("read {}: {error}", file.display())),
    };
    if before.is_none() && file.parent().is_none_or(|folder| !folder.is_dir()) {
        return Err(format!("{target} has no settings here: {} is not there", file.display()));
    }
    // A codex of the user's own is what this tool is to have, so it has a link of its own that says which.
    let set = before.as_deref().and_then(|text| value_of(text, names));
    let set: Option<PathBuf> = set.and_then(|set| serde_json::from_str::<String>(set).ok()).map(PathBuf::from);
    let links = [home.join(LINK), home.join("bin").join(target).join("codex")];
    if set.as_ref().is_some_and(|set| links.contains(set)) {
        return Ok(None);
    }
    let is_ours =
        |codex: &PathBuf| codex.canonicalize().is_ok_and(|codex| Some(codex) == ourselves.canonicalize().ok());
    let codex = set.filter(|codex| !codex.as_os_str().is_empty() && !is_ours(codex));
    let [link, links_own] = links;
    let named = codex.map(|codex| Named { codex, link: links_own });
    let link = named.as_ref().map_or(&link, |named| &named.link);
    let after =
        with_member(before.as_deref().unwrap_or_default(), names, &link.to_string_lossy()).map_err(
            |why| match why {
                NoPlace::Unreadable => {
                    format!("{} cannot be read as settings; set {} by hand", file.display(), names.join("."))
                }
                NoPlace::NoObject(name) => {
                    format!("{}: `{name}` is no object; set {} by hand", file.display(), names.join("."))
                }
            },
        )?;
    Ok(Some(Wrapped { target: target.to_owned(), path: file, named, change: Change::File { before, after } }))
}

/// Whether the first codex on PATH is we ourselves.
fn leads_to_us(environment: &Environment, ourselves: &Path) -> bool {
    let path = environment.get("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join("codex")).find(|program| program.exists());
    first.is_some_and(|program| program.canonicalize().ok() == ourselves.canonicalize().ok())
}

/// Makes the link that a setting names: tools ask what they start for things that only `codex` answers.
fn link_called_codex(link: &Path, ourselves: &Path) -> Result<(), String> {
    if let Some(folder) = link.parent() {
        make_dir(folder).map_err(|error| error.to_string())?;
    }
    if fs::read_link(link).ok().as_deref() == Some(ourselves) {
        return Ok(());
    }
    let beside = link.with_extension("new");
    // One that was left half done.
    let _ = fs::remove_file(&beside);
    let made = std::os::unix::fs::symlink(ourselves, &beside).and_then(|()| fs::rename(&beside, link));
    made.map_err(|error| format!("link {}: {error}", link.display()))
}

/// A folder of the user's own that PATH names before any real codex.
fn folder_ahead(environment: &Environment) -> Result<PathBuf, String> {
    let path = environment.get("PATH").unwrap_or_default();
    let home = environment.get("HOME").map(PathBuf::from).unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let before_codex = folders.iter().take_while(|folder| !folder.join("codex").exists());
    let is_ours = |folder: &&PathBuf| {
        folder.starts_with(&home)
            && folder.is_dir()
            && rustix::fs::access(folder.as_path(), rustix::fs::Access::WRITE_OK).is_ok()
    };
    before_codex.into_iter().find(is_ours).cloned().ok_or_else(|| {
        "PATH names no folder of yours before that of the real codex; make one, such as ~/bin, put it first in PATH, and \
         name it: `codex-shim wrap ~/bin`"
            .to_owned()
    })
}

fn shown(wrapped: &Wrapped) -> String {
    let path = wrapped.path.display();
    match &wrapped.change {
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
                .for_each(|line| text.push_str(&format!("- {}\n", screen::plain(line))));
            after[head..after.len() - tail]
                .iter()
                .for_each(|line| text.push_str(&format!("+ {}\n", screen::plain(line))));
            text
        }
    }
}

fn is_agreed() -> Result<bool, String> {
    if !io::stdin().is_terminal() {
        return Err("nothing was done; `--yes` does it without being asked".to_owned());
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
        Change::File { before: _, after } => replace(path, after).map_err(|error| failed("write", error)),
    }
}

/// What to do where something else stands in the place of a link of ours, and the codex that was there is set aside.
fn installed_over(path: &Path, aside: &Path) -> String {
    let (path, aside) = (path.display(), aside.display());
    format!(
        "{path} is not our link, and an earlier codex is set aside as {aside}: a codex was installed over the link; keep the one \
         that you want as {path}, remove {aside}, run `codex-shim unwrap`, and wrap it again"
    )
}

/// What is wrong with what was done, in words, for each thing that somebody has undone or covered since.
pub(super) fn complaints(home: &Path) -> Result<Vec<String>, String> {
    let complaint = |wrapped: &Wrapped| match &wrapped.change {
        Change::Link { to, set_aside: Some(aside) } if aside.symlink_metadata().is_ok() => {
            let is_gone = wrapped.path.symlink_metadata().is_err();
            let is_ours = fs::read_link(&wrapped.path).is_ok_and(|there| there == *to);
            let gone = || {
                let (path, aside) = (wrapped.path.display(), aside.display());
                format!("{path} is gone, and its codex is set aside as {aside}: `codex-shim unwrap` puts it back")
            };
            if is_gone { Some(gone()) } else { (!is_ours).then(|| installed_over(&wrapped.path, aside)) }
        }
        Change::Link { .. } | Change::File { .. } => None,
    };
    Ok(read(home)?.iter().filter_map(complaint).collect())
}

/// Writes a file in one step, through a link to it, with the mode that it has.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let beside = path.with_extension("codex-shim-new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&beside)?.write_all(text.as_bytes())?;
    if let Ok(metadata) = fs::metadata(&path) {
        fs::set_permissions(&beside, metadata.permissions())?;
    }
    fs::rename(&beside, &path)
}

fn read(home: &Path) -> Result<Vec<Wrapped>, String> {
    let path = home.join(WRAPPED_FILE);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| format!("read {}: {error}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("read {}: {error}", path.display())),
    }
}

fn write(home: &Path, wrapped: &[Wrapped]) -> Result<(), String> {
    let path = home.join(WRAPPED_FILE);
    let text = serde_json::to_string_pretty(wrapped).expect("BUG: plain data is JSON");
    let written = make_dir(home).map_err(|error| error.to_string());
    written.and_then(|()| {
        replace(&path, &format!("{text}\n")).map_err(|error| format!("write {}: {error}", path.display()))
    })
}
