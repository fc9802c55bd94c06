//! Which invocation means what: by the name we were started under, the arguments, and whether stdin is a terminal.
//!
//! Pure. codex's own arguments are only looked at, never changed, and handed on in order.

use std::ffi::{OsStr, OsString};

/// What an invocation asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Invocation {
    /// Nothing: tell what there is.
    Help,
    /// A relay in front of codex with these arguments.
    Relay {
        /// All of them, `app-server` included.
        codex_args: Vec<OsString>,
    },
    /// To become codex with these arguments.
    BecomeCodex {
        /// All of them.
        codex_args: Vec<OsString>,
    },
    /// One of our own tools.
    Tool,
}

/// The subcommand of codex that is relayed.
const APP_SERVER: &str = "app-server";

/// Options of codex before the subcommand that take a value of their own. Source: `codex --help` of 0.169.0.
const GLOBAL_WITH_VALUE: [&str; 21] = [
    "-c",
    "--config",
    "--enable",
    "--disable",
    "--remote",
    "--remote-auth-token-env",
    "-i",
    "--image",
    "-m",
    "--model",
    "--local-provider",
    "-p",
    "--profile",
    "-s",
    "--sandbox",
    "-C",
    "--cd",
    "--add-dir",
    "-a",
    "--ask-for-approval",
    "--color",
];

/// Options of `codex app-server` that take a value. Source: `codex app-server --help` of 0.169.0.
const APP_SERVER_WITH_VALUE: [&str; 15] = [
    "-c",
    "--config",
    "--enable",
    "--disable",
    "--listen",
    "--startup-client-info",
    "--cloud-skills-snapshot",
    "--code-mode-host",
    "--ws-auth",
    "--ws-token-file",
    "--ws-token-sha256",
    "--ws-shared-secret-file",
    "--ws-issuer",
    "--ws-audience",
    "--ws-max-clock-skew-seconds",
];

/// Subcommands of `codex app-server`, none of which speaks the protocol on stdio. Source: its help in 0.169.0.
const APP_SERVER_SUBCOMMANDS: [&str; 5] = ["daemon", "proxy", "generate-ts", "generate-json-schema", "help"];

/// Options with which `codex app-server` prints something and ends.
const APP_SERVER_PRINTS: [&str; 5] = ["-h", "--help", "-V", "--version", "--print-startup-config"];

/// Decides what `name args…` asks for.
pub(super) fn decide(name: &OsStr, args: &[OsString], stdin_is_terminal: bool) -> Invocation {
    let name = std::path::Path::new(name).file_name().unwrap_or_default().to_string_lossy();
    let subcommand = subcommand_index(args).filter(|index| args[*index] == APP_SERVER);
    if name.starts_with("codex-shim") {
        return match subcommand {
            Some(index) => app_server(args.to_vec(), index),
            None if !args.is_empty() => Invocation::Tool,
            None if stdin_is_terminal => Invocation::Help,
            None => Invocation::Relay { codex_args: vec![APP_SERVER.into()] },
        };
    }
    if let Some(index) = subcommand {
        return app_server(args.to_vec(), index);
    }
    if name.starts_with("codex-app-server") {
        // A stand-in for the server itself, which is started without the subcommand.
        let codex_args = [OsString::from(APP_SERVER)].into_iter().chain(args.iter().cloned()).collect();
        return app_server(codex_args, 0);
    }
    Invocation::BecomeCodex { codex_args: args.to_vec() }
}

/// The index of codex's subcommand, or of its prompt.
fn subcommand_index(args: &[OsString]) -> Option<usize> {
    let mut index = 0;
    while let Some(arg) = args.get(index) {
        match as_option(arg) {
            None => return Some(index),
            Some("-h" | "--help" | "-V" | "--version" | "--") => return None,
            Some(option) if GLOBAL_WITH_VALUE.contains(&option) => index += 2,
            Some(_) => index += 1,
        }
    }
    None
}

/// What `codex … app-server …` means, with `app-server` at `at`.
fn app_server(codex_args: Vec<OsString>, at: usize) -> Invocation {
    if speaks_on_stdio(&codex_args[at + 1..]) {
        Invocation::Relay { codex_args }
    } else {
        Invocation::BecomeCodex { codex_args }
    }
}

/// Whether `codex app-server` with these arguments speaks the protocol on stdin and stdout.
fn speaks_on_stdio(args: &[OsString]) -> bool {
    let mut index = 0;
    let mut after_unknown_option = false;
    while let Some(arg) = args.get(index) {
        let unknown_option_before = std::mem::take(&mut after_unknown_option);
        match as_option(arg) {
            // The value of an option that a later version has, or a subcommand.
            None if unknown_option_before && !APP_SERVER_SUBCOMMANDS.iter().any(|name| arg == name) => {}
            None => return false,
            Some(option) if APP_SERVER_PRINTS.contains(&option) => return false,
            Some("--listen") => {
                if !args.get(index + 1).is_none_or(|url| is_stdio(url.to_str())) {
                    return false;
                }
                index += 1;
            }
            Some(option) if option.starts_with("--listen=") => {
                if !is_stdio(option.strip_prefix("--listen=")) {
                    return false;
                }
            }
            Some(option) if APP_SERVER_WITH_VALUE.contains(&option) => index += 1,
            Some(option) => after_unknown_option = !option.contains('='),
        }
        index += 1;
    }
    true
}

fn is_stdio(url: Option<&str>) -> bool {
    url.is_some_and(|url| url.split(':').next() == Some("stdio"))
}

/// The argument as an option, where it is one. `-` alone is none.
fn as_option(arg: &OsStr) -> Option<&str> {
    if !arg.as_encoded_bytes().starts_with(b"-") || arg == "-" {
        return None;
    }
    // An option that is not UTF-8 is one that we do not know.
    Some(arg.to_str().unwrap_or("--unknown="))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `invocation` is a command line without quoting; `expect` names the meaning and the arguments that codex gets.
    fn check(invocation: &str, expect: &str) {
        check_on(invocation, false, expect);
    }

    fn check_on(invocation: &str, stdin_is_terminal: bool, expect: &str) {
        let mut words = invocation.split(' ').map(OsString::from);
        let name = words.next().expect("BUG: a command line has a name");
        let args: Vec<OsString> = words.collect();
        let joined = |args: &[OsString]| args.join(OsStr::new(" ")).to_string_lossy().into_owned();
        let told = match decide(&name, &args, stdin_is_terminal) {
            Invocation::Help => "help".to_owned(),
            Invocation::Relay { codex_args } => format!("relay {}", joined(&codex_args)),
            Invocation::BecomeCodex { codex_args } => format!("become {}", joined(&codex_args)),
            Invocation::Tool => "tool".to_owned(),
        };
        assert_eq!(told.trim_end(), expect, "{invocation}");
    }

    #[test]
    fn under_our_own_name() {
        check("codex-shim", "relay app-server");
        check_on("/usr/bin/codex-shim", true, "help");
        check_on("codex-shim app-server", true, "relay app-server");
        check("codex-shim -c a=b app-server", "relay -c a=b app-server");
        check("codex-shim -c app-server app-server --stdio", "relay -c app-server app-server --stdio");
        check("codex-shim run -- app-server", "tool");
        check("codex-shim --version", "tool");
        check("codex-shim --help app-server", "tool");
        check("codex-shim -c a=b", "tool");
    }

    #[test]
    fn under_another_name_we_are_codex() {
        check("codex", "become");
        check("codex --version", "become --version");
        check("/x/codex login status", "become login status");
        check("codex exec app-server", "become exec app-server");
        check("codex run", "become run");
        check("codex -- app-server", "become -- app-server");
        check("codex --help app-server", "become --help app-server");
        check("codex -m app-server", "become -m app-server");
        check("codex -cx=y --profile p --search app-server", "relay -cx=y --profile p --search app-server");
        check("codex-0.169 app-server", "relay app-server");
    }

    #[test]
    fn what_does_not_speak_on_stdio_becomes_codex() {
        for rest in [
            "generate-ts --out x",
            "--enable f daemon start",
            "proxy",
            "--help",
            "-V",
            "--listen ws://127.0.0.1:0",
            "--listen=unix://",
            "--listen off",
            "--new-flag generate-json-schema",
            "a-later-subcommand",
        ] {
            for name in ["codex-shim", "codex"] {
                check(&format!("{name} app-server {rest}"), &format!("become app-server {rest}"));
            }
        }
    }

    #[test]
    fn what_does_is_relayed_with_all_its_arguments() {
        for rest in [
            "--listen stdio://",
            "--listen=stdio://",
            "--stdio",
            "--analytics-default-enabled",
            "-c model=daemon --enable proxy",
            "--later-option value",
            "--later-option=value --stdio",
            "--ws-auth daemon",
        ] {
            check(&format!("codex app-server {rest}"), &format!("relay app-server {rest}"));
        }
    }

    #[test]
    fn a_stand_in_for_the_server_itself_needs_no_subcommand() {
        check("codex-app-server", "relay app-server");
        check("codex-app-server-x86 -c a=b", "relay app-server -c a=b");
        check("codex-app-server app-server", "relay app-server");
        check("codex-app-server --help", "become app-server --help");
    }
}
