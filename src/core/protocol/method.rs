//! The methods that this program knows, in one table, and the rules for methods that carry secrets.
//!
//! A row has a method's name, its list in the schema, the secrecy of its messages, and the fields that this program
//! reads or writes. Messages of other methods are forwarded and recorded without further inspection.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The message list of codex's schema that contains a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    ClientRequest,
    ServerRequest,
    ServerNotification,
    /// Not checked against a list: the method is optional, or from an older release.
    Unchecked,
}

impl Listed {
    /// The file of the schema, without `.json`.
    pub fn file(self) -> Option<&'static str> {
        match self {
            Listed::ClientRequest => Some("ClientRequest"),
            Listed::ServerRequest => Some("ServerRequest"),
            Listed::ServerNotification => Some("ServerNotification"),
            Listed::Unchecked => None,
        }
    }
}

/// Which messages of a method are secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    Open,
    /// The message and its answer.
    Secret,
    /// The message, if a configuration key that it writes names a secret.
    ConfigWrite,
    /// The answer, if a question has `isSecret`.
    Question,
    /// The fields of the answer that the requested schema marks as secret.
    Form,
    /// Some members of the parameters or of the answer.
    Members,
}

macro_rules! methods {
    ($($variant:ident = $name:literal, $listed:ident, $secrecy:ident, [$($field:literal),* $(,)?];)*) => {
        /// A method that this program knows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Method { $($variant),* }

        impl Method {
            /// All methods, in the order of the table.
            pub const ALL: &[Method] = &[$(Method::$variant),*];

            /// Resolves a name; `None` if this program does not know the method.
            pub fn of(name: &str) -> Option<Method> {
                match name {
                    $($name => Some(Method::$variant),)*
                    _ => None,
                }
            }

            pub const fn name(self) -> &'static str {
                match self { $(Method::$variant => $name),* }
            }

            pub fn listed(self) -> Listed {
                match self { $(Method::$variant => Listed::$listed),* }
            }

            pub(super) fn secrecy(self) -> Secrecy {
                match self { $(Method::$variant => Secrecy::$secrecy),* }
            }

            /// Paths in `params` of the fields that this program uses. A path omits steps into lists.
            pub fn fields(self) -> &'static [&'static str] {
                match self { $(Method::$variant => &[$($field),*]),* }
            }
        }
    };
}

methods! {
    // Requests of the client.
    Initialize = "initialize", ClientRequest, Open, ["clientInfo.name", "capabilities.optOutNotificationMethods"];
    ThreadStart = "thread/start", ClientRequest, Members, [
        "developerInstructions", "dynamicTools.name", "ephemeral", "threadSource"
    ];
    ThreadResume = "thread/resume", ClientRequest, Members, ["threadId", "developerInstructions"];
    ThreadFork = "thread/fork", ClientRequest, Members, ["threadId"];
    ThreadUnsubscribe = "thread/unsubscribe", ClientRequest, Open, ["threadId"];
    ThreadRead = "thread/read", ClientRequest, Open, ["threadId", "includeTurns"];
    ThreadTurnsList = "thread/turns/list", ClientRequest, Open, ["threadId", "sortDirection", "itemsView", "limit"];
    ThreadItemsList = "thread/items/list", ClientRequest, Open, ["threadId", "sortDirection"];
    ThreadList = "thread/list", ClientRequest, Open, ["cursor"];
    ThreadInjectItems = "thread/inject_items", ClientRequest, Open, [
        "threadId", "items.type", "items.role", "items.content.text"
    ];
    ThreadCompactStart = "thread/compact/start", ClientRequest, Open, ["threadId"];
    TurnStart = "turn/start", ClientRequest, Open, [
        "threadId", "input.type", "input.text", "input.text_elements", "cwd", "sandboxPolicy"
    ];
    ThreadSettingsUpdate = "thread/settings/update", Unchecked, Open, [];
    TurnSteer = "turn/steer", ClientRequest, Open, [
        "threadId", "expectedTurnId", "input.type", "input.text", "input.text_elements"
    ];
    TurnInterrupt = "turn/interrupt", ClientRequest, Open, ["threadId", "turnId"];
    ThreadApproveDenied = "thread/approveGuardianDeniedAction", ClientRequest, Open, ["threadId", "event"];

    // Requests of the server.
    CommandApproval = "item/commandExecution/requestApproval", ServerRequest, Open, [
        "threadId", "turnId", "itemId", "command", "reason", "availableDecisions",
        "networkApprovalContext.host"
    ];
    FileChangeApproval = "item/fileChange/requestApproval", ServerRequest, Open, [
        "threadId", "turnId", "itemId", "reason", "grantRoot"
    ];
    PermissionsApproval = "item/permissions/requestApproval", ServerRequest, Open, [
        "threadId", "turnId", "itemId", "permissions", "reason"
    ];
    UserInput = "item/tool/requestUserInput", ServerRequest, Question, [
        "threadId", "turnId", "itemId", "questions.id", "questions.question", "questions.isSecret",
        "questions.options.label"
    ];
    ToolCall = "item/tool/call", ServerRequest, Open, ["threadId", "turnId", "callId", "tool", "arguments"];
    Elicitation = "mcpServer/elicitation/request", ServerRequest, Form, [
        "threadId", "serverName", "mode", "message", "requestedSchema", "url"
    ];
    // Only clients answer it, and 0.171 has it no more.
    CurrentTimeRead = "currentTime/read", Unchecked, Open, [];

    // A question of codex-shim itself, in the form of `item/tool/requestUserInput`.
    BudgetQuestion = "codexShim/budget", Unchecked, Question, [];

    // Notifications of the server.
    Error = "error", ServerNotification, Open, [
        "threadId", "turnId", "willRetry", "error.message", "error.codexErrorInfo"
    ];
    ThreadStarted = "thread/started", ServerNotification, Open, ["thread.id", "thread.preview", "thread.cwd"];
    ThreadStatusChanged = "thread/status/changed", ServerNotification, Open, [
        "threadId", "status.type", "status.activeFlags"
    ];
    ThreadSettingsUpdated = "thread/settings/updated", ServerNotification, Open, [
        "threadId", "threadSettings.cwd", "threadSettings.sandboxPolicy", "threadSettings.activePermissionProfile.id"
    ];
    ThreadNameUpdated = "thread/name/updated", ServerNotification, Open, ["threadId", "threadName"];
    ThreadClosed = "thread/closed", ServerNotification, Open, ["threadId"];
    ThreadCompacted = "thread/compacted", ServerNotification, Open, ["threadId"];
    TokenUsageUpdated = "thread/tokenUsage/updated", ServerNotification, Open, [
        "threadId", "turnId", "tokenUsage.total.totalTokens", "tokenUsage.total.inputTokens",
        "tokenUsage.total.cachedInputTokens", "tokenUsage.total.outputTokens",
        "tokenUsage.total.reasoningOutputTokens", "tokenUsage.last.totalTokens", "tokenUsage.last.inputTokens",
        "tokenUsage.last.outputTokens", "tokenUsage.modelContextWindow"
    ];
    TurnStarted = "turn/started", ServerNotification, Open, ["threadId", "turn.id", "turn.status"];
    TurnCompleted = "turn/completed", ServerNotification, Open, [
        "threadId", "turn.id", "turn.status", "turn.error.message", "turn.error.codexErrorInfo"
    ];
    PlanUpdated = "turn/plan/updated", ServerNotification, Open, [
        "threadId", "turnId", "explanation", "plan.step", "plan.status"
    ];
    DiffUpdated = "turn/diff/updated", ServerNotification, Open, ["threadId", "turnId", "diff"];
    ItemStarted = "item/started", ServerNotification, Open, [
        "threadId", "turnId", "item.id", "item.type", "item.status", "item.command", "item.changes.path",
        "item.changes.kind", "item.tool", "item.server", "item.arguments", "item.content.text"
    ];
    ItemCompleted = "item/completed", ServerNotification, Open, [
        "threadId", "turnId", "item.id", "item.type", "item.status", "item.text", "item.exitCode",
        "item.durationMs", "item.aggregatedOutput", "item.changes.diff", "item.error", "item.result"
    ];
    AgentMessageDelta = "item/agentMessage/delta", ServerNotification, Open, [
        "threadId", "turnId", "itemId", "delta"
    ];
    PlanDelta = "item/plan/delta", ServerNotification, Open, ["itemId", "delta"];
    ReasoningTextDelta = "item/reasoning/textDelta", ServerNotification, Open, ["itemId", "delta", "contentIndex"];
    ReasoningSummaryTextDelta = "item/reasoning/summaryTextDelta", ServerNotification, Open, [
        "itemId", "delta", "summaryIndex"
    ];
    CommandOutputDelta = "item/commandExecution/outputDelta", ServerNotification, Open, ["itemId", "delta"];
    TerminalInteraction = "item/commandExecution/terminalInteraction", ServerNotification, Open, [
        "itemId", "stdin"
    ];
    RequestResolved = "serverRequest/resolved", ServerNotification, Open, ["threadId", "requestId"];
    ReviewStarted = "item/autoApprovalReview/started", ServerNotification, Open, [
        "threadId", "turnId", "targetItemId", "reviewId", "review.status", "action.type", "action.command", "action.cwd",
        "action.files", "action.program", "action.argv", "action.target", "action.server",
        "action.toolName", "action.permissions"
    ];
    ReviewCompleted = "item/autoApprovalReview/completed", ServerNotification, Open, [
        "threadId", "turnId", "targetItemId", "reviewId", "decisionSource",
        "review.status", "review.riskLevel", "review.userAuthorization", "review.rationale", "action.type",
        "action.command", "action.cwd", "action.files", "action.program", "action.argv",
        "action.target", "action.server", "action.toolName", "action.permissions"
    ];
    RateLimitsUpdated = "account/rateLimits/updated", ServerNotification, Secret, [
        "rateLimits.limitId", "rateLimits.primary.usedPercent", "rateLimits.primary.windowDurationMins",
        "rateLimits.primary.resetsAt", "rateLimits.secondary.usedPercent"
    ];
    // Missing from the schema's list of their kind, or from older releases.
    ThreadItemsRead = "thread/items/read", Unchecked, Open, [];
    ThreadSearchPartial = "thread/search/partial", Unchecked, Open, [];
    ThreadSearchCancel = "thread/search/cancel", Unchecked, Open, [];
    ThreadSearchStreamCancel = "thread/search/stream/cancel", Unchecked, Open, [];
    ThreadSampleCancel = "thread/sample/cancel", Unchecked, Open, [];
    UserVerificationCancel = "userVerification/cancel", Unchecked, Secret, [];
    DeprecationNotice = "deprecationNotice", Unchecked, Open, ["summary"];
    ConfigWarning = "configWarning", Unchecked, Open, [];
    ThreadTimelineList = "thread/timeline/list", Unchecked, Open, [];
    Initialized = "initialized", Unchecked, Open, [];
    RawResponseItemCompleted = "rawResponseItem/completed", Unchecked, Open, [];
    TokenCount = "codex/event/token_count", Unchecked, Members, [];
    EarlyRawResponseItem = "codex/event/raw_response_item", Unchecked, Open, [];
    ReasoningSummaryPartAdded = "item/reasoning/summaryPartAdded", Unchecked, Open, [];
    ToolCallProgress = "item/mcpToolCall/progress", Unchecked, Open, [];
    PatchUpdated = "item/fileChange/patchUpdated", Unchecked, Open, [];
    EarlyCommandApproval = "execCommandApproval", Unchecked, Open, [];
    EarlyPatchApproval = "applyPatchApproval", Unchecked, Open, [];
    NewConversation = "newConversation", Unchecked, Members, [];
    ResumeConversation = "resumeConversation", Unchecked, Members, [];
    ForkConversation = "forkConversation", Unchecked, Members, [];
    ExecOneOffCommand = "execOneOffCommand", Unchecked, Members, [];
    GetUserSavedConfig = "getUserSavedConfig", Unchecked, Members, [];
    ThreadRealtimeStart = "thread/realtime/start", Unchecked, Members, [];
    ThreadRealtimeSdp = "thread/realtime/sdp", Unchecked, Members, [];
    EnvironmentAdd = "environment/add", Unchecked, Members, [];
    CommandExec = "command/exec", Unchecked, Members, [];
    ProcessSpawn = "process/spawn", Unchecked, Members, [];
    ConfigRead = "config/read", Unchecked, Members, [];
    ConfigRequirementsRead = "configRequirements/read", Unchecked, Members, [];
    ConfigBatchWrite = "config/batchWrite", Unchecked, ConfigWrite, [];
    ModelProviderWrite = "modelProvider/config/write", Unchecked, Secret, [];
    GetAuthStatus = "getAuthStatus", Unchecked, Secret, [];
    LoginApiKey = "loginApiKey", Unchecked, Secret, [];
}

/// The calls of clients that have the model called: they begin a turn, have the server begin one, or ask the model beside all turns.
const STARTS: [&str; 14] = [
    "turn/start",
    "review/start",
    "thread/compact/start",
    "thread/queue/add",
    "thread/queue/update",
    "thread/queue/start",
    "thread/goal/set",
    "thread/sample",
    "thread/prediction/request",
    "thread/guardianReview",
    "thread/realtime/start",
    // Of releases before threads had their name.
    "sendUserTurn",
    "sendUserMessage",
    "compactConversation",
];

/// Whether a call of a client has the model called, which uses tokens.
pub fn starts_turn(method: &str) -> bool {
    STARTS.contains(&method)
}

/// The methods whose responses show turns and items of a thread's past.
const PASTS: [(Method, PastForm); 7] = [
    (Method::ThreadResume, PastForm::Thread),
    (Method::ThreadRead, PastForm::Thread),
    (Method::ThreadFork, PastForm::Thread),
    (Method::ThreadTurnsList, PastForm::Turns),
    (Method::ThreadItemsList, PastForm::Items),
    (Method::ThreadItemsRead, PastForm::Items),
    (Method::ThreadTimelineList, PastForm::Timeline),
];

impl Method {
    /// Whether its response tells of a thread with its model.
    pub fn opens_thread(self) -> bool {
        matches!(self, Method::ThreadStart | Method::ThreadResume | Method::ThreadFork)
    }

    /// Whether `requestId` in its parameters is the id of a request that the client has made.
    pub fn names_client_request(self) -> bool {
        matches!(
            self,
            Method::ThreadSearchPartial
                | Method::ThreadSearchCancel
                | Method::ThreadSearchStreamCancel
                | Method::ThreadSampleCancel
                | Method::UserVerificationCancel
        )
    }

    /// How its response shows turns and items of a thread's past.
    pub fn past(self) -> Option<PastForm> {
        let found = PASTS.iter().find(|(method, _)| *method == self);
        found.map(|(_, form)| *form)
    }

    /// Whether it reads pages of a thread's past. A client may ask for one before the thread has any, and its user loses nothing.
    pub fn reads_pages(self) -> bool {
        self.past().is_some_and(|form| form != PastForm::Thread)
    }

    /// Whether the engine acts on none of its notifications: they are only recorded and forwarded.
    pub fn is_inert(self) -> bool {
        matches!(
            self,
            Method::AgentMessageDelta
                | Method::PlanDelta
                | Method::ReasoningTextDelta
                | Method::ReasoningSummaryTextDelta
                | Method::ReasoningSummaryPartAdded
                | Method::CommandOutputDelta
                | Method::TerminalInteraction
                | Method::ToolCallProgress
                | Method::PatchUpdated
                | Method::PlanUpdated
                | Method::DiffUpdated
                | Method::TokenUsageUpdated
        )
    }

    /// Whether its parameters have a `config` member with settings of codex.
    pub fn has_config(self) -> bool {
        self.opens_thread()
            || matches!(self, Method::NewConversation | Method::ResumeConversation | Method::ForkConversation)
    }
}

/// Where a response shows the past of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastForm {
    /// In `thread.turns`, and in the page of turns that `thread/resume` may ask for.
    Thread,
    /// A page of turns in `data`.
    Turns,
    /// A page of items in `data`, each with its turn.
    Items,
    /// A page of items, and of beginnings and ends of turns, in `data`.
    Timeline,
}

/// The fields of a response that this program uses.
#[derive(Debug, Clone, Copy)]
pub struct ResponseFields {
    /// The file of the schema that describes the response, without `.json`.
    pub file: &'static str,
    /// Paths of the fields, without steps into lists.
    pub fields: &'static [&'static str],
}

/// The responses that this program reads, changes or writes.
pub const RESPONSES: &[ResponseFields] = &[
    ResponseFields { file: "CommandExecutionRequestApprovalResponse", fields: &["decision"] },
    ResponseFields { file: "FileChangeRequestApprovalResponse", fields: &["decision"] },
    ResponseFields { file: "PermissionsRequestApprovalResponse", fields: &["permissions", "scope"] },
    ResponseFields { file: "ToolRequestUserInputResponse", fields: &["answers"] },
    ResponseFields { file: "McpServerElicitationRequestResponse", fields: &["action", "content"] },
    ResponseFields { file: "v2/ThreadStartResponse", fields: &["thread.id"] },
    ResponseFields {
        file: "v2/ThreadResumeResponse",
        fields: &["thread.id", "thread.preview", "thread.turns.items.content.text"],
    },
    ResponseFields {
        file: "v2/ThreadReadResponse",
        fields: &["thread.preview", "thread.turns.id", "thread.turns.status", "thread.turns.items.content.text"],
    },
    ResponseFields {
        file: "v2/ThreadTurnsListResponse",
        fields: &["data.id", "data.status", "data.itemsView", "data.items", "data.startedAt", "data.completedAt"],
    },
    ResponseFields {
        file: "v2/ThreadItemsListResponse",
        fields: &["data.turnId", "data.item", "data.startedAtMs", "data.completedAtMs"],
    },
    ResponseFields { file: "v2/ThreadListResponse", fields: &["data.id", "data.preview"] },
    ResponseFields { file: "v2/TurnStartResponse", fields: &["turn.id", "turn.items"] },
    ResponseFields { file: "v2/TurnSteerResponse", fields: &["turnId"] },
];

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Method {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
        let name = String::deserialize(deserializer)?;
        Method::of(&name).ok_or_else(|| D::Error::custom(format!("`{name}` is not a method that this program knows")))
    }
}

/// Prefixes of methods whose messages are secret in both directions. Source: the contract of the journal.
const SECRET_PREFIXES: [&str; 6] =
    ["account/", "accountSession/", "attestation/", "userVerification/", "remoteControl/pairing/", "mcpServer/oauth/"];

/// Prefixes of methods with some secret members. Source: the schema of the real server.
const MEMBERS_PREFIXES: [&str; 2] = ["externalAgentConfig/", "remoteControl/"];

impl Secrecy {
    #[cfg(test)]
    pub fn of(name: &str) -> Secrecy {
        Secrecy::of_resolved(Method::of(name), name)
    }

    /// The secrecy of a method's messages.
    pub fn of_resolved(method: Option<Method>, name: &str) -> Secrecy {
        match method {
            Some(method) => method.secrecy(),
            None if name.starts_with("config/") && name.ends_with("/write") => Secrecy::ConfigWrite,
            None if SECRET_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => Secrecy::Secret,
            None if MEMBERS_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => Secrecy::Members,
            None => Secrecy::Open,
        }
    }
}

/// Whether a line, however broken, names a method whose messages are secret.
pub fn names_secret_method(text: &str) -> bool {
    static MARKS: LazyLock<AhoCorasick> = LazyLock::new(|| marks(&SECRET_PREFIXES, Secrecy::Secret));
    MARKS.is_match(text)
}

/// Whether a line, however broken, names a method with some secret members.
pub fn names_method_with_secret_members(text: &str) -> bool {
    static MARKS: LazyLock<AhoCorasick> = LazyLock::new(|| marks(&MEMBERS_PREFIXES, Secrecy::Members));
    MARKS.is_match(text)
}

/// Methods of which any response has secret members.
const CONFIG_READERS: [Method; 3] = [Method::ConfigRead, Method::ConfigRequirementsRead, Method::GetUserSavedConfig];

/// Whether any response to a method has secret members.
pub fn answers_with_credentials(name: &str) -> bool {
    Method::of(name).is_some_and(|method| CONFIG_READERS.contains(&method))
        || MEMBERS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a line, however broken, names a method whose answer has secret members whatever its parameters are.
pub fn names_method_with_secret_answer(text: &str) -> bool {
    CONFIG_READERS.iter().chain([&Method::Elicitation]).any(|method| text.contains(method.name()))
        || MEMBERS_PREFIXES.iter().any(|prefix| text.contains(prefix))
}

/// Whether a line, however broken, names a method that writes configuration.
pub fn may_write_config(text: &str) -> bool {
    text.contains("config/")
}

/// Whether a line, however broken, may ask the user for a secret.
pub fn may_ask_for_secret(text: &str) -> bool {
    text.contains("requestUserInput") && text.contains("isSecret")
}

fn marks(prefixes: &[&str], secrecy: Secrecy) -> AhoCorasick {
    let names = Method::ALL.iter().filter(|method| method.secrecy() == secrecy).map(|method| method.name());
    AhoCorasick::new(prefixes.iter().copied().chain(names)).expect("BUG: the marks are few and short")
}

/// Results for requests whose answers no recording contains. They say that there is no account and that none is needed, so the
/// client goes on. Members as in 0.169; older clients ignore those that they do not know.
const STAND_INS: [(&str, &str); 3] = [
    ("account/read", r#"{"account":null,"userId":null,"requiresOpenaiAuth":false,"workspaceRouting":null}"#),
    (
        "account/gatewayOAuth/read",
        r#"{"providerId":"none","providerName":"none","required":false,"supportsDeviceAuth":false,"status":null,"error":null}"#,
    ),
    ("account/bedrock/checkGovCloudRequirements", r#"{"isGovCloud":false,"shouldWarn":false}"#),
];

/// The result for a request of this method if the real one is not on record.
pub fn stand_in(method: &str) -> Option<&'static str> {
    STAND_INS.iter().find(|(name, _)| *name == method).map(|(_, result)| *result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_resolves_to_its_method() {
        for method in Method::ALL {
            assert_eq!(Method::of(method.name()), Some(*method));
        }
        assert_eq!(Method::of("thread/"), None);
    }

    #[test]
    fn methods_have_their_secrecy() {
        for secret in ["account/login/start", "attestation/generate", "mcpServer/oauth/login", "loginApiKey"] {
            assert_eq!(Secrecy::of(secret), Secrecy::Secret, "{secret}");
        }
        for write in ["config/value/write", "config/batchWrite"] {
            assert_eq!(Secrecy::of(write), Secrecy::ConfigWrite, "{write}");
        }
        for partly in ["config/read", "remoteControl/enable", "thread/start", "command/exec", "codex/event/token_count"]
        {
            assert_eq!(Secrecy::of(partly), Secrecy::Members, "{partly}");
        }
        assert_eq!(Secrecy::of("remoteControl/pairing/start"), Secrecy::Secret);
        for open in ["thread/started", "skills/config/write", "command/exec/outputDelta", "mcpServer/tool/call"] {
            assert_eq!(Secrecy::of(open), Secrecy::Open, "{open}");
        }
    }
}
