//! Tables of texts that hold a secret, and of texts that only look as if they did. The secret stands at `@`.

use super::{redacted, redacted_json};
use crate::engine::Masker;

/// Values that are masked: with a sign in the middle, a word of one alphabet, one in letters and digits.
const VALUES: [&str; 3] = ["Hunter2!Zq", "correcthorse", "a7Bq2Rt9XzK4"];

/// A way to mask a text.
type Masking<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Fails with every text of which something is left, each with what became of it.
fn check_all(texts: &[&str], values: &[&str], ways: [Masking<'_>; 2], is_fit: fn(&str) -> bool) {
    let mut left = Vec::new();
    for text in texts {
        for value in values {
            let text = text.replace('@', value);
            for masked in ways.map(|masked| masked(&text).unwrap_or_default()) {
                if masked.is_empty()
                    || masked.contains(&value[..value.len() - 3])
                    || masked.contains(&value[3..])
                    || !is_fit(&masked)
                {
                    left.push(format!("{text} -> {masked}"));
                }
            }
        }
    }
    assert!(left.is_empty(), "{} {left:#?}", left.len());
}

fn check_goes(texts: &[&str], values: &[&str]) {
    let masker = Masker::new(&[]).expect("no pattern");
    check_all(texts, values, [&redacted, &|text| masker.text(text)], |_| true);
}

/// The same of JSON, which stays JSON.
fn check_json_goes(texts: &[&str], values: &[&str]) {
    let masker = Masker::new(&[]).expect("no pattern");
    let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
    check_all(texts, values, [&redacted_json, &|text| masker.json(text)], is_json);
}

fn check_stays(texts: &[&str]) {
    let changed: Vec<_> = texts.iter().filter_map(|text| Some(format!("{text} -> {}", redacted(text)?))).collect();
    assert!(changed.is_empty(), "{} {changed:#?}", changed.len());
}

fn check_json_stays(texts: &[&str]) {
    let changed: Vec<_> = texts.iter().filter_map(|text| Some(format!("{text} -> {}", redacted_json(text)?))).collect();
    assert!(changed.is_empty(), "{} {changed:#?}", changed.len());
}

#[test]
fn values_in_nested_quotes_go() {
    check_goes(
        &[
            "sh -c \"DB_PASS='@' true\"",
            "sh -c \"export DB_PASS='@'; true\"",
            "sh -c 'DB_PASS=\"@\" true'",
            "sh -c 'DB_PASS='\\''@'\\'' true'",
            "sh -c 'DB_PASS='\"'\"'@'\"'\"' true'",
            "bash -lc \"TOKEN=\\\"@\\\" true\"",
            "python3 -c \"password='@'\"",
            "python3 -c \"password='@'; print(1)\"",
            "python3 -c 'password = \"@\"'",
            "python3 -c \"connect(host='h', password='@')\"",
            "node -e \"const apiKey='@'\"",
            "fish -c 'set -gx API_KEY @'",
            "fish -c \"set -gx API_KEY @; ls\"",
            "fish -c \"set -x API_KEY '@'\"",
            "set -gx API_KEY @",
            "setenv API_KEY @",
            "csh -c 'setenv API_KEY @'",
            "csh -c 'setenv API_KEY @; make'",
            "setx API_KEY @",
            "setx API_KEY \"@\" /M",
            "cmd /c \"set API_KEY=@\"",
            "PASSWORD=ab(@",
            "PASSWORD=@)x",
            "psql -c \"CREATE USER bob PASSWORD '@'\"",
            "psql -c \"ALTER USER bob WITH PASSWORD '@';\"",
            "mysql -e \"CREATE USER 'bob'@'h' IDENTIFIED BY '@'\"".replace("'bob'@'h'", "bob").as_str(),
            "psql -c 'ALTER USER bob PASSWORD '\\''@'\\'''",
            "{\"cmd\":\"sh -c \\\"DB_PASS='@' true\\\"\"}",
            "[\"bash\",\"-lc\",\"DB_PASS='@' true\"]",
            "ssh host \"API_KEY='@' ./deploy\"",
            "docker run -e \"API_KEY=@\" x",
        ],
        &["Hunter2!Zq", "correcthorse", "a7Bq2Rt9XzK4"],
    );
}

#[test]
fn values_in_argument_arrays_go() {
    const TEXTS: [&str; 14] = [
        r#"["--password","@"]"#,
        r#"["--password", "@"]"#,
        r#"["mysql","-p@"]"#,
        r#"["mysql","-uroot","-p@","db"]"#,
        r#"["curl","-u","u:@"]"#,
        r#"["curl","-u","u:@","https://h"]"#,
        r#"["curl","--user","u:@","https://h"]"#,
        r#"["curl","-H","X-Api-Key: @","https://h"]"#,
        r#"["sshpass","-p","@","ssh","h"]"#,
        r#"["redis-cli","-a","@","ping"]"#,
        r#"["docker","login","-u","me","-p","@"]"#,
        r#"["bash","-lc","mysql -p@ db"]"#,
        r#"[["X-Api-Key","@"]]"#,
        r#"{"value":"@","name":"API_KEY"}"#,
    ];
    check_json_goes(&TEXTS, &VALUES);
    check_goes(&TEXTS, &VALUES);
    let escaped: Vec<String> =
        TEXTS.iter().map(|text| serde_json::json!({ "x": format!("run {text}") }).to_string()).collect();
    let escaped: Vec<&str> = escaped.iter().map(String::as_str).collect();
    check_json_goes(&escaped, &VALUES);
    check_json_goes(
        &[
            r#"{"command":["curl","-u","u:@","https://h"],"cwd":"/"}"#,
            r#"{"params":{"command":["mysql","-p@"]}}"#,
            r#"{"mcp":{"args":["--api-key","@"]}}"#,
            r#"{"a":[{"value":"@","name":"API_KEY"},{"name":"X","value":"open"}]}"#,
            r#"{"headers":[["X-Api-Key","@"],["Accept","x"]]}"#,
        ],
        &VALUES,
    );
}

#[test]
fn other_arrays_stay() {
    check_json_stays(&[
        r#"["--password-stdin","login"]"#,
        r#"["psql","-p","5432"]"#,
        r#"["mkdir","-p","a/b/c"]"#,
        r#"{"value":"open-thing","name":"COLOUR"}"#,
        r#"["git","commit","-m","token parser"]"#,
        r#"{"required":["password","username"]}"#,
        r#"[["name","token"],["a","b"]]"#,
        r#"["curl","-o","out.txt","https://h:80/x"]"#,
    ]);
}

#[test]
fn values_in_other_encodings_go() {
    check_goes(
        &[
            "{\n  \"password\":\n    \"@\"\n}",
            "%22password%22%3A%22@%22",
            "%7B%22password%22%3A%20%22@%22%7D",
            "&quot;password&quot;:&quot;@&quot;",
            "{&quot;password&quot;: &quot;@&quot;}",
            "&#34;password&#34;:&#34;@&#34;",
            r"\u0022password\u0022:\u0022@\u0022",
            r"{\u0022api_key\u0022: \u0022@\u0022}",
            "| DB_PASSWORD | @ |",
            "| Name | Value |\n|---|---|\n| DB_PASSWORD | @ |",
            " DB_PASSWORD | @\n",
            "│ DB_PASSWORD │ @ │",
            "String password = new String(\"@\");",
            "api_key: SecretStr(\"@\"),",
            "Content-Disposition: form-data; name=\"password\"\r\n\r\n@\r\n--x",
            "Content-Disposition: form-data; name=\"api_key\"\n\n@\n--x",
        ],
        &["Hunter2-Zq", "correcthorse", "a7Bq2Rt9XzK4"],
    );
    check_goes(&["password = f(\"@\")", "token: Token::new(\"@\"),"], &["Hunter2-Zq", "a7Bq2Rt9XzK4"]);
    check_goes(&["{\"password\":@}", "{\"password\": @, \"n\":1}", "password: @"], &["924681357924681"]);
    check_json_goes(
        &["{\"password\":@}", "{\"a\":{\"api_key\":@},\"n\":1}", "{\"password\":-@.5e3}"],
        &["924681357924681"],
    );
}

#[test]
fn other_numbers_stay() {
    check_json_stays(&[r#"{"max_tokens":924681357924681}"#, r#"{"total_tokens":924681357924681,"tokens":5}"#]);
}

#[test]
fn more_names_mean_secrets() {
    check_goes(
        &[
            "psk=@",
            "psk=\"@\"",
            "psw=@",
            "bindpw=@",
            "bindpw @",
            "rootpw @",
            "rootpw: @",
            "rootpw = @",
            "https://a.blob.core.windows.net/c?sv=2020&sig=@&se=2026",
            "https://maps.example.com/api?key=@&x=1",
            "https://h/api?x=1&key=@",
            "mot_de_passe=@",
            "mot de passe : @",
            "motdepasse: @",
            "contraseña: @",
            "contraseña=@",
            "senha=@",
            "Kennwort: @",
            "密码: @",
            "密码：@",
            "令牌：@",
            "令牌: @",
            "APIキー：@",
            "API密钥：@",
            "Your API key is: @",
            "The password is: @",
            "your new token is: @",
            "SetEnv DB_PASSWORD @",
            "    SetEnv API_KEY \"@\"",
            "fastcgi_param DB_PASSWORD @;",
            "fastcgi_param API_KEY \"@\";",
            "proxy_set_header X-Api-Key @;",
        ],
        &["Hunter2-Zq", "a7Bq2Rt9XzK4"],
    );
}

#[test]
fn other_names_stay() {
    check_stays(&[
        "https://h/p?key=name&order=asc",
        "https://h/p?sort_key=name",
        "the api key is missing",
        "the password is needed",
        "the password is required",
        "the token is invalid",
        "pat=1",
        "otp: 12",
        "the signature sig=ok",
    ]);
}

#[test]
fn options_of_more_commands_go() {
    check_goes(
        &[
            "mysql -e \"ALTER USER bob IDENTIFIED WITH mysql_native_password BY '@'\"",
            "aws configure set aws_secret_access_key @",
            "aws configure set aws_secret_access_key @ --profile x",
            "aws configure set profile.x.aws_session_token '@'",
            "npm config set //host/:_authToken @",
            "npm config set //host/:_authToken=@",
            "npm config set '//host/:_authToken' \"@\"",
            "yarn config set npmAuthToken @",
            "pip config set global.password @",
            "kubectl create secret generic s --from-literal=k=@",
            "kubectl create secret generic s --from-literal k=@ --from-literal=b=@",
            "kubectl -n x create secret generic s --from-literal='k=@'",
            "gh secret set N --body @",
            "gh secret set N -b @",
            "gh secret set N --body '@'",
            "openssl enc -aes-256-cbc -k @ -in a",
            "openssl enc -d -aes-256-cbc -in a -k '@'",
            "zip -P @ a.zip b",
            "unzip -P @ a.zip",
            "zip -r -P '@' a.zip b",
            "htpasswd -b f u @",
            "htpasswd -bc f u @",
            "htpasswd -nb u @",
            "ldapsearch -x -D cn=admin -w @ -b dc=x",
            "ldapmodify -w '@' -f x",
            "http -a u:@ https://h",
            "https --auth u:@ h",
            "xh -a u:@ h",
            "curl -b 'session=@' https://h",
            "curl -b session=@ https://h",
            "curl --cookie \"session=@; a=b\" https://h",
            "curl -b 'a=b; session=@' https://h",
            "git config x.token @",
            "git config --global github.token @",
            "git config --global user.password '@'",
            "wget --password @ h",
            "wget --http-password=@ h",
            "fly secrets set API=@",
            "heroku config:set API_KEY=@",
            "vault kv put secret/a password=@",
            "echo @ | docker login --password-stdin",
            "curl --oauth2-bearer @ h",
            "curl --pass @ h",
            "smbclient -U bob%@ //h/x",
            "mongo -u a -p @ db",
            "mongosh --username a -p @ h",
            "mysql -u root --password=@ db",
            "PGPASSWORD=@ psql",
            "sqlcmd -S h -U sa -P @",
            "plink -pw @ h",
            "pscp -pw @ a b",
            "keytool -storepass @ -keypass @",
            "az login --service-principal -u x -p @ --tenant t",
            "7z a -p@ a.7z b",
        ],
        &["Hunter2-Zq", "correcthorse", "a7Bq2Rt9XzK4"],
    );
}

#[test]
fn other_options_stay() {
    check_stays(&[
        "aws configure set region eu-west-1",
        "npm config set registry https://r.io/",
        "git config user.name Bob",
        "git config --get x.token",
        "git config --list",
        "kubectl create secret generic s --from-file=k=./f",
        "kubectl create configmap s --from-file k",
        "gh secret set N < file",
        "openssl enc -kfile f",
        "zip -r a.zip b",
        "cp -P a b",
        "ldapsearch -x -W -b dc=x",
        "htpasswd f u",
        "curl -b cookies.txt h",
        "http h a==b",
        "sqlcmd -S h -i f",
        "curl -u bob:$PASSWORD https://h",
        "docker login -u me -p \"$PASSWORD\" r",
        "echo $TOKEN | docker login --password-stdin",
        "echo done | tee log",
        "fly secrets list",
        "vault kv get secret/a",
        "the openssl and zip tools, http and https",
        "7z x a.7z -o./out",
        "mongod --dbpath /x -p 27017",
    ]);
}

#[test]
fn keys_of_more_makers_go() {
    let hex = |bytes: usize| "0a1b2c3d4e5f6789".repeat(8)[..bytes].to_owned();
    let word = |bytes: usize| "a7Bq2Rt9XzK4mN8pLs3Dv6Wy".repeat(8)[..bytes].to_owned();
    for (start, tail) in [
        ("sk-or-v1-", hex(64)),
        ("xsk-or-v1-", hex(64)),
        ("pul-", hex(40)),
        ("CCIPAT_", format!("{}_{}", word(22), hex(40))),
        ("CCIPRJ_", format!("{}_{}", word(22), hex(40))),
        ("rnd_", word(28)),
        ("fc-", hex(32)),
        ("sb_secret_", format!("{}_{}", word(22), word(8))),
        ("pcsk_", format!("{}_{}", word(5), word(63))),
        ("secret_", word(43)),
    ] {
        let key = format!("{start}{tail}");
        for (front, back) in [("", ""), ("use ", " now"), ("\"", "\""), ("k=", "\n"), ("\\n", "\\n")] {
            let text = format!("{front}{key}{back}");
            let masked = redacted(&text).unwrap_or_default();
            assert!(!masked.is_empty() && !masked.contains(&tail[4..]), "{text} {masked}");
        }
    }
}

#[test]
fn words_like_keys_stay() {
    check_stays(&[
        "task-runner-abcdefghijklmnopqrstuvwx",
        "sk-button-primary-large",
        "class=\"sk-button-primary-large sk-cube-grid-animation\"",
        "disk-or-v1-something",
        "pul-request and fc-cache -f and rnd_seed_of_the_generator",
        "fc-list-of-all-fonts",
        "secret_manager_of_the_whole_company_of_ours",
        "sb_secret_key and pcsk_ and CCIPAT_",
    ]);
}

#[test]
fn programs_and_prose_stay() {
    check_stays(&[
        "os.environ[\"API_KEY\"]",
        "key = os.environ[\"API_KEY\"]",
        "api_key = os.environ['API_KEY']",
        "token = os.getenv(\"API_KEY\")",
        "api_key = os.environ.get(\"API_KEY\", \"\")",
        "tokens = line.split(\",\")",
        "token = line.split(\",\")",
        "let token = line.split(\",\").next();",
        "proxy_pass = proxy_pass.decode('ascii')",
        "str_key = key.decode(\"utf-8\")",
        "auth = str(auth)",
        "let pass = pass.map(|pass| {",
        "let pass = pass.map(|pass| decode_utf8_lossy(pass));",
        "deps_key: &DEPS_KEY",
        "TOKEN = line.split(\",\")[1]",
        "api_key = os.environ[\"API_KEY\"] + x",
        "token = uuid.uuid5(\"a\", b)",
        "password = input(\"Password: \")",
        "token = getpass(\"Enter token\")",
        "token: Token::Ident(\"foo\")",
        "let token = Token::Ident(\"foo\");",
        "assert_eq!(token, Token::Ident(\"foo\"));",
        "invalid password: too short",
        "missing secret: DATABASE_URL",
        "token: identifier",
        "basic auth: enabled",
        "credentials: include",
        "credentials: 'include'",
        "fetch(url, { credentials: \"same-origin\" })",
        "passwd:x:1000:1000",
        "root:x:0:0:root:/root:/bin/bash",
        "STATUS_KEY=done",
        "private_key: /etc/ssl/key.pem",
        "private_key = \"/etc/ssl/key.pem\"",
        "ssl_key=./certs/key.pem",
        "ssl_key=certs/server.key",
        "TLS_KEY=~/x/tls.key",
        "error: invalid token: expected `;` but found `}`",
    ]);
    check_goes(
        &["password: @", "PASSWORD: @", "Password: @", "password=@", "token = @", "private_key: @", "ssl_key=@"],
        &["Hunter2!Zq", "a7Bq2Rt9XzK4"],
    );
    check_goes(&["password=@", "PASSWORD: @", "password: @"], &["correcthorse", "/Zq7/x9Kt2+q=="]);
}

#[test]
fn environments_and_names_of_members_are_masked() {
    let key = format!("{}_{}", "ghp", "a7Bq2Rt9XzK4mN8pLs3Dv6Wya7Bq2Rt9XzK4");
    check_json_goes(
        &[
            r#"{"arguments":{"env":{"PLAIN":"@"}}}"#,
            r#"{"result":{"config":{"mcp_servers.a.env":{"PLAIN":"@"}}}}"#,
            r#"{"env":{"PLAIN":{"x":["@"]}}}"#,
            r#"{"http_headers":{"X-Any":"@"}}"#,
            r#"{"config":"{\"password\":\"@\"}"}"#,
            r#"{"config":"{\"env\":\"API_KEY=@\"}"}"#,
        ],
        &VALUES,
    );
    check_json_goes(&[r#"{"@":1}"#, r#"{"a":{"x @ y":"z"}}"#, r#"{"items":[{"id":"@","itemId":"@"}]}"#][..2], &[&key]);
    assert_eq!(redacted_json(&format!(r#"{{"id":"{key}"}}"#)).as_deref(), Some(r#"{"id":"[redacted]"}"#));
    check_json_stays(&[r#"{"env":{"browser":true,"n":1},"environment":"test"}"#, r#"{"env":"dev","envs":["a","b"]}"#]);
}
