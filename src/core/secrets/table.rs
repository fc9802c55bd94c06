//! The one table of secrets: the rules, each with its marks and what a secret looks like where one of them stands, and the parts of
//! names that mean a secret.
//!
//! Captured output, history, the log, `redact` and `tape export` all use this table through [`super::secret_spans`] and
//! [`super::names_secret`]. The table holds data only; the files beside it say how a name or a key is found in a text.

use crate::protocol::OTHER_THREAD_ID;

/// Parts that make any name a secret, wherever they stand in it, written without `_`, `-` and capitals.
pub(super) const SECRET_PARTS: [&str; 36] = [
    "secret", "token", "password", "passwd", "passphrase", "passcode", "passwort", "kennwort", "motdepasse", "contrasena", "senha", "credential",
    "authorization", "bearer", "cookie", "apikey", "accesskey", "privatekey", "privkey", "secretkey", "signingkey",
    "encryptionkey", "masterkey", "accountkey", "servicekey", "sharedkey", "authkey", "licensekey", "databasekey",
    "dbkey", "mnemonic", "seedphrase", "phpsessid", "jsessionid", "dockerconfigjson", "dockercfg",
];

/// Words that hold one of [`SECRET_PARTS`] and mean something else; they are taken out of a name before it is judged.
pub(super) const HARMLESS_PARTS: [&str; 9] = [
    "tokeniz", "tokenis", "secretary", "secretariat", "cookiecutter", "cookieconsent", "passwordless",
    "authorizationcode", "tokenusage",
];

/// Last parts of names that tell about a secret and are not the secret: `token_type`, `password_file`.
pub(super) const ABOUT: [&str; 47] = [
    "type", "name", "names", "file", "files", "filename", "path", "paths", "dir", "url", "uri", "uris", "endpoint",
    "count", "counts", "limit", "limits", "length", "size", "budget", "threshold", "usage", "used", "expiry",
    "expires", "expired", "expiration", "ttl", "in", "at", "var", "required", "enabled", "policy", "arn", "format",
    "algorithm", "kind", "mode", "method", "status", "error", "errors", "stdin", "jar", "rotation", "ref",
];

/// Parts of a name that count tokens: `max_output_tokens`, `token_limit`.
pub(super) const COUNTS: [&str; 6] = ["max", "min", "limit", "budget", "count", "threshold"];

/// First parts of names that end in `tokens` and count them.
pub(super) const COUNTED: [&str; 20] = [
    "input", "output", "total", "prompt", "completion", "cached", "cache", "reasoning", "used", "remaining",
    "context", "num", "number", "many", "n", "generated", "audio", "text", "image", "avg",
];

/// Last parts that mean a secret if another part stands before them: `OPENAI_KEY`, `GH_PAT`, `npm_auth`.
pub(super) const LAST_PARTS: [&str; 4] = ["key", "keys", "pat", "auth"];

/// Parts in front of `key` that make a name something that is not a secret.
pub(super) const OPEN_KEYS: [&str; 62] = [
    "primary", "foreign", "public", "partition", "sort", "range", "hash", "cache", "lookup", "index", "idempotency",
    "natural", "unique", "composite", "candidate", "surrogate", "dedupe", "group", "order", "row", "map", "dict",
    "object", "hot", "shortcut", "arrow", "host", "no", "known", "any", "sub", "meta", "translation", "status",
    "state", "field", "label", "theme", "column", "item", "entry", "event", "feature", "flag", "locale", "lang",
    "language", "route", "parent", "child", "section", "category", "tag", "metric", "dimension", "symbol", "param",
    "property", "attribute", "menu", "tab", "message",
];

/// Parts in front of `Key` in a name written as `camelCase`, where `Key` alone says less than `_key` does.
pub(super) const CAMEL_KEYS: [&str; 16] = [
    "api", "access", "private", "secret", "signing", "encryption", "master", "account", "shared", "auth", "service",
    "license", "client", "subscription", "storage", "deploy",
];

/// Parts in front of `pass` and `pwd` in small letters; in capitals any part will do.
pub(super) const PASS_OWNERS: [&str; 40] = [
    "db", "database", "mysql", "pg", "postgres", "postgresql", "smtp", "mail", "email", "imap", "ftp", "sftp",
    "redis", "user", "admin", "root", "ssh", "rabbitmq", "amqp", "mongo", "mongodb", "ldap", "bind", "proxy", "http",
    "basic", "auth", "login", "my", "key", "store", "keystore", "truststore", "cert", "sudo", "wifi", "require",
    "master", "vpn", "account",
];

/// Parts in front of `_pass`, `_pwd` and `_pw` that make a name something else: one of several rounds, a check that was passed,
/// a folder, a window.
pub(super) const OPEN_PASSES: [&str; 102] = [
    "first", "second", "third", "last", "final", "next", "previous", "prev", "current", "cur", "old", "orig", "initial", "one",
    "two", "three", "single", "double", "multi", "per", "by", "n", "num", "total", "each", "every", "this", "that", "same",
    "render", "shadow", "depth", "color", "colour", "light", "lighting", "geometry", "post", "pre", "forward", "backward",
    "fwd", "bwd", "compute", "blur", "bloom", "opaque", "draw", "clear", "low", "high", "band", "all", "any", "no", "test",
    "tests", "did", "must", "should", "is", "does", "can", "will", "check", "checks", "compile", "compiler", "opt",
    "optimization", "lint", "llvm", "mlir", "module", "function", "loop", "analysis", "type", "codegen", "verify", "scan",
    "dialog", "working", "boarding", "filter", "interest",
    "sub", "z", "ui", "copy", "resolve", "main", "gbuffer", "ssao", "hot", "ski", "season", "day", "free", "pct", "percent",
    "rate",
];

/// Parts of names of what a person makes up.
pub(super) const PASSWORD_PARTS: [&str; 5] = ["pass", "pwd", "secret", "mnemonic", "phrase"];

/// Names that mean a secret if nothing else stands in them, or if they are the last part: `psk`, `wpa-psk`.
pub(super) const LAST_WORDS: [&str; 2] = ["psk", "psw"];

/// Last parts that say of which sort or copy a secret is: `API_KEY_PROD`, `SECRET_KEY_BASE64`.
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
    /// The same and `=`, as parts in Base64 have it.
    Padded,
    /// Capitals and digits.
    Upper,
    /// Capitals, digits and `-`.
    Capitals,
    /// Digits and the letters from `a` to `f`.
    Hex,
    /// A UUID, of which `-` is a part.
    Uuid,
    /// The alphabets of Base64 and of its variant for addresses.
    Base64,
}

/// The text that may stand in front of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// Anything but Base64 that began earlier: nothing else begins so.
    Anything,
    /// Anything.
    Base64Too,
    /// Anything that is not part of a word, and words if the rest looks random: `task-…` ends in `sk-`, too.
    WordIfRandom,
    /// Anything that is not part of a word.
    NoWord,
}

/// The shape of the keys that begin with a mark.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyShape {
    /// The bytes behind the beginning.
    pub(super) tail: Tail,
    /// Fewest bytes behind the beginning.
    pub(super) tail_bytes_min: usize,
    /// Most bytes behind the beginning; a longer word is not a key.
    pub(super) tail_bytes_max: Option<usize>,
    /// The text that may stand in front.
    pub(super) behind: Behind,
}

/// A rule: marks, and the secret where one of them stands.
pub(super) struct Rule {
    /// The marks, with `|` between.
    pub(super) marks: &'static str,
    pub(super) finds: Search,
}

pub(super) enum Search {
    /// The value behind a name that holds the mark; capitals do not count.
    Value,
    /// The value behind the mark, which is a name.
    ValueOfMark,
    /// A key that begins with the mark.
    Key(KeyShape),
    /// The group `key` of a pattern that matches around the mark, from so many bytes in front of it on.
    Around(usize, &'static str),
    /// An argument of one of these commands, or of any if there are none. The text of the groups `keep` and `then` stays.
    Argument(&'static [&'static str], &'static str),
    WebToken,
    /// A private key, as a block of lines.
    Block,
    /// What only JSON may hide.
    InJson,
}

#[cfg(test)]
impl Rule {
    pub(super) fn marks(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.marks.split('|')
    }
}

const fn names(marks: &'static str) -> Rule {
    Rule { marks, finds: Search::Value }
}

const fn key(marks: &'static str, tail: Tail, bytes_min: usize, bytes_max: Option<usize>, behind: Behind) -> Rule {
    let shape = KeyShape { tail, tail_bytes_min: bytes_min, tail_bytes_max: bytes_max, behind };
    Rule { marks, finds: Search::Key(shape) }
}

const fn shape(starts: &'static str, tail: Tail, bytes_min: usize, behind: Behind) -> Rule {
    key(starts, tail, bytes_min, None, behind)
}

const fn exact(starts: &'static str, tail: Tail, bytes: usize, behind: Behind) -> Rule {
    key(starts, tail, bytes, Some(bytes), behind)
}

const fn within(starts: &'static str, tail: Tail, bytes_min: usize, bytes_max: usize, behind: Behind) -> Rule {
    key(starts, tail, bytes_min, Some(bytes_max), behind)
}

const fn around(marks: &'static str, bytes_before: usize, pattern: &'static str) -> Rule {
    Rule { marks, finds: Search::Around(bytes_before, pattern) }
}

const fn anywhere(marks: &'static str, pattern: &'static str) -> Rule {
    of(marks, &[], pattern)
}

const fn of(marks: &'static str, commands: &'static [&'static str], pattern: &'static str) -> Rule {
    Rule { marks, finds: Search::Argument(commands, pattern) }
}

/// A word of a command that is not an option: in quotation marks, or up to a blank or a separator.
macro_rules! word {
    () => {
        r#"(?:"[^"\n]+"|'[^'\n]+'|[^\s"'`|;&<>)-][^\s"'`|;&<>)]*)"#
    };
}

use Behind::{Anything, Base64Too, NoWord, WordIfRandom};
use Tail::{Alnum, Base64, Capitals, Dashed, Dotted, Hex, Padded, Upper, Uuid, Word};

/// All rules. Keys have the forms that the services document; lower bounds leave room for older and shorter ones.
pub(super) const RULES: &[Rule] = &[
    // Marks of which every name of a secret, and every word ahead of a credential, holds one.
    names("token|secret|pass|pwd|credential|auth|cookie|bearer|basic |key|_pat|-pat|contrasena|psk|psw|pw|sig=|signature=|sig%3d|signature%3d|senha|kennwort|mnemonic|phrase|sessid|dockerc"),
    Rule { marks: "identified by|unseal key", finds: Search::ValueOfMark },
    // Names in other alphabets, each of which is a whole name.
    Rule { marks: NAMES_ELSEWHERE, finds: Search::Value },
    // OpenAI, Anthropic, OpenRouter, DeepSeek and others.
    shape("sk-", Dashed, 16, WordIfRandom),
    shape("sk-or-v1-", Hex, 32, Anything),
    shape("sess-", Alnum, 40, WordIfRandom),
    // GitHub.
    shape("ghp_|gho_|ghu_|ghs_|ghr_", Alnum, 20, Anything),
    shape("github_pat_", Word, 20, Anything),
    // GitLab.
    shape("glpat-|gldt-|glrt-|glrtr-|glcbt-|glptt-|glft-|glsoat-|glagent-|gloas-|glimt-|glffct-|glwt-|GR1348941", Dotted,
        16, Anything),
    // AWS.
    exact("AKIA|ASIA|ABIA|ACCA", Upper, 16, Anything),
    shape("ABSKQmVkcm9ja0FQSUtleS|bedrock-api-key-", Base64, 20, Anything),
    // Slack.
    shape("xoxa-|xoxb-|xoxc-|xoxd-|xoxe-|xoxe.xox|xoxo-|xoxp-|xoxr-|xoxs-|xapp-|xwfp-", Dashed, 10, Anything),
    shape("hooks.slack.com/services/|hooks.slack.com/workflows/|hooks.slack.com/triggers/", Base64, 20, Anything),
    // Google.
    shape("AIza", Dashed, 30, Anything),
    shape("AQ.Ab8", Dashed, 20, Anything),
    shape("AQ.", Dashed, 40, NoWord),
    shape("GOCSPX-", Dashed, 20, Anything),
    shape("ya29.", Dotted, 20, Anything),
    shape("1//0", Dashed, 30, NoWord),
    // npm, PyPI, RubyGems, NuGet, crates.io, Clojars, Packagist.
    shape("npm_", Alnum, 20, Anything),
    shape("pypi-AgE", Dashed, 20, Anything),
    shape("rubygems_", Hex, 32, Anything),
    exact("oy2", Alnum, 43, NoWord),
    exact("cio", Alnum, 32, NoWord),
    shape("CLOJARS_", Alnum, 40, Anything),
    // Stripe and others that follow it.
    shape("sk_live_|sk_test_|rk_live_|rk_test_|sk_prod_|rk_prod_", Alnum, 16, WordIfRandom),
    shape("whsec_", Base64, 20, Anything),
    // Hugging Face, Replicate, Groq, xAI, Perplexity, NVIDIA, Tavily, LangSmith, Fireworks.
    shape("hf_|api_org_", Alnum, 30, Anything),
    shape("r8_", Alnum, 30, WordIfRandom),
    shape("gsk_", Alnum, 40, Anything),
    shape("xai-|pplx-", Alnum, 40, Anything),
    shape("nvapi-", Dashed, 40, Anything),
    shape("tvly-", Dashed, 24, Anything),
    shape("lsv2_pt_|lsv2_sk_", Word, 32, Anything),
    // HashiCorp.
    shape("hvs.|hvb.|hvr.", Dashed, 20, Anything),
    // DigitalOcean, Docker, Databricks, Doppler, Fly.
    shape("dop_v1_|doo_v1_|dor_v1_", Hex, 40, Anything),
    shape("dckr_pat_|dckr_oat_", Dashed, 20, Anything),
    shape("dapi", Hex, 32, Anything),
    shape("dp.pt.|dp.st.|dp.ct.|dp.sa.|dp.scim.|dp.audit.", Dotted, 40, Anything),
    shape("fm1_|fm2_|fm1r_|fm1a_|fo1_", Base64, 40, Anything),
    // Shopify, SendGrid, Mailgun, Brevo, Square, Twilio, Facebook.
    shape("shpat_|shpca_|shppa_|shpss_|shpua_", Alnum, 20, Anything),
    shape("SG.", Dotted, 40, Anything),
    exact("key-", Hex, 32, NoWord),
    shape("xkeysib-|xsmtpsib-", Dashed, 40, Anything),
    shape("sq0csp-|sq0atp-|sq0idp-", Dashed, 22, WordIfRandom),
    shape("EAAA", Dashed, 22, NoWord),
    exact("SK|AC", Hex, 32, NoWord),
    shape("EAA", Alnum, 80, NoWord),
    // Postman, Linear, Notion, Figma, Airtable, Atlassian, Asana, HubSpot.
    shape("PMAK-", Dashed, 40, Anything),
    shape("lin_api_|lin_oauth_|ntn_|figd_|figp_|figu_|figo_", Dashed, 30, Anything),
    shape("ATATT3|ATCTT3|ATBB", Base64, 24, WordIfRandom),
    shape("pat-na1-|pat-na2-|pat-eu1-", Dashed, 30, Anything),
    // Grafana, New Relic, Sentry, Dynatrace, PostHog, Buildkite, Sourcegraph.
    shape("glc_|glsa_", Base64, 32, Anything),
    shape("NRAK-|NRJS-|NRII-|NRAA-|NRBR-|NRIQ-|NRRA-", Dashed, 19, Anything),
    shape("sntrys_|sntryu_|sntrya_|sntryi_|bkua_|sgp_|phx_|phs_", Base64, 32, Anything),
    shape("dt0c01.|dt0s01.|dt0s02.|dt0s16.", Dotted, 60, Anything),
    // Pulumi, CircleCI, Render, Firecrawl, Supabase, Pinecone, Notion before 2024.
    exact("pul-", Hex, 40, Anything),
    shape("CCIPAT_|CCIPRJ_", Word, 40, Anything),
    shape("rnd_|pcsk_", Word, 28, WordIfRandom),
    exact("fc-", Hex, 32, NoWord),
    shape("sb_secret_", Dashed, 20, Anything),
    exact("secret_", Alnum, 43, NoWord),
    // 1Password, age, Tailscale, PlanetScale, Supabase, Alibaba, Tencent, JFrog, Discord, Teams.
    shape("ops_eyJ|AGE-SECRET-KEY-1|tskey-|pscale_tkn_|pscale_pw_|pscale_oauth_|sbp_|AKCp|cmVmdGtu|v1.0-", Base64,
        32, Anything),
    shape("LTAI|AKID", Alnum, 13, NoWord),
    exact("IKID", Alnum, 32, NoWord),
    shape("discord.com/api/webhooks/|discordapp.com/api/webhooks/|.webhook.office.com/webhookb2/", Base64, 40,
        Anything),
    // Netlify, Heroku, Vercel, Cloudflare, Deno, Neon, Xata, MongoDB Atlas.
    shape("nfp_", Word, 20, Anything),
    shape("nfc_|nfo_|nfu_|nfb_", Word, 32, WordIfRandom),
    shape("HRKU-", Dashed, 20, Anything),
    shape("vcp_|vci_|vca_|vcr_|vck_", Alnum, 20, WordIfRandom),
    shape("cfut_|cfat_|cfk_", Alnum, 40, Anything),
    shape("ddp_|ddw_|ddo_", Alnum, 36, WordIfRandom),
    shape("napi_", Alnum, 40, WordIfRandom),
    shape("xau_", Alnum, 30, WordIfRandom),
    shape("mdb_sa_sk_", Dashed, 36, Anything),
    // E2B, Together, Cerebras, RunPod, Anyscale, Fireworks, LlamaCloud, Jina, Apify, Browserbase.
    exact("e2b_", Hex, 40, Anything),
    shape("tgp_v1_", Dashed, 36, Anything),
    shape("csk-", Alnum, 40, WordIfRandom),
    shape("rpa_", Alnum, 40, WordIfRandom),
    shape("esecret_", Alnum, 20, Anything),
    shape("fw_", Alnum, 20, WordIfRandom),
    shape("llx-", Alnum, 40, WordIfRandom),
    shape("jina_", Dashed, 40, WordIfRandom),
    shape("apify_api_|apify_proxy_", Alnum, 30, Anything),
    shape("bb_live_|bb_test_", Dashed, 20, WordIfRandom),
    // Trigger.dev, Inngest, Polar, Val Town, Socket, WakaTime, Axiom, Honeycomb.
    shape("tr_dev_|tr_stg_|tr_prod_|tr_pat_", Alnum, 20, WordIfRandom),
    shape("signkey-prod-|signkey-test-", Hex, 32, Anything),
    shape("polar_oat_|polar_pat_|polar_rat_|polar_cst_|polar_whs_", Alnum, 32, Anything),
    shape("vtwn_", Dashed, 20, WordIfRandom),
    shape("sktsec_", Dashed, 30, Anything),
    shape("waka_|xaat-|xapt-", Dashed, 36, WordIfRandom),
    shape("hcaik_|hcbik_|hcxik_|hcxlk_|hcalk_", Alnum, 40, Anything),
    // Snyk, SonarQube, Sourcegraph, JetBrains, Bitbucket, OpenShift, Prefect, Infracost, Spectral, Endor, Defined.
    shape("snyk_uat.|snyk_sat.", Dotted, 20, Anything),
    shape("squ_|sqp_|sqa_", Hex, 40, Anything),
    shape("sqco_", Alnum, 40, WordIfRandom),
    exact("slk_", Hex, 64, Anything),
    shape("perm:|perm-", Padded, 30, WordIfRandom),
    shape("BBDC-", Base64, 40, Anything),
    shape("sha256~", Dashed, 40, Anything),
    shape("pnu_|pnb_", Alnum, 36, WordIfRandom),
    exact("ico-|spu-", Alnum, 32, WordIfRandom),
    exact("endr+", Dashed, 16, WordIfRandom),
    shape("dnkey-", Dashed, 50, Anything),
    // Contentful, Typeform, ReadMe, Rootly, Salad, Scalingo, SettleMint, Adafruit, Ubidots, Voiceflow, Scrapfly, Bannerbear.
    shape("CFPAT-", Dashed, 40, Anything),
    shape("tfp_", Dotted, 40, WordIfRandom),
    shape("rdme_", Alnum, 60, Anything),
    exact("rootly_", Hex, 64, Anything),
    shape("salad_cloud_", Word, 20, WordIfRandom),
    shape("tk-us-", Dashed, 48, WordIfRandom),
    shape("sm_aat_|sm_pat_|sm_sat_", Alnum, 16, WordIfRandom),
    exact("aio_", Alnum, 28, WordIfRandom),
    within("BBFF-", Alnum, 30, 35, Anything),
    shape("VF.DM.|VF.WS.", Dotted, 40, Anything),
    exact("scp-live-|scp-test-", Alnum, 32, Anything),
    exact("bb_pr_|bb_ma_", Hex, 30, Anything),
    // Duffel, EasyPost, Flutterwave, Frame.io, Shippo, Ramp, Razorpay, Robinhood, Pagar.me, Plaid, Photoroom, Flexport, Adobe.
    shape("duffel_test_|duffel_live_", Dashed, 40, Anything),
    exact("EZAK|EZTK", Alnum, 54, Anything),
    shape("FLWSECK-|FLWSECK_TEST-", Dashed, 12, Anything),
    shape("fio-u-", Dashed, 60, Anything),
    shape("shippo_live_|shippo_test_", Alnum, 40, Anything),
    shape("ramp_sec_|ramp_id_", Alnum, 40, Anything),
    shape("rzp_live_|rzp_test_", Alnum, 14, Anything),
    shape("rh-api-", Dashed, 36, WordIfRandom),
    shape("ak_live_|ak_test_", Alnum, 30, WordIfRandom),
    shape("access-sandbox-|access-development-|access-production-", Dashed, 36, WordIfRandom),
    shape("sk_pr_", Word, 40, WordIfRandom),
    shape("shltm_", Dashed, 40, WordIfRandom),
    exact("p8e-", Dashed, 32, WordIfRandom),
    // Dropbox, Salesforce, Mapbox, Stytch, Statsig, PubNub, Alchemy, Yandex, ClickHouse.
    shape("sl.u.|sl.B", Dashed, 60, WordIfRandom),
    shape("3MVG9|5AEP861", Dotted, 60, WordIfRandom),
    shape("sk.eyJ|tk.eyJ", Dotted, 40, WordIfRandom),
    shape("secret-live-|secret-test-", Dashed, 32, WordIfRandom),
    exact("secret-", Alnum, 43, NoWord),
    shape("sec-c-", Dashed, 36, WordIfRandom),
    shape("alcht_", Alnum, 30, Anything),
    shape("AQVN", Dashed, 35, WordIfRandom),
    exact("4b1d", Alnum, 38, NoWord),
    // 1Password, LaunchDarkly, Octopus, Cursor, Amp, Logfire, Mem0, Cartesia, Murf, Coze.
    within("A3-", Capitals, 36, 37, NoWord),
    exact("sdk-|api-", Uuid, 36, NoWord),
    within("API-", Upper, 25, 32, NoWord),
    exact("key_", Hex, 64, NoWord),
    shape("sgamp_user_", Word, 60, Anything),
    shape("pylf_v1_|pylf_v2_", Word, 40, Anything),
    exact("paig_", Alnum, 32, WordIfRandom),
    exact("m0-", Alnum, 40, NoWord),
    shape("sk_car_", Alnum, 20, WordIfRandom),
    exact("ap2_", Uuid, 36, NoWord),
    exact("pat_", Alnum, 64, NoWord),
    exact("czu_|cztei_", Alnum, 65, WordIfRandom),
    // Buildkite, Databricks, Elastic, Coralogix, Grafana before 2022, StackHawk, Aikido, Dynatrace, Voiceflow.
    shape("bkar_|bkps_|bkpat_", Dotted, 40, Anything),
    exact("dose|doau", Hex, 32, NoWord),
    shape("essu_", Base64, 60, Anything),
    shape("cxup_|cxtp_", Alnum, 30, Anything),
    shape("eyJrIjoi", Base64, 60, NoWord),
    exact("hawk.", Dotted, 41, NoWord),
    shape("AIK_SECRET_", Alnum, 40, Anything),
    exact("VF.", Dotted, 41, NoWord),
    // Open VSX, Private Packagist, Vercel's storage, Cloudflare's Turnstile.
    exact("ovsxat_|ovsxp_", Uuid, 36, Anything),
    exact("packagist_ort_|packagist_out_|packagist_uut_|packagist_cut_", Hex, 68, Anything),
    shape("vercel_blob_rw_|vercel_blob_r_|vercel_blob_w_", Word, 40, Anything),
    exact("0x4AAAAA", Dashed, 27, NoWord),
    // MailerSend, OneSignal, Telnyx, Africa's Talking, Teamwork, Fullstory, ZenHub, Freepik, 42.
    exact("mlsn.", Hex, 64, Anything),
    shape("os_v2_app_|os_v2_org_", Alnum, 90, Anything),
    exact("KEY01", Dashed, 53, NoWord),
    exact("atsk_", Hex, 72, Anything),
    shape("tkn.v1_", Alnum, 60, Anything),
    shape("na1.", Base64, 100, NoWord),
    exact("zh_", Hex, 64, NoWord),
    exact("FPSX", Hex, 32, Anything),
    exact("s-s4t2ud-|s-s4t2af-|u-s4t2ud-|u-s4t2af-", Hex, 64, Anything),
    // Mercado Pago, Paddle, Xendit, Fleetbase.
    shape("APP_USR-", Dashed, 50, Anything),
    shape("pdl_live_apikey_|pdl_sdbx_apikey_", Word, 40, Anything),
    shape("xnd_production_|xnd_development_", Alnum, 40, Anything),
    shape("flb_live_|flb_test_", Alnum, 20, Anything),
    // Addresses that are keys: Zapier, Feishu, Lark.
    shape("hooks.zapier.com/hooks/catch/", Base64, 8, Anything),
    shape("open.feishu.cn/open-apis/bot/v2/hook/|open.larksuite.com/open-apis/bot/v2/hook/", Dashed, 20, Anything),
    // Keys that are known by a mark in their middle or at their end. Telegram, Mailchimp, HCP Terraform.
    around(":AA", 13, r"(?:^|\D)(?<key>\d{6,12}:AA[\w-]{31,})"),
    around("-us0|-us1|-us2|-us3|-us4|-us5|-us6|-us7|-us8|-us9", 33, r"(?:^|[^0-9a-f])(?<key>[0-9a-f]{32}-us\d\d?)(?:\D|$)"),
    around(".atlasv1.", 14, r"(?<key>[A-Za-z0-9]{14}\.atlasv1\.[\w+/=-]{32,})"),
    // Azure: services with keys of 64, 32 and 39 bytes, and those with keys of the common form; `=` may follow. Entra.
    around("+ASt|+ABa|+AMC|APIM|ACDb", 77,
        r"(?:^|[^A-Za-z0-9+/])(?<key>[A-Za-z0-9+/]{76}(?:\+ASt|\+ABa|\+AMC|APIM|ACDb)[A-Za-z0-9+/]{6})(?:[^A-Za-z0-9+/]|$)"),
    around("+ASb|+AEh|+ARm|AIoT|AzCa|AZEG", 34,
        r"(?:^|[^A-Za-z0-9+/])(?<key>[A-Za-z0-9+/]{33}(?:\+ASb|\+AEh|\+ARm|AIoT|AzCa|AZEG)[A-Za-z0-9+/]{6})(?:[^A-Za-z0-9+/]|$)"),
    around("+ACR|AzSe", 43, r"(?:^|[^A-Za-z0-9+/])(?<key>[A-Za-z0-9+/]{42}(?:\+ACR|AzSe)[A-Za-z0-9+/]{6})(?:[^A-Za-z0-9+/]|$)"),
    around("AzFu", 45, r"(?:^|[^\w-])(?<key>[\w-]{44}AzFu[\w-]{6})(?:[^\w-]|$)"),
    around("JQQJ99|JQQJ9D|JQQJ9H", 53, r"(?:^|[^A-Za-z0-9])(?<key>[A-Za-z0-9]{52}JQQJ9[9DH][A-Za-z0-9]{26,28})(?:[^A-Za-z0-9]|$)"),
    around("Q~", 4, r"^(?<key>[\w~.-]{3}\dQ~[\w~.-]{31,36})(?:[^\w~.-]|$)"),
    // MaxMind, New Relic, Weaviate, messages of Firebase, Authress.
    around("_mmk", 36, r"^(?<key>[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk)"),
    around("NRAL", 36, r"^(?<key>[A-Za-z0-9]{32}[A-F]{4}NRAL)"),
    around("PV92MjAw", 81, r"(?:^|[^A-Za-z0-9])(?<key>[A-Za-z0-9]{80}PV92MjAw)(?:[^A-Za-z0-9]|$)"),
    around(":APA91b", 11, r"^(?<key>[\w-]{11}:APA91b[\w-]{100,})"),
    around(".acc_", 65, r"(?:^|[^\w.-])(?<key>(?:sc|ext|scauth|authress)_[\w.-]{0,60}\.acc_[\w+/=.-]{40,})"),
    // The secret of AWS right behind the id of its key, as in a row of CSV or a table.
    around("AKIA|ASIA|ABIA|ACCA", 0,
        r#"^[A-Z]{4}[A-Z0-9]{16}[ \t,:;|"'\r\n]{1,8}(?<key>[A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+]|$)"#),
    // A PEM block in Base64, as secrets of Kubernetes hold it, and other blocks.
    shape("LS0tLS1CRUdJTi", Base64, 0, Base64Too),
    Rule { marks: "eyJ", finds: Search::WebToken },
    Rule { marks: "PRIVATE KEY|Private-Lines:", finds: Search::Block },
    // `-H "X-Key: x"`, `--header 'Authorization: Basic x'`
    anywhere("-H|--header",
        r#"(?<keep>\B(?:-H|--header)[ \t=]*["'](?i:[\w-]*(?:key|token|secret|password|passwd|auth|authorization|cookie)):\s*(?i:(?:basic|bearer|token)\s+)?)[^\s"'][^"'\n]*"#),
    // `-H X-Key:x`
    anywhere("-H|--header",
        r#"(?<keep>\B(?:-H|--header)[ \t=]*(?i:[\w-]*(?:key|token|secret|password|passwd|auth|authorization|cookie)):[ \t]*(?i:(?:basic|bearer|token)[ \t]+)?)(?:\\.|[^\s"'\\])+"#),
    // `-p'secret'`; the last mark as it stands in JSON
    anywhere("-p'|-p\"|-p\\", r#"(?<keep>\s-p)(?:"[^"\n]+"|'[^'\n]+')"#),
    // `vault login x`, which nothing follows that is no end or redirection, as in prose; `vault login -method=m name=value` has none there.
    anywhere("vault",
        r#"(?<keep>\bvault[ \t]+login(?:[ \t]+-\S+)*[ \t]+)(?:(?:s|b|r|hv[sbr])\.[A-Za-z0-9_-]+|[^\s"'`=;&|<>)\\#-][^\s"'`=;&|<>)\\,}\]]*(?<then>[ \t]*(?:$|[\r\n;&|)"'`<>#\\,}\]]|\d>)))"#),
    // `openssl … -passin pass:x`
    anywhere("-pass", r#"(?<keep>\B-pass(?:in|out)?[ \t=]+["']?pass:)[^\s"']+"#),
    // `kubectl create secret … --from-literal=name=x`
    anywhere("--from-literal", r#"(?<keep>\B--from-literal[ \t=]+["']?[\w.-]+=)[^\s"']+"#),
    // `echo x | docker login --password-stdin`
    anywhere("-stdin|--with-token|sudo|chpasswd",
        concat!(r"(?<keep>\b(?:echo|printf)[ \t]+(?:-n[ \t]+)?)", word!(), r"(?<then>[ \t]*\|[^\n|]*(?:-stdin\b|--with-token\b|\bsudo\b[^\n|]*[ \t](?:-S|--stdin)\b|\bchpasswd\b))")),
    // `IDENTIFIED WITH plugin BY 'x'`
    anywhere("dentified with|DENTIFIED WITH",
        r"(?<keep>\b(?i:identified[ \t]+with[ \t]+\S+[ \t]+(?:by|as))[ \t]+')[^'\n]+"),
    // `curl -u name:x`, `curl --user name:x`
    of("curl", &["curl"], r#"(?<keep>\s(?:-[A-Za-z]*[uU]|--user|--proxy-user)[ \t=]*(?:"[^\s":]+:|'[^\s':]+:|[^\s"':]+:))[^\s"']+"#),
    // `docker login -p x`, `helm registry login -p x`; `docker run x login -p 80:80` is something else.
    of("login", &["docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras", "oc", "az", "cf"],
        r#"(?<keep>^(?:\.exe)?["']?(?:[ \t]+--?[\w-]+(?:[= \t](?:"[^"\n]*"|'[^'\n]*'|\S+))?)*(?:[ \t]+(?:registry|acr))?[ \t]+login\b(?s:.)*?\s-p[ \t=]*)(?:"[^"]*"|'[^']*'|[^\s"'`,-][^\s"']*)"#),
    // `curl -b name=x`
    of("curl", &["curl"], r#"(?<keep>\s(?:-b|--cookie)[ \t=]*["'][^\s"'=;]+=)[^"'\n]+"#),
    of("curl", &["curl"], r#"(?<keep>\s(?:-b|--cookie)[ \t=]*[^\s"'=;]+=)[^\s"']+"#),
    // `redis-cli -a x`
    of("redis-cli", &["redis-cli"], r#"(?<keep>\s(?:-a|--pass)[ \t]+)(?:"[^"]*"|'[^']*'|[^\s"']+)"#),
    // `mysql -psecret`
    of("mysql|mariadb", &["mysql", "mariadb"], r#"(?<keep>\s-p)(?:"[^"\n]+"|'[^'\n]+'|[^\s"']+)"#),
    // `sshpass -p secret`
    of("sshpass", &["sshpass"], r#"(?<keep>\s-p[ \t]*)(?:"[^"\n]+"|'[^'\n]+'|[^\s"']+)"#),
    // `http -a name:x`
    of(" -a |--auth", &["http", "https", "xh", "xhs"],
        r#"(?<keep>^\s(?s:.)*?(?:-a|--auth)[ \t=]+["']?[^\s:"']+:)[^\s"']+"#),
    // `gh secret set NAME --body x`
    of("secret", &["gh", "glab"],
        concat!(r"(?<keep>^\s+(?:secret|variable)\s+set\b(?s:.)*?\s(?:-b|--body|-v|--value)[ \t=]+)", word!())),
    // `fly secrets set NAME=x`, `vault kv put path name=x`
    of("secret|config:set|kv p|env set|env:set", &["secrets set", "secret set", "config:set", "kv put", "kv patch", "env set", "env:set"],
        r#"(?<keep>\s["']?[A-Za-z_][\w.-]*=["']?)[^\s"']+"#),
    // `openssl enc -k x`
    of("openssl", &["openssl"], concat!(r"(?<keep>\s-[kK][ \t]+)", word!())),
    // `zip -P x`, `sqlcmd -P x`
    of("zip|sqlcmd|bcp|osql", &["zip", "unzip", "zipcloak", "sqlcmd", "bcp", "osql"],
        concat!(r"(?<keep>\s-P[ \t]*)", word!())),
    // `7z a -px`
    of("7z|rar ", &["7z", "7za", "7zz", "7zr", "rar", "unrar"], concat!(r"(?<keep>\s-h?p)", word!())),
    // `htpasswd -b file name x`, `htpasswd -nb name x`
    of("htpasswd", &["htpasswd"],
        concat!(r#"(?<keep>\s-[A-Za-z]*b[A-Za-z]*(?:[ \t]+-\S+)*(?:[ \t]+[^\s|;&<>-]\S*){1,2}[ \t]+)"#, word!(), r#"(?<then>[ \t]*(?:$|[\r\n;&|)>#"'`\\}\],]))"#)),
    // `ldapsearch -w x`
    of("ldap", &["ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldappasswd", "ldapwhoami", "ldapcompare", "ldapmodrdn"],
        concat!(r"(?<keep>\s-[A-Za-z]*w[ \t]*)", word!())),
    // `smbclient -U name%x`
    of("smbclient|rpcclient", &["smbclient", "rpcclient"], r#"(?<keep>\s(?:-U|--user)[ \t=]*["']?[^\s"'%]+%)[^\s"']+"#),
    // `mongosh -p x`
    of("mongo", &["mongo", "mongosh", "mongodump", "mongorestore", "mongoexport", "mongoimport"],
        concat!(r"(?<keep>\s-p[ \t]*)", word!())),
    // `plink -pw x`
    of("plink|pscp|psftp", &["plink", "pscp", "psftp"], concat!(r"(?<keep>\s-pw[ \t]+)", word!())),
    // An escape, with which a name or a key is visible only in the decoded string, an object whose members are all values of an
    // environment or of headers, and Base64.
    Rule { marks: "\\u00|\\/|env\"|environment\"|http_headers\"|httpHeaders\"|ase64\"", finds: Search::InJson },
];

/// Names of secrets in other alphabets.
pub(super) const NAMES_ELSEWHERE: &str =
    "密码|密碼|口令|密钥|密鑰|令牌|权杖|パスワード|パスフレーズ|APIキー|秘密鍵|비밀번호|비밀키|пароль|Пароль|contraseña|Contraseña|CONTRASEÑA";

/// Values of names in programs that are types or other names: `token: String`.
pub(super) const WORDS_OF_CODE: [&str; 30] = [
    "str", "String", "string", "bool", "boolean", "number", "int", "Integer", "any", "unknown", "object", "bytes",
    "Buffer", "Uint8Array", "Option", "Vec", "Cow", "Box", "Arc", "Result", "SecretString", "SecretStr", "Promise",
    "Optional", "VARCHAR", "varchar", "None", "self", "this", "Default",
];

/// Members of an object under a secret's name that only describe it.
pub(super) const DESCRIBING: [&str; 10] =
    ["type", "kind", "name", "description", "id", "method", "version", "integrity", "resolved", "license"];

/// Values of settings of tokens and credentials: `credentials: "include"`.
pub(super) const SETTING_WORDS: [&str; 5] = ["include", "omit", "same-origin", "enabled", "disabled"];

/// Names that say what sort of secret follows, and nothing else about it.
pub(super) const SECRET_SORTS: [&str; 9] = [
    "token", "tokens", "auth", "authorization", "secret", "secrets", "credential", "credentials", "cookies",
];

/// Functions whose argument is the name of a value.
pub(super) const GETTERS: [&str; 26] = [
    "getenv", "env", "get", "environ", "getEnv", "var", "prop", "property", "getProperty", "config", "input", "prompt",
    "getpass", "split", "find", "replace", "strip", "format", "print", "log", "require", "load", "open", "read",
    "lookup", "t",
];

/// Words in front of `key` that make a label one of a secret: `Secret Access Key: …`.
pub(super) const LABEL_KEYS: [&str; 12] = [
    "access", "api", "private", "secret", "signing", "encryption", "master", "account", "unseal", "auth", "license",
    "recovery",
];

/// Parts of an address that open something: `?key=…`, `&sig=…`.
pub(super) const QUERY_NAMES: [&str; 5] = ["key", "sig", "signature", "x-amz-signature", "x-goog-signature"];

/// Names of signatures in addresses.
pub(super) const SIGNATURES: [&str; 8] =
    ["sig", "signature", "x-amz-signature", "x-goog-signature", "x-oss-signature", "q-signature", "hmac-signature", "x-signature"];

/// Names of other parts of signed addresses: of Azure, AWS, Google, CloudFront, Alibaba and Tencent.
pub(super) const SIGNED_PARTS: [&str; 28] = [
    "?sv=", "&sv=", ";sv=", "=sv=", "?se=", "&se=", ";se=", "&sp=", "?sp=", "&sr=", "?sr=", "&spr=", "&skoid=", "&st=", "&ss=", "&srt=",
    "x-amz-", "x-goog-", "x-oss-", "x-obs-", "q-sign-", "key-pair-id=", "googleaccessid=", "awsaccesskeyid=", "ossaccesskeyid=",
    "expires=", "sv%3d", "se%3d",
];

/// Words behind `bearer` in a sentence.
pub(super) const BEARER_WORDS: [&str; 8] = [
    "authentication", "authorization", "certificate", "certificates", "credential", "credentials", "security",
    "challenge",
];

/// The syntax that joins a name and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `NAME=value` with nothing between, at the beginning of a line or a word of its own: up to the next blank all is value.
    Variable,
    /// `name = value`, `name: value` at the beginning of a line.
    Line,
    /// The same anywhere else.
    Within,
    /// `--name value`, `ENV NAME value`.
    Argument,
    /// `set -x NAME value value`: all words of the command.
    Words,
    /// `ENV NAME value value`: all words of the line.
    Rest,
    /// Only a value in quotation marks counts: `name == "value"`, `f("name", "value")`, `PASSWORD 'value'`.
    Quoted,
    /// `<name>value</name>`.
    Element,
}

/// Names, the words in front of them in their line, and the syntax if only blanks separate such a name from its value. Without
/// names, it applies to each.
pub(super) const SPACED: [(&[&str], &str, Syntax); 6] = [
    (&[], r#"(?:^|[\s"'`\\({\[])set\s+(?:-\S*\s+)+$"#, Syntax::Words),
    (&[], r#"(?:^|[\s"'`\\({\[])ENV\s+$"#, Syntax::Rest),
    (&[], r#"(?:^|[\s"'`\\({\[])(?:setx(?:\s+/\S*)?|setenv|ARG|SetEnv|(?:fastcgi|uwsgi|scgi)_param|proxy_set_header|add_header)\s+$"#, Syntax::Argument),
    (&["password", "passwd"], r#"(?:^|[\s"'`\\({\[])(?:login\s+\S+|default)\s+$"#, Syntax::Argument),
    (&["bindpw", "rootpw", "rootbindpw"], r#"(?:^|["'`\\({\[])\s*$"#, Syntax::Argument),
    (&["requirepass", "masterauth"], "", Syntax::Argument),
];

/// Members of JSON that classify or identify something: two different values must still differ after masking.
pub(super) const KEPT: [&str; 26] = [
    "jsonrpc", "method", "id", "type", "kind", "status", "role", "event", "event_type", "phase", "ts", "threadId",
    "thread_id", "turnId", "turn_id", "itemId", "item_id", "callId", "call_id", "requestId", "request_id",
    OTHER_THREAD_ID, "sessionId", "session_id", "generation", "shim",
];

/// Escapes of which a text holds one if a quotation mark in it is written so.
pub(super) const ESCAPED_QUOTES: [&str; 12] = [
    "%22", "%27", "&quot;", "&#34;", "&#39;", "&apos;", "&#x22;", "&#x27;", "\\u0022", "\\u0027", "\\x22", "\\x27",
];

/// Characters by their names in HTML.
pub(super) const ENTITIES: [(&str, u8); 10] = [
    ("&quot;", b'"'), ("&#34;", b'"'), ("&#x22;", b'"'), ("&apos;", b'\''), ("&#39;", b'\''), ("&#x27;", b'\''),
    ("&amp;", b'&'), ("&lt;", b'<'), ("&gt;", b'>'), ("&#x3d;", b'='),
];
