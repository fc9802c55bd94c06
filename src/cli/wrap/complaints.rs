//! What is wrong with what `wrap` has done: somebody has undone it or covered it since, or codex-shim stands elsewhere by now.

use std::fs;
use std::path::{Path, PathBuf};

use super::setting::{names_of, value_of};
use super::{Change, LINK, Wrapped, read};
use crate::files;

/// What is wrong, in words, for each thing that was done.
pub(in crate::cli) fn complaints(home: &Path) -> Result<Vec<String>, String> {
    Ok(read(home)?.iter().filter_map(|wrapped| complaint(wrapped, home)).collect())
}

fn complaint(wrapped: &Wrapped, home: &Path) -> Option<String> {
    let at = wrapped.path.display();
    match &wrapped.change {
        Change::Link { to, set_aside } => {
            if fs::read_link(&wrapped.path).is_ok_and(|there| there == *to) {
                let gone = || format!("{at} leads to {}, which is gone: `codex-shim wrap {at}` mends it", to.display());
                return (!wrapped.path.exists()).then(gone);
            }
            let aside = set_aside.as_ref().filter(|aside| aside.symlink_metadata().is_ok())?;
            Some(match wrapped.path.symlink_metadata() {
                Ok(_) => installed_over(&wrapped.path, aside),
                Err(_) => {
                    let aside = aside.display();
                    format!("{at} is gone, and its codex is set aside as {aside}: `codex-shim unwrap` puts it back")
                }
            })
        }
        Change::File { .. } => {
            let link = wrapped.named.as_ref().map_or_else(|| home.join(LINK), |named| named.link.clone());
            let text = files::read_named(&wrapped.path).ok()?;
            let set: PathBuf = serde_json::from_str(value_of(&text, names_of(&wrapped.target))?).ok()?;
            let (named, target) = (link.display(), &wrapped.target);
            let gone = || format!("{at} names {named}, which leads nowhere: `codex-shim wrap {target}` mends it");
            (set == link && !link.exists()).then(gone)
        }
    }
}

/// What to do where something else stands in the place of a link of ours, and the codex that was there is set aside.
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

/// Where a link leads that is no codex of anybody's, but a codex-shim by its name, be it there or gone.
pub(super) fn other_shim(path: &Path) -> Option<PathBuf> {
    let leads_to = fs::read_link(path).ok()?;
    let last = path.canonicalize().unwrap_or(leads_to);
    let is_shim = last.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"codex-shim"));
    is_shim.then_some(last)
}
