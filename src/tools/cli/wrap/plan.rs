//! Plans a wrap, and changes nothing. Also checks the record of `wrap` against the disk: a user may have changed a file or a link
//! since, or moved codex-shim.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::setting::{Tool, setting_of, string_of, with_member};
use super::{Pinned, WrapChange, Wrapped, check, login, read};
use crate::config::{Environment, Settings};
use crate::files;
use crate::os::fs::{Access, check_access};
use crate::relay::locate::{self, OwnPath, SET_ASIDE, SHARED_LINK};

/// A planned change.
#[derive(Debug)]
pub(super) enum Plan {
    /// The target is wrapped already.
    Nothing,
    /// A new wrap.
    Do(Wrapped),
    /// The link exists; something about it changes.
    Mend {
        link: PathBuf,
        /// Its current target, if there is one.
        from: Option<PathBuf>,
        /// Whether the link must be redirected, because it leads to another codex-shim, which may be gone.
        is_relinked: bool,
        /// The new record, if it changes.
        record: Option<Wrapped>,
    },
}

/// Everything that a plan depends on.
pub(super) struct Planner<'a> {
    pub(super) ourselves: &'a OwnPath,
    pub(super) home: &'a Path,
    /// The record of earlier changes.
    pub(super) all: &'a [Wrapped],
    pub(super) settings: &'a Settings,
    pub(super) environment: &'a Environment,
    /// The tool's clients are to join the hub.
    pub(super) shared: bool,
}

impl Planner<'_> {
    /// Plans the change for a target.
    pub(super) fn plan(&self, target: &str) -> Result<Plan, String> {
        if target == login::TARGET {
            return self.at_login();
        }
        if let Some(tool) = Tool::named(target) {
            return self.in_setting(tool);
        }
        let path = self.link_for(target)?;
        let all = self.all;
        let on_record = link_on_record(all, &path);
        if self.is_ours(&path) {
            let Some((record, leads_to, _)) = on_record else { return self.not_on_record(&path) };
            let is_relinked = self.ourselves.is_on_path && leads_to != self.ourselves.path;
            return Ok(self.mended_link(&path, record, leads_to, is_relinked));
        }
        if let Some((record, leads_to, _)) = on_record {
            return Ok(self.mended_link(&path, record, leads_to, true));
        }
        self.new_link(target, path)
    }

    /// The path of the link for a target that is not a tool.
    fn link_for(&self, target: &str) -> Result<PathBuf, String> {
        let path = match target {
            "path" => match first_on_path(self.all, self.environment) {
                Some(first) if self.is_ours(&first) || link_on_record(self.all, &first).is_some() => first,
                Some(_) | None => folder_ahead(self.environment)?.join("codex"),
            },
            _ => {
                let path = PathBuf::from(target);
                match (path.is_dir(), path.file_name().is_some_and(|name| name == "codex")) {
                    (true, _) => path.join("codex"),
                    (false, true) => path,
                    (false, false) if target.contains('/') && !path.exists() => {
                        return Err(format!(
                            "{target} does not exist; name an existing folder, or the path of a codex"
                        ));
                    }
                    (false, false) => {
                        return Err(format!(
                            "`{target}` is neither `path`, a folder, the path of a codex, nor one of {}",
                            Tool::all()
                        ));
                    }
                }
            }
        };
        std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The plan for a link to us that is not on record, which has no place for more than that.
    fn not_on_record(&self, link: &Path) -> Result<Plan, String> {
        if !self.shared {
            return Ok(Plan::Nothing);
        }
        let link = link.display();
        Err(format!("{link} leads to codex-shim but was not made by `wrap`: remove it, and wrap again with --shared"))
    }

    /// The plan for an existing link of ours.
    fn mended_link(&self, link: &Path, record: &Wrapped, leads_to: &Path, is_relinked: bool) -> Plan {
        let WrapChange::Link { to, set_aside } = &record.change else { return Plan::Nothing };
        let to = if is_relinked { self.ourselves.path.clone() } else { to.clone() };
        let set_aside = set_aside.clone().filter(|aside| aside.symlink_metadata().is_ok());
        let pinned = match &set_aside {
            Some(aside) => Some(self.pin(aside, aside)),
            None => self.found().ok().or_else(|| record.pinned.clone()),
        };
        let shared = record.shared || self.shared;
        let new = Wrapped { pinned, shared, change: WrapChange::Link { to, set_aside }, ..record.clone() };
        if new == *record && !is_relinked {
            return Plan::Nothing;
        }
        Plan::Mend { link: link.to_owned(), from: Some(leads_to.to_owned()), is_relinked, record: Some(new) }
    }

    fn new_link(&self, target: &str, path: PathBuf) -> Result<Plan, String> {
        let all = self.all;
        if let Some(other) = other_shim(&path) {
            let (path, other) = (path.display(), other.display());
            return Err(format!(
                "{path} is a link to another codex-shim, {other}, that is not on record here: have that one `unwrap` it with \
                 the CODEX_SHIM_HOME it was made with, or remove it by hand"
            ));
        }
        // Only the earlier record knows the name of the original codex.
        let earlier = all.iter().filter(|other| other.path == path).find_map(|other| match &other.change {
            WrapChange::Link { set_aside, .. } => set_aside.as_ref().filter(|aside| aside.symlink_metadata().is_ok()),
            WrapChange::File { .. } | WrapChange::Login { .. } => None,
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
        let pinned = match &set_aside {
            Some(aside) => self.pin(aside, &path),
            None => self.found()?,
        };
        let change = WrapChange::Link { to: self.ourselves.path.clone(), set_aside };
        let (target, pinned, shared) = (target.to_owned(), Some(pinned), self.shared);
        Ok(Plan::Do(Wrapped { target, path, link: None, codex: None, pinned, shared, change }))
    }

    fn in_setting(&self, tool: &Tool) -> Result<Plan, String> {
        let file = tool.file(self.environment)?;
        let (at, names) = (file.display(), tool.setting.names);
        check(&file)?;
        let before = match files::read_named(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("read {at}: {error}")),
        };
        let set = before.as_deref().and_then(|text| string_of(text, names)).map(PathBuf::from);
        let link = self.home.join("bin").join(tool.target).join("codex");
        let links = [self.home.join(SHARED_LINK), link.clone()];
        if let Some(link) = set.as_ref().filter(|set| links.contains(set)) {
            return self.mended_setting(link, &file);
        }
        let codex = match set {
            Some(set) if !set.as_os_str().is_empty() && !self.is_ours(&set) => self.own_codex(&set, &file, tool)?,
            Some(_) | None => None,
        };
        let pinned = match &codex {
            Some(codex) => self.pin(codex, codex),
            None => self.found()?,
        };
        let text = before.as_deref().unwrap_or_default();
        let after = with_member(text, &tool.setting, &link.to_string_lossy())
            .map_err(|why| format!("{at}: {}; correct it, or set {} by hand", why.0, names.join(".")))?;
        let change = WrapChange::File { before, after };
        let (target, link, pinned) = (tool.target.to_owned(), Some(link), Some(pinned));
        Ok(Plan::Do(Wrapped { target, path: file.clone(), link, codex, pinned, shared: self.shared, change }))
    }

    /// The plan for a setting that names a link of ours already.
    fn mended_setting(&self, link: &Path, file: &Path) -> Result<Plan, String> {
        let from = fs::read_link(link).ok();
        let is_other_name = self.ourselves.is_on_path && from.as_ref() != Some(&self.ourselves.path);
        let is_relinked = is_other_name || !self.is_ours(link);
        let record =
            self.all.iter().find(|other| other.path == file && matches!(other.change, WrapChange::File { .. }));
        let new = match record {
            None if self.shared => return self.not_on_record(link),
            None => None,
            // It runs the codex that the setting named before, so nothing is pinned anew.
            Some(record @ Wrapped { codex: Some(_), .. }) => {
                (self.shared && !record.shared).then(|| Wrapped { shared: true, ..record.clone() })
            }
            Some(record) => {
                let has_pin = record.pinned.as_ref().is_some_and(|pinned| locate::is_program(&pinned.codex));
                let pinned = match self.found() {
                    Err(why) if !has_pin => return Err(why),
                    Err(_) => record.pinned.clone(),
                    Ok(found) => Some(found),
                };
                let new = Wrapped { pinned, shared: record.shared || self.shared, ..record.clone() };
                (new != *record).then_some(new)
            }
        };
        Ok(match is_relinked || new.is_some() {
            true => Plan::Mend { link: link.to_owned(), from, is_relinked, record: new },
            false => Plan::Nothing,
        })
    }

    /// The user's own codex in a setting, which that tool keeps.
    fn own_codex(&self, set: &Path, file: &Path, tool: &Tool) -> Result<Option<PathBuf>, String> {
        let found = locate::server(set.as_os_str(), self.environment).map_err(|_| {
            format!(
                "{}: `{}` is {}, which is not there; correct or remove it first",
                file.display(),
                tool.setting.names.join("."),
                set.display()
            )
        })?;
        let found = std::path::absolute(&found).map_err(|error| format!("{}: {error}", found.display()))?;
        Ok(Some(found).filter(|found| !self.is_ours(found)))
    }

    /// The codex of this terminal, which is pinned.
    pub(super) fn found(&self) -> Result<Pinned, String> {
        let found = locate::codex(self.settings, self.environment).map_err(|error| {
            format!("{error}; install codex with `npm install -g @openai/codex`, and run `wrap` again; nothing changed")
        })?;
        let codex =
            std::path::absolute(&found.program).map_err(|error| format!("{}: {error}", found.program.display()))?;
        Ok(self.pin(&codex, &codex))
    }

    /// Pins `codex`, which is at `now` until the plan is carried out.
    fn pin(&self, codex: &Path, now: &Path) -> Pinned {
        Pinned { codex: codex.to_owned(), folders: locate::folders_for(now, self.environment) }
    }

    /// Whether a path leads to this program.
    fn is_ours(&self, path: &Path) -> bool {
        let ourselves = self.ourselves.path.canonicalize().ok();
        path.canonicalize().is_ok_and(|path| Some(path) == ourselves)
    }
}

/// The first `codex` on PATH, or its earlier target if it leads to a codex-shim that was moved.
fn first_on_path(all: &[Wrapped], environment: &Environment) -> Option<PathBuf> {
    let path = environment.get("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("codex"));
    programs.find(|program| program.exists() || link_on_record(all, program).is_some())
}

/// The recorded target of an unchanged link, and the file that was set aside for it.
fn link_on_record<'a>(all: &'a [Wrapped], path: &Path) -> Option<(&'a Wrapped, &'a Path, Option<&'a PathBuf>)> {
    let leads_to = fs::read_link(path).ok()?;
    all.iter().filter(|wrapped| wrapped.path == path).find_map(|wrapped| match &wrapped.change {
        WrapChange::Link { to, set_aside } if *to == leads_to => Some((wrapped, to.as_path(), set_aside.as_ref())),
        WrapChange::Link { .. } | WrapChange::File { .. } | WrapChange::Login { .. } => None,
    })
}

/// A folder of the user that comes before any real codex on PATH.
fn folder_ahead(environment: &Environment) -> Result<PathBuf, String> {
    let path = environment.get("PATH").unwrap_or_default();
    let home = environment.get("HOME").map(PathBuf::from).unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let before_codex = folders.iter().take_while(|folder| !folder.join("codex").exists());
    let is_ours = |folder: &&PathBuf| {
        folder.starts_with(&home) && folder.is_dir() && check_access(folder.as_path(), Access::WRITE_OK).is_ok()
    };
    before_codex.into_iter().find(is_ours).cloned().ok_or_else(|| {
        "PATH has no folder of yours before that of the real codex; create one, such as ~/bin, put it first in PATH, and run \
         `codex-shim wrap ~/bin`"
            .to_owned()
    })
}

/// State of a wrap.
#[derive(Debug)]
pub(in crate::cli) enum Look {
    /// The wrap cannot work; the reason.
    Broken(String),
    /// The user has changed the file or link since; the finding and the remedy.
    Changed(String, String),
    /// This file has the hub started at login, with this codex.
    AtLogin(PathBuf, Option<PathBuf>),
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
    /// The tool's clients join the hub.
    pub(in crate::cli) is_shared: bool,
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
        Look::AsMade(Made { name: name.clone(), place, program, pinned, is_shared: wrapped.shared })
    };
    match &wrapped.change {
        WrapChange::Login { text, enabled, .. } => match files::read_named(&wrapped.path) {
            Ok(now) if now == *text && login::is_enabled(&wrapped.path, enabled.as_deref()) => {
                Look::AtLogin(wrapped.path.clone(), wrapped.pinned.as_ref().map(|pinned| pinned.codex.clone()))
            }
            Ok(now) if now == *text => changed(format!("{at} is no longer enabled")),
            Ok(_) => changed(format!("{at} was changed since")),
            Err(error) => changed(format!("read {at}: {error}")),
        },
        WrapChange::Link { to, set_aside } => {
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
        WrapChange::File { .. } => {
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
