//! The releases of codex that the tests know: where each is installed, its model's messages, and its missing abilities.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::model::Item;

/// The default release unless `CODEX_VERSION` names another; the same as in the Makefile.
const NEWEST: Release = Release { minor: 171 };

/// A release of codex, 0.`minor`.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    minor: u32,
}

/// Abilities that some of the tested releases lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// `thread/loaded/list` and `thread/read`.
    ThreadRead,
    /// `thread/compact/start`.
    Compaction,
    /// The tool `request_user_input`.
    Questions,
    /// The same in a turn outside plan mode.
    QuestionsInDefaultMode,
    /// `turn/steer`.
    Steering,
    /// `thread/inject_items`.
    InjectItems,
    /// Items injected into a new thread do not affect its name.
    NamesWithoutInjections,
    /// `serverRequest/resolved`.
    Confirmation,
    /// The tool `request_permissions`.
    Permissions,
    /// MCP servers that ask the user.
    Elicitation,
    /// The tool `spawn_agent`.
    SubAgents,
    /// `thread/resume` of a loaded thread repeats its open requests.
    AskingAgain,
    /// `thread/tokenUsage/updated` follows the answer to `thread/resume`.
    UsageOnResume,
    /// codex exits at the end of its stdin, even during a turn.
    EndingInMidTurn,
    /// The TUI joins a server that listens in codex's home.
    SharedServer,
    /// The TUI connects again if it loses that server.
    Reconnection,
    /// A reviewer of codex's own approves or denies in place of the user, and a denial can be overruled.
    AutoReview,
    /// An approval before the model types into a running program.
    AskingAboutInput,
    /// The TUI asks the model for a title of a thread, in a thread of its own.
    Titles,
    /// The TUI shows that title.
    ShownTitles,
    /// Its sandbox hides the folder of its sockets.
    HiddenSockets,
    /// `codex queue`.
    Queue,
    /// `thread/items/list`.
    Pages,
    /// Patches that delete a file outside of the sandbox, once they are approved.
    Deletion,
    /// `thread/search`.
    Search,
    /// `thread/searchOccurrences`.
    Occurrences,
    /// A server that is told to end while a turn runs refuses new threads.
    Draining,
}

impl Ability {
    /// Its name in messages about a release without it.
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
            Ability::UsageOnResume => "usage of tokens after thread/resume",
            Ability::EndingInMidTurn => "end in the middle of a turn when its stdin ends",
            Ability::SharedServer => "TUI that joins a server",
            Ability::Reconnection => "TUI that connects again",
            Ability::AutoReview => "reviewer of its own whose denials can be overruled",
            Ability::AskingAboutInput => "approvals of input for running programs",
            Ability::HiddenSockets => "sandbox that hides its sockets",
            Ability::Queue => "codex queue",
            Ability::Titles => "titles that the TUI asks for",
            Ability::ShownTitles => "titles that the TUI asks for and shows",
            Ability::Pages => "thread/items/list",
            Ability::Deletion => "approved patches that delete a file",
            Ability::Search => "thread/search",
            Ability::Occurrences => "thread/searchOccurrences",
            Ability::Draining => "refusal of new threads while it shuts down",
        }
    }
}

impl Release {
    /// The newest, or the one that `CODEX_VERSION` names.
    ///
    /// # Panics
    ///
    /// If that is not a version of the form `0.N.0`.
    #[expect(clippy::disallowed_methods, reason = "the one thing that a test is told by its environment")]
    pub fn under_test() -> Release {
        let Some(name) = std::env::var_os("CODEX_VERSION") else { return NEWEST };
        let minor = name.to_str().and_then(|name| name.strip_prefix("0.")?.strip_suffix(".0")?.parse().ok());
        Release { minor: minor.unwrap_or_else(|| panic!("CODEX_VERSION is {name:?}, and not of the form 0.N.0")) }
    }

    /// 0.`minor`.0
    pub fn of_minor(minor: u32) -> Release {
        Release { minor }
    }

    pub fn newest() -> Release {
        NEWEST
    }

    /// A folder for a lab. From 0.135 on, until some release before 0.169, the sandbox has a `/dev` of its own, in which a patch
    /// finds no file.
    pub fn folder(self) -> tempfile::TempDir {
        let is_hidden = (135..169).contains(&self.minor) && std::env::temp_dir().starts_with("/dev");
        let folder = if is_hidden { tempfile::tempdir_in("/tmp") } else { tempfile::tempdir() };
        folder.expect("a temporary folder")
    }

    /// The path used by `make codex` and `make e2e-versions`.
    pub fn path(self) -> PathBuf {
        let folder = if self == NEWEST { "target/codex".to_owned() } else { format!("target/codex-{self}") };
        Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("node_modules/.bin/codex")
    }

    /// A model that the release knows, so that it offers all of its tools.
    pub fn model_name(self) -> &'static str {
        match self.minor {
            ..98 => "gpt-5.1-codex-max",
            98..125 => "gpt-5.2-codex",
            125.. => "gpt-5.5",
        }
    }

    /// A harmless command that codex still asks about if it runs outside the sandbox.
    pub fn harmless(self) -> &'static str {
        match self.minor {
            // These releases consider `echo` safe.
            ..135 => "touch relayed && echo relayed",
            135.. => "echo relayed",
        }
    }

    /// A command of git that codex asks about if it runs outside the sandbox.
    pub fn git_command(self) -> &'static str {
        match self.minor {
            // These releases consider `git status` safe.
            ..135 => "git stash list",
            135.. => "git status",
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

    /// A command that needs approval.
    pub fn command_to_be_approved(self, cmd: &str) -> Item {
        let Item::Call { name, mut arguments } = self.command(cmd) else { unreachable!("it is a call") };
        arguments["sandbox_permissions"] = "require_escalated".into();
        arguments["justification"] = "ok?".into();
        Item::Call { name, arguments }
    }

    /// Whether the release has this ability, as observed with each tested release.
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
            | Ability::Deletion
            | Ability::AskingAgain
            | Ability::UsageOnResume => self.minor >= 125,
            Ability::NamesWithoutInjections | Ability::SharedServer | Ability::Search => self.minor >= 135,
            Ability::Titles => self.minor >= 150,
            Ability::Reconnection => self.minor >= 153,
            // 0.125 reviews, too, but tells its model less of what was overruled. Those between were not tried.
            Ability::AutoReview => self.minor >= 150,
            // Those between 0.150 and 0.169 were not tried.
            Ability::AskingAboutInput
            | Ability::HiddenSockets
            | Ability::Queue
            | Ability::Pages
            | Ability::Occurrences
            | Ability::ShownTitles
            | Ability::Draining => self.minor >= 169,
            Ability::EndingInMidTurn => self.minor != 98,
        }
    }

    /// Whether the release lacks the ability under test; prints that the test is skipped then.
    pub fn lacks(self, test: &str, ability: Ability) -> bool {
        let lacks = !self.has(ability);
        if lacks {
            // The harness captures stdout, so write to stderr directly: a skipped test must be visible.
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
