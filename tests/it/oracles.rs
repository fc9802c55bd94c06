//! Published scanners measure the masking: `detect-secrets` and `secretlint` find gaps in our own table.
//!
//! `make oracles` installs them into `target/oracles`. The corpus is put together when the test runs, so that no file of the
//! project holds a key that looks real.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use codex_shim::testing::secrets::{Masker, redacted};
use serde_json::Value;

/// Findings in masked text that are not secrets: the kind of the finding, a part of the name of the file, and the reason.
const ALLOWED: [(&str, &str, &str); 3] = [
    ("@secretlint/secretlint-rule-database-connection-string", "urls.txt", "the mark stands where the password stood"),
    ("Hex High Entropy String", "lock", "the checksum of a package"),
    ("Base64 High Entropy String", "lock", "the checksum of a package"),
];

/// A text without a pattern, the same in each run.
struct Random(u64);

impl Random {
    fn of(&mut self, signs: &str, length: usize) -> String {
        let signs: Vec<char> = signs.chars().collect();
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            signs[(self.0 >> 33) as usize % signs.len()]
        };
        (0..length).map(|_| next()).collect()
    }

    fn word(&mut self, length: usize) -> String {
        self.of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", length)
    }

    fn hex(&mut self, length: usize) -> String {
        self.of("0123456789abcdef", length)
    }

    fn upper(&mut self, length: usize) -> String {
        self.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", length)
    }
}

/// Keys of services, by a name that a file would give them.
fn keys(random: &mut Random) -> Vec<(&'static str, String)> {
    let token = |header: &str| {
        let encode = |text: &str| BASE64_STANDARD.encode(text).trim_end_matches('=').to_owned();
        format!("{}.{}.", encode(header), encode("{\"sub\":\"1234567890\",\"name\":\"Ann\",\"iat\":1516239022}"))
    };
    vec![
        ("AWS_ACCESS_KEY_ID", format!("AKIA{}", random.upper(16))),
        ("AWS_SECRET_ACCESS_KEY", random.word(40)),
        ("GITHUB_TOKEN", format!("ghp_{}", random.word(36))),
        ("GH_FINE", format!("github_pat_{}_{}", random.word(22), random.word(59))),
        ("GITLAB", format!("glpat-{}", random.word(20))),
        (
            "SLACK_BOT",
            format!("xoxb-{}-{}-{}", random.of("123456789", 12), random.of("123456789", 12), random.word(24)),
        ),
        (
            "SLACK_HOOK",
            format!("https://hooks.slack.com/services/T{}/B{}/{}", random.upper(8), random.upper(8), random.word(24)),
        ),
        ("OPENAI_API_KEY", format!("sk-{}T3BlbkFJ{}", random.word(20), random.word(20))),
        ("OPENAI_PROJECT", format!("sk-proj-{}T3BlbkFJ{}", random.word(74), random.word(74))),
        ("ANTHROPIC_API_KEY", format!("sk-ant-api03-{}AA", random.word(93))),
        ("STRIPE", format!("sk_live_{}", random.word(24))),
        ("STRIPE_RESTRICTED", format!("rk_live_{}", random.word(24))),
        ("NPM", format!("npm_{}", random.word(36))),
        ("PYPI", format!("pypi-AgEIcHlwaS5vcmc{}", random.word(80))),
        ("GOOGLE", format!("AIza{}", random.word(35))),
        ("SENDGRID", format!("SG.{}.{}", random.word(22), random.word(43))),
        ("TWILIO", format!("SK{}", random.hex(32))),
        ("TWILIO_ACCOUNT", format!("AC{}", random.hex(32))),
        ("MAILCHIMP", format!("{}-us12", random.hex(32))),
        ("MAILGUN", format!("key-{}", random.hex(32))),
        ("SQUARE", format!("sq0csp-{}", random.word(43))),
        ("TELEGRAM", format!("{}:AA{}", random.of("123456789", 9), random.word(33))),
        ("DISCORD", format!("M{}.{}.{}", random.word(23), random.word(6), random.word(27))),
        ("JWT", token("{\"alg\":\"HS256\",\"typ\":\"JWT\"}") + &random.word(43)),
        ("LINEAR", format!("lin_api_{}", random.word(40))),
        ("SHOPIFY", format!("shpat_{}", random.hex(32))),
        ("DOCKER", format!("dckr_pat_{}", random.word(27))),
        ("HUGGING", format!("hf_{}", random.word(34))),
        ("DIGITALOCEAN", format!("dop_v1_{}", random.hex(64))),
        ("FIGMA", format!("figd_{}", random.word(40))),
        ("VAULT", format!("hvs.{}", random.word(90))),
        ("DATABRICKS", format!("dapi{}", random.hex(32))),
        ("GRAFANA", format!("glsa_{}_{}", random.word(32), random.hex(8))),
        ("NOTION", format!("ntn_{}", random.word(46))),
        ("ONEPASSWORD", format!("ops_eyJ{}", random.word(260))),
    ]
}

/// Kinds that vendors have introduced or given a mark since: each with the maker, and the source of its format. `gl` is a rule of
/// gitleaks, `th` a detector of TruffleHog, `sl` a rule of secretlint, `kf` a rule of Kingfisher, `v` the vendor's own pages.
fn newer_keys(random: &mut Random) -> Vec<(&'static str, String)> {
    let uuid = |random: &mut Random| [8, 4, 4, 4, 12].map(|length| random.hex(length)).join("-");
    vec![
        ("NETLIFY_TOKEN", format!("nfp_{}", random.word(36))), // Netlify, th
        ("NETLIFY_CLI", format!("nfc_{}", random.word(36))),   // Netlify, v
        ("HEROKU_KEY", format!("HRKU-AA{}", random.word(58))), // Heroku, v and gl
        ("HEROKU_OLD", format!("HRKU-{}", uuid(random))),      // Heroku, v
        ("GEMINI", format!("AQ.Ab8{}", random.word(47))),      // Google, v
        ("GOOGLE_AUTH", format!("AQ.{}", random.word(50))),    // Google, v
        ("VERCEL_USER", format!("vcp_{}", random.word(56))),   // Vercel, sl
        ("VERCEL_APP", format!("vca_{}", random.word(56))),    // Vercel, sl
        ("CLOUDFLARE_USER", format!("cfut_{}{}", random.word(40), random.hex(8))), // Cloudflare, v and th
        ("CLOUDFLARE_ACCOUNT", format!("cfat_{}{}", random.word(40), random.hex(8))), // Cloudflare, v and th
        ("CLOUDFLARE_GLOBAL", format!("cfk_{}{}", random.word(40), random.hex(8))), // Cloudflare, v and th
        ("BEDROCK", format!("bedrock-api-key-{}", random.word(80))), // AWS, gl
        ("AZURE_AI", format!("{}JQQJ99{}", random.word(52), random.word(26))), // Azure, v
        ("AZURE_STORAGE", format!("{}+ASt{}==", random.word(76), random.word(6))), // Azure, v
        ("AZURE_REGISTRY", format!("{}+ACR{}", random.word(42), random.word(6))), // Azure, th
        ("ENTRA", format!("{}8Q~{}", random.word(3), random.word(34))), // Entra, gl and th
        ("OPENAI_ADMIN", format!("sk-admin-{}T3BlbkFJ{}", random.word(58), random.word(58))), // OpenAI, gl
        ("DENO", format!("ddp_{}", random.word(36))),          // Deno, th
        ("NEON", format!("napi_{}", random.of("abcdefghijklmnopqrstuvwxyz0123456789", 64))), // Neon, v
        ("XATA", format!("xau_{}", random.word(40))),          // Xata, v
        ("ATLAS_ACCOUNT", format!("mdb_sa_sk_{}", random.word(40))), // MongoDB Atlas, kf
        ("E2B", format!("e2b_{}", random.hex(40))),            // E2B, v
        ("TOGETHER", format!("tgp_v1_{}", random.word(43))),   // Together, v
        ("CEREBRAS", format!("csk-{}", random.word(48))),      // Cerebras, v
        ("RUNPOD", format!("rpa_{}", random.word(46))),        // RunPod, v
        ("FIREWORKS", format!("fw_{}", random.word(24))),      // Fireworks, v
        ("LLAMA", format!("llx-{}", random.word(48))),         // LlamaCloud, v
        ("JINA", format!("jina_{}", random.word(60))),         // Jina, v
        ("APIFY", format!("apify_api_{}", random.word(36))),   // Apify, th
        ("BROWSERBASE", format!("bb_live_{}", random.word(27))), // Browserbase, v
        ("TRIGGER", format!("tr_prod_{}", random.word(20))),   // Trigger.dev, v
        ("INNGEST", format!("signkey-prod-{}", random.hex(64))), // Inngest, v
        ("POLAR", format!("polar_oat_{}", random.word(43))),   // Polar, v
        ("VAL", format!("vtwn_{}", random.word(27))),          // Val Town, v
        ("SOCKET", format!("sktsec_{}", random.word(50))),     // Socket, v
        ("WAKA", format!("waka_{}", uuid(random))),            // WakaTime, v
        ("AXIOM", format!("xaat-{}", uuid(random))),           // Axiom, v
        ("HONEYCOMB", format!("hcaik_{}", random.word(58))),   // Honeycomb, v
        ("SNYK", format!("snyk_uat.{}.{}", random.hex(8), random.word(60))), // Snyk, v
        ("SONAR_USER", format!("squ_{}", random.hex(40))),     // SonarQube, gl and kf
        ("SONAR_CLOUD", format!("sqco_{}", random.word(59))),  // SonarQube Cloud, th
        ("CODY", format!("slk_{}", random.hex(64))),           // Sourcegraph, th
        ("JETBRAINS", format!("perm-{}.{}.{}", random.word(12), random.word(12), random.word(30))), // JetBrains, v
        ("BITBUCKET", format!("BBDC-{}", random.word(44))),    // Bitbucket, th
        ("OPENSHIFT", format!("sha256~{}", random.word(43))),  // OpenShift, gl
        ("PREFECT", format!("pnu_{}", random.word(36))),       // Prefect, gl and th
        ("INFRACOST", format!("ico-{}", random.word(32))),     // Infracost, gl
        ("SPECTRAL", format!("spu-{}", random.word(32))),      // Spectral, th
        ("ENDOR", format!("endr+{}", random.word(16))),        // Endor Labs, th
        ("NEBULA", format!("dnkey-{}-{}", random.word(26), random.word(52))), // Defined Networking, gl
        ("CONTENTFUL", format!("CFPAT-{}", random.word(43))),  // Contentful, th
        ("TYPEFORM", format!("tfp_{}", random.word(44))),      // Typeform, gl and th
        ("README_KEY", format!("rdme_{}", random.hex(70))),    // ReadMe, gl and th
        ("ROOTLY", format!("rootly_{}", random.hex(64))),      // Rootly, th
        ("SALAD", format!("salad_cloud_ann_{}", random.word(40))), // SaladCloud, th
        ("SCALINGO", format!("tk-us-{}", random.word(48))),    // Scalingo, gl
        ("SETTLEMINT", format!("sm_aat_{}", random.word(16))), // SettleMint, gl
        ("ADAFRUIT", format!("aio_{}", random.word(28))),      // Adafruit, th
        ("UBIDOTS", format!("BBFF-{}", random.word(30))),      // Ubidots, th and kf
        ("VOICEFLOW", format!("VF.DM.{}.{}", random.hex(24), random.word(16))), // Voiceflow, th
        ("SCRAPFLY", format!("scp-live-{}", random.hex(32))),  // Scrapfly, th and kf
        ("BANNERBEAR", format!("bb_pr_{}", random.hex(30))),   // Bannerbear, th
        ("DUFFEL", format!("duffel_live_{}", random.word(43))), // Duffel, gl and th
        ("EASYPOST", format!("EZAK{}", random.word(54))),      // EasyPost, gl
        ("FLUTTERWAVE", format!("FLWSECK-{}-X", random.hex(32))), // Flutterwave, th
        ("FRAMEIO", format!("fio-u-{}", random.word(64))),     // Frame.io, gl and th
        ("SHIPPO", format!("shippo_live_{}", random.hex(40))), // Shippo, gl and th
        ("RAMP", format!("ramp_sec_{}", random.word(48))),     // Ramp, th
        ("RAZORPAY", format!("rzp_live_{}", random.word(14))), // Razorpay, th
        ("ROBINHOOD", format!("rh-api-{}", uuid(random))),     // Robinhood, th
        ("PAGARME", format!("ak_live_{}", random.word(30))),   // Pagar.me, th and kf
        ("PLAID", format!("access-production-{}", uuid(random))), // Plaid, gl and th
        ("PHOTOROOM", format!("sk_pr_default_{}", random.hex(40))), // Photoroom, th
        ("FLEXPORT", format!("shltm_{}", random.word(40))),    // Flexport, th and kf
        ("ADOBE", format!("p8e-{}", random.word(32))),         // Adobe, gl
        ("DROPBOX", format!("sl.u.{}", random.word(130))),     // Dropbox, v
        ("SALESFORCE", format!("3MVG9{}", random.word(80))),   // Salesforce, th
        ("MAPBOX", format!("sk.eyJ{}.{}", random.word(60), random.word(22))), // Mapbox, v
        ("STYTCH", format!("secret-live-{}", random.word(36))), // Stytch, v
        ("STATSIG", format!("secret-{}", random.word(43))),    // Statsig, v
        ("PUBNUB", format!("sec-c-{}", random.word(44))),      // PubNub, v
        ("ALCHEMY", format!("alcht_{}", random.word(30))),     // Alchemy, th
        ("YANDEX", format!("AQVN{}", random.word(36))),        // Yandex, gl
        ("CLICKHOUSE", format!("4b1d{}", random.word(38))),    // ClickHouse, gl
        ("MAXMIND", format!("{}_{}_mmk", random.word(6), random.word(29))), // MaxMind, gl and th
        ("NEWRELIC", format!("{}FFFFNRAL", random.hex(32))),   // New Relic, th
        ("NEWRELIC_BROWSER", format!("NRBR-{}", random.hex(19))), // New Relic, th
        ("SENTRY_APP", format!("sntrya_{}", random.hex(64))),  // Sentry, v
        ("POSTHOG_PROJECT", format!("phs_{}", random.word(43))), // PostHog, v
        ("FIGMA_PLAN", format!("figp_{}", random.word(44))),   // Figma, th
        ("ZAPIER", format!("https://hooks.zapier.com/hooks/catch/{}/{}/", random.of("123456789", 8), random.word(12))), // v
        ("LARK", format!("https://open.larksuite.com/open-apis/bot/v2/hook/{}", uuid(random))), // Lark, v
    ]
}

/// Fewest newer kinds of keys.
const NEWER_KEYS_MIN: usize = 50;

/// Names that say what a value is, for values without a shape.
const NAMES: [&str; 18] = [
    "DB_PASSWORD",
    "db_pass",
    "backup_pass",
    "router-pass",
    "DJANGO_SECRET_KEY",
    "SECRET_KEY_BASE",
    "api_key",
    "apiKey",
    "auth_key",
    "service_key",
    "account_key",
    "db_key",
    "private_key",
    "client_secret",
    "password",
    "passwd",
    "aws_secret_access_key",
    "SecretAccessKey",
];

/// All keys, the newer ones behind the others.
fn all_keys(random: &mut Random) -> Vec<(&'static str, String)> {
    let mut all = keys(random);
    all.extend(newer_keys(random));
    all
}

/// Files and outputs as developers have them: their names, and what they say.
fn corpus() -> BTreeMap<String, String> {
    let mut random = Random(7);
    let mut files = BTreeMap::new();
    let mut values: Vec<(String, String)> =
        all_keys(&mut random).into_iter().map(|(name, key)| (name.to_owned(), key)).collect();
    values.extend(NAMES.iter().map(|name| ((*name).to_owned(), random.word(28))));
    values.extend(
        NAMES.iter().map(|name| (format!("x_{name}"), format!("{}!{}", random.word(7), random.of("0123456789", 2)))),
    );
    let all = |form: &dyn Fn(&str, &str) -> String| -> String {
        values.iter().map(|(name, value)| form(name, value) + "\n").collect()
    };
    let mut add = |name: &str, text: String| files.insert(name.to_owned(), text);
    add("dot.env", all(&|name, value| format!("{name}={value}")));
    add("exports.sh", all(&|name, value| format!("export {name}=\"{value}\"")));
    add("declared.txt", all(&|name, value| format!("declare -x {name}=\"{value}\"")));
    add("values.yaml", all(&|name, value| format!("  {name}: {value}")));
    add("quoted.yaml", all(&|name, value| format!("  - {name}: \"{value}\"")));
    add("settings.toml", all(&|name, value| format!("{name} = \"{value}\"")));
    add("settings.ini", format!("[default]\n{}", all(&|name, value| format!("{name} = {value}"))));
    add("settings.json", format!("{{\n{}\"z\": 1\n}}\n", all(&|name, value| format!("  \"{name}\": \"{value}\","))));
    add("nested.log", all(&|name, value| format!("got {{\\\"{name}\\\":\\\"{value}\\\",\\\"n\\\":1}}")));
    add("change.diff", all(&|name, value| format!("-{name}={value}\n+{name}={value}")));
    add("Dockerfile.diff", all(&|name, value| format!(" FROM x\n-ENV {name} {value}\n+ENV {name} {value}")));
    add("pairs.diff", all(&|name, value| format!(" - name: {name}\n-  value: {value}\n+  value: {value}")));
    add(
        "coloured.diff",
        all(&|name, value| {
            format!("\u{1b}[31m-{name}: {value}\u{1b}[m\n\u{1b}[32m+\u{1b}[m\u{1b}[32m{name}: {value}\u{1b}[m")
        }),
    );
    add(
        "shells.txt",
        all(&|name, value| format!("+ setx {name} {value}\n$ set -gx {name} {value}\n\u{1b}[32msetenv {name} {value}")),
    );
    add("blanks.txt", all(&|name, value| format!("{name}:\u{a0}{value}")));
    add("numbered.txt", all(&|name, value| format!("     7\t{name}={value}\n.env:7:{name}={value}")));
    add("change-yaml.diff", all(&|name, value| format!("+  {name}: '{value}'")));
    add("program.py", all(&|name, value| format!("{} = '{value}'", name.to_lowercase())));
    add("program.js", all(&|name, value| format!("const {name} = \"{value}\";")));
    add("program.go", all(&|name, value| format!("{name} := \"{value}\"")));
    add(
        "inspect.json",
        format!("[{{\"Env\": [\n{}\"PATH=/bin\"]}}]", all(&|name, value| format!("\"{name}={value}\","))),
    );
    add("pairs.yaml", all(&|name, value| format!("- name: {name}\n  value: {value}")));
    add("colours.txt", all(&|name, value| format!("\u{1b}[34;1m{name}\u{1b}[0m=\u{1b}[32m{value}\u{1b}[0m")));
    add("cjk.md", all(&|name, value| format!("设置{name}={value}，然后继续。密钥：{value}")));
    add("escaped.txt", all(&|name, value| format!("\"log\":\"ok\\n{name}={value}\\ndone\"")));
    add("main.tf", all(&|name, value| format!("  {name} = \"{value}\"\n  ~ {name} = \"{value}\" -> \"{value}\"")));
    add("maven.xml", all(&|name, value| format!("<{name}>{value}</{name}>")));
    let pem = |kind: &str, random: &mut Random| {
        let lines: String = (0..12).map(|_| random.word(64) + "\n").collect();
        format!("-----BEGIN {kind}PRIVATE KEY-----\n{lines}-----END {kind}PRIVATE KEY-----\n")
    };
    let mut random = Random(11);
    for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
        add(&format!("key-{}.pem", kind.trim().to_lowercase()), pem(kind, &mut random));
    }
    let key = pem("", &mut random);
    let account = serde_json::json!({"type": "service_account", "project_id": "p", "private_key_id": random.hex(40), "private_key": key,
        "client_email": "x@p.iam.gserviceaccount.com"});
    add("service-account.json", format!("{account:#}\n"));
    let identity = format!("AKIA{}", random.upper(16));
    let (secret, session) = (random.word(40), random.word(300));
    add(
        "credentials",
        format!(
            "[default]\naws_access_key_id = {identity}\naws_secret_access_key = {secret}\naws_session_token = {session}\n"
        ),
    );
    add(
        "sts.json",
        format!(
            "{{\n  \"Credentials\": {{\n    \"AccessKeyId\": \"{identity}\",\n    \"SecretAccessKey\": \"{secret}\",\n    \"SessionToken\": \"{session}\"\n  }}\n}}\n"
        ),
    );
    add("keys.csv", format!("Access key ID,Secret access key\n{identity},{secret}\n"));
    let password = random.word(16);
    let basic = BASE64_STANDARD.encode(format!("ann:{password}"));
    add(
        "npmrc",
        format!("//registry.npmjs.org/:_authToken=npm_{}\n_auth={basic}\n//r/:_password={basic}\n", random.word(36)),
    );
    add(
        "netrc",
        format!("machine github.com\n  login ann\n  password {password}\nmachine h login b password {password}\n"),
    );
    add("pip.conf", format!("[global]\nindex-url = https://ann:{password}@pypi.example.com/simple\n"));
    add(
        "remotes.txt",
        format!(
            "origin\thttps://ann:{password}@github.com/a/b.git (fetch)\norigin\thttps://x-access-token:ghs_{}@github.com/a/b (push)\n",
            random.word(36)
        ),
    );
    add(
        "curl.log",
        format!(
            "> GET / HTTP/1.1\n> Authorization: Basic {basic}\n> Cookie: sid={}\n< Set-Cookie: session={}; Path=/\n> X-Api-Key: {}\n> Authorization: Bearer {}\n",
            random.word(32),
            random.word(32),
            random.word(32),
            random.word(40)
        ),
    );
    add(
        "secret.yaml",
        format!(
            "apiVersion: v1\nkind: Secret\ndata:\n  password: {basic}\n  tls.key: {}\n  .dockerconfigjson: {}\n",
            BASE64_STANDARD.encode(&key),
            BASE64_STANDARD.encode("{\"auths\":{}}")
        ),
    );
    add("docker.json", format!("{{\"auths\": {{\"r.io\": {{\"auth\": \"{basic}\"}}}}}}\n"));
    add(
        "urls.txt",
        ["postgres", "mysql", "mongodb+srv", "redis", "amqp"]
            .map(|scheme| format!("{scheme}://ann:{password}@db.example.com:5432/x\n"))
            .concat(),
    );
    add(
        "azure.txt",
        format!(
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}==;EndpointSuffix=core.windows.net\n",
            random.word(86)
        ),
    );
    add(
        "lock.json",
        format!("{{\"integrity\": \"sha512-{}==\", \"resolved\": \"https://r/x-1.0.0.tgz\"}}\n", random.word(86)),
    );
    files
}

fn tools() -> Option<PathBuf> {
    let into = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/oracles");
    let is_there =
        into.join("python/bin/detect-secrets").exists() && into.join("node_modules/.bin/secretlint").exists();
    is_there.then_some(into)
}

/// Returns the findings of both scanners below a folder: the kind, the file and the line.
fn found(tools: &Path, dir: &Path) -> Vec<(String, String, u64)> {
    let parsed =
        |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
    let output = |command: &mut Command| {
        command.current_dir(dir).stdin(Stdio::null()).output().expect("the scanner runs").stdout
    };
    let mut detect = Command::new(tools.join("python/bin/detect-secrets"));
    let told = parsed(&output(detect.args(["scan", "--all-files", "--no-verify", "."])));
    let mut all = Vec::new();
    for (file, findings) in told["results"].as_object().expect("files") {
        for finding in findings.as_array().expect("findings") {
            let kind = finding["type"].as_str().expect("a kind").to_owned();
            all.push((kind, file.clone(), finding["line_number"].as_u64().expect("a line")));
        }
    }
    let config = dir.parent().expect("a folder").join("secretlintrc.json");
    let rule = tools.join("node_modules/@secretlint/secretlint-rule-preset-recommend");
    fs::write(&config, serde_json::json!({"rules": [{"id": rule}]}).to_string()).expect("write");
    let mut secretlint = Command::new(tools.join("node_modules/.bin/secretlint"));
    // To a file: of what goes to a pipe the end may be missing.
    let report = config.with_file_name("report.json");
    secretlint.args(["--format", "json", "--no-color", "--secretlintrc"]).arg(&config).arg("--output").arg(&report);
    output(secretlint.arg("**/*"));
    for file in parsed(&fs::read(report).unwrap_or_else(|_| b"[]".to_vec())).as_array().expect("files") {
        let name = file["filePath"].as_str().expect("a path").rsplit('/').next().expect("a name").to_owned();
        for message in file["messages"].as_array().expect("messages") {
            let kind = message["ruleId"].as_str().expect("a rule").to_owned();
            all.push((kind, name.clone(), message["loc"]["start"]["line"].as_u64().unwrap_or_default()));
        }
    }
    all
}

#[test]
fn published_scanners_find_nothing_in_masked_text() {
    let Some(tools) = tools() else {
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: oracles: the scanners are not installed; `make oracles` does that");
        return;
    };
    let corpus = corpus();
    let masker = Masker::new(&[]).expect("no pattern");
    let home = tempfile::tempdir().expect("a folder");
    let write = |kind: &str, masked: &dyn Fn(&str) -> String| {
        let dir = home.path().join(kind).join("corpus");
        fs::create_dir_all(&dir).expect("a folder");
        corpus.iter().for_each(|(name, text)| fs::write(dir.join(name), masked(text)).expect("write"));
        found(&tools, &dir)
    };
    let plain = write("plain", &|text| text.to_owned());
    // Each scanner finds many: a scanner that does not work finds nothing in masked text, too.
    let (of_secretlint, of_detect) = plain.iter().partition::<Vec<_>, _>(|(kind, ..)| kind.starts_with("@secretlint"));
    assert!(of_secretlint.len() > 100 && of_detect.len() > 300, "{} and {}", of_secretlint.len(), of_detect.len());
    let is_allowed = |kind: &str, file: &str| ALLOWED.iter().any(|(of, part, _)| kind == *of && file.contains(part));
    for (name, masked) in [
        ("shown", write("shown", &|text| redacted(text).unwrap_or_else(|| text.to_owned()))),
        ("stored", write("stored", &|text| masker.text(text).unwrap_or_else(|| text.to_owned()))),
    ] {
        let left: Vec<_> = masked.iter().filter(|(kind, file, _)| !is_allowed(kind, file)).collect();
        let lines = left.iter().map(|(kind, file, line)| {
            let text = fs::read_to_string(home.path().join(name).join("corpus").join(file)).unwrap_or_default();
            let line = text.lines().nth((*line as usize).saturating_sub(1)).unwrap_or_default();
            format!("{kind} in {file}: {line}")
        });
        let lines: Vec<String> = lines.collect();
        assert!(lines.is_empty(), "{name}: {} of {}\n{}", lines.len(), plain.len(), lines.join("\n"));
    }
}

#[test]
fn no_secret_of_the_corpus_is_left() {
    let mut random = Random(7);
    let keys = all_keys(&mut random);
    assert!(newer_keys(&mut random).len() >= NEWER_KEYS_MIN);
    let mut left = Vec::new();
    let masker = Masker::new(&[]).expect("no pattern");
    for (name, text) in corpus() {
        for masked in [redacted(&text), masker.text(&text)] {
            let masked = masked.unwrap_or_else(|| text.clone());
            let is_left = |key: &&(&str, String)| masked.contains(&key.1[key.1.len() - 12..]);
            left.extend(keys.iter().filter(is_left).map(|(key, _)| format!("{key} in {name}")));
        }
    }
    assert_eq!(left, Vec::<String>::new());
}
