//! Whether a file is out of the reach of the models: neither the file, nor a link on the way to it, nor the folder of either lies
//! where a command in codex's sandbox can write.
//!
//! A path is followed part by part, as the kernel does. A folder counts by its spelling and by its identity, so another spelling
//! of the same folder (a bind mount, a file system that ignores case) makes no difference.
//!
//! It never opens, creates or runs anything.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use crate::os::Errno;
use crate::os::identity::own_uid;

/// Most links on the way to a file, as in the kernel.
const LINKS_MAX: usize = 40;

const EXECUTABLE: u32 = 0o111;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Why a file does not count as out of reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InReach {
    /// A model may write there.
    OfModel(String),
    /// Another user may write there.
    OfUsers(String),
    /// It cannot be told. The reason has the remedy.
    Unclear(String),
}

impl InReach {
    /// The same with the thing that leads to the file.
    pub fn named(self, what: &str) -> InReach {
        let named = |why: String| format!("{what}: {why}");
        match self {
            InReach::OfModel(why) => InReach::OfModel(named(why)),
            InReach::OfUsers(why) => InReach::OfUsers(named(why)),
            InReach::Unclear(why) => InReach::Unclear(named(why)),
        }
    }

    /// A file or folder cannot be looked at.
    pub fn unseen(path: &Path, error: &io::Error) -> InReach {
        let path = path.display();
        InReach::Unclear(format!("{path} cannot be looked at ({error}); make it accessible, or name another file"))
    }
}

impl fmt::Display for InReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InReach::OfModel(why) | InReach::OfUsers(why) | InReach::Unclear(why) => f.write_str(why),
        }
    }
}

impl From<InReach> for String {
    fn from(why: InReach) -> String {
        why.to_string()
    }
}

/// Whose reach counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Models,
    /// That of other users too, and a program has to be there.
    ModelsAndUsers,
}

/// An executable file: its path as a program would be started, and without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executable {
    pub spelled: PathBuf,
    pub real: PathBuf,
}

/// Folders in which models may create files without asking.
#[derive(Debug, Clone)]
pub struct Reach {
    places: Vec<PathBuf>,
    /// Device and inode of those that exist.
    identities: Vec<(u64, u64)>,
    /// Why the other names of a place are not known. Then nothing is known to be out of reach.
    unclear: Option<InReach>,
    whose: Whose,
}

/// Whether nothing can be at this path, as opposed to something that cannot be looked at.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG))
}

impl Reach {
    pub fn new(places: impl IntoIterator<Item = PathBuf>, whose: Whose) -> Reach {
        let spelled: Vec<PathBuf> = places.into_iter().collect();
        let mut reach = Reach { places: Vec::new(), identities: Vec::new(), unclear: None, whose };
        for folder in spelled {
            match folder.metadata().and_then(|there| Ok((there, folder.canonicalize()?))) {
                Ok((there, real)) => {
                    reach.identities.push((there.dev(), there.ino()));
                    reach.places.push(real);
                }
                Err(error) if is_missing(&error) => {}
                Err(error) => {
                    let why = InReach::unseen(&folder, &error)
                        .named("the model may write to a folder whose other names are not known");
                    reach.unclear.get_or_insert(why);
                }
            }
            reach.places.push(folder);
        }
        reach
    }

    /// Whether other users count, and a program has to be there.
    pub fn counts_users(&self) -> bool {
        self.whose == Whose::ModelsAndUsers
    }

    /// Checks that neither a file nor anything on the way to it is in reach. A missing file is checked as far as its path goes.
    pub fn check(&self, path: &Path) -> Result<(), InReach> {
        let Some((real, there)) = self.walk(path)? else { return Ok(()) };
        if writable_by_others(&there) && !(there.is_dir() && there.mode() & STICKY != 0) {
            self.of_users(format!("other users can write to {}", real.display()))?;
        }
        has_one_name(&real, &there, own_uid())
    }

    /// As [`Reach::check`], for a file that belongs to an installed program. It may have other names if only models count.
    pub fn check_installed(&self, path: &Path) -> Result<(), InReach> {
        if self.counts_users() { self.check(path) } else { self.check_linked(path) }
    }

    /// As [`Reach::check`], for a file that may have other names: package managers link programs to a store of theirs.
    pub fn check_linked(&self, path: &Path) -> Result<(), InReach> {
        self.walk(path).map(drop)
    }

    /// As [`Reach::check`], for a folder in which no model may write either.
    pub fn check_folder(&self, folder: &Path) -> Result<(), InReach> {
        self.check(folder)?;
        let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        match self.places.iter().find(|place| place.starts_with(folder) || place.starts_with(&real)) {
            Some(place) => Err(InReach::OfModel(format!("the model may write to {}", place.display()))),
            None => Ok(()),
        }
    }

    /// The first program of this name in the folders of a PATH.
    pub fn on_path(&self, name: &str, path: &OsStr) -> Result<Option<Executable>, InReach> {
        for folder in std::env::split_paths(path) {
            if !folder.is_absolute() {
                // It is one of the folder in which the program starts, where a model may well write.
                let why = match folder.display().to_string() {
                    empty if empty.is_empty() => format!(
                        "PATH has an empty entry before a folder with `{name}`, which means the folder in which the program \
                         starts; remove the extra `:`"
                    ),
                    folder => format!(
                        "PATH has the relative folder `{folder}` before a folder with `{name}`; write its whole path"
                    ),
                };
                return Err(match self.whose {
                    Whose::Models => InReach::OfModel(why),
                    Whose::ModelsAndUsers => InReach::Unclear(why),
                });
            }
            if let Some(found) = self.executable(&folder.join(name))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The executable file at a path; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Somebody who must not can put a file there, or change the one that is there.
    pub fn executable(&self, path: &Path) -> Result<Option<Executable>, InReach> {
        let Some((real, file)) = self.walk(path)? else { return Ok(None) };
        if !file.is_file() || file.mode() & EXECUTABLE == 0 {
            return Ok(None);
        }
        if writable_by_others(&file) {
            self.of_users(format!("other users can write to {}", real.display()))?;
        }
        // Package managers link programs to a store of theirs.
        if self.counts_users() {
            has_one_name(&real, &file, own_uid())?;
        }
        Ok(Some(Executable { spelled: path.to_owned(), real }))
    }

    /// Other users could change it.
    fn of_users(&self, why: String) -> Result<(), InReach> {
        match self.whose {
            Whose::Models => Ok(()),
            Whose::ModelsAndUsers => Err(InReach::OfUsers(why)),
        }
    }

    /// Follows a path and checks each folder on the way; `None` if the path leads nowhere.
    fn walk(&self, path: &Path) -> Result<Option<(PathBuf, Metadata)>, InReach> {
        let end = self.follow(path)?;
        self.unclear.clone().map_or(Ok(end), Err)
    }

    fn follow(&self, path: &Path) -> Result<Option<(PathBuf, Metadata)>, InReach> {
        let mut at = PathBuf::from("/");
        let mut left: VecDeque<PathBuf> = parts(path);
        let mut links = 0;
        let look = |at: &Path| at.symlink_metadata().map_err(|error| InReach::unseen(at, &error));
        let mut folder = look(&at)?;
        while let Some(part) = left.pop_front() {
            if part == Path::new("..") {
                at.pop();
                folder = look(&at)?;
                continue;
            }
            let next = at.join(&part);
            let there = next.symlink_metadata();
            self.check_place(&next, there.as_ref().ok())?;
            if !is_trusted_owner(&folder) {
                self.of_users(format!("{} belongs to another user", at.display()))?;
            }
            let there = match there {
                Ok(there) => there,
                Err(error) if is_missing(&error) => {
                    let others_add = writable_by_others(&folder);
                    return if others_add { self.of_users(shared(&at)).map(|()| None) } else { Ok(None) };
                }
                Err(error) => return Err(InReach::unseen(&next, &error)),
            };
            // In a sticky folder, only the owner can replace a file.
            let is_fixed = folder.mode() & STICKY != 0 && is_trusted_owner(&there);
            if writable_by_others(&folder) && !is_fixed {
                self.of_users(shared(&at))?;
            }
            if !is_trusted_owner(&there) {
                self.of_users(format!("{} belongs to another user", next.display()))?;
            }
            if there.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    let why = format!("{} has too many links on the way; name the file itself", path.display());
                    return Err(InReach::Unclear(why));
                }
                let target = next.read_link().map_err(|error| InReach::unseen(&next, &error))?;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                    folder = look(&at)?;
                }
                for part in parts(&target).into_iter().rev() {
                    left.push_front(part);
                }
            } else {
                (at, folder) = (next, there);
            }
        }
        Ok(Some((at, folder)))
    }

    /// Whether a part of a path is in one of the places, or is one under another name.
    fn check_place(&self, next: &Path, there: Option<&Metadata>) -> Result<(), InReach> {
        if let Some(place) = self.places.iter().find(|place| next.starts_with(place)) {
            return Err(InReach::OfModel(match next == place {
                true => format!("{} is a folder where the model may write", next.display()),
                false => format!("{} is in {}, where the model may write", next.display(), place.display()),
            }));
        }
        let is_place = |there: &Metadata| !there.is_symlink() && self.identities.contains(&(there.dev(), there.ino()));
        match there.is_some_and(is_place) {
            true => Err(InReach::OfModel(format!(
                "{} is another name of a folder where the model may write",
                next.display()
            ))),
            false => Ok(()),
        }
    }
}

fn parts(path: &Path) -> VecDeque<PathBuf> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(_) | Component::ParentDir => Some(PathBuf::from(part.as_os_str())),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}

fn shared(folder: &Path) -> String {
    format!("other users can write to {}", folder.display())
}

fn is_trusted_owner(there: &Metadata) -> bool {
    there.uid() == 0 || there.uid() == own_uid()
}

/// A file of ours has no other name, under which the model may write to it. Programs of the system often have several, so
/// root's files are not refused, also if we run as root.
fn has_one_name(path: &Path, file: &Metadata, own_uid: u32) -> Result<(), InReach> {
    match file.is_file() && file.nlink() > 1 && file.uid() == own_uid && own_uid != 0 {
        true => Err(InReach::OfModel(format!(
            "{} has another name (a hard link), which may be where the model may write",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// A group that has the number of the user is taken for the user's own.
fn writable_by_others(there: &Metadata) -> bool {
    let by_group = there.mode() & GROUP_WRITES != 0 && there.gid() != own_uid();
    !there.is_symlink() && (by_group || there.mode() & OTHERS_WRITE != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn lab() -> (tempfile::TempDir, PathBuf) {
        let lab = tempfile::tempdir().expect("a folder");
        let root = lab.path().canonicalize().expect("it is there");
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("it is ours");
        (lab, root)
    }

    #[test]
    fn every_way_into_a_place_counts() {
        let (_lab, root) = lab();
        for folder in ["ws/sub", "ws/real", "home", "etc"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        for file in ["ws/target", "ws/real/file", "home/fine", "etc/hook"] {
            fs::write(root.join(file), "").expect("a file");
        }
        let link = |target: &str, at: &str| symlink(target, root.join(at)).expect("a link");
        link("../ws/target", "home/to_file");
        link("../ws/gone", "home/to_missing");
        link("../ws/real", "home/to_folder");
        link("../home/fine", "ws/back");
        link("../ws/back", "home/there_and_back");
        link("to_file", "home/twice");
        link("../etc/hook", "home/elsewhere");
        link("ws", "alias");
        let check = |place: &str, path: &str, expect: bool| {
            let reach = Reach::new([root.join(place)], Whose::Models);
            let checked = reach.check(&root.join(path));
            assert_eq!(checked.is_ok(), expect, "{path} with {place}: {checked:?}");
        };
        for (path, expect) in [
            ("home/fine", true),
            ("home/missing", true),
            ("home/elsewhere", true),
            ("home/../home/fine", true),
            ("home/to_file", false),
            ("home/to_missing", false),
            ("home/to_folder/file", false),
            ("home/to_folder/missing", false),
            ("home/there_and_back", false),
            ("home/twice", false),
            ("alias/target", false),
            ("ws", false),
            ("ws/sub/../../home/fine", false),
        ] {
            check("ws", path, expect);
            // The place may be spelled through a link.
            check("alias", path, expect);
        }
        // A file may be a place, and one that does not exist yet may become one.
        check("etc/hook", "home/elsewhere", false);
        check("home/missing", "home/missing/x", false);
        check("wsx", "ws/target", true);
    }

    #[test]
    fn folder_is_in_reach_by_what_it_holds() {
        let (_lab, root) = lab();
        fs::create_dir_all(root.join("home/sessions/s")).expect("a folder");
        let check = |place: &str| Reach::new([root.join(place)], Whose::Models).check_folder(&root.join("home"));
        assert!(check("home/sessions/s").is_err() && check("home").is_err() && check("").is_err());
        assert!(check("homes").is_ok());
    }

    #[test]
    fn own_file_with_another_name_is_refused() {
        let (_lab, root) = lab();
        let (file, link) = (root.join("tool"), root.join("link"));
        fs::write(&file, "").expect("a file");
        // Only root can give it away; root's own files are not refused.
        drop(std::os::unix::fs::chown(&file, Some(1_000), None));
        let refused = |own_uid: u32| {
            let there = file.metadata().expect("it is there");
            has_one_name(&file, &there, own_uid).is_err()
        };
        let owner = file.metadata().expect("it is there").uid();
        assert!(!refused(owner));
        fs::hard_link(&file, &link).expect("a link");
        assert!(refused(owner));
        assert!(!refused(owner + 1) && !refused(0));
        assert!(has_one_name(&root, &root.metadata().expect("it is there"), owner).is_ok());
    }

    /// Only a name that cannot be there counts as missing.
    #[test]
    fn errors_that_hide_a_file_are_not_a_missing_file() {
        for (error, expect) in [
            (Errno::NOENT, true),
            (Errno::NOTDIR, true),
            (Errno::NAMETOOLONG, true),
            (Errno::ACCESS, false),
            (Errno::PERM, false),
            (Errno::IO, false),
            (Errno::STALE, false),
            (Errno::LOOP, false),
            (Errno::NOTCONN, false),
            (Errno::TIMEDOUT, false),
            (Errno::HOSTDOWN, false),
            (Errno::NOMEM, false),
        ] {
            assert_eq!(is_missing(&error.into()), expect, "{error}");
        }
        assert!(!is_missing(&io::Error::other("unknown")));
    }

    #[test]
    fn other_users_count_if_asked() {
        let (_lab, root) = lab();
        let file = root.join("file");
        fs::write(&file, "").expect("a file");
        let check = |mode: u32| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is ours");
            let of = |whose| Reach::new([], whose).check(&file).is_ok();
            (of(Whose::Models), of(Whose::ModelsAndUsers))
        };
        assert_eq!((check(0o644), check(0o666), check(0o602)), ((true, true), (true, false), (true, false)));
    }
}
