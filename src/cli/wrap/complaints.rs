//! Checks the record of `wrap` against the disk: a user may have changed a file or a link since, or moved codex-shim.

use std::fs;
use std::path::{Path, PathBuf};

use super::setting::string_of;
use super::tools::setting_of;
use super::{Change, Wrapped, read};
use crate::files;

/// State of a wrap.
#[derive(Debug)]
pub(in crate::cli) enum Look {
    /// The wrap cannot work; the reason.
    Broken(String),
    /// The user has changed the file or link since; the finding and the remedy.
    Changed(String, String),
    /// The file or link names codex-shim.
    AsMade(Made),
}

/// A wrap in its original state.
#[derive(Debug)]
pub(in crate::cli) struct Made {
    /// Name of the wrap for `wrap` and `unwrap`.
    pub(in crate::cli) name: String,
    /// The link, or the member and its file.
    pub(in crate::cli) place: String,
    /// The program that the tool starts.
    pub(in crate::cli) program: PathBuf,
    pub(in crate::cli) pinned: Option<PathBuf>,
}

/// Checks each wrap.
pub(in crate::cli) fn looks(home: &Path) -> Result<Vec<Look>, String> {
    Ok(read(home)?.iter().map(|wrapped| look(wrapped, home)).collect())
}

fn look(wrapped: &Wrapped, home: &Path) -> Look {
    let (at, name, link) = (wrapped.path.display(), wrapped.name(), wrapped.link(home));
    let changed = |found: String| {
        let remedy = format!(
            "`codex-shim wrap {name}` wraps it again, `codex-shim unwrap --forget {name}` forgets that it was wrapped"
        );
        Look::Changed(found, remedy)
    };
    let as_made = |place: String, program: PathBuf| {
        let pinned = wrapped.pinned.as_ref().map(|pinned| pinned.codex.clone());
        Look::AsMade(Made { name: name.clone(), place, program, pinned })
    };
    match &wrapped.change {
        Change::Link { to, set_aside } => {
            if fs::read_link(&wrapped.path).is_ok_and(|there| there == *to) {
                if !wrapped.path.exists() {
                    let to = to.display();
                    return Look::Broken(format!(
                        "{at} leads to {to}, which does not exist; `codex-shim wrap {at}` repairs it"
                    ));
                }
                return as_made(format!("the link {at}"), wrapped.path.clone());
            }
            let aside = set_aside.as_ref().filter(|aside| aside.symlink_metadata().is_ok());
            match (aside, wrapped.path.symlink_metadata()) {
                (Some(aside), Ok(_)) => Look::Broken(installed_over(&wrapped.path, aside)),
                (Some(aside), Err(_)) => {
                    let aside = aside.display();
                    Look::Broken(format!(
                        "{at} is gone, and its codex is set aside as {aside}: `codex-shim unwrap` puts it back"
                    ))
                }
                (None, Ok(_)) => changed(format!("{at} is no longer the link that `wrap` created")),
                (None, Err(_)) => changed(format!("the link {at} is gone")),
            }
        }
        Change::File { .. } => {
            let names = setting_of(&wrapped.target).names;
            let member = names.join(".");
            let text = match files::read_named(&wrapped.path) {
                Ok(text) => text,
                Err(error) => return changed(format!("read {at}: {error}")),
            };
            match string_of(&text, names).map(PathBuf::from) {
                Some(set) if set == link && link.exists() => as_made(format!("`{member}` in {at}"), link),
                Some(set) if set == link => Look::Broken(format!(
                    "{at} names {}, which does not exist; `codex-shim wrap {name}` repairs it",
                    link.display()
                )),
                Some(set) => changed(format!("`{member}` in {at} is {}, and no longer codex-shim", set.display())),
                None => changed(format!("`{member}` in {at} is no longer set to codex-shim")),
            }
        }
    }
}

/// The remedy if something else has replaced our link, and the original codex is set aside.
pub(super) fn installed_over(path: &Path, aside: &Path) -> String {
    let (at, aside) = (path.display(), aside.display());
    if let Some(other) = other_shim(path) {
        let other = other.display();
        return format!(
            "{at} leads to another codex-shim, {other}, and the codex that was there is set aside as {aside}: remove the link \
             {at}, and `codex-shim unwrap` puts the codex back"
        );
    }
    format!(
        "{at} is not our link, and an earlier codex is set aside as {aside}: a codex was installed over the link; keep the one \
         that you want as {at}, remove {aside}, run `codex-shim unwrap`, and wrap it again"
    )
}

/// The target of a link that is a codex-shim by its name, whether it exists or not.
pub(super) fn other_shim(path: &Path) -> Option<PathBuf> {
    let leads_to = fs::read_link(path).ok()?;
    let last = path.canonicalize().unwrap_or(leads_to);
    let is_shim = last.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"codex-shim"));
    is_shim.then_some(last)
}
