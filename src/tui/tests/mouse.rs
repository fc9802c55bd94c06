//! A click selects and opens, the wheel scrolls, and neither answers a request.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Position, Size};

use super::super::events::Event;
use super::super::model::Focus;
use super::super::mouse::{Pointing, Target};
use super::super::view;
use super::screens::sessions;
use super::{Play, check};

/// Draws, so that the model knows all targets.
fn draw(play: &mut Play) {
    let Size { width, height } = play.model.size;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("BUG: a backend in memory");
    let mut spots = Vec::new();
    terminal
        .draw(|frame| spots = view(&play.model, frame.area(), frame.buffer_mut()).spots)
        .expect("BUG: it can be drawn");
    play.model.spots = spots;
}

/// Points at the first target for which `is_it` holds.
fn point(play: &mut Play, does: Pointing, is_it: impl Fn(&Target) -> bool) {
    draw(play);
    let spot = play.model.spots.iter().find(|spot| is_it(&spot.target)).expect("it is on the screen").area;
    play.event(Event::Pointed(Position::new(spot.x, spot.y), does));
}

#[test]
fn clicks_select_and_open() {
    let mut play = Play::new();
    let is_entry = |target: &Target| matches!(target, Target::Entry(_));
    point(&mut play, Pointing::Click, is_entry);
    let chosen = play.model.session.as_ref().and_then(|session| session.cursor.clone());
    assert!(chosen.is_some());
    let is_chosen = move |target: &Target| matches!(target, Target::Entry(key) if Some(key) == chosen.as_ref());
    point(&mut play, Pointing::Click, is_chosen);
    assert!(matches!(play.model.session.as_ref().expect("attached").focus, Focus::Reading(_)));
    play.step("key Esc");
    point(&mut play, Pointing::WheelUp, |target| *target == Target::Timeline);
    play.event(Event::Listed(sessions()));
    point(&mut play, Pointing::Click, |target| *target == Target::Elsewhere);
    assert!(play.done.remove(0).starts_with("Attach { id: \"waits\""));
    play.model.session = None;
    let is_idle = |target: &Target| *target == Target::Session("idle".to_owned());
    point(&mut play, Pointing::Click, is_idle);
    assert_eq!(play.model.list.chosen.as_deref(), Some("idle"));
    point(&mut play, Pointing::Click, is_idle);
    assert!(play.done.remove(0).starts_with("Attach { id: \"idle\""));
}

#[test]
fn no_click_answers_a_request() {
    for asked in ["command", "patch", "risky", "questions", "elicitation"] {
        for size in ["80x24", "120x40", "40x12"] {
            let mut play = check(&format!("resize {size}\nasks {asked}=g-0\nkey ^R\nwait 600"));
            for _ in 0..3 {
                draw(&mut play);
                let spots: Vec<_> = play.model.spots.iter().map(|spot| spot.area).collect();
                for area in spots {
                    let position = Position::new(area.x + area.width / 2, area.y + area.height / 2);
                    for does in [Pointing::Click, Pointing::WheelDown, Pointing::WheelUp] {
                        play.event(Event::Pointed(position, does));
                    }
                }
            }
            play.done.retain(|done| done.starts_with("respond"));
            assert_eq!(play.done, [""; 0], "{asked} {size}");
        }
    }
}

#[test]
fn options_files_and_diffs_take_the_mouse() {
    let mut play = check("asks questions=g-0\nkey ^R\nwait 600");
    point(&mut play, Pointing::Click, |target| *target == Target::Option(1));
    play.step("key Enter");
    play.step("type k");
    play.step("key Enter Enter");
    assert_eq!(play.done.remove(0), "respond g-0 {\"answers\":{\"color\":[\"Blue\"],\"key\":[\"k\"]}}");
    let mut play = super::reviewing::reviewed();
    point(&mut play, Pointing::Click, |target| *target == Target::File(3));
    let line = |play: &Play| {
        let Focus::Reading(reading) = &play.model.session.as_ref().expect("attached").focus else { panic!("a review") };
        reading.doc().text_of(reading.at.line).to_owned()
    };
    assert_eq!(line(&play), "src/file03.rs  changed");
    point(&mut play, Pointing::WheelDown, |target| *target == Target::Document);
    assert_ne!(line(&play), "src/file03.rs  changed");
    play.step("key F2");
    assert_eq!(play.done.remove(0), "Mouse(Left)");
}
