//! `codex-shim fleet show` and `fleet respond`: a request of a host, and an answer to it. The ledger of the host decides.

use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Value, json};

use super::super::requests::{By, GivenFlags, SureFlag, make_sure, outcome, print_json, question, verdict, ways};
use super::super::screen::{self, Clock, Screen, Times, Tone};
use super::super::{CliError, Done, FAILED, NO_SUCH_REQUEST};
use super::{
    Format, HostTarget, ask, complain, connect, exits, failed, known, not_read, not_valid, offline, read, tell, text,
    with_host,
};
use crate::api::{RequestDocument, Responded};
use crate::config::{Environment, FleetLevel, parse_duration};
use crate::fleet::{AskError, Client, Later, PendingRow, Question, VERSION, Waited, with_left_out};
use crate::protocol::Word;
use crate::requests::given::{Decision, Given};
use crate::sessions::request_names::{is_short_name, is_whole};

/// How long an answer waits for its host, if the user does not say.
const VALID_FOR: Duration = Duration::from_secs(3_600);

/// The server keeps an answer no longer.
const VALID_FOR_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Show a request of a host in full, and what became of it
#[derive(Debug, Args)]
#[command(after_long_help = "\
A host with `fleet.level = \"summary\"` leaves out diffs, questions and reasons.

Exit status: 0, or 1 if the host has not answered, or 3 if there is no such
host or request, or 4 if the host is offline or the session is not running.

Examples:
  codex-shim fleet show build-7/0c4e-0
  codex-shim fleet show build-7/api/latest --json | jq .request")]
pub(in crate::cli) struct ShowArguments {
    /// Request: HOST/REQUEST or HOST/SESSION/REQUEST
    #[arg(value_name = "REQUEST", add = super::complete::requests())]
    request: HostTarget,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run_show(arguments: &ShowArguments, environment: &Environment) -> Done {
    let client = connect(environment)?;
    let HostTarget { host, session, last } = &arguments.request;
    let asked = Question::Request { v: VERSION, session: session.clone(), request: last.clone() };
    let answered =
        ask(&client, host, &asked).and_then(|document| Ok((read::<RequestDocument>(host, &document)?, document)));
    let id = answered.as_ref().map_or(last.as_str(), |(shown, _)| &shown.request.request_id);
    let described = client.host(host).unwrap_or_else(|error| {
        tell(format!("what became of answers that had waited is not known: {error}"));
        None
    });
    let waited = described.map_or_else(Vec::new, |host| host.document.waited);
    let waited: Vec<&Waited> = waited.iter().filter(|waited| waited.request == id).collect();
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let (shown, mut document) = match answered {
        Ok(answered) => answered,
        Err(error) => {
            // What became of a decision is known even if the request is gone. The error has a status of its own.
            let _ = match arguments.format.as_json {
                true => print_json(&json!({ "host": host, "waited": waited })),
                false => screen::print(&in_lines(&waited, &clock)),
            };
            return Err(error);
        }
    };
    if arguments.format.as_json {
        document["waited"] = json!(waited);
        return Ok(print_json(&with_host(host, &document)));
    }
    let row = &shown.request;
    let left_out = match text(&document, "level") {
        "summary" => format!("\n{}\n", to.paint(Tone::Faint, "this host leaves out diffs, questions and reasons")),
        _ => String::new(),
    };
    let became = in_lines(&waited, &clock);
    let asked = with_place(&question(row, &clock, to), host, &document["session"], to);
    let next = ways(row, &format!("fleet respond {host}/"), to);
    let text = [asked, left_out, outcome(&shown, &clock, to), became, next];
    Ok(screen::print_exactly(&text.concat()))
}

/// The host and the session behind the heading of a request. An agent of an earlier version does not name the session.
fn with_place(question: &str, host: &str, session: &Value, to: Screen) -> String {
    let (id, name) = (text(session, "session_id"), text(session, "name"));
    let row = |label: &str, value: &str| {
        format!("{} {}\n", to.paint(Tone::Faint, &format!("{label:11}")), screen::plain(value))
    };
    let session = match (id.is_empty(), name.is_empty() || name == id) {
        (true, _) => String::new(),
        (false, true) => row("session", id),
        (false, false) => row("session", &format!("{name} ({id})")),
    };
    let (heading, rest) = question.split_once("\n\n").unwrap_or((question, ""));
    format!("{heading}\n\n{}{session}{rest}", row("host", host))
}

/// What became of decisions that had waited for the host.
fn in_lines(waited: &[&Waited], clock: &Clock) -> String {
    let line = |waited: &&Waited| {
        let Waited { user, at, outcome, .. } = waited;
        let words = match outcome.as_str() {
            "given" => "given".to_owned(),
            "answered_before" => "not given: another answer holds".to_owned(),
            "waits" => "it could not be given yet; the host tries again".to_owned(),
            "unknown" => "it may have been given, and the session does not reply".to_owned(),
            "too_late" => "not given: it was valid for a shorter time".to_owned(),
            "too_many" => "not given: too many decisions wait there already".to_owned(),
            "withdrawn" => "not given: the server does not have it any more".to_owned(),
            "session_stopped" => "not given: the session was not running".to_owned(),
            "orphaned" => "not given: the request was orphaned".to_owned(),
            other => format!("not given: {other}"),
        };
        format!("{:11} {} by {user}: {words}", "waited", clock.text(at))
    };
    waited.iter().map(|waited| format!("{}\n", screen::plain(&line(waited)))).collect()
}

/// Answer a request of a host
///
/// The first answer wins, wherever it comes from; the output says whose it was. At a terminal it asks once more before a risky answer,
/// as `codex-shim respond` does; otherwise it says why on stderr and sends the answer. With --when-back a decision for a host that is
/// offline waits in the server until its agent is back, and is dropped if that takes too long; `fleet show` then says what became of it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Decisions: accept, accept-for-session, decline, cancel, as for
`codex-shim respond`.

Exit status:
  0  your answer won, or an identical one; with --when-back also: it waits
  1  another answer won, or the host refused yours
  2  not a valid answer to this request
  3  no such host or request
  4  the host is offline, or the session is not running

Examples:
  codex-shim fleet respond build-7/0c4e-0 accept
  codex-shim fleet respond build-7/0c4e-0 decline --reason 'use staging'
  codex-shim fleet respond build-7/0c4e-2 --answer color=Red
  codex-shim fleet respond build-7/0c4e-0 accept --when-back")]
pub(in crate::cli) struct RespondArguments {
    /// Request: HOST/REQUEST or HOST/SESSION/REQUEST
    #[arg(value_name = "REQUEST", add = super::complete::requests())]
    request: HostTarget,
    #[command(flatten)]
    given: GivenFlags,
    /// If the host is offline, leave the decision for it
    #[arg(long)]
    when_back: bool,
    /// How long such an answer is valid, such as 30m [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "when_back")]
    valid_for: Option<Duration>,
    #[command(flatten)]
    sure: SureFlag,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run_respond(arguments: &RespondArguments, environment: &Environment) -> Done {
    let given = arguments.given.get()?.ok_or_else(|| {
        let remedy = "`codex-shim fleet show REQUEST` lists the answers that it takes";
        CliError::usage("no answer given").with_remedy(remedy)
    })?;
    if arguments.when_back && !matches!(given, Given::Decision(_)) {
        let error =
            CliError::usage("only a decision can wait for a host: --when-back takes no --answer and no --json JSON");
        return Err(
            error.with_remedy("give accept, accept-for-session, decline or cancel, or answer when the host is back")
        );
    }
    let client = connect(environment)?;
    let HostTarget { host, session, last } = &arguments.request;
    let as_json = arguments.given.as_json();
    // The request that was looked at is the one that is answered.
    let word = if let Given::Decision(decision) = &given { decision.word() } else { None };
    let is_no = matches!(word, Some(Word::Decline | Word::Cancel));
    let request = match arguments.sure.is_sure || is_no {
        true => None,
        false => looked_at(&client, arguments, &given)?,
    };
    let request = request.unwrap_or_else(|| last.clone());
    let asked = Question::Respond { v: VERSION, session: session.clone(), request, given: given.clone() };
    let document = match client.ask(host, &asked) {
        Ok(document) => document,
        Err(AskError::Offline) => {
            let known = known(&client, host)?;
            return match given {
                Given::Decision(decision) if arguments.when_back => leave(&client, arguments, decision, as_json),
                Given::Decision(_) | Given::Texts { .. } | Given::Whole { .. } => Err(offline(&known)),
            };
        }
        Err(error @ AskError::TooSlow) => {
            let message =
                format!("host {host}: {error}; `codex-shim fleet show {host}/{last}` then shows which answer won");
            return Err(CliError::failed(message));
        }
        Err(error) => return Err(failed(host, &error)),
    };
    let responded: Responded = read(host, &document)?;
    let printed = match as_json {
        true => print_json(&with_host(host, &document)),
        false => {
            let line = verdict(&responded, &Clock::of(&arguments.times));
            screen::print(&format!("{}\n", screen::plain(&format!("host {host}: {line}"))))
        }
    };
    Ok(if responded.ok { printed } else { FAILED })
}

/// Looks at the request, and asks once more if its answer is risky. Returns its id; `None` if it cannot be looked at and nobody is there
/// to be asked, or if the host is offline.
fn looked_at(client: &Client, arguments: &RespondArguments, given: &Given) -> Result<Option<String>, CliError> {
    let HostTarget { host, session, last } = &arguments.request;
    let asked = Question::Request { v: VERSION, session: session.clone(), request: last.clone() };
    let by = if arguments.given.as_json() { By::Script } else { By::CommandLine };
    let document = match client.ask(host, &asked) {
        Ok(document) => document,
        Err(AskError::Offline) => return Ok(None),
        Err(error @ AskError::Failed(_)) => return Err(failed(host, &error)),
        // A script has decided already.
        Err(AskError::TooSlow | AskError::Refused(_) | AskError::Broken(_)) if !by.is_asked() => return Ok(None),
        Err(error) => {
            return Err(CliError::failed(screen::plain(&format!("host {host}: {error}; nothing was sent"))));
        }
    };
    let is_summary = document["level"] == FleetLevel::Summary.to_string();
    let row = document
        .get("request")
        .and_then(|row| with_left_out(row, is_summary))
        .ok_or_else(|| not_valid(host, "it has no request"))?;
    let body = match given {
        // Of a request that is only summed up the word alone says that it accepts.
        Given::Decision(decision) => json!({ "decision": decision.word().map(Word::decision) }),
        // The host says what is wrong with an answer.
        Given::Texts { .. } | Given::Whole { .. } => given.body(&row).unwrap_or_default(),
    };
    make_sure(&format!("{host}/{}", row.request_id), &row, &body, by)?;
    Ok(Some(row.request_id))
}

/// The whole id of a request of a host that is offline. A short name may mean another request once the host is back, so it counts among
/// the requests that were pending when the host went.
fn whole_id(client: &Client, target: &HostTarget) -> Result<String, CliError> {
    let HostTarget { host, session, last } = target;
    if is_whole(last) {
        return Ok(last.clone());
    }
    let pending = client.pending().map_err(not_read)?;
    complain(client);
    let rows = pending.iter().filter(|described| described.host == *host).flat_map(|described| &described.requests);
    let is_of = |row: &&PendingRow| {
        session.as_ref().is_none_or(|name| row.session_name == *name || row.session_id.starts_with(name.as_str()))
    };
    let ids: Vec<&str> = rows.filter(is_of).map(|row| &*row.request_id).collect();
    let named: Vec<&str> = ids.iter().copied().filter(|id| is_short_name(last, id)).collect();
    let gone = |remedy: String| {
        let message = format!("host {host} had no pending request `{last}` when it went offline");
        Err(exits(NO_SUCH_REQUEST, message).with_remedy(screen::plain(&remedy)))
    };
    match (&named[..], &ids[..]) {
        ([id], _) => Ok((*id).to_owned()),
        ([], []) => gone("give the whole id of a request".to_owned()),
        ([], ids) => gone(format!("there were {}", ids.join(", "))),
        (named, _) => {
            let message = format!("`{last}` may mean {}", named.join(" or "));
            Err(exits(NO_SUCH_REQUEST, message).with_remedy("give more of the id"))
        }
    }
}

/// Leaves a decision for a host that is offline.
fn leave(client: &Client, arguments: &RespondArguments, given: Decision, as_json: bool) -> Done {
    let host = &arguments.request.host;
    let last = whole_id(client, &arguments.request)?;
    let valid_for = arguments.valid_for.unwrap_or(VALID_FOR);
    if valid_for > VALID_FOR_MAX {
        let message = "an answer waits for at most 7 days";
        return Err(CliError::usage(message).with_remedy("give --valid-for a shorter time"));
    }
    let until = SystemTime::now() + valid_for;
    let expires_at = humantime::format_rfc3339_seconds(until).to_string();
    let later = Later { v: VERSION, request: last.clone(), given, expires_at: expires_at.clone() };
    client.leave(host, &later).map_err(|why| CliError::failed(format!("leave the answer for host {host}: {why}")))?;
    if as_json {
        let document = json!({ "host": host, "ok": true, "waits": true, "request_id": last, "expires_at": expires_at });
        return Ok(print_json(&document));
    }
    let until = Clock::of(&arguments.times).text(&expires_at);
    let shows = format!("`codex-shim fleet show {host}/{last}` then says what became of it");
    tell(format!("host {host} is offline; the answer waits for it until {until}; {shows}"));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giver_reads_what_became_of_a_decision() {
        let waited = |outcome: &str| Waited {
            user: "ann".to_owned(),
            request: "6b02d1a90c4e-0".to_owned(),
            at: "2026-01-02T03:04:05Z".to_owned(),
            outcome: outcome.to_owned(),
        };
        let (given, orphaned) = (waited("given"), waited("orphaned"));
        let clock = Clock::stopped("2026-01-02T03:04:08Z");
        assert_eq!(
            in_lines(&[&given, &orphaned], &clock),
            "waited      03:04:05 UTC by ann: given\nwaited      03:04:05 UTC by ann: not given: the request was orphaned\n"
        );
        let check = |outcome: &str, expect: &str| {
            assert_eq!(in_lines(&[&waited(outcome)], &clock), format!("waited      03:04:05 UTC by ann: {expect}\n"));
        };
        check("waits", "it could not be given yet; the host tries again");
        check("too_many", "not given: too many decisions wait there already");
    }
}
