//! `unwrap`: restores the previous content byte for byte, and leaves anything that was changed since alone.

use std::path::Path;
use std::{fs, io};

use serde_json::json;

use super::super::requests::print_json;
use super::super::{CliError, Done};
use super::super::{FAILED, hub_tool, say, screen};
use super::plan::installed_over;
use super::setting::{depth_of, setting_of, value_of, with_value, without_member};
use super::{UnwrapArguments, WrapChange, Wrapped, check, login, read, rewrite, write};
use crate::config::Environment;
use crate::files;

/// Why a change is not undone.
enum Left {
    /// The user has changed the file since.
    Changed(String),
    /// It cannot be read or written.
    Failed(String),
}

impl From<String> for Left {
    fn from(why: String) -> Left {
        Left::Failed(why)
    }
}

/// A change in the words of one that is done.
fn in_past(told: &str) -> String {
    let verbs = [("remove ", "removed "), ("leave ", "left "), ("forget ", "forgot ")];
    let done = verbs.iter().find_map(|(now, past)| told.strip_prefix(now).map(|rest| format!("{past}{rest}")));
    done.unwrap_or_else(|| told.to_owned())
}

/// Undoes the changes, or prints what it would do; returns the exit status.
pub(super) fn unwrap(arguments: &UnwrapArguments, home: &Path, environment: &Environment) -> Done {
    let all = read(home)?;
    let is_meant = |wrapped: &&Wrapped| arguments.target.as_ref().is_none_or(|target| is_named(wrapped, target));
    let meant: Vec<Wrapped> = all.iter().filter(is_meant).cloned().collect();
    if let (Some(target), true) = (&arguments.target, meant.is_empty()) {
        let there_are: Vec<String> =
            all.iter().map(|wrapped| format!("{} ({})", wrapped.target, wrapped.path.display())).collect();
        let there_are = match there_are.is_empty() {
            true => "nothing is wrapped".to_owned(),
            false => format!("wrapped targets: {}", there_are.join(", ")),
        };
        return Err(CliError::failed(format!("`{target}` is not wrapped; {there_are}")));
    }
    if meant.is_empty() && !arguments.json {
        return Ok(screen::print("nothing is wrapped\n"));
    }
    let (mut left, mut status, mut taken) = (all, 0, Vec::new());
    for wrapped in &meant {
        let took = match take_back(wrapped, arguments.dry_run, environment) {
            Err(Left::Changed(why)) if arguments.forget => Ok(format!("forget {}: {why}", wrapped.name())),
            Err(Left::Changed(why)) => {
                Err(format!("{why}; `codex-shim unwrap --forget {}` forgets that it was wrapped", wrapped.name()))
            }
            Err(Left::Failed(why)) => Err(why),
            Ok(told) => Ok(told),
        };
        let mut unwritten = None;
        if took.is_ok() && !arguments.dry_run {
            left.retain(|other| other != wrapped);
            unwritten = write(home, &left).err();
        }
        let (told, error) = (took.as_ref().ok(), took.as_ref().err().or(unwritten.as_ref()));
        if error.is_some() {
            status = FAILED;
        }
        if arguments.json {
            let (target, path, done) = (&wrapped.target, &wrapped.path, told.is_some() && !arguments.dry_run);
            taken.push(json!({ "target": target, "path": path, "told": told, "error": error, "done": done }));
        } else {
            if let Some(told) = told {
                let line = if arguments.dry_run { format!("would {told}") } else { in_past(told) };
                status = status.max(screen::print(&format!("{line}\n")));
                if matches!(wrapped.change, WrapChange::File { .. }) && told.starts_with(PUT_BACK) && !arguments.dry_run
                {
                    status = status.max(screen::print(&format!("{}\n", wrapped.then())));
                }
            }
            if let Some(why) = error {
                say(why);
            }
        }
        // Nothing more is undone while the record cannot be written.
        if unwritten.is_some() {
            break;
        }
    }
    if arguments.json {
        status = status.max(print_json(&json!({ "unwrapped": taken })));
    }
    Ok(status)
}

/// The first word of a message about a restored file.
const PUT_BACK: &str = "put ";

/// Whether `target` names this change: the target given to `wrap`, its path or, for a link, its folder.
fn is_named(wrapped: &Wrapped, target: &str) -> bool {
    if target == login::TARGET {
        return wrapped.target == target;
    }
    let at = std::path::absolute(target).unwrap_or_else(|_| target.into());
    let is_folder = matches!(wrapped.change, WrapChange::Link { .. }) && wrapped.path.parent() == Some(&at);
    wrapped.target == target || wrapped.path == at || is_folder
}

/// Restores the previous content, unless it was changed since.
fn take_back(wrapped: &Wrapped, is_dry: bool, environment: &Environment) -> Result<String, Left> {
    let path = &wrapped.path;
    let at = path.display();
    let failed = |error: io::Error| Left::Failed(format!("take back {at}: {error}"));
    match &wrapped.change {
        WrapChange::Login { text, enabled, made } => {
            match files::read_named(path) {
                Ok(now) if now == *text => {}
                Ok(_) => return Err(Left::Changed(format!("{at} was changed since; it is left unchanged"))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Left::Failed(format!("read {at}: {error}; it is left unchanged"))),
            }
            let mut told = format!("remove {at}, which has the hub started at login");
            if !is_dry {
                if login::stop() {
                    let server = hub_tool::stop_server_left(environment).map_err(|error| error.to_string())?;
                    server.lines().for_each(|line| told.push_str(&format!("; {line}")));
                }
                login::remove(path, enabled.as_deref(), made).map_err(failed)?;
            }
            Ok(told)
        }
        WrapChange::Link { to, set_aside } => {
            let leads_to = fs::read_link(path).ok();
            match (&leads_to, set_aside) {
                (Some(there), _) if there == to => {}
                // The change was planned but never carried out.
                (_, Some(aside)) if aside.symlink_metadata().is_err() => return Ok(format!("leave {at} unchanged")),
                // The user has removed our link.
                (None, Some(_)) if path.symlink_metadata().is_err() => {}
                (_, Some(aside)) => return Err(Left::Changed(installed_over(path, aside))),
                (None, None) if path.symlink_metadata().is_err() => return Ok(format!("leave {at}, which is gone")),
                (_, _) => {
                    let why = format!("{at} is no longer the link that `wrap` created; it is left unchanged");
                    return Err(Left::Changed(why));
                }
            }
            if !is_dry {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                    Err(_) | Ok(()) => {}
                }
                if let Some(aside) = set_aside {
                    fs::rename(aside, path).map_err(failed)?;
                }
            }
            Ok(match set_aside {
                Some(aside) => format!("put {} back as {at}", aside.display()),
                None => format!("remove the link {at}"),
            })
        }
        WrapChange::File { before, after } => {
            let now = match files::read_named(path) {
                Ok(now) => Some(now),
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
                Err(error) => return Err(Left::Failed(format!("read {at}: {error}; it is left unchanged"))),
            };
            if now == *before {
                return Ok(format!("leave {at} unchanged"));
            }
            let Some(now) = now else { return Ok(format!("leave {at}, which is gone")) };
            if now != *after {
                return member_back(wrapped, &now, [before.as_deref().unwrap_or_default(), after], is_dry);
            }
            if before.is_some() {
                check(path)?;
            }
            if !is_dry {
                match before {
                    Some(before) => rewrite(path, before)?,
                    None => fs::remove_file(path).map_err(failed)?,
                }
            }
            Ok(format!("put {at} back as it was"))
        }
    }
}

/// Restores only the member, in a file that has other changes since; `before` and `after` are our rewrite.
fn member_back(wrapped: &Wrapped, now: &str, [before, after]: [&str; 2], is_dry: bool) -> Result<String, Left> {
    let names = setting_of(&wrapped.target).names;
    let (at, name) = (wrapped.path.display(), names.join("."));
    let (is, was) = (value_of(now, names), value_of(before, names));
    if is == was {
        return Ok(format!("leave {at} unchanged: `{name}` has its previous value"));
    }
    let was_told = was.unwrap_or("not set");
    let text = match was {
        _ if is.is_none() || is != value_of(after, names) => None,
        Some(was) => with_value(now, names, was),
        None => {
            // Also removes objects that were created for it, if they are otherwise empty.
            let created = names.get(..=depth_of(before, names)).unwrap_or(names);
            let whole = if value_of(now, created) == value_of(after, created) { created } else { names };
            without_member(now, whole)
        }
    };
    let Some(text) = text else {
        let is = is.unwrap_or("not set");
        return Err(Left::Changed(format!(
            "{at} was changed since, and `{name}` is {is}; it is left unchanged; before `wrap`, it was {was_told}"
        )));
    };
    check(&wrapped.path)?;
    if !is_dry {
        rewrite(&wrapped.path, &text)?;
    }
    Ok(format!("put `{name}` in {at} back to {was_told}"))
}
