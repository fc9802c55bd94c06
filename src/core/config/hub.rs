//! The settings of a hub: `[hub]`.

use super::kind::names;
use super::section;

section! {
    pub struct HubChoice of "hub", such as "environment = [\"PATH\"]" {
        /// The variables of a client's process that the commands of its threads get; `None` is the same as none.
        environment: Option<Vec<String>> = names(), "CODEX_SHIM_HUB_ENVIRONMENT";
    }
}
