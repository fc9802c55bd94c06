//! The hub becomes another program: its engine, its record and its links go on as their states say, and its ends are the same.

use std::convert::Infallible;

use codex_shim::testing::driver::{Driver, HubLinks};
use codex_shim::testing::engine::Input;
use codex_shim::testing::journal::{IndexedTo, Writer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::canary::Canary;
use super::super::happened::Event;
use super::wire::Wire;
use super::world::{BOUNDS, HubWorld};

/// The same, as the other program reads it.
fn read_again<T: Serialize, U: DeserializeOwned>(written: &T, spoil: impl FnOnce(&mut Value)) -> U {
    let text = serde_json::to_string(written).expect("BUG: nothing is in progress");
    let mut state: Value = serde_json::from_str(&text).expect("BUG: it is JSON");
    let written = state.clone();
    spoil(&mut state);
    // The next program reads the same bytes.
    let text = if state == written { text } else { state.to_string() };
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("BUG: it cannot be read: {error}: {state}"))
}

impl HubWorld {
    /// The hub becomes another program, if nothing is in progress.
    pub fn hands_over(&mut self) {
        let Some(driver) = self.driver.take() else { return };
        let waits = !self.ledger.jobs.is_empty() || driver.links.iter().any(|(_, link)| link.is_held());
        let is_due = self.hub.as_ref().is_some_and(|hub| {
            let waits = waits || !hub.checks.is_empty() || !hub.reads.is_empty() || hub.has_refused();
            !waits && hub.engine.is_at_rest()
        });
        let Some(hub) = self.hub.as_mut().filter(|_| is_due) else {
            self.driver = Some(driver);
            return;
        };
        self.house.say(|| "the hub becomes another program".to_owned());
        self.house.happened.count(Event::Handover);
        let canary = self.house.canary;
        let arrival = hub.engine.arrival();
        hub.engine = read_again(&hub.engine, |state| match canary {
            Canary::LosesRequestsOver => state["requests"]["open"] = json!([]),
            Canary::LosesLeasesOver => state["context"]["waiting"] = json!([]),
            Canary::LosesCallsOver => state["calls"]["to_server"]["calls"] = json!([]),
            _ => {}
        });
        hub.engine.check_arrival(&read_again(&arrival, |_| ()));
        let state = read_again(&hub.writer.state(), |state| {
            if canary == Canary::RecordsOverAgain {
                state["header"]["segment"] = json!(0);
            }
        });
        hub.writer =
            Writer::taken_over(self.house.journal(), state, BOUNDS, IndexedTo::default()).expect("BUG: it is one");
        let mut ends: Vec<Wire> = Vec::new();
        let Ok(numbered) = driver.links.try_map(|end| {
            ends.push(end);
            Ok::<usize, Infallible>(ends.len() - 1)
        });
        let numbered: HubLinks<usize> = read_again(&numbered, |state| {
            for link in state["links"].as_object_mut().into_iter().flat_map(|links| links.values_mut()) {
                if canary == Canary::LosesQueuesOver && link["client"].is_object() {
                    link["client"]["queue"] = json!([]);
                }
            }
        });
        let Ok(links) = numbered.try_map(|number| Ok::<Wire, Infallible>(ends[number].clone()));
        self.driver = Some(Driver::new(links));
        let (now, settings) = (self.now(), self.engine_settings());
        self.hub.iter_mut().for_each(|hub| hub.engine.taken_over(now, settings.clone()));
        // The other program opens the ledger anew.
        let server_run = self.server_run.clone().unwrap_or_default();
        let ended = self.ledger.ended_in(&server_run);
        self.tell(Input::SessionOpened { generation: server_run });
        self.contents(ended).into_iter().for_each(|input| self.tell(input));
    }
}
