//! The one table of secrets: which names mean a secret, and which beginnings keys of well-known services have.
//!
//! Captured output, history, the log, `redact` and `tape export` all use this table through [`super::secret_spans`] and
//! [`super::names_secret`]. The table holds data only; the files beside it say how a name or a key is found in a text.

/// Parts that make any name a secret, wherever they stand in it, written without `_`, `-` and capitals.
#[rustfmt::skip]
pub(super) const SECRET_PARTS: [&str; 36] = [
    "secret", "token", "password", "passwd", "passphrase", "passcode", "passwort", "kennwort", "motdepasse", "contrasena", "senha", "credential",
    "authorization", "bearer", "cookie", "apikey", "accesskey", "privatekey", "privkey", "secretkey", "signingkey",
    "encryptionkey", "masterkey", "accountkey", "servicekey", "sharedkey", "authkey", "licensekey", "databasekey",
    "dbkey", "mnemonic", "seedphrase", "phpsessid", "jsessionid", "dockerconfigjson", "dockercfg",
];

/// Words that hold one of [`SECRET_PARTS`] and mean something else; they are taken out of a name before it is judged.
pub(super) const HARMLESS_PARTS: [&str; 9] = [
    "tokeniz",
    "tokenis",
    "secretary",
    "secretariat",
    "cookiecutter",
    "cookieconsent",
    "passwordless",
    "authorizationcode",
    "tokenusage",
];

/// Last parts of names that tell about a secret and are not the secret: `token_type`, `password_file`.
#[rustfmt::skip]
pub(super) const ABOUT: [&str; 47] = [
    "type", "name", "names", "file", "files", "filename", "path", "paths", "dir", "url", "uri", "uris", "endpoint",
    "count", "counts", "limit", "limits", "length", "size", "budget", "threshold", "usage", "used", "expiry",
    "expires", "expired", "expiration", "ttl", "in", "at", "var", "required", "enabled", "policy", "arn", "format",
    "algorithm", "kind", "mode", "method", "status", "error", "errors", "stdin", "jar", "rotation", "ref",
];

/// Parts of a name that count tokens: `max_output_tokens`, `token_limit`.
pub(super) const COUNTS: [&str; 6] = ["max", "min", "limit", "budget", "count", "threshold"];

/// First parts of names that end in `tokens` and count them.
#[rustfmt::skip]
pub(super) const COUNTED: [&str; 20] = [
    "input", "output", "total", "prompt", "completion", "cached", "cache", "reasoning", "used", "remaining",
    "context", "num", "number", "many", "n", "generated", "audio", "text", "image", "avg",
];

/// Last parts that mean a secret if another part stands before them: `OPENAI_KEY`, `GH_PAT`, `npm_auth`.
pub(super) const LAST_PARTS: [&str; 4] = ["key", "keys", "pat", "auth"];

/// Parts in front of `key` that make a name something that is not a secret.
#[rustfmt::skip]
pub(super) const OPEN_KEYS: [&str; 62] = [
    "primary", "foreign", "public", "partition", "sort", "range", "hash", "cache", "lookup", "index", "idempotency",
    "natural", "unique", "composite", "candidate", "surrogate", "dedupe", "group", "order", "row", "map", "dict",
    "object", "hot", "shortcut", "arrow", "host", "no", "known", "any", "sub", "meta", "translation", "status",
    "state", "field", "label", "theme", "column", "item", "entry", "event", "feature", "flag", "locale", "lang",
    "language", "route", "parent", "child", "section", "category", "tag", "metric", "dimension", "symbol", "param",
    "property", "attribute", "menu", "tab", "message",
];

/// Parts in front of `Key` in a name written as `camelCase`, where `Key` alone says less than `_key` does.
#[rustfmt::skip]
pub(super) const CAMEL_KEYS: [&str; 16] = [
    "api", "access", "private", "secret", "signing", "encryption", "master", "account", "shared", "auth", "service",
    "license", "client", "subscription", "storage", "deploy",
];

/// Parts in front of `pass` and `pwd` in small letters; in capitals any part will do.
#[rustfmt::skip]
pub(super) const PASS_OWNERS: [&str; 40] = [
    "db", "database", "mysql", "pg", "postgres", "postgresql", "smtp", "mail", "email", "imap", "ftp", "sftp",
    "redis", "user", "admin", "root", "ssh", "rabbitmq", "amqp", "mongo", "mongodb", "ldap", "bind", "proxy", "http",
    "basic", "auth", "login", "my", "key", "store", "keystore", "truststore", "cert", "sudo", "wifi", "require",
    "master", "vpn", "account",
];

/// Names that mean a secret if nothing else stands in them, or if they are the last part: `psk`, `wpa-psk`.
pub(super) const LAST_WORDS: [&str; 2] = ["psk", "psw"];

/// Last parts that say of which sort or copy a secret is: `API_KEY_PROD`, `SECRET_KEY_BASE64`.
#[rustfmt::skip]
pub(super) const SORTS: [&str; 24] = [
    "prod", "production", "dev", "development", "staging", "stage", "test", "live", "sandbox", "base", "base64",
    "b64", "hex", "pem", "old", "new", "current", "previous", "primary", "secondary", "value", "plain", "raw",
    "string",
];

/// The bytes in the rest of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Letters and digits.
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Dashed,
    /// Letters, digits, `_`, `-` and `.`; a dot at the end is not part of a key.
    Dotted,
    /// Capitals and digits.
    Upper,
    /// Digits and the letters from `a` to `f`.
    Hex,
    /// The alphabets of Base64 and of its variant for addresses.
    Base64,
}

/// The text that may stand in front of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// Anything: nothing else begins so.
    Anything,
    /// Anything that is not part of a word, and words if the rest looks random: `task-…` ends in `sk-`, too.
    WordIfRandom,
    /// Anything that is not part of a word.
    NoWord,
}

/// The shape of a service's keys.
#[derive(Debug)]
pub(super) struct KeyShape {
    /// The beginnings.
    pub(super) starts: &'static [&'static str],
    /// The bytes behind the beginning.
    pub(super) tail: Tail,
    /// Fewest bytes behind the beginning.
    pub(super) tail_bytes_min: usize,
    /// Most bytes behind the beginning; a longer word is not a key.
    pub(super) tail_bytes_max: Option<usize>,
    /// The text that may stand in front.
    pub(super) behind: Behind,
}

const fn shape(starts: &'static [&'static str], tail: Tail, tail_bytes_min: usize, behind: Behind) -> KeyShape {
    KeyShape { starts, tail, tail_bytes_min, tail_bytes_max: None, behind }
}

const fn exact(starts: &'static [&'static str], tail: Tail, bytes: usize, behind: Behind) -> KeyShape {
    KeyShape { starts, tail, tail_bytes_min: bytes, tail_bytes_max: Some(bytes), behind }
}

/// Keys of services by their beginnings, as the services document them. Lower bounds leave room for older and shorter ones.
pub(super) const KEY_SHAPES: [KeyShape; 58] = [
    // OpenAI, Anthropic, OpenRouter, DeepSeek and others.
    shape(&["sk-"], Tail::Dashed, 16, Behind::WordIfRandom),
    shape(&["sk-or-v1-"], Tail::Hex, 32, Behind::Anything),
    // GitHub.
    shape(&["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], Tail::Alnum, 20, Behind::Anything),
    shape(&["github_pat_"], Tail::Word, 20, Behind::Anything),
    // GitLab.
    shape(
        &[
            "glpat-",
            "gldt-",
            "glrt-",
            "glrtr-",
            "glcbt-",
            "glptt-",
            "glft-",
            "glsoat-",
            "glagent-",
            "gloas-",
            "glimt-",
            "glffct-",
            "GR1348941",
        ],
        Tail::Dotted,
        16,
        Behind::Anything,
    ),
    // AWS.
    exact(&["AKIA", "ASIA", "ABIA", "ACCA"], Tail::Upper, 16, Behind::Anything),
    shape(&["ABSKQmVkcm9ja0FQSUtleS"], Tail::Base64, 20, Behind::Anything),
    // Slack.
    shape(
        &["xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.xox", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"],
        Tail::Dashed,
        10,
        Behind::Anything,
    ),
    shape(
        &["hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/"],
        Tail::Base64,
        20,
        Behind::Anything,
    ),
    // Google.
    shape(&["AIza"], Tail::Dashed, 30, Behind::Anything),
    shape(&["GOCSPX-"], Tail::Dashed, 20, Behind::Anything),
    shape(&["ya29."], Tail::Dotted, 20, Behind::Anything),
    shape(&["1//0"], Tail::Dashed, 30, Behind::NoWord),
    // npm, PyPI, RubyGems, NuGet, crates.io, Clojars, Packagist.
    shape(&["npm_"], Tail::Alnum, 20, Behind::Anything),
    shape(&["pypi-AgE"], Tail::Dashed, 20, Behind::Anything),
    shape(&["rubygems_"], Tail::Hex, 32, Behind::Anything),
    exact(&["oy2"], Tail::Alnum, 43, Behind::NoWord),
    exact(&["cio"], Tail::Alnum, 32, Behind::NoWord),
    shape(&["CLOJARS_"], Tail::Alnum, 40, Behind::Anything),
    // Stripe and others that follow it.
    shape(
        &["sk_live_", "sk_test_", "rk_live_", "rk_test_", "sk_prod_", "rk_prod_"],
        Tail::Alnum,
        16,
        Behind::WordIfRandom,
    ),
    shape(&["whsec_"], Tail::Base64, 20, Behind::Anything),
    // Hugging Face, Replicate, Groq, xAI, Perplexity, NVIDIA, Tavily, LangSmith, Fireworks.
    shape(&["hf_", "api_org_"], Tail::Alnum, 30, Behind::Anything),
    shape(&["r8_"], Tail::Alnum, 30, Behind::WordIfRandom),
    shape(&["gsk_"], Tail::Alnum, 40, Behind::Anything),
    shape(&["xai-", "pplx-"], Tail::Alnum, 40, Behind::Anything),
    shape(&["nvapi-"], Tail::Dashed, 40, Behind::Anything),
    shape(&["tvly-"], Tail::Dashed, 24, Behind::Anything),
    shape(&["lsv2_pt_", "lsv2_sk_"], Tail::Word, 32, Behind::Anything),
    // HashiCorp.
    shape(&["hvs.", "hvb.", "hvr."], Tail::Dashed, 20, Behind::Anything),
    // DigitalOcean, Docker, Databricks, Doppler, Fly.
    shape(&["dop_v1_", "doo_v1_", "dor_v1_"], Tail::Hex, 40, Behind::Anything),
    shape(&["dckr_pat_", "dckr_oat_"], Tail::Dashed, 20, Behind::Anything),
    shape(&["dapi"], Tail::Hex, 32, Behind::Anything),
    shape(&["dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."], Tail::Dotted, 40, Behind::Anything),
    shape(&["fm1_", "fm2_", "fm1r_", "fm1a_", "fo1_"], Tail::Base64, 40, Behind::Anything),
    // Shopify, SendGrid, Mailgun, Brevo, Square, Twilio, Facebook.
    shape(&["shpat_", "shpca_", "shppa_", "shpss_", "shpua_"], Tail::Alnum, 20, Behind::Anything),
    shape(&["SG."], Tail::Dotted, 40, Behind::Anything),
    exact(&["key-"], Tail::Hex, 32, Behind::NoWord),
    shape(&["xkeysib-", "xsmtpsib-"], Tail::Dashed, 40, Behind::Anything),
    shape(&["sq0csp-", "sq0atp-", "sq0idp-", "EAAA"], Tail::Dashed, 22, Behind::WordIfRandom),
    exact(&["SK", "AC"], Tail::Hex, 32, Behind::NoWord),
    shape(&["EAA"], Tail::Alnum, 80, Behind::NoWord),
    // Postman, Linear, Notion, Figma, Airtable, Atlassian, Asana, HubSpot.
    shape(&["PMAK-"], Tail::Dashed, 40, Behind::Anything),
    shape(&["lin_api_", "lin_oauth_", "ntn_", "figd_", "figu_", "figo_"], Tail::Dashed, 30, Behind::Anything),
    shape(&["ATATT3", "ATCTT3", "ATBB"], Tail::Base64, 24, Behind::WordIfRandom),
    shape(&["pat-na1-", "pat-na2-", "pat-eu1-"], Tail::Dashed, 30, Behind::Anything),
    // Grafana, New Relic, Sentry, Dynatrace, PostHog, Buildkite, Sourcegraph.
    shape(&["glc_", "glsa_"], Tail::Base64, 32, Behind::Anything),
    shape(&["NRAK-", "NRJS-", "NRII-", "NRAA-"], Tail::Dashed, 19, Behind::Anything),
    shape(&["sntrys_", "sntryu_", "bkua_", "sgp_", "phx_"], Tail::Base64, 32, Behind::Anything),
    shape(&["dt0c01.", "dt0s01.", "dt0s02.", "dt0s16."], Tail::Dotted, 60, Behind::Anything),
    // Pulumi, CircleCI, Render, Firecrawl, Supabase, Pinecone, Notion before 2024.
    exact(&["pul-"], Tail::Hex, 40, Behind::Anything),
    shape(&["CCIPAT_", "CCIPRJ_"], Tail::Word, 40, Behind::Anything),
    shape(&["rnd_", "pcsk_"], Tail::Word, 28, Behind::WordIfRandom),
    exact(&["fc-"], Tail::Hex, 32, Behind::NoWord),
    shape(&["sb_secret_"], Tail::Dashed, 20, Behind::Anything),
    exact(&["secret_"], Tail::Alnum, 43, Behind::NoWord),
    // 1Password, age, Tailscale, PlanetScale, Supabase, Alibaba, Tencent, JFrog, Discord, Teams.
    shape(
        &[
            "ops_eyJ",
            "AGE-SECRET-KEY-1",
            "tskey-",
            "pscale_tkn_",
            "pscale_pw_",
            "pscale_oauth_",
            "sbp_",
            "AKCp",
            "cmVmdGtu",
            "v1.0-",
        ],
        Tail::Base64,
        32,
        Behind::Anything,
    ),
    shape(&["LTAI", "AKID"], Tail::Alnum, 13, Behind::NoWord),
    shape(
        &["discord.com/api/webhooks/", "discordapp.com/api/webhooks/", ".webhook.office.com/webhookb2/"],
        Tail::Base64,
        40,
        Behind::Anything,
    ),
];

/// The beginning of a PEM block in Base64, as secrets of Kubernetes hold it: `-----BEGIN`.
pub(super) const PEM_IN_BASE64: &str = "LS0tLS1CRUdJTi";

/// Names of secrets in other alphabets, each of which is a whole name.
#[rustfmt::skip]
pub(super) const NAMES_ELSEWHERE: [&str; 18] = [
    "密码", "密碼", "口令", "密钥", "密鑰", "令牌", "权杖", "パスワード", "パスフレーズ", "APIキー", "秘密鍵",
    "비밀번호", "비밀키", "пароль", "Пароль", "contraseña", "Contraseña", "CONTRASEÑA",
];

/// Marks of which every name of a secret, and every word ahead of a credential, holds one; capitals do not count.
#[rustfmt::skip]
pub(super) const NAME_MARKS: [&str; 24] = [
    "token", "secret", "pass", "pwd", "credential", "auth", "cookie", "bearer", "basic ", "key", "_pat", "-pat",
    "contrasena", "psk", "psw", "pw", "sig=", "signature=", "senha", "kennwort", "mnemonic", "phrase", "sessid", "dockerc",
];

/// Schemes that stand ahead of a credential in `Authorization`.
#[rustfmt::skip]
pub(super) const SCHEMES: [&str; 14] = [
    "basic", "bearer", "token", "digest", "negotiate", "ntlm", "apikey", "api-key", "hawk", "oauth",
    "aws4-hmac-sha256", "key", "sharedkey", "mac",
];

/// Values of names in programs that are types or other names: `token: String`.
#[rustfmt::skip]
pub(super) const WORDS_OF_CODE: [&str; 30] = [
    "str", "String", "string", "bool", "boolean", "number", "int", "Integer", "any", "unknown", "object", "bytes",
    "Buffer", "Uint8Array", "Option", "Vec", "Cow", "Box", "Arc", "Result", "SecretString", "SecretStr", "Promise",
    "Optional", "VARCHAR", "varchar", "None", "self", "this", "Default",
];

/// Members of an object under a secret's name that only describe it.
pub(super) const DESCRIBING: [&str; 10] =
    ["type", "kind", "name", "description", "id", "method", "version", "integrity", "resolved", "license"];
