//! Methods that mean something to us, in one table.
//!
//! Everything not listed here is relayed and recorded without a second look.

/// What a method's name alone says about its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MethodClass {
    /// Parameters, and the answer, are credentials or lead to them.
    Secret,
    /// Writes configuration: secret where a key that is written names a secret.
    ConfigWrite,
    /// Asks a human: secret where a question says so.
    AskUser,
    /// Some members of its parameters, or of its answer, hold credentials.
    Credentials,
    /// Asks a human to fill in a form: secret are the fields that its schema says are.
    Elicitation,
    /// The first request of a client.
    Initialize,
    /// Anything else.
    Ordinary,
}

/// Prefixes of methods whose messages are secret both ways. Source: the contract of the journal.
const SECRET_PREFIXES: [&str; 6] =
    ["account/", "accountSession/", "attestation/", "userVerification/", "remoteControl/pairing/", "mcpServer/oauth/"];

/// Whole names of methods whose messages are secret both ways; the last two are from older versions.
const SECRET_NAMES: [&str; 3] = ["modelProvider/config/write", "getAuthStatus", "loginApiKey"];

/// What stands in any line, however broken, that names a secret method.
pub(crate) const SECRET_METHOD_MARKS: [&str; 9] = [
    SECRET_PREFIXES[0],
    SECRET_PREFIXES[1],
    SECRET_PREFIXES[2],
    SECRET_PREFIXES[3],
    SECRET_PREFIXES[4],
    SECRET_PREFIXES[5],
    SECRET_NAMES[0],
    SECRET_NAMES[1],
    SECRET_NAMES[2],
];

/// Prefixes of methods of which some members hold credentials. Source: the schema of the real server.
const CREDENTIAL_PREFIXES: [&str; 2] = ["externalAgentConfig/", "remoteControl/"];

/// Whole names of such methods; the last five are from older versions.
const CREDENTIAL_NAMES: [&str; 15] = [
    "thread/start",
    "thread/resume",
    "thread/fork",
    "thread/realtime/start",
    "thread/realtime/sdp",
    "environment/add",
    "command/exec",
    "process/spawn",
    "config/read",
    "configRequirements/read",
    "newConversation",
    "resumeConversation",
    "forkConversation",
    "execOneOffCommand",
    "getUserSavedConfig",
];

/// Stands in any line, however broken, that names a method of which some members hold credentials.
pub(crate) const CREDENTIAL_METHOD_MARKS: [&str; 17] = [
    CREDENTIAL_PREFIXES[0],
    CREDENTIAL_PREFIXES[1],
    CREDENTIAL_NAMES[0],
    CREDENTIAL_NAMES[1],
    CREDENTIAL_NAMES[2],
    CREDENTIAL_NAMES[3],
    CREDENTIAL_NAMES[4],
    CREDENTIAL_NAMES[5],
    CREDENTIAL_NAMES[6],
    CREDENTIAL_NAMES[7],
    CREDENTIAL_NAMES[8],
    CREDENTIAL_NAMES[9],
    CREDENTIAL_NAMES[10],
    CREDENTIAL_NAMES[11],
    CREDENTIAL_NAMES[12],
    CREDENTIAL_NAMES[13],
    CREDENTIAL_NAMES[14],
];

impl MethodClass {
    /// Classifies a method by its name.
    #[must_use]
    pub(crate) fn of(method: &str) -> MethodClass {
        match method {
            "initialize" => MethodClass::Initialize,
            "item/tool/requestUserInput" => MethodClass::AskUser,
            "mcpServer/elicitation/request" => MethodClass::Elicitation,
            "config/batchWrite" => MethodClass::ConfigWrite,
            _ if method.starts_with("config/") && method.ends_with("/write") => MethodClass::ConfigWrite,
            _ if SECRET_NAMES.contains(&method) => MethodClass::Secret,
            _ if SECRET_PREFIXES.iter().any(|prefix| method.starts_with(prefix)) => MethodClass::Secret,
            _ if CREDENTIAL_NAMES.contains(&method) => MethodClass::Credentials,
            _ if CREDENTIAL_PREFIXES.iter().any(|prefix| method.starts_with(prefix)) => MethodClass::Credentials,
            _ => MethodClass::Ordinary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        for secret in ["account/login/start", "attestation/generate", "mcpServer/oauth/login", "loginApiKey"] {
            assert_eq!(MethodClass::of(secret), MethodClass::Secret, "{secret}");
        }
        for write in ["config/value/write", "config/batchWrite"] {
            assert_eq!(MethodClass::of(write), MethodClass::ConfigWrite, "{write}");
        }
        for partly in ["config/read", "remoteControl/enable", "thread/start", "command/exec"] {
            assert_eq!(MethodClass::of(partly), MethodClass::Credentials, "{partly}");
        }
        assert_eq!(MethodClass::of("remoteControl/pairing/start"), MethodClass::Secret);
        for ordinary in ["thread/started", "skills/config/write", "command/exec/outputDelta", "mcpServer/tool/call"] {
            assert_eq!(MethodClass::of(ordinary), MethodClass::Ordinary, "{ordinary}");
        }
    }
}
