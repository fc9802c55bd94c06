//! Decides what an invocation means, from the program's name, the arguments, and whether stdin is a terminal.
//!
//! Pure. Arguments for codex are inspected, never changed, and passed on in order.

use std::ffi::{OsStr, OsString};

/// The meaning of an invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Invocation {
    /// No arguments at a terminal: print the help.
    Help,
    /// Run a relay in front of codex.
    Relay {
        /// Including `app-server`.
        codex_args: Vec<OsString>,
    },
    /// Replace this process with codex.
    BecomeCodex { codex_args: Vec<OsString> },
    /// Run one of our own tools.
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

/// Decides the meaning of `name args…`.
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
        // A stand-in for the server is started without the subcommand.
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

/// The meaning of `codex … app-server …`, with `app-server` at index `at`.
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
            // The value of an option of a later version, or an unknown subcommand.
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

/// The argument as an option; `None` if it is not one. `-` alone is not an option.
fn as_option(arg: &OsStr) -> Option<&str> {
    if !arg.as_encoded_bytes().starts_with(b"-") || arg == "-" {
        return None;
    }
    // An option that is not UTF-8 counts as unknown.
    Some(arg.to_str().unwrap_or("--unknown="))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `invocation` is a command line without quoting; `expect` is the meaning and the arguments that codex gets.
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
    fn our_own_name_runs_tools_or_relays() {
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
    fn any_other_name_means_codex() {
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
    fn commands_off_stdio_become_codex() {
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
    fn stdio_servers_are_relayed_with_all_arguments() {
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
    fn stand_in_servers_need_no_subcommand() {
        check("codex-app-server", "relay app-server");
        check("codex-app-server-x86 -c a=b", "relay app-server -c a=b");
        check("codex-app-server app-server", "relay app-server");
        check("codex-app-server --help", "become app-server --help");
    }
}
