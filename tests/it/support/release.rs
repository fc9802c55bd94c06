//! The releases of codex that the tests know: where each is installed, what its model has to say, and what it lacks.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::model::Item;

/// The release that is tried unless `CODEX_VERSION` names another; the Makefile's.
const NEWEST: Release = Release { minor: 169 };

/// A release of codex, 0.`minor`.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    minor: u32,
}

/// What not every release has that is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// `thread/loaded/list` and `thread/read`.
    ThreadRead,
    /// `thread/compact/start`.
    Compaction,
    /// The tool `request_user_input`.
    Questions,
    /// The same in a turn that is not one in plan mode.
    QuestionsInDefaultMode,
    /// `turn/steer`.
    Steering,
    /// `thread/inject_items`.
    InjectItems,
    /// What is injected into a new thread has no part in its name.
    NamesWithoutInjections,
    /// `serverRequest/resolved`.
    Confirmation,
    /// The tool `request_permissions`.
    Permissions,
    /// MCP servers that ask the user.
    Elicitation,
    /// The tool `spawn_agent`.
    SubAgents,
    /// `thread/resume` of a thread that is loaded asks again what is open.
    AskingAgain,
    /// It ends where its stdin does, also in the middle of a turn.
    EndingInMidTurn,
}

impl Ability {
    /// What it is, so that one can say that a release has none.
    fn name(self) -> &'static str {
        match self {
            Ability::ThreadRead => "thread/read",
            Ability::Compaction => "thread/compact/start",
            Ability::Questions => "request_user_input",
            Ability::QuestionsInDefaultMode => "request_user_input outside of plan mode",
            Ability::Steering => "turn/steer",
            Ability::InjectItems => "thread/inject_items",
            Ability::NamesWithoutInjections => "names of threads that leave out what was injected",
            Ability::Confirmation => "serverRequest/resolved",
            Ability::Permissions => "request_permissions",
            Ability::Elicitation => "elicitations of MCP servers",
            Ability::SubAgents => "sub-agents",
            Ability::AskingAgain => "asking again on thread/resume",
            Ability::EndingInMidTurn => "end in the middle of a turn when its stdin ends",
        }
    }
}

impl Release {
    /// The newest, or the one that `CODEX_VERSION` names.
    ///
    /// # Panics
    ///
    /// Where that is no version of the form `0.N.0`.
    #[expect(clippy::disallowed_methods, reason = "the one thing that a test is told by its environment")]
    pub fn under_test() -> Release {
        let Some(name) = std::env::var_os("CODEX_VERSION") else { return NEWEST };
        let minor = name.to_str().and_then(|name| name.strip_prefix("0.")?.strip_suffix(".0")?.parse().ok());
        Release { minor: minor.unwrap_or_else(|| panic!("CODEX_VERSION is {name:?}, and not of the form 0.N.0")) }
    }

    pub fn newest() -> Release {
        NEWEST
    }

    /// Where `make codex` and `make e2e-versions` put it.
    pub fn path(self) -> PathBuf {
        let folder = if self == NEWEST { "target/codex".to_owned() } else { format!("target/codex-{self}") };
        Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("node_modules/.bin/codex")
    }

    /// A model that it knows, so that it offers all of its tools.
    pub fn model_name(self) -> &'static str {
        match self.minor {
            ..98 => "gpt-5.1-codex-max",
            98..125 => "gpt-5.2-codex",
            125.. => "gpt-5.5",
        }
    }

    /// A command that does nothing much, and for which it asks all the same if it is to run outside of the sandbox.
    pub fn harmless(self) -> &'static str {
        match self.minor {
            // These know `echo` for safe.
            ..135 => "touch relayed && echo relayed",
            135.. => "echo relayed",
        }
    }

    /// A command that the model runs within the sandbox.
    pub fn command(self, cmd: &str) -> Item {
        match self.minor {
            ..98 => Item::Call { name: "shell_command", arguments: json!({"command": cmd}) },
            98.. => Item::Call { name: "exec_command", arguments: json!({"cmd": cmd}) },
        }
    }

    /// A call of the tool `confirm` of the MCP server `lab`.
    pub fn mcp_tool(self) -> Item {
        let arguments = json!({});
        match self.minor {
            ..135 => Item::CallOf { namespace: "mcp__lab__", name: "confirm", arguments },
            135.. => Item::CallOf { namespace: "mcp__lab", name: "confirm", arguments },
        }
    }

    /// A call that starts a sub-agent.
    pub fn sub_agent(self) -> Item {
        let mut arguments = json!({"message": "help me"});
        match self.minor {
            ..135 => Item::Call { name: "spawn_agent", arguments },
            135.. => {
                arguments["task_name"] = "t1".into();
                Item::CallOf { namespace: "multi_agent_v1", name: "spawn_agent", arguments }
            }
        }
    }

    /// One for which codex has to ask.
    pub fn command_to_be_approved(self, cmd: &str) -> Item {
        let Item::Call { name, mut arguments } = self.command(cmd) else { unreachable!("it is a call") };
        arguments["sandbox_permissions"] = "require_escalated".into();
        arguments["justification"] = "ok?".into();
        Item::Call { name, arguments }
    }

    /// Whether it has this; as seen with each release that is tried.
    pub fn has(self, ability: Ability) -> bool {
        match ability {
            Ability::ThreadRead | Ability::Compaction | Ability::Questions => self.minor >= 98,
            Ability::QuestionsInDefaultMode
            | Ability::Steering
            | Ability::InjectItems
            | Ability::Confirmation
            | Ability::Permissions
            | Ability::Elicitation
            | Ability::SubAgents
            | Ability::AskingAgain => self.minor >= 125,
            Ability::NamesWithoutInjections => self.minor >= 135,
            Ability::EndingInMidTurn => self.minor != 98,
        }
    }

    /// Whether it lacks what a test is about, which is then said loudly.
    pub fn lacks(self, test: &str, ability: Ability) -> bool {
        let lacks = !self.has(ability);
        if lacks {
            // Past the capture of the test's output: a skipped test must be seen.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: codex {self} has no {}", ability.name());
        }
        lacks
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "0.{}.0", self.minor)
    }
}
