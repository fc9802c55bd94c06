//! Decides if a name means a secret.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::table::{
    ABOUT, CAMEL_KEYS, COUNTED, COUNTS, HARMLESS_PARTS, LAST_PARTS, LAST_WORDS, NAMES_ELSEWHERE, OPEN_KEYS,
    PASS_OWNERS, SECRET_PARTS, SORTS,
};

/// Longest name that is judged, in bytes: a longer word is not a name.
pub(super) const NAME_BYTES_MAX: usize = 160;

/// Every name that means a secret holds one of these. A word without any of them is not divided into parts.
static MARKED: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let marks = SECRET_PARTS.into_iter().chain(LAST_PARTS).chain(LAST_WORDS).chain(["pass", "pwd", "pw", "phrase"]);
    let builder = AhoCorasick::builder().ascii_case_insensitive(true).build(marks);
    builder.expect("BUG: the marks are few and short")
});

/// Whether the name of a setting, a variable, a header, an option or a member of JSON means a secret. Of a dotted path each part
/// is judged, and the path means a secret if one of its parts does.
#[must_use]
pub(crate) fn names_secret(name: &str) -> bool {
    let is_elsewhere = || NAMES_ELSEWHERE.iter().any(|elsewhere| name.contains(elsewhere));
    if !name.is_ascii() && name.len() <= NAME_BYTES_MAX && is_elsewhere() {
        return true;
    }
    name.split(|char: char| !char.is_alphanumeric() && !matches!(char, '_' | '-')).any(word_names_secret)
}

/// The same of one word, which holds no dot.
pub(super) fn word_names_secret(word: &str) -> bool {
    if word.len() > NAME_BYTES_MAX || !MARKED.is_match(word) {
        return false;
    }
    let parts = parts_of(word);
    let mut parts: &[String] = &parts;
    // A number and a sort say which secret it is, not that it is none.
    while let [start @ .., last] = parts
        && !start.is_empty()
        && (last.bytes().all(|byte| byte.is_ascii_digit()) || SORTS.contains(&last.as_str()))
    {
        parts = start;
    }
    let Some(last) = parts.last().map(|last| last.trim_end_matches(|char: char| char.is_ascii_digit())) else {
        return false;
    };
    if parts.len() > 1 && ABOUT.contains(&last) {
        return false;
    }
    let before = parts.len().checked_sub(2).map(|at| parts[at].as_str());
    has_secret_part(parts, last)
        || LAST_WORDS.contains(&last)
        || is_key(word, last, before)
        || is_pass(word, last, before)
}

fn has_secret_part(parts: &[String], last: &str) -> bool {
    let mut plain = parts.concat();
    for harmless in HARMLESS_PARTS {
        if plain.contains(harmless) {
            plain = plain.replace(harmless, "");
        }
    }
    let counts = counts_tokens(parts, last, &plain);
    SECRET_PARTS.iter().any(|part| plain.contains(part) && !(counts && *part == "token"))
}

/// Whether a name counts the tokens of a model.
fn counts_tokens(parts: &[String], last: &str, plain: &str) -> bool {
    let is_counted = last == "tokens" && parts.iter().any(|part| COUNTED.contains(&part.as_str()));
    let is_joined = |count: &&str| plain == format!("{count}tokens") || plain == format!("token{count}");
    is_counted || parts.iter().any(|part| COUNTS.contains(&part.as_str())) || COUNTS.iter().any(is_joined)
}

fn is_key(word: &str, last: &str, before: Option<&str>) -> bool {
    match before {
        // The credentials of a registry, in `.npmrc` and in docker's `config.json`.
        None => last == "auth",
        Some(before) if !LAST_PARTS.contains(&last) || OPEN_KEYS.contains(&before) => false,
        Some(before) => word.trim_start_matches(['_', '-']).contains(['_', '-']) || CAMEL_KEYS.contains(&before),
    }
}

/// Short words for a password.
const PASS_WORDS: [&str; 3] = ["pass", "pwd", "pw"];

fn is_pass(word: &str, last: &str, before: Option<&str>) -> bool {
    let joined = || {
        let owner = PASS_WORDS.into_iter().find_map(|pass| last.strip_suffix(pass));
        owner.is_some_and(|before| PASS_OWNERS.iter().any(|owner| before.ends_with(owner)))
    };
    match before {
        None => joined(),
        Some(before) if PASS_WORDS.contains(&last) => {
            !word.bytes().any(|byte| byte.is_ascii_lowercase())
                || PASS_OWNERS.iter().any(|owner| before.ends_with(owner))
        }
        Some(_) => joined(),
    }
}

/// Returns the parts of a name in small letters; `_`, `-` and capitals divide them.
fn parts_of(word: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for piece in word.split(['_', '-']).filter(|piece| !piece.is_empty()) {
        let chars: Vec<char> = piece.chars().collect();
        let mut part = String::new();
        for (at, char) in chars.iter().enumerate() {
            let is_upper = |at: usize| chars.get(at).is_some_and(|char| char.is_uppercase());
            let is_lower = |at: usize| chars.get(at).is_some_and(|char| char.is_lowercase());
            let ends_word = at > 0 && !is_upper(at - 1);
            // `APIKey` is `api` and `key`; `IDs` is one part.
            let ends_capitals = at > 0 && is_upper(at - 1) && is_lower(at + 1) && at + 2 < chars.len();
            if char.is_uppercase() && (ends_word || ends_capitals) && !part.is_empty() {
                parts.push(std::mem::take(&mut part));
            }
            part.extend(char.to_lowercase());
        }
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_in_every_style() {
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "aws_secret_access_key",
            "SecretAccessKey",
            "SECRET_KEY_BASE",
            "DJANGO_SECRET_KEY",
            "STRIPE_SECRET_KEY",
            "PRIVATE_KEY",
            "private_key",
            "ACCESS_KEY",
            "CREDENTIALS",
            "db_pass",
            "DB_PASS",
            "MYSQL_PWD",
            "smtp-pass",
            "dbPassword",
            "Authorization",
            "proxy-authorization",
            "Cookie",
            "Set-Cookie",
            "X-Api-Key",
            "apiKey",
            "APIKey",
            "API_KEY_2",
            "API_KEY_PROD",
            "OPENAI_KEY",
            "OPENAI_KEY_LIVE",
            "a.access-key",
            "GH_PAT",
            "x.api_tokens",
            "access_tokens",
            "limits.token",
            "ACCOUNT_TOKEN",
            "ADMIN_TOKEN",
            "admin_token",
            "discountToken",
            "_authToken",
            "_auth",
            "auth",
            "_password",
            "PGPASSWORD",
            "SSHPASS",
            "storepass",
            "requirepass",
            "tls.client-key",
            "accountKey",
            "clientSecret",
            "client_secret",
            "refresh_token",
            "sessionToken",
            "SharedAccessKey",
            "bearer_token",
            ".dockerconfigjson",
            "RAILS_MASTER_KEY",
            "dbpasswd",
            "password2",
            "TOKEN1",
            "private_key_id",
            "secretKey",
            "\"password\"",
            "db_key",
            "psk",
            "wpa-psk",
            "psw",
            "bindpw",
            "rootpw",
            "DB_PW",
            "mot_de_passe",
            "contraseña",
            "senha",
            "令牌",
        ] {
            assert!(names_secret(name), "{name}");
        }
    }

    #[test]
    fn names_of_other_things_stay_open() {
        for name in [
            "tool_output_max_tokens",
            "token_limit",
            "max_tokens",
            "maxTokens",
            "keymap",
            "tui.key",
            "monkey",
            "model_provider",
            "token_count",
            "tokenCount",
            "input_tokens",
            "cachedInputTokens",
            "tokenizer",
            "tokenize",
            "token_type",
            "primary_key",
            "foreign_key",
            "public_key",
            "SSH_PUBLIC_KEY",
            "cacheKey",
            "cache-key",
            "PWD",
            "OLDPWD",
            "first_pass",
            "TESTS_PASSED",
            "one_pass",
            "compass",
            "bypass",
            "author",
            "authMode",
            "authStatus",
            "secretName",
            "password_file",
            "token_endpoint",
            "tokenUsage",
            "expires_in",
            "secretary",
            "keyboard",
            "hotkey",
            "key",
            "keys",
            "pass",
            "itemKey",
            "idempotency_key",
            "auth_mode",
            "session_id",
            "access",
            "private",
            "total_token_usage",
            "STATUS_KEY",
            "number_of_tokens",
            "upskill",
            "pw",
            "http_pw_dialog",
        ] {
            assert!(!names_secret(name), "{name}");
        }
    }
}
