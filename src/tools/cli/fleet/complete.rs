//! The values that a shell completes for the tools of the fleet: hosts, sessions and pending requests.
//!
//! They come from the server within [`WAIT_MAX`], because a person waits at the prompt. Without a server the shell offers nothing.

use std::ffi::OsStr;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use clap_complete::engine::ArgValueCompleter;

use super::super::complete::{Offer, matching};
use crate::config::{Environment, Flags, Settings};
use crate::fleet::{Client, Member, Question, VERSION, is_plain_id, session_rows};

/// How long all of it may take.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Most hosts that are asked for their sessions.
const ASKED_MAX: usize = 8;

/// Completes names of hosts.
pub(super) fn hosts() -> ArgValueCompleter {
    completes(|client| {
        let about = |is_online| if is_online { "online" } else { "offline" }.to_owned();
        let hosts = client.hosts().unwrap_or_default();
        hosts.into_iter().map(|host| (host.document.host, about(host.is_online))).collect()
    })
}

/// Completes sessions as HOST/SESSION.
pub(super) fn sessions() -> ArgValueCompleter {
    completes(|client| {
        let online = client.hosts().unwrap_or_default().into_iter().filter(|host| host.is_online);
        let names: Vec<String> = online.map(|host| host.document.host).take(ASKED_MAX).collect();
        let asked = client.ask_all(&names, &Question::Sessions { v: VERSION });
        let mut offers = Vec::new();
        for (host, document) in names.iter().zip(asked).filter_map(|(host, asked)| Some((host, asked.ok()?))) {
            let live = session_rows(&document).into_iter().filter(|row| row.live);
            offers.extend(live.map(|row| (format!("{host}/{}", row.session_id), row.name)));
        }
        offers
    })
}

/// Completes pending requests as HOST/REQUEST.
pub(super) fn requests() -> ArgValueCompleter {
    completes(|client| {
        let documents = client.pending().unwrap_or_default().into_iter();
        let named =
            |host: String| move |row: crate::fleet::PendingRow| (format!("{host}/{}", row.request_id), row.summary);
        // What a host sends must not become a part of a command line that means something else.
        let plain = |row: &crate::fleet::PendingRow| is_plain_id(&row.request_id);
        documents.flat_map(|document| document.requests.into_iter().filter(plain).map(named(document.host))).collect()
    })
}

fn completes(offers: fn(&Client) -> Vec<Offer>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| matching(typed, within(WAIT_MAX, offers)))
}

/// The offers that are there in time. A thread that is late ends with the process.
fn within(wait_max: Duration, offers: fn(&Client) -> Vec<Offer>) -> Vec<Offer> {
    let (told, found) = sync_channel(1);
    let look = move || {
        // Complaints about the settings would appear in the user's command line.
        let (settings, _) = Settings::load(Flags::default(), &Environment::of_process());
        let client = Member::of(&settings.fleet).ok().and_then(|member| Client::connect(&member).ok());
        let _ = told.send(client.map(|client| offers(&client)).unwrap_or_default());
    };
    let started = std::thread::Builder::new().name("complete".to_owned()).spawn(look);
    started.ok().and_then(|_| found.recv_timeout(wait_max).ok()).unwrap_or_default()
}
