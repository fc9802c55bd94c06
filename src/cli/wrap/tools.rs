//! The tools whose settings `wrap` changes: their settings files, and the members that name codex.

use std::path::PathBuf;

use super::setting::Setting;
use crate::config::Environment;

/// A tool that names codex in a settings file.
pub(super) struct Tool {
    /// Its name in `wrap TARGET`.
    pub(super) target: &'static str,
    base: Base,
    /// The settings file, below that folder; the first that exists counts.
    files: &'static [&'static str],
    /// The member that names codex.
    pub(super) setting: Setting,
    /// How the user makes the tool read the change.
    pub(super) then: &'static str,
}

/// The folder of a settings file.
enum Base {
    /// This system's folder for settings: `~/.config`, or `~/Library/Application Support`.
    System,
    /// `~/.config` on every system.
    Config,
    Home,
}

const EXTENSION: Setting = Setting { names: &["chatgpt.cliExecutable"], with: None };

const RELOAD: &str = "reload each open window (`Developer: Reload Window` in its command palette); until then it keeps \
                      the codex that runs";

const fn editor(target: &'static str, files: &'static [&'static str]) -> Tool {
    Tool { target, base: Base::System, files, setting: EXTENSION, then: RELOAD }
}

const ALL: [Tool; 7] = [
    editor("vscode", &["Code/User/settings.json"]),
    editor("vscode-insiders", &["Code - Insiders/User/settings.json"]),
    editor("vscodium", &["VSCodium/User/settings.json", "VSCodium - Insiders/User/settings.json"]),
    editor("cursor", &["Cursor/User/settings.json"]),
    editor("windsurf", &["Windsurf/User/settings.json", "Windsurf - Next/User/settings.json"]),
    Tool {
        target: "zed",
        base: Base::Config,
        files: &["zed/settings.json"],
        // That agent is the npm package `@agentclientprotocol/codex-acp`, which reads this variable.
        setting: Setting {
            names: &["agent_servers", "codex-acp", "env", "CODEX_PATH"],
            with: Some((2, "type", "registry")),
        },
        then: "restart Zed, or start a new Codex thread",
    },
    Tool {
        target: "openclaw",
        base: Base::Home,
        files: &[".openclaw/openclaw.json"],
        setting: Setting { names: &["plugins", "entries", "codex", "config", "appServer", "command"], with: None },
        then: "restart the gateway of OpenClaw",
    },
];

/// The names of all tools for `wrap`.
pub(in crate::cli) fn targets() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|tool| tool.target)
}

impl Tool {
    pub(super) fn named(target: &str) -> Option<&'static Tool> {
        ALL.iter().find(|tool| tool.target == target)
    }

    /// The names of all tools.
    pub(super) fn all() -> String {
        targets().collect::<Vec<_>>().join(", ")
    }

    /// The settings file, which may not exist yet, in an existing folder.
    ///
    /// # Errors
    ///
    /// The searched folders, and the installed tools.
    pub(super) fn file(&self, environment: &Environment) -> Result<PathBuf, String> {
        let places = self.places(environment)?;
        let has_folder = |file: &&PathBuf| file.parent().is_some_and(|folder| folder.is_dir());
        if let Some(file) = places.iter().find(has_folder) {
            return Ok(file.clone());
        }
        let looked_for: Vec<String> = places.iter().map(|file| file.display().to_string()).collect();
        let is_here =
            |tool: &&Tool| tool.places(environment).is_ok_and(|places| places.iter().any(|it| has_folder(&it)));
        let here: Vec<&str> = ALL.iter().filter(is_here).map(|tool| tool.target).collect();
        let here = if here.is_empty() { "no other tool that wrap knows".to_owned() } else { here.join(", ") };
        Err(format!(
            "{} has no settings here (looked for {}); start it once, or set {} by hand; found here: {here}",
            self.target,
            looked_for.join(" and "),
            self.setting.names.join(".")
        ))
    }

    fn places(&self, environment: &Environment) -> Result<Vec<PathBuf>, String> {
        let home = environment.get("HOME").map(PathBuf::from).ok_or("HOME is not set")?;
        if self.target == "openclaw" {
            // OpenClaw reads these, too.
            if let Some(file) = environment.get("OPENCLAW_CONFIG_PATH") {
                return Ok(vec![PathBuf::from(file)]);
            }
            if let Some(folder) = environment.get("OPENCLAW_STATE_DIR") {
                return Ok(vec![PathBuf::from(folder).join("openclaw.json")]);
            }
        }
        let config =
            |home: &PathBuf| environment.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
        let base = match (&self.base, cfg!(target_os = "macos")) {
            (Base::Home, _) => home,
            (Base::Config, true) => home.join(".config"),
            (Base::System, true) => home.join("Library/Application Support"),
            (Base::Config | Base::System, false) => config(&home),
        };
        Ok(self.files.iter().map(|file| base.join(file)).collect())
    }
}

/// The member that names codex in a target's settings.
pub(super) fn setting_of(target: &str) -> Setting {
    Tool::named(target).map_or(EXTENSION, |tool| tool.setting)
}
