//! What `wrap` is to do, found out without doing any of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::complaints::{installed_over, other_shim};
use super::rewrite;
use super::setting::{NoPlace, names_of, value_of, with_member};
use super::{Change, LINK, Named, Wrapped};
use crate::config::Environment;
use crate::files;
use crate::relay::locate::SET_ASIDE;

/// What is to be done.
#[derive(Debug)]
pub(super) enum Plan {
    /// It is done already.
    Nothing,
    /// This.
    Do(Wrapped),
    /// A link of ours is to lead to us: it leads to a codex-shim that stood elsewhere, or stands there still.
    Relink {
        link: PathBuf,
        /// Where it leads, if there is one.
        from: Option<PathBuf>,
        /// What is on record of it from then on; `None` for the link that a setting names.
        record: Option<Wrapped>,
    },
}

/// Plans what is to be done for a target, where `all` has been done.
pub(super) fn plan(
    target: &str,
    ourselves: &Path,
    home: &Path,
    all: &[Wrapped],
    environment: &Environment,
) -> Result<Plan, String> {
    if let Some((file, names)) = tool(target, environment) {
        return in_setting(target, file, names, ourselves, home);
    }
    let path = match target {
        "path" => match first_on_path(all, environment) {
            Some(first) if is_same(&first, ourselves) || link_on_record(all, &first).is_some() => first,
            Some(_) | None => folder_ahead(environment)?.join("codex"),
        },
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
    if is_same(&path, ourselves) {
        return Ok(Plan::Nothing);
    }
    if let Some((on_record, from, set_aside)) = link_on_record(all, &path) {
        let set_aside = set_aside.cloned().filter(|aside| aside.symlink_metadata().is_ok());
        let change = Change::Link { to: ourselves.to_owned(), set_aside };
        let record = Some(Wrapped { change, ..on_record.clone() });
        return Ok(Plan::Relink { link: path, from: Some(from.to_owned()), record });
    }
    if let Some(other) = other_shim(&path) {
        let (path, other) = (path.display(), other.display());
        return Err(format!(
            "{path} is a link to another codex-shim, {other}, that is not on record here: have that one `unwrap` it with \
             the CODEX_SHIM_HOME it was made with, or remove it by hand"
        ));
    }
    // Only its record says what the codex that was set aside was called.
    let earlier = all.iter().filter(|other| other.path == path).find_map(|other| match &other.change {
        Change::Link { set_aside, .. } => set_aside.as_ref().filter(|aside| aside.symlink_metadata().is_ok()),
        Change::File { .. } => None,
    });
    if let (Some(aside), true) = (earlier, path.symlink_metadata().is_err()) {
        let (path, aside) = (path.display(), aside.display());
        return Err(format!(
            "{path} was wrapped before, and {aside} is still set aside for it: `codex-shim unwrap` first"
        ));
    }
    let set_aside = path.symlink_metadata().is_ok().then(|| path.with_file_name(SET_ASIDE));
    if let Some(aside) = &set_aside
        && aside.symlink_metadata().is_ok()
    {
        return Err(installed_over(&path, aside));
    }
    let change = Change::Link { to: ourselves.to_owned(), set_aside };
    Ok(Plan::Do(Wrapped { target: target.to_owned(), path, named: None, change }))
}

/// Tools whose setting is changed.
pub(in crate::cli) const TOOLS: [&str; 4] = ["vscode", "vscode-insiders", "cursor", "openclaw"];

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

fn in_setting(target: &str, file: PathBuf, names: &[&str], ourselves: &Path, home: &Path) -> Result<Plan, String> {
    rewrite::check(&file)?;
    let before = match files::read_named(&file) {
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
    if let Some(link) = set.as_ref().filter(|set| links.contains(set)) {
        return Ok(match is_same(link, ourselves) {
            true => Plan::Nothing,
            false => Plan::Relink { link: link.clone(), from: fs::read_link(link).ok(), record: None },
        });
    }
    let codex = set.filter(|codex| !codex.as_os_str().is_empty() && !is_same(codex, ourselves));
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
    Ok(Plan::Do(Wrapped { target: target.to_owned(), path: file, named, change: Change::File { before, after } }))
}

/// The first `codex` that PATH leads to, or where it led before a codex-shim was moved.
fn first_on_path(all: &[Wrapped], environment: &Environment) -> Option<PathBuf> {
    let path = environment.get("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("codex"));
    programs.find(|program| program.exists() || link_on_record(all, program).is_some())
}

/// What is on record of a link, if it is as it was made: where it leads, and what is set aside for it.
fn link_on_record<'a>(all: &'a [Wrapped], path: &Path) -> Option<(&'a Wrapped, &'a Path, Option<&'a PathBuf>)> {
    let leads_to = fs::read_link(path).ok()?;
    all.iter().filter(|wrapped| wrapped.path == path).find_map(|wrapped| match &wrapped.change {
        Change::Link { to, set_aside } if *to == leads_to => Some((wrapped, to.as_path(), set_aside.as_ref())),
        Change::Link { .. } | Change::File { .. } => None,
    })
}

/// Whether a path leads to this program.
fn is_same(path: &Path, ourselves: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| Some(path) == ourselves.canonicalize().ok())
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
