//! What rules must know about the server and its threads before they accept a command.

use serde_json::value::RawValue;

use super::Requests;
use super::kind::RequestKind;
use crate::protocol::{Event, Method};
use crate::wire::Members;

/// The first version of codex that asks before the model types into a running program.
const ASKS_ABOUT_INPUT_SINCE: (u64, u64) = (0, 169);

/// Whether a released version asks. 0.150 is known not to.
fn asks_about_input(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor, patch) = (parts.next().flatten(), parts.next().flatten(), parts.next().flatten());
    let is_release = patch.is_some() && parts.next().is_none();
    is_release && major.zip(minor).is_some_and(|version| version >= ASKS_ABOUT_INPUT_SINCE)
}

/// Whether an answer to a request can let the model write in more places, or may.
fn asks_for_more(method: &str, params: Option<&RawValue>) -> bool {
    let root = params.and_then(Members::of).and_then(|params| params.get("grantRoot"));
    let kind = RequestKind::of(method);
    matches!(kind, Some(RequestKind::Permissions | RequestKind::Other)) || root.is_some_and(|root| root.get() != "null")
}

impl Requests {
    /// The server has told its version, or none that can be read.
    pub(in crate::engine) fn server_is(&mut self, version: Option<&str>) {
        self.asks_about_input = version.is_some_and(asks_about_input);
    }

    /// The server asks for something, also if the request is not opened here.
    pub(in crate::engine) fn server_asks(&mut self, method: &str, params: Option<&RawValue>) {
        if asks_for_more(method, params) {
            self.workspaces.asks_for_more();
        }
    }

    /// The server answers a call that opens a thread.
    pub(in crate::engine) fn thread_opened(&mut self, result: Option<&RawValue>) {
        self.workspaces.thread_opened(result);
    }

    /// The commands of a thread get variables of a client that decide which programs they run.
    pub(in crate::engine) fn variables_given(&mut self, thread_id: &str) {
        self.workspaces.variables_given(thread_id);
    }

    pub(in crate::engine) fn has_variables(&self, thread_id: &str) -> bool {
        self.workspaces.has_variables(thread_id)
    }

    /// A client calls the server; some calls change where the model may write.
    pub(in crate::engine) fn settings_called(&mut self, event: &Event<'_>) {
        if matches!(event.method, Some(Method::TurnStart | Method::ThreadSettingsUpdate)) {
            self.workspaces.settings_called(event.params);
        }
    }
}
