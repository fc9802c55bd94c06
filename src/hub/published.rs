//! The state of a hub as the control socket shows it.

use std::collections::BTreeMap;

use super::link::Link;
use super::process::ServerProcess;
use crate::control::{ClientDocument, ConnectionDocument, HubDocument, ServerDocument};
use crate::engine::{ClientName, Engine};
use crate::wire::Conn;

pub(super) fn document(server: &ServerProcess, links: &BTreeMap<Conn, Link>, engine: &Engine) -> HubDocument {
    let at = |at_us: u64| crate::history::rfc3339_millis(at_us);
    let connections = links.iter().filter(|(conn, link)| **conn != Conn::OWN && !link.is_ending());
    let connections = connections.filter_map(|(conn, link)| Some((conn, link, engine.client(*conn)?.clone())));
    HubDocument {
        server: ServerDocument {
            pid: server.pid,
            version: server.version.clone(),
            socket: server.socket.to_string_lossy().into_owned(),
            started_at: at(server.started_at_us),
            adopted: server.adopted,
        },
        connections: connections
            .map(|(conn, link, ClientName { name, version })| ConnectionDocument {
                conn: *conn,
                client: ClientDocument { name, version },
                transport: link.peer.transport,
                since: humantime::format_rfc3339_millis(link.since).to_string(),
                threads: engine.subscriptions(*conn),
                waiting_bytes: link.waiting_bytes() as u64,
            })
            .collect(),
    }
}
