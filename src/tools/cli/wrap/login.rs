//! `wrap codex`: has the hub started at login, without root: by a unit of the user's systemd, or by an agent of launchd.
//!
//! The file ([`LoginFile`]) pins what a login does not know: the codex, `CODEX_HOME`, our home, and PATH, which commands that codex
//! runs need.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use super::login_file::{LABEL, LoginFile, Manager};
use super::plan::{Plan, Planner};
use super::{WrapChange, Wrapped};
use crate::config::Environment;
use crate::files;
use crate::os::desktop::HAS_LAUNCHD;
use crate::os::identity::login_uid;

/// The target of `wrap` and `unwrap`.
pub(super) const TARGET: &str = "codex";

/// The unit of systemd.
const UNIT: &str = "codex-shim-hub.service";

/// How long launchd may take to end the hub, which ends its server first.
const STOP_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often to look whether it has.
const STOP_LOOK_EVERY: Duration = Duration::from_millis(100);

/// The status of `launchctl bootout` for an agent that is still ending: `EINPROGRESS` of macOS.
const IN_PROGRESS: i32 = 36;

const MANAGER: Manager = if HAS_LAUNCHD { Manager::Launchd } else { Manager::Systemd };

impl Planner<'_> {
    /// Plans the file that has the hub started at login.
    pub(super) fn at_login(&self) -> Result<Plan, String> {
        if self.shared {
            return Err("--shared is for tools; plain `codex` joins the hub by itself".to_owned());
        }
        let path = file(self.environment)?;
        let at = path.display();
        let pinned = self.found()?;
        let text = self.login_file(&pinned.codex, &pinned.folders)?.text(MANAGER);
        let enabled = enabling_link(&path);
        let record = self.all.iter().find(|other| other.path == path);
        let written = record.and_then(|record| match &record.change {
            WrapChange::Login { text, made, .. } => Some((text, made)),
            WrapChange::Link { .. } | WrapChange::File { .. } => None,
        });
        let is_enabled = enabled.as_ref().is_none_or(|link| fs::read_link(link).is_ok_and(|to| to == path));
        let made = match (files::read_named(&path), written) {
            (Ok(now), _) if now == text && record.is_some() && is_enabled => return Ok(Plan::Nothing),
            (Ok(now), Some((before, made))) if now == *before => made.clone(),
            (Ok(_), Some(_)) => {
                return Err(format!("{at} was changed since `wrap`; `codex-shim unwrap --forget {TARGET}` forgets it"));
            }
            (Ok(_), None) => return Err(format!("{at} is there already, and not made by `wrap`; remove it first")),
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => missing_folders(&path, enabled.as_deref()),
            (Err(error), _) => return Err(format!("read {at}: {error}")),
        };
        if let Some(link) = enabled.as_ref().filter(|link| !is_enabled && link.symlink_metadata().is_ok()) {
            let link = link.display();
            return Err(format!(
                "{link} is there already, and not made by `wrap`; `systemctl --user disable {UNIT}` removes it"
            ));
        }
        let change = WrapChange::Login { text, enabled, made };
        let (target, pinned) = (TARGET.to_owned(), Some(pinned));
        Ok(Plan::Do(Wrapped { target, path, link: None, codex: None, pinned, shared: false, change }))
    }

    fn login_file(&self, codex: &Path, folders: &[PathBuf]) -> Result<LoginFile, String> {
        let path = self.environment.get("PATH").unwrap_or_default();
        let has: Vec<PathBuf> = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
        let lacks = folders.iter().filter(|folder| !has.contains(folder));
        let path = std::env::join_paths(lacks.chain(&has)).map_err(|error| format!("PATH: {error}"))?;
        let homes = ["CODEX_HOME", "CODEX_SHIM_HOME", "XDG_STATE_HOME"];
        let homes = homes.into_iter().filter_map(|name| {
            let home = self.environment.get(name)?;
            Some((name, std::path::absolute(home).ok()?.into_os_string()))
        });
        LoginFile::of_wrap(&self.ourselves.path, codex, [("PATH", path)].into_iter().chain(homes))
    }
}

/// The file that has a hub started at login.
fn file(environment: &Environment) -> Result<PathBuf, String> {
    let home = environment.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| "HOME is not set to a folder".to_owned());
    match MANAGER {
        Manager::Launchd => Ok(home?.join("Library/LaunchAgents").join(format!("{LABEL}.plist"))),
        Manager::Systemd => {
            let config = environment.get("XDG_CONFIG_HOME").map(PathBuf::from);
            let config = config.filter(|config| config.is_absolute()).map_or_else(|| Ok(home?.join(".config")), Ok);
            config.map(|config: PathBuf| config.join("systemd/user").join(UNIT))
        }
    }
}

/// The link with which `systemctl --user enable` enables a unit. An agent of launchd needs none.
fn enabling_link(file: &Path) -> Option<PathBuf> {
    (MANAGER == Manager::Systemd).then(|| file.with_file_name("default.target.wants").join(UNIT))
}

/// The folders that have to be created, the outer ones first.
fn missing_folders(file: &Path, link: Option<&Path>) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = [Some(file), link]
        .into_iter()
        .flatten()
        .flat_map(|path| path.ancestors().skip(1).take_while(|folder| !folder.exists()).map(Path::to_owned))
        .collect();
    missing.sort();
    missing.dedup();
    missing
}

/// The change in words.
pub(super) fn shown(file: &Path, text: &str, enabled: Option<&Path>) -> String {
    let lines: String = text.lines().map(|line| format!("+ {line}\n")).collect();
    let link = enabled.map(|link| format!("link {} to {}\n", link.display(), file.display())).unwrap_or_default();
    format!("write {}\n{lines}{link}", file.display())
}

/// Writes the file, and enables it.
pub(super) fn apply(file: &Path, text: &str, enabled: Option<&Path>, made: &[PathBuf]) -> Result<(), String> {
    let failed = |path: &Path, error: io::Error| format!("write {}: {error}", path.display());
    for folder in made {
        match files::create_folder(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(folder, error)),
            Ok(()) | Err(_) => {}
        }
    }
    super::rewrite(file, text)?;
    if let Some(link) = enabled
        && fs::read_link(link).is_err()
    {
        std::os::unix::fs::symlink(file, link).map_err(|error| failed(link, error))?;
    }
    manage(&["daemon-reload"]);
    Ok(())
}

/// Ends the hub that the login has started, if it runs. Returns whether it did.
pub(super) fn stop() -> bool {
    match MANAGER {
        Manager::Systemd => manage(&["is-active", "--quiet", UNIT]) && manage(&["stop", UNIT]),
        Manager::Launchd => {
            let agent = format!("gui/{}/{LABEL}", login_uid());
            stop_agent(&agent, STOP_WAIT_MAX, managed)
        }
    }
}

/// Ends an agent of launchd; whether it is gone within `wait_max`. `launchctl` returns before that. `run` returns its exit status.
fn stop_agent(agent: &str, wait_max: Duration, mut run: impl FnMut(&[&str]) -> Option<i32>) -> bool {
    if !matches!(run(&["bootout", agent]), Some(0 | IN_PROGRESS)) {
        return false;
    }
    let began = Instant::now();
    // It knows the agent until that has ended.
    while run(&["print", agent]) == Some(0) {
        if began.elapsed() >= wait_max {
            return false;
        }
        std::thread::park_timeout(STOP_LOOK_EVERY);
    }
    true
}

/// Removes the file, its link and the folders that were made for them. All of them may be gone.
pub(super) fn remove(file: &Path, enabled: Option<&Path>, made: &[PathBuf]) -> io::Result<()> {
    let link = enabled.filter(|link| fs::read_link(link).is_ok_and(|to| to == file));
    for path in link.into_iter().chain([file]) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    // Those that are not empty are in use.
    made.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
    manage(&["daemon-reload"]);
    Ok(())
}

/// Whether the file is enabled.
pub(super) fn is_enabled(file: &Path, enabled: Option<&Path>) -> bool {
    enabled.is_none_or(|link| fs::read_link(link).is_ok_and(|to| to == file))
}

/// Runs the manager's own program; whether it succeeded. It may be missing, as in a container: the file then counts from the
/// next login on.
fn manage(words: &[&str]) -> bool {
    managed(words) == Some(0)
}

/// As [`manage`]. Returns the exit status.
fn managed(words: &[&str]) -> Option<i32> {
    let mut command = match MANAGER {
        Manager::Systemd => Command::new("systemctl"),
        Manager::Launchd => Command::new("launchctl"),
    };
    if MANAGER == Manager::Systemd {
        command.arg("--user");
    } else if words == ["daemon-reload"] {
        return Some(0);
    }
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().ok()?.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stops an agent whose end is shown at the given look; `None` never.
    fn check(status: i32, gone_at: Option<usize>, expect: (bool, usize)) {
        let mut looks = 0;
        let is_gone = stop_agent("gui/501/agent", Duration::from_millis(250), |words| {
            assert_eq!(words[1], "gui/501/agent");
            if words[0] == "bootout" {
                return Some(status);
            }
            assert_eq!(words[0], "print");
            looks += 1;
            Some(if gone_at.is_some_and(|at| looks >= at) { 113 } else { 0 })
        });
        assert_eq!((is_gone, looks.min(2)), expect, "{status} {gone_at:?}");
    }

    #[test]
    fn agent_is_stopped_once_launchd_knows_it_no_more() {
        for status in [0, IN_PROGRESS] {
            check(status, Some(1), (true, 1));
            check(status, Some(2), (true, 2));
            check(status, None, (false, 2));
        }
        check(3, None, (false, 0));
    }
}
