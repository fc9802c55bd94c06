//! `codex-shim web`: serves the web page until a signal ends it, and asks a running one for a link or to sign out.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::filter;
use super::offline;
use super::qr_code;
use super::screen::{self, Clock, Screen, Times, Tone};
use super::select_session;
use super::table::{Column, Table};
use super::{CliError, Done, NOT_RUNNING, complete, say};
use crate::config::Environment;
use crate::control::client::Caller;
use crate::os::desktop::{OPENER, OPENER_ENDS_AT_ONCE};
use crate::os::launch;
use crate::sessions::source::{Home, Source};
use crate::store::Otherwise;
use crate::web::{
    self, Browsers, ConsoleError, Finding, HostName, Links, Options, PageDocument, Server, SignedIn, SignedOut,
    WebError,
};

/// Answer requests in a browser, on this machine or on a phone
///
/// Serves one small page with the pending requests of all sessions, the same answers as `tui`, and the timeline of each session.
/// The page listens on 127.0.0.1 only, and runs until Ctrl-C. The printed link signs in one browser, once, within 10 minutes.
///
/// Other users of this machine can reach the port, but cannot use the page without a link. A browser that is signed in can do
/// everything that you can do in your sessions, so do not share a link.
///
/// A link under a name of --host is also drawn as a QR code, if the terminal has room for it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
From another machine, with the same port at both ends:
  codex-shim web --port 4000
  ssh -L 4000:127.0.0.1:4000 HOST     there; then open the link there

From a phone in your tailnet:
  tailscale serve --bg 4000
  codex-shim web --port 4000 --host laptop.tailnet.ts.net

Exit status:
  0  a signal has ended it, or the running page has answered
  1  it cannot listen, or a page is served already
  2  usage
  4  --new-link, --browsers, --sign-out: no page is served

Examples:
  codex-shim web --open
  codex-shim web --new-link           for a second browser
  codex-shim web --browsers           list the browsers that are signed in
  codex-shim web --sign-out 2         end the cookie of one of them
  codex-shim web --sign-out           end all cookies and links
  codex-shim web --json | head -1 | jq -r '.links[0]'")]
pub(super) struct WebArguments {
    /// Port to listen on [default: a free one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "ask")]
    port: Option<u16>,
    /// Name under which a proxy of yours serves the page with TLS, or NAME:PORT; http://NAME without TLS; may be repeated
    #[arg(long = "host", value_name = "NAME", conflicts_with = "ask")]
    hosts: Vec<HostName>,
    /// Open the link in your browser
    #[arg(long, conflicts_with = "ask")]
    open: bool,
    /// Show only this session: its name, the beginning or end of its id, or `latest`
    #[arg(long, value_name = "SESSION", conflicts_with = "ask", add = complete::sessions())]
    session: Option<String>,
    /// Show the sessions of all hosts of the fleet; --session is then HOST/SESSION
    #[cfg(feature = "fleet")]
    #[arg(long, conflicts_with = "ask")]
    fleet: bool,
    /// Print a further link to the page that runs
    #[arg(long, group = "ask")]
    new_link: bool,
    /// List the browsers that are signed in to the page that runs
    #[arg(long, group = "ask")]
    browsers: bool,
    /// Sign a browser of --browsers out of the page that runs; without a number all of them, and end unused links
    #[arg(long, group = "ask", value_name = "NUMBER", num_args = 0..=1)]
    sign_out: Option<Option<u64>>,
    /// Print one JSON document
    #[arg(long = "json")]
    as_json: bool,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run(arguments: WebArguments, environment: &Environment) -> Done {
    let home = environment.shim_home().value.ok_or_else(CliError::no_home)?;
    if arguments.new_link {
        let links = web::new_link(&home).map_err(not_asked)?;
        return Ok(print_links(&links, "", arguments.as_json, environment));
    }
    if arguments.browsers {
        let all = web::browsers(&home).map_err(not_asked)?;
        let screen = Screen::of_stdout(environment);
        return Ok(print(&all, &listed(&all, &Clock::of(&arguments.times), screen), arguments.as_json));
    }
    if let Some(number) = arguments.sign_out {
        let (done, links) = match number {
            Some(number) => (web::sign_out_one(&home, number), ""),
            None => (web::sign_out(&home), "; unused links have ended"),
        };
        let done = done.map_err(not_asked)?;
        return Ok(print(&done, &format!("{}{links}\n", signed_out(&done)), arguments.as_json));
    }
    #[cfg(feature = "fleet")]
    let searches = !arguments.fleet;
    #[cfg(not(feature = "fleet"))]
    let searches = true;
    let (source, session) = shown(&arguments, &home, environment)?;
    // A link of our launcher would otherwise stay open as long as the browser.
    launch::keep_descriptors();
    let WebArguments { port, hosts, open, as_json, .. } = arguments;
    if hosts.iter().any(HostName::is_exposed) {
        say(
            "warning: with `--host http://…` everybody on the way to the browser can read the cookie and answer for you, \
             unless the network itself is encrypted, as a tailnet is",
        );
    }
    let user_home = filter::folders(environment).home;
    let finding = searches.then(|| Finding { door: offline::door(environment), user_home });
    let options = Options {
        home: home.clone(),
        finding,
        source,
        port,
        names: hosts,
        session,
        runtime_dir: environment.runtime_dir(),
        report: |what| say(what),
    };
    let server = Server::start(options).map_err(|error| not_started(&error, &home))?;
    let links = server.links().map_err(|error| CliError::failed(format!("read random bytes: {error}")))?;
    let status = print_links(&links, &ways(&links), as_json, environment);
    if status != 0 {
        return Ok(status);
    }
    if open {
        open_browser(&server, &links);
    }
    server.run().map(|()| 0).map_err(|error| CliError::failed(error.to_string()))
}

/// The sessions to show, and the only one of them, if the user names one.
fn shown(arguments: &WebArguments, home: &Path, environment: &Environment) -> Result<ServedSource, CliError> {
    let named = arguments.session.as_deref();
    #[cfg(feature = "fleet")]
    if arguments.fleet {
        let views = super::fleet::views(environment)?;
        let session = named.map(|named| super::fleet::session_named(&views, named)).transpose()?;
        return Ok((views, session));
    }
    let session = named.map(|named| select_session::one(Some(named), Otherwise::Latest, environment)).transpose()?;
    let home = Home { path: home.to_owned(), caller: Caller::Web };
    Ok((Arc::new(home), session.map(|found| found.id)))
}

type ServedSource = (Arc<dyn Source>, Option<String>);

fn print(document: &impl Serialize, text: &str, as_json: bool) -> i32 {
    match as_json {
        true => {
            let json = serde_json::to_string(document).expect("BUG: plain data is JSON");
            screen::print_exactly(&format!("{json}\n"))
        }
        false => screen::print(text),
    }
}

/// Prints links and a text below them. A link that another device can open is also drawn.
fn print_links(links: &Links, below: &str, as_json: bool, environment: &Environment) -> i32 {
    let drawn = links.for_elsewhere().filter(|_| !as_json).and_then(|link| qr_code::drawn(link, environment));
    let status = print(links, &in_words(links), as_json);
    let Some(drawn) = drawn.filter(|_| status == 0) else {
        return if as_json || status != 0 { status } else { screen::print(below) };
    };
    match screen::print_exactly(&format!("\n{drawn}")) {
        0 => screen::print(below),
        failed => failed,
    }
}

/// The signed-in browsers, one a line.
fn listed(Browsers { browsers }: &Browsers, clock: &Clock, screen: Screen) -> String {
    if browsers.is_empty() {
        return "no browser is signed in\n".to_owned();
    }
    let columns = vec![
        Column::number("NUMBER"),
        Column::text("BROWSER"),
        Column::whole(clock.head("SIGNED IN")),
        Column::whole(clock.head("LAST USED")),
        Column::text("ADDRESS").spare(),
    ];
    let row = |SignedIn { number, device, address, signed_in_at, last_used_at }: &SignedIn| {
        let [signed_in, used] = [signed_in_at, last_used_at].map(|at| clock.cell(at, screen));
        let cells = [number.to_string(), device.clone(), signed_in, used, address.clone()];
        cells.map(|cell| (Tone::Plain, cell)).to_vec()
    };
    Table::of(columns, browsers.iter().map(row).collect(), screen)
}

fn in_words(links: &Links) -> String {
    let what = if links.links.len() == 1 { "this link" } else { "one of these links" };
    let all: String = links.links.iter().map(|link| format!("  {link}\n")).collect();
    format!("Open {what} within 10 minutes; it signs one browser in:\n{all}")
}

/// How to reach the page from elsewhere.
fn ways(links: &Links) -> String {
    let port = links.url.trim_end_matches('/').rsplit(':').next().unwrap_or_default();
    let phone = match links.links.len() {
        1 => format!(
            "  phone    `tailscale serve --bg {port}`, and `--host` with its name here, for a link with a QR code\n"
        ),
        _ => String::new(),
    };
    format!(
        "\nFrom another machine or a phone (see `codex-shim web --help`):\n  ssh      \
         `ssh -L {port}:127.0.0.1:{port} HOST`, and then this link\n{phone}\nCtrl-C ends the page.\n"
    )
}

fn signed_out(SignedOut { signed_out }: &SignedOut) -> String {
    let browsers = screen::counted(*signed_out as u64, "browser is signed out", "browsers are signed out");
    browsers.unwrap_or_else(|| "no browser was signed in".to_owned())
}

/// The error after a failed call to the running page.
fn not_asked(error: ConsoleError) -> CliError {
    match error {
        ConsoleError::NotRunning => {
            CliError::exits(NOT_RUNNING, error.to_string()).with_remedy("start one with `codex-shim web`")
        }
        ConsoleError::Displaced { .. } | ConsoleError::Silent(_) | ConsoleError::Refused(_) => {
            CliError::failed(error.to_string())
        }
    }
}

fn not_started(error: &WebError, home: &Path) -> CliError {
    match error {
        WebError::Running => {
            let page = web::running(home).map(|PageDocument { url, pid, .. }| format!(" at {url} (pid {pid})"));
            CliError::failed(format!("{error}{}", page.unwrap_or_default()))
                .with_remedy("`codex-shim web --new-link` prints a further link to it")
        }
        WebError::Bind { .. } => {
            CliError::failed(error.to_string()).with_remedy("choose another --port, or leave it out for a free one")
        }
        WebError::Home { .. } | WebError::Socket(_) | WebError::SetUp { .. } => CliError::failed(error.to_string()),
    }
}

/// Opens the first link in the user's browser. The page is served in any case.
fn open_browser(server: &Server, links: &Links) {
    let Some(link) = links.links.first() else { return };
    let opened = server.file_for(link).and_then(|path| {
        let mut command = Command::new(OPENER);
        command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is for us, and not for a browser that has just started.
        launch::own_session(&mut command);
        let mut child = command.spawn()?;
        let wait = move || {
            // Some openers last as long as the browser.
            let has_failed = child.wait().is_ok_and(|status| !status.success());
            if has_failed && OPENER_ENDS_AT_ONCE {
                say(&format!("`{OPENER}` opened no browser; open the link yourself"));
            }
        };
        std::thread::Builder::new().name("opener".to_owned()).spawn(wait).map(drop)
    });
    if let Err(error) = opened {
        say(&format!("cannot open a browser with `{OPENER}`: {error}; open the link yourself"));
    }
}
