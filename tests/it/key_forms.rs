//! The forms of keys of services, for measuring the masking: each with the source that says so. The tests and a fuzz target use them.
//!
//! Keys are put together when a test runs, so that no file of the project holds a key that looks real.

/// The form of the keys of one kind.
#[derive(Debug, Clone, Copy)]
pub struct KeyForm {
    /// The name that a file would give such a key.
    pub name: &'static str,
    /// The key, with `{w36}` for 36 random signs of a sort and `{i}` for a UUID. The sorts: `w` letters and digits, `a` letters,
    /// `l` small letters and digits, `u` capitals and digits, `h` hexadecimal digits, `d` digits.
    pub form: &'static str,
    pub maker: &'static str,
    pub basis: Basis,
}

/// The source of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// A page or a program of the vendor, or of its staff.
    Vendor(&'static str),
    /// Rules of published scanners.
    Scanners(&'static [Scanner]),
    /// Keys of this form stand in public code; nobody describes them.
    Seen,
    /// The beginning is the vendor's; the rest is a guess.
    Guess,
}

/// A published scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scanner {
    Gitleaks,
    Kingfisher,
    Secretlint,
    Semgrep,
    TruffleHog,
}

const fn of(name: &'static str, form: &'static str, maker: &'static str, basis: Basis) -> KeyForm {
    KeyForm { name, form, maker, basis }
}

use Basis::{Guess, Scanners, Seen, Vendor};
use Scanner::{Gitleaks, Kingfisher, Secretlint, Semgrep, TruffleHog};

/// Kinds that vendors have introduced or given a mark in recent years, and others with a fixed mark.
#[rustfmt::skip]
pub const KEY_FORMS: &[KeyForm] = &[
    of("NETLIFY_TOKEN", "nfp_{w36}", "Netlify", Vendor("answers.netlify.com, change to the format of tokens")),
    of("NETLIFY_CLI", "nfc_{w36}", "Netlify", Vendor("answers.netlify.com, change to the format of tokens")),
    of("HEROKU_KEY", "HRKU-AA{w58}", "Heroku", Scanners(&[Gitleaks, TruffleHog, Semgrep])),
    of("HEROKU_OLD", "HRKU-{i}", "Heroku", Guess),
    of("GEMINI", "AQ.Ab8{w47}", "Google", Seen),
    of("GOOGLE_AUTH", "AQ.{w50}", "Google", Vendor("discuss.ai.google.dev, authentication keys")),
    of("VERCEL_USER", "vcp_{w56}", "Vercel", Scanners(&[Secretlint])),
    of("VERCEL_APP", "vca_{w56}", "Vercel", Scanners(&[Secretlint, Semgrep])),
    of("VERCEL_GATEWAY", "vck_{w56}", "Vercel", Scanners(&[Semgrep])),
    of("VERCEL_BLOB", "vercel_blob_rw_{w16}_{w30}", "Vercel", Scanners(&[Semgrep])),
    of("CLOUDFLARE_USER", "cfut_{w40}{h8}", "Cloudflare", Scanners(&[TruffleHog])),
    of("CLOUDFLARE_ACCOUNT", "cfat_{w40}{h8}", "Cloudflare", Scanners(&[TruffleHog])),
    of("CLOUDFLARE_GLOBAL", "cfk_{w40}{h8}", "Cloudflare", Scanners(&[TruffleHog])),
    of("TURNSTILE", "0x4AAAAA{w27}", "Cloudflare", Scanners(&[Semgrep])),
    of("BEDROCK", "bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t{w60}", "AWS", Scanners(&[Gitleaks])),
    of("AZURE_AI", "{w52}JQQJ99B{a1}AC{w14}{a1}{w7}", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_LONGER", "{w52}JQQJ9D{w1}B{w16}{a1}{w9}==", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_STORAGE", "{w76}+ASt{w5}A==", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_BATCH", "{w76}+ABa{w5}g==", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_COSMOS", "{w76}ACDb{w5}Q==", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_APIM", "{w76}APIM{w5}w==", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_BUS", "{w33}+ASbB{w5}=", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_EVENTS", "{w33}+AEhC{w5}=", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_RELAY", "{w33}+ARmD{w5}=", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_GRID", "{w33}AZEGA{w5}=", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_IOT", "{w33}AIoTB{w5}=", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_REDIS", "{w33}AzCaC{w5}=", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_SEARCH", "{w42}AzSeB{w5}", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_FUNCTION", "{w44}AzFu{w5}A==", "Azure", Vendor("microsoft/security-utilities")),
    of("AZURE_REGISTRY", "{w42}+ACRB{w5}", "Azure", Vendor("microsoft/security-utilities")),
    of("ENTRA", "{w3}8Q~{w34}", "Entra", Vendor("microsoft/security-utilities")),
    of("OPENAI_ADMIN", "sk-admin-{w58}T3BlbkFJ{w58}", "OpenAI", Scanners(&[Gitleaks, TruffleHog])),
    of("DENO", "ddp_{w36}", "Deno", Scanners(&[TruffleHog])),
    of("NEON", "napi_{l64}", "Neon", Seen),
    of("XATA", "xau_{w33}", "Xata", Seen),
    of("ATLAS_ACCOUNT", "mdb_sa_sk_{w40}", "MongoDB Atlas", Scanners(&[Kingfisher])),
    of("E2B", "e2b_{h40}", "E2B", Vendor("the SDK of E2B, which checks it")),
    of("TOGETHER", "tgp_v1_{w43}", "Together", Seen),
    of("CEREBRAS", "csk-{l48}", "Cerebras", Seen),
    of("RUNPOD", "rpa_{u40}{l6}", "RunPod", Guess),
    of("FIREWORKS", "fw_{w24}", "Fireworks", Guess),
    of("FIREWORKS_LONGER", "fw_{w33}", "Fireworks", Seen),
    of("LLAMA", "llx-{w48}", "LlamaCloud", Seen),
    of("JINA", "jina_{h32}{w28}", "Jina", Scanners(&[Semgrep])),
    of("APIFY", "apify_api_{w36}", "Apify", Scanners(&[TruffleHog, Semgrep])),
    of("BROWSERBASE", "bb_live_{w27}", "Browserbase", Seen),
    of("TRIGGER", "tr_prod_{w20}", "Trigger.dev", Guess),
    of("INNGEST", "signkey-prod-{h64}", "Inngest", Seen),
    of("POLAR", "polar_oat_{w43}", "Polar", Scanners(&[Semgrep])),
    of("POLAR_CUSTOMER", "polar_cst_{w43}", "Polar", Scanners(&[Semgrep])),
    of("POLAR_WEBHOOK", "polar_whs_{w43}", "Polar", Seen),
    of("VAL", "vtwn_{w28}", "Val Town", Scanners(&[Semgrep])),
    of("SOCKET", "sktsec_t_{w40}_api", "Socket", Vendor("the command line tool of Socket")),
    of("WAKA", "waka_{i}", "WakaTime", Seen),
    of("AXIOM", "xaat-{i}", "Axiom", Vendor("axiom.co, tokens")),
    of("HONEYCOMB", "hcaik_{l58}", "Honeycomb", Vendor("docs.honeycomb.io, create an API key")),
    of("SNYK", "snyk_uat.{h8}.{w60}.{w40}", "Snyk", Vendor("snyk/go-application-framework")),
    of("SONAR_USER", "squ_{h40}", "SonarQube", Scanners(&[Gitleaks, Kingfisher])),
    of("SONAR_CLOUD", "sqco_{w59}", "SonarQube Cloud", Scanners(&[TruffleHog])),
    of("CODY", "slk_{h64}", "Sourcegraph", Scanners(&[TruffleHog, Kingfisher])),
    of("AMP", "sgamp_user_{u26}_{h64}", "Sourcegraph", Scanners(&[Semgrep])),
    of("JETBRAINS", "perm:{w6}==.{w7}=.{w30}", "JetBrains", Vendor("jetbrains.com, permanent tokens")),
    of("BITBUCKET", "BBDC-{w44}", "Bitbucket", Scanners(&[TruffleHog])),
    of("OPENSHIFT", "sha256~{w43}", "OpenShift", Scanners(&[Gitleaks])),
    of("PREFECT", "pnu_{w36}", "Prefect", Scanners(&[Gitleaks, TruffleHog, Semgrep])),
    of("INFRACOST", "ico-{w32}", "Infracost", Scanners(&[Gitleaks])),
    of("SPECTRAL", "spu-{w32}", "Spectral", Scanners(&[TruffleHog])),
    of("ENDOR", "endr+{w16}", "Endor Labs", Scanners(&[TruffleHog])),
    of("NEBULA", "dnkey-{w26}-{w52}", "Defined Networking", Scanners(&[Gitleaks])),
    of("CONTENTFUL", "CFPAT-{w43}", "Contentful", Scanners(&[TruffleHog, Kingfisher])),
    of("TYPEFORM", "tfp_{w44}_{w14}", "Typeform", Scanners(&[Gitleaks, TruffleHog, Kingfisher])),
    of("README_KEY", "rdme_{h70}", "ReadMe", Scanners(&[Gitleaks, TruffleHog, Kingfisher])),
    of("ROOTLY", "rootly_{h64}", "Rootly", Scanners(&[TruffleHog])),
    of("SALAD", "salad_cloud_ann_{w40}", "SaladCloud", Scanners(&[TruffleHog])),
    of("SCALINGO", "tk-us-{w48}", "Scalingo", Scanners(&[Gitleaks])),
    of("SETTLEMINT", "sm_aat_{w16}", "SettleMint", Scanners(&[Gitleaks])),
    of("ADAFRUIT", "aio_{w28}", "Adafruit", Scanners(&[TruffleHog, Kingfisher])),
    of("UBIDOTS", "BBFF-{w30}", "Ubidots", Scanners(&[TruffleHog, Kingfisher])),
    of("UBIDOTS_KEY", "BBFF-{h35}", "Ubidots", Scanners(&[Semgrep])),
    of("VOICEFLOW", "VF.DM.{h24}.{w16}", "Voiceflow", Scanners(&[TruffleHog, Kingfisher])),
    of("VOICEFLOW_OLD", "VF.{h24}.{w16}", "Voiceflow", Scanners(&[TruffleHog, Kingfisher])),
    of("SCRAPFLY", "scp-live-{h32}", "Scrapfly", Scanners(&[TruffleHog])),
    of("BANNERBEAR", "bb_pr_{h30}", "Bannerbear", Scanners(&[TruffleHog])),
    of("DUFFEL", "duffel_live_{w43}", "Duffel", Scanners(&[Gitleaks])),
    of("EASYPOST", "EZAK{w54}", "EasyPost", Scanners(&[Gitleaks])),
    of("FLUTTERWAVE", "FLWSECK-{h32}-X", "Flutterwave", Scanners(&[TruffleHog])),
    of("FRAMEIO", "fio-u-{w64}", "Frame.io", Scanners(&[Gitleaks, TruffleHog, Kingfisher])),
    of("SHIPPO", "shippo_live_{h40}", "Shippo", Scanners(&[Gitleaks])),
    of("RAMP", "ramp_sec_{w48}", "Ramp", Scanners(&[TruffleHog])),
    of("RAZORPAY", "rzp_live_{w14}", "Razorpay", Scanners(&[TruffleHog])),
    of("ROBINHOOD", "rh-api-{i}", "Robinhood", Scanners(&[TruffleHog])),
    of("PAGARME", "ak_live_{w30}", "Pagar.me", Scanners(&[TruffleHog, Kingfisher])),
    of("PLAID", "access-production-{i}", "Plaid", Scanners(&[Gitleaks, TruffleHog])),
    of("PHOTOROOM", "sk_pr_default_{h40}", "Photoroom", Scanners(&[TruffleHog])),
    of("FLEXPORT", "shltm_{w40}", "Flexport", Scanners(&[TruffleHog, Kingfisher])),
    of("ADOBE", "p8e-{l32}", "Adobe", Scanners(&[Gitleaks, Kingfisher])),
    of("DROPBOX", "sl.u.{w130}", "Dropbox", Scanners(&[TruffleHog])),
    of("DROPBOX_OLDER", "sl.B{w134}", "Dropbox", Scanners(&[TruffleHog, Kingfisher, Semgrep])),
    of("SALESFORCE", "3MVG9{w80}", "Salesforce", Scanners(&[TruffleHog])),
    of("MAPBOX", "sk.eyJ{w60}.{w22}", "Mapbox", Scanners(&[TruffleHog])),
    of("STYTCH", "secret-live-{w35}=", "Stytch", Seen),
    of("STATSIG", "secret-{w43}", "Statsig", Seen),
    of("PUBNUB", "sec-c-{w48}", "PubNub", Scanners(&[Semgrep])),
    of("ALCHEMY", "alcht_{w30}", "Alchemy", Scanners(&[TruffleHog, Semgrep])),
    of("YANDEX", "AQVN{w36}", "Yandex", Scanners(&[Gitleaks])),
    of("CLICKHOUSE", "4b1d{w38}", "ClickHouse", Scanners(&[Gitleaks])),
    of("MAXMIND", "{w6}_{w29}_mmk", "MaxMind", Scanners(&[Gitleaks, TruffleHog])),
    of("NEWRELIC", "{h32}FFFFNRAL", "New Relic", Scanners(&[TruffleHog, Semgrep])),
    of("NEWRELIC_BROWSER", "NRBR-{h19}", "New Relic", Scanners(&[TruffleHog])),
    of("SENTRY_APP", "sntrya_{h64}", "Sentry", Vendor("getsentry/sentry")),
    of("POSTHOG_PROJECT", "phs_{w43}", "PostHog", Guess),
    of("FIGMA_PLAN", "figp_{w44}", "Figma", Scanners(&[TruffleHog])),
    of("ZAPIER", "https://hooks.zapier.com/hooks/catch/{d8}/{w7}", "Zapier", Scanners(&[TruffleHog, Kingfisher])),
    of("LARK", "https://open.larksuite.com/open-apis/bot/v2/hook/{i}", "Lark", Seen),
    of("ONEPASSWORD_KEY", "A3-{u6}-{u11}-{u5}-{u5}-{u5}", "1Password", Scanners(&[Gitleaks])),
    of("LAUNCHDARKLY", "sdk-{i}", "LaunchDarkly", Scanners(&[TruffleHog])),
    of("LAUNCHDARKLY_API", "api-{i}", "LaunchDarkly", Scanners(&[TruffleHog])),
    of("OCTOPUS", "API-{u26}", "Octopus", Scanners(&[Gitleaks])),
    of("HARNESS", "pat.{w22}.{h24}.{w20}", "Harness", Scanners(&[Gitleaks, TruffleHog])),
    of("HARNESS_ACCOUNT", "sat.{w22}.{h24}.{w20}", "Harness", Scanners(&[Gitleaks, Semgrep])),
    of("ZOHO", "1000.{h32}.{h32}", "Zoho", Scanners(&[Kingfisher])),
    of("AIRTABLE", "pat{w14}.{h64}", "Airtable", Scanners(&[Gitleaks, TruffleHog, Kingfisher])),
    of("AUTHRESS", "sc_{l12}.{l5}.acc_{l20}.{w60}", "Authress", Scanners(&[Gitleaks])),
    of("CURSOR", "key_{h64}", "Cursor", Scanners(&[Semgrep])),
    of("LOGFIRE", "pylf_v1_us_{w44}", "Pydantic", Seen),
    of("PYDANTIC_GATEWAY", "paig_{w32}", "Pydantic", Scanners(&[Semgrep])),
    of("MEM", "m0-{w40}", "Mem0", Scanners(&[Semgrep])),
    of("CARTESIA", "sk_car_{w22}", "Cartesia", Scanners(&[Semgrep])),
    of("MURF", "ap2_{i}", "Murf", Scanners(&[Semgrep])),
    of("COZE", "pat_{w64}", "Coze", Scanners(&[Semgrep])),
    of("COZE_USER", "czu_{w65}", "Coze", Scanners(&[Semgrep])),
    of("BUILDKITE_AGENT", "bkar_{w8}.{w72}", "Buildkite", Scanners(&[Semgrep])),
    of("BUILDKITE_PORTAL", "bkps_{w8}_{h60}", "Buildkite", Scanners(&[Semgrep])),
    of("DATABRICKS_CLIENT", "dose{h32}", "Databricks", Scanners(&[Semgrep])),
    of("ELASTIC", "essu_{w90}", "Elastic", Scanners(&[Semgrep])),
    of("CORALOGIX", "cxup_{w30}", "Coralogix", Scanners(&[Semgrep])),
    of("GRAFANA_OLD", "eyJrIjoi{w80}", "Grafana", Scanners(&[Gitleaks, Kingfisher])),
    of("STACKHAWK", "hawk.{w20}.{w20}", "StackHawk", Scanners(&[Semgrep])),
    of("AIKIDO", "AIK_SECRET_{w64}", "Aikido", Scanners(&[Semgrep])),
    of("OPENVSX", "ovsxat_{i}", "Open VSX", Seen),
    of("PACKAGIST", "packagist_uut_{h68}", "Private Packagist", Vendor("packagist.com, secret scanning")),
    of("MAILERSEND", "mlsn.{h64}", "MailerSend", Scanners(&[Semgrep])),
    of("ONESIGNAL", "os_v2_app_{l103}", "OneSignal", Scanners(&[Semgrep])),
    of("TELNYX", "KEY01{w53}", "Telnyx", Scanners(&[TruffleHog])),
    of("AFRICASTALKING", "atsk_{h72}", "Africa's Talking", Scanners(&[Semgrep])),
    of("TEAMWORK", "tkn.v1_{w71}=", "Teamwork", Scanners(&[TruffleHog, Semgrep])),
    of("FULLSTORY", "na1.{w100}", "Fullstory", Scanners(&[TruffleHog, Kingfisher])),
    of("ZENHUB", "zh_{h64}", "ZenHub", Scanners(&[Semgrep])),
    of("FREEPIK", "FPSX{h32}", "Freepik", Scanners(&[Semgrep])),
    of("FORTYTWO", "s-s4t2ud-{h64}", "42", Scanners(&[Gitleaks, TruffleHog])),
    of("MERCADOPAGO", "APP_USR-{d16}-{d6}-{h32}-{d9}", "Mercado Pago", Scanners(&[Semgrep])),
    of("PADDLE", "pdl_live_apikey_{w26}_{w26}", "Paddle", Scanners(&[Semgrep])),
    of("XENDIT", "xnd_production_{w60}", "Xendit", Scanners(&[Semgrep])),
    of("FLEETBASE", "flb_live_{w20}", "Fleetbase", Scanners(&[TruffleHog, Kingfisher])),
    of("WEAVIATE", "{w80}PV92MjAw", "Weaviate", Scanners(&[Semgrep])),
    of("FIREBASE", "{w11}:APA91b{w134}", "Google", Scanners(&[Semgrep])),
    of("TENCENT", "IKID{w32}", "Tencent", Scanners(&[Semgrep])),
];

/// A text without a pattern, the same in each run.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    pub fn of(&mut self, signs: &str, length: usize) -> String {
        let signs: Vec<char> = signs.chars().collect();
        (0..length).map(|_| signs[self.below(signs.len())]).collect()
    }

    pub fn word(&mut self, length: usize) -> String {
        self.of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", length)
    }

    pub fn hex(&mut self, length: usize) -> String {
        self.of("0123456789abcdef", length)
    }

    pub fn upper(&mut self, length: usize) -> String {
        self.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", length)
    }

    /// A key of a form.
    pub fn key(&mut self, form: &str) -> String {
        let mut parts = form.split('{');
        let mut key = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (sort, rest) = part.split_once('}').expect("a sort is closed");
            let bytes = || sort[1..].parse().expect("a length");
            key += &match sort.as_bytes()[0] {
                b'w' => self.word(bytes()),
                b'a' => self.of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", bytes()),
                b'l' => self.of("abcdefghijklmnopqrstuvwxyz0123456789", bytes()),
                b'u' => self.upper(bytes()),
                b'h' => self.hex(bytes()),
                b'd' => self.of("123456789", bytes()),
                _ => [8, 4, 4, 4, 12].map(|bytes| self.hex(bytes)).join("-"),
            };
            key += rest;
        }
        key
    }
}
