//! Whether a model may write to the folder of a copy: where codex's sandbox lets the commands of any session write.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::screen;
use crate::config::Environment;
use crate::files::{Reach, Whose};
use crate::relay::ServerEnvironment;
use crate::store::Found;

/// Why a model may write to a folder: it lies among temporary files, or where a session of one of the homes was started, or in one of `more`.
pub(super) fn of_models<'a>(
    dir: &Path,
    homes: impl IntoIterator<Item = &'a Path>,
    more: &[PathBuf],
    environment: &Environment,
) -> Option<String> {
    let of_home = |home: &Path| Found::all(home).unwrap_or_default();
    let sessions = homes.into_iter().flat_map(of_home).filter_map(|session| session.holder);
    let cwds = sessions.map(|holder| PathBuf::from(holder.place.cwd)).chain(more.iter().cloned());
    // A session that was started in `/` says nothing about its threads.
    let cwds = cwds.filter(|cwd| cwd.is_absolute() && cwd != Path::new("/"));
    let temporary = ServerEnvironment::of(environment, None).temporary().to_vec();
    let places: BTreeSet<PathBuf> = cwds.chain(temporary).collect();
    let path = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let in_reach = Reach::new(places, Whose::Models).check_folder(&path).err();
    in_reach.map(|why| screen::plain(&why.named(&dir.display().to_string()).to_string()))
}
