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

use crate::key_forms::{Basis, KEY_FORMS, Random};

/// Findings in masked text that are not secrets: the kind of the finding, a part of the name of the file, and the reason.
const ALLOWED: [(&str, &str, &str); 3] = [
    ("@secretlint/secretlint-rule-database-connection-string", "urls.txt", "the mark stands where the password stood"),
    ("Hex High Entropy String", "lock", "the checksum of a package"),
    ("Base64 High Entropy String", "lock", "the checksum of a package"),
];

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
    all.extend(KEY_FORMS.iter().map(|form| (form.name, random.key(form.form))));
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

#[test]
fn each_kind_of_key_goes_without_a_name() {
    let mut random = Random(11);
    let mut left = Vec::new();
    for form in KEY_FORMS {
        let key = random.key(form.form);
        for (front, behind) in [("", ""), ("use ", " now"), ("\"", "\""), ("[", "],\n"), ("\u{1b}[32m", "\u{1b}[0m")] {
            let masked = redacted(&format!("{front}{key}{behind}")).unwrap_or_default();
            let stays = key.as_bytes().windows(8).any(|part| masked.as_bytes().windows(8).any(|of| of == part));
            let is_address = key.starts_with("https://") && masked.contains("https://[redacted]");
            if !masked.contains("[redacted]") || (stays && !is_address) {
                left.push(format!("{} {front:?} {masked}", form.name));
            }
        }
    }
    assert_eq!(left, Vec::<String>::new());
}

/// Most forms that are a guess.
const GUESSES_MAX: usize = 5;

#[test]
fn each_kind_of_key_has_a_source() {
    let mut names: Vec<_> = KEY_FORMS.iter().map(|form| form.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name stands twice in {names:?}");
    for form in KEY_FORMS {
        let has_source = match form.basis {
            Basis::Vendor(page) => page.len() > 3,
            Basis::Scanners(scanners) => !scanners.is_empty(),
            Basis::Seen | Basis::Guess => true,
        };
        assert!(has_source && !form.maker.is_empty(), "{form:?}");
    }
    let guesses: Vec<_> = KEY_FORMS.iter().filter(|form| form.basis == Basis::Guess).map(|form| form.name).collect();
    assert!(guesses.len() <= GUESSES_MAX, "{guesses:?}");
}
