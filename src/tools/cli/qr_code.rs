//! A link as a QR code of half blocks, for a terminal that can show it.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

use super::screen::{self, Screen};
use crate::config::Environment;

/// Rows that the text beside the code takes.
const TEXT_ROWS: usize = 4;

/// Black on white, whatever the colours of the terminal are.
const BLACK_ON_WHITE: &str = "\x1b[38;5;16;48;5;231m";

const USUAL: &str = "\x1b[0m";

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
struct Room {
    screen: Screen,
    columns: usize,
    rows: usize,
}

/// The code of a link, if stdout is a terminal with room for it that shows Unicode.
pub(super) fn drawn(link: &str, environment: &Environment) -> Option<String> {
    let screen = Screen::of_stdout(environment);
    let room = Room { screen, columns: screen::columns(screen)?, rows: screen::rows()? };
    if is_utf8(environment) { code(link, room) } else { None }
}

/// Whether the terminal shows Unicode, as the locale says.
fn is_utf8(environment: &Environment) -> bool {
    let named = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| environment.get(name));
    let locale = named.map(|value| value.to_string_lossy().to_lowercase()).find(|value| !value.is_empty());
    locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8"))
}

fn code(link: &str, Room { screen, columns, rows }: Room) -> Option<String> {
    // A screen has neither dirt nor scratches.
    let code = QrCode::with_error_correction_level(link, EcLevel::L).ok()?;
    let mut drawing = code.render::<Dense1x2>();
    if screen != Screen::Coloured {
        // Without colours the letters are bright, as on most terminals.
        drawing.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark);
    }
    let text = drawing.build();
    let fits = text.lines().all(|line| line.chars().count() <= columns) && text.lines().count() + TEXT_ROWS <= rows;
    let line = |line: &str| match screen {
        Screen::Coloured => format!("{BLACK_ON_WHITE}{line}{USUAL}\n"),
        Screen::Plain | Screen::None => format!("{line}\n"),
    };
    fits.then(|| text.lines().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "https://laptop.tailnet.ts.net/#0123456789abcdef0123456789abcdef";

    #[test]
    fn codes_are_drawn_if_there_is_room() {
        let drawn = |screen, columns, rows| code(LINK, Room { screen, columns, rows });
        assert!(drawn(Screen::Coloured, 80, 26).is_some() && drawn(Screen::Plain, 41, 26).is_some());
        assert!(drawn(Screen::Coloured, 40, 26).is_none() && drawn(Screen::Coloured, 80, 24).is_none());
    }

    #[test]
    fn dark_modules_are_dark() {
        let room = |screen| Room { screen, columns: 80, rows: 50 };
        let lines =
            |screen| code(LINK, room(screen)).expect("there is room").lines().map(str::to_owned).collect::<Vec<_>>();
        let (coloured, plain) = (lines(Screen::Coloured), lines(Screen::Plain));
        // The quiet zone is four modules wide, and the finder pattern begins with seven dark ones.
        let bare = |line: &str| line.replace(BLACK_ON_WHITE, "").replace(USUAL, "");
        assert!(coloured.iter().all(|line| line.starts_with(BLACK_ON_WHITE) && line.ends_with(USUAL)));
        assert!(bare(&coloured[2]).starts_with("    █▀▀▀▀▀█ "), "{:?}", coloured[2]);
        assert!(plain[2].starts_with("████ ▄▄▄▄▄ █"), "{:?}", plain[2]);
    }
}
