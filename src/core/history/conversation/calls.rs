//! Calls to the server that have no answer yet: what their answers are about.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::bounded::Weigh;
use super::super::identity::masked_settings;
use super::super::past::Order;
use super::super::record_event::MethodMessage;
use super::super::review::Overruled;
use super::super::turn::accepted_turn;
use super::{Change, Conversation, Step};
use crate::protocol::{ItemPlace, Method, ThreadSettings};

/// A call to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::history) struct Call {
    pub(in crate::history) method: String,
    pub(in crate::history) thread_id: Option<String>,
    /// What the turn that it starts chooses for its thread, if the server accepts it.
    #[serde(default)]
    pub(in crate::history) chosen: Option<Box<ThreadSettings>>,
    /// The denial that it overrules.
    #[serde(default)]
    pub(in crate::history) overrules: Option<Box<Overruled>>,
    /// The order of the lists in its answer.
    #[serde(default)]
    pub(in crate::history) order: Order,
}

impl Weigh for Call {
    fn weight(&self) -> usize {
        let chosen = self.chosen.as_ref().map_or(0, |chosen| chosen.cwd.weight() + chosen.model.weight());
        self.method.weight() + self.thread_id.weight() + chosen + self.overrules.as_ref().map_or(0, |it| it.weight())
    }
}

impl Call {
    pub(super) fn of(message: &MethodMessage<'_>) -> Call {
        let overrules = match message.known {
            Some(Method::ThreadApproveDenied) => Overruled::of(message.params).map(Box::new),
            _ => None,
        };
        let starts_turn = message.known == Some(Method::TurnStart);
        let chosen =
            Some(message).filter(|_| starts_turn).and_then(|message| masked_settings(&message.params.members()?));
        Call {
            chosen: chosen.map(Box::new),
            method: message.method.clone().into_owned(),
            thread_id: message.place.thread_id.as_deref().map(str::to_owned),
            overrules,
            order: Order::asked(message.known, message.params),
        }
    }
}

impl Conversation {
    /// The response to a call may accept a turn.
    pub(super) fn accepted(&mut self, call: Option<&Call>, result: Option<&RawValue>, step: &mut Step<'_>) {
        let Some(call) = call.filter(|call| Method::of(&call.method) == Some(Method::TurnStart)) else { return };
        if let (Some(_), Some(turn_id)) = (&call.thread_id, result.and_then(accepted_turn)) {
            let place = ItemPlace { thread_id: call.thread_id.clone(), ..ItemPlace::default() };
            let at_us = step.at_us;
            self.thread(&place, step, |thread| thread.accepts(turn_id, at_us));
        }
    }

    /// An accepted turn never began: it has failed.
    pub(super) fn not_started<'a>(&mut self, data: Option<&RawValue>, step: &mut Step<'_>) -> Change<'a> {
        #[derive(Deserialize)]
        struct NotStarted {
            thread_id: String,
            turn_id: String,
            error: Option<String>,
        }
        let Some(NotStarted { thread_id, turn_id, error }) =
            data.and_then(|data| serde_json::from_str(data.get()).ok())
        else {
            return Change::None;
        };
        let place = ItemPlace { thread_id: Some(thread_id), ..ItemPlace::default() };
        let at_us = step.at_us;
        let why = format!("the server has not begun it{}", error.map(|error| format!(": {error}")).unwrap_or_default());
        let turn = self.thread(&place, step, |thread| thread.never_started(&turn_id, why, at_us));
        step.lost.turns.extend(turn.flatten().map(|turn| (place.thread_id.clone(), turn)));
        Change::None
    }
}

#[cfg(test)]
mod tests {
    use crate::history::properties::play;

    #[test]
    fn turn_that_never_began_has_failed() {
        let accepted = "2 >1 turn/start t\n3 =1 {\"turn\":{\"id\":\"u\"}}\n";
        let status = |kind: &str| format!("4 < thread/status/changed t {{\"status\":{{\"type\":\"{kind}\"}}}}\n");
        let (active, idle) = (status("active"), status("idle"));
        let note =
            "5 ! turn_not_started {\"thread_id\":\"t\",\"turn_id\":\"u\",\"status\":\"idle\",\"error\":\"no\"}\n";
        let cases = [
            format!("{accepted}{note}"),
            format!("{accepted}{active}{idle}{note}"),
            format!("{active}{accepted}{idle}{note}"),
            format!("{accepted}{active}{idle}{note}{note}{idle}"),
        ];
        for actual in cases {
            let (_, rows) = play(&actual);
            let told = rows
                .turns
                .iter()
                .map(|row| (row.event_type.name(), row.turn_id.as_deref(), row.error_message.as_deref()));
            let expect = [("failed", Some("u"), Some("the server has not begun it: no"))];
            assert_eq!(told.collect::<Vec<_>>(), expect, "{actual}");
        }
        let begun = format!("{accepted}4 < turn/started t/u\n{note}");
        assert!(play(&begun).1.turns.iter().all(|row| row.event_type.name() == "started"));
    }
}
