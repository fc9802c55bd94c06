//! `codex-shim docs`: the pages of the documentation, which are part of the program.
//!
//! Messages name a page by this command, because an installed user may have no other copy of it.

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::{Done, screen};

/// Each page for users, by its name.
const PAGES: [(&str, &str); 33] = [
    ("audit", include_str!("../../../docs/audit.md")),
    ("backup", include_str!("../../../docs/backup.md")),
    ("blame", include_str!("../../../docs/blame.md")),
    ("capture", include_str!("../../../docs/capture.md")),
    ("context", include_str!("../../../docs/context.md")),
    ("context-engines", include_str!("../../../docs/context-engines.md")),
    ("control", include_str!("../../../docs/control.md")),
    ("drift", include_str!("../../../docs/drift.md")),
    ("filters", include_str!("../../../docs/filters.md")),
    ("fleet", include_str!("../../../docs/fleet.md")),
    ("history", include_str!("../../../docs/history.md")),
    ("history-ui", include_str!("../../../docs/history-ui.md")),
    ("hub", include_str!("../../../docs/hub.md")),
    ("install", include_str!("../../../docs/install.md")),
    ("journal", include_str!("../../../docs/journal.md")),
    ("keeping", include_str!("../../../docs/keeping.md")),
    ("notifications", include_str!("../../../docs/notifications.md")),
    ("platforms", include_str!("../../../docs/platforms.md")),
    ("reliability", include_str!("../../../docs/reliability.md")),
    ("requests", include_str!("../../../docs/requests.md")),
    ("rules", include_str!("../../../docs/rules.md")),
    ("search", include_str!("../../../docs/search.md")),
    ("security", include_str!("../../../docs/security.md")),
    ("settings", include_str!("../../../docs/settings.md")),
    ("speed", include_str!("../../../docs/speed.md")),
    ("tapes", include_str!("../../../docs/tapes.md")),
    ("tools", include_str!("../../../docs/tools.md")),
    ("transcript", include_str!("../../../docs/transcript.md")),
    ("tui", include_str!("../../../docs/tui.md")),
    ("upgrading", include_str!("../../../docs/upgrading.md")),
    ("usage", include_str!("../../../docs/usage.md")),
    ("web", include_str!("../../../docs/web.md")),
    ("wrap", include_str!("../../../docs/wrap.md")),
];

/// Print a page of the documentation
#[derive(Debug, Args)]
#[command(after_long_help = "\
Without a name it lists the pages. A page is Markdown; a link to `x.md` in it is
the page `x`.

Examples:
  codex-shim docs
  codex-shim docs rules | less")]
pub(super) struct DocsArguments {
    /// Page [default: a list of all]
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(PAGES.map(|(name, _)| name)), hide_possible_values = true)]
    name: Option<String>,
}

pub(super) fn run(arguments: &DocsArguments) -> Done {
    let text = match &arguments.name {
        Some(name) => PAGES.iter().find(|(page, _)| page == name).map(|(_, text)| (*text).to_owned()),
        None => Some(PAGES.iter().map(|(name, text)| format!("{name:16} {}\n", title(text))).collect()),
    };
    screen::put(&text.unwrap_or_default())?;
    Ok(0)
}

/// The heading of a page.
fn title(page: &str) -> &str {
    page.lines().next().unwrap_or_default().trim_start_matches('#').trim()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_page_for_users_is_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
        let pages = files.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
        let names = pages.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned());
        // How to change the program is of no use without its sources.
        let mut names: Vec<String> = names.filter(|name| name != "contributing").collect();
        names.sort();
        assert_eq!(names, PAGES.map(|(name, _)| name));
        for (name, page) in PAGES {
            assert!(page.starts_with("# ") && !title(page).is_empty(), "{name}");
        }
    }
}
