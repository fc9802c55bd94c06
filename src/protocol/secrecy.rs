//! Which methods carry secrets.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::method::{Method, Secrecy};

/// Prefixes of methods whose messages are secret in both directions. Source: the contract of the journal.
const SECRET_PREFIXES: [&str; 6] =
    ["account/", "accountSession/", "attestation/", "userVerification/", "remoteControl/pairing/", "mcpServer/oauth/"];

/// Prefixes of methods with some secret members. Source: the schema of the real server.
const MEMBERS_PREFIXES: [&str; 2] = ["externalAgentConfig/", "remoteControl/"];

impl Secrecy {
    #[cfg(test)]
    pub(crate) fn of(name: &str) -> Secrecy {
        Secrecy::of_resolved(Method::of(name), name)
    }

    /// The secrecy of a method's messages.
    pub(crate) fn of_resolved(method: Option<Method>, name: &str) -> Secrecy {
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
pub(crate) fn names_secret_method(text: &str) -> bool {
    static MARKS: LazyLock<AhoCorasick> = LazyLock::new(|| marks(&SECRET_PREFIXES, Secrecy::Secret));
    MARKS.is_match(text)
}

/// Whether a line, however broken, names a method with some secret members.
pub(crate) fn names_method_with_secret_members(text: &str) -> bool {
    static MARKS: LazyLock<AhoCorasick> = LazyLock::new(|| marks(&MEMBERS_PREFIXES, Secrecy::Members));
    MARKS.is_match(text)
}

/// Methods of which any response has secret members.
const CONFIG_READERS: [Method; 3] = [Method::ConfigRead, Method::ConfigRequirementsRead, Method::GetUserSavedConfig];

/// Whether any response to a method has secret members.
pub(crate) fn answers_with_credentials(name: &str) -> bool {
    Method::of(name).is_some_and(|method| CONFIG_READERS.contains(&method))
        || MEMBERS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a line, however broken, names a method whose answer has secret members whatever its parameters are.
pub(crate) fn names_method_with_secret_answer(text: &str) -> bool {
    CONFIG_READERS.iter().chain([&Method::Elicitation]).any(|method| text.contains(method.name()))
        || MEMBERS_PREFIXES.iter().any(|prefix| text.contains(prefix))
}

/// Whether a line, however broken, names a method that writes configuration.
pub(crate) fn may_write_config(text: &str) -> bool {
    text.contains("config/")
}

/// Whether a line, however broken, may ask the user for a secret.
pub(crate) fn may_ask_for_secret(text: &str) -> bool {
    text.contains("requestUserInput") && text.contains("isSecret")
}

fn marks(prefixes: &[&str], secrecy: Secrecy) -> AhoCorasick {
    let names = Method::ALL.iter().filter(|method| method.secrecy() == secrecy).map(|method| method.name());
    AhoCorasick::new(prefixes.iter().copied().chain(names)).expect("BUG: the marks are few and short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_their_secrecy() {
        for secret in ["account/login/start", "attestation/generate", "mcpServer/oauth/login", "loginApiKey"] {
            assert_eq!(Secrecy::of(secret), Secrecy::Secret, "{secret}");
        }
        for write in ["config/value/write", "config/batchWrite"] {
            assert_eq!(Secrecy::of(write), Secrecy::ConfigWrite, "{write}");
        }
        for partly in ["config/read", "remoteControl/enable", "thread/start", "command/exec"] {
            assert_eq!(Secrecy::of(partly), Secrecy::Members, "{partly}");
        }
        assert_eq!(Secrecy::of("remoteControl/pairing/start"), Secrecy::Secret);
        for open in ["thread/started", "skills/config/write", "command/exec/outputDelta", "mcpServer/tool/call"] {
            assert_eq!(Secrecy::of(open), Secrecy::Open, "{open}");
        }
    }
}
