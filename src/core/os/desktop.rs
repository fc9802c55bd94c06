//! What differs between desktops: the program that opens a file, and the places of settings and of programs to start at login.

/// Whether launchd starts programs at login, and not systemd.
pub const HAS_LAUNCHD: bool = cfg!(target_os = "macos");

/// The program that opens a file in the user's browser.
pub const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Whether the opener ends at once, so that its status says whether it has opened the file.
pub const OPENER_ENDS_AT_ONCE: bool = cfg!(target_os = "macos");

/// The folder below the user's home in which programs keep their settings; `None` if `XDG_CONFIG_HOME` names it.
pub const SETTINGS_FOLDER: Option<&str> =
    if cfg!(target_os = "macos") { Some("Library/Application Support") } else { None };
