//! The one table of methods that codex-shim treats specially.
//!
//! All other methods are relayed and recorded without inspection.

/// How a method's messages are treated, by its name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MethodClass {
    /// The parameters and the result are credentials or lead to them.
    Secret,
    /// Writes configuration; secret if a key that is written names a secret.
    ConfigWrite,
    /// Asks a human; secret if a question says so.
    AskUser,
    /// Some members of the parameters or of the result hold credentials.
    Credentials,
    /// Asks a human to fill in a form; the form's schema names the secret fields.
    Elicitation,
    Initialize,
    Ordinary,
}

/// Prefixes of methods with secret requests and responses. Source: the journal's contract.
const SECRET_PREFIXES: [&str; 6] =
    ["account/", "accountSession/", "attestation/", "userVerification/", "remoteControl/pairing/", "mcpServer/oauth/"];

/// Names of methods with secret requests and responses; the last two are from older versions.
const SECRET_NAMES: [&str; 3] = ["modelProvider/config/write", "getAuthStatus", "loginApiKey"];

/// Any line that names a secret method contains one of these, even if the line is invalid.
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

/// Prefixes of methods with credentials in some members. Source: the schema of the real server.
const CREDENTIAL_PREFIXES: [&str; 2] = ["externalAgentConfig/", "remoteControl/"];

/// Names of such methods; the last five are from older versions.
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

/// Any line that names a method with credentials contains one of these, even if the line is invalid.
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
    fn methods_are_classified_by_name() {
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
