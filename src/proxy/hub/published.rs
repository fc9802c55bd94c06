//! The state of a hub as the control socket shows it.

use super::on_sockets::{Hub, Reach};
use crate::api::{ClientDocument, ConnectionDocument, EnvironmentDocument, HubDocument, ServerDocument};
use crate::engine::ClientName;
use crate::wire::Conn;

pub(super) fn document(hub: &Hub) -> HubDocument {
    let (server, links, engine) = (&hub.server, &hub.driver.links, &hub.core.engine);
    let at = |at_us: u64| crate::history::rfc3339_millis(at_us);
    let connections = links.iter().filter(|(conn, link)| *conn != Conn::OWN && !link.is_ending());
    let connections = connections.filter_map(|(conn, link)| Some((conn, link, engine.client(conn)?.clone())));
    let closed = match hub.reach {
        Reach::Listening => None,
        Reach::SocketGone => {
            Some("closed, since the server's own socket is gone; it is replaced once its last client has left")
        }
        Reach::Ended => Some("closed until a server runs again"),
    };
    HubDocument {
        server: ServerDocument {
            pid: server.pid,
            version: server.version.clone(),
            socket: server.socket.to_string_lossy().into_owned(),
            started_at: at(server.started_at_us),
            adopted: server.adopted,
            is_draining: engine.is_draining(),
        },
        sockets: hub.entrances.documents(closed),
        connections: connections
            .map(|(conn, link, ClientName { name, version })| ConnectionDocument {
                conn,
                client: ClientDocument { name, version },
                transport: link.peer.transport,
                since: humantime::format_rfc3339_millis(link.since).to_string(),
                threads: engine.subscriptions(conn),
                waiting_bytes: link.waiting_bytes() as u64,
                pid: link.peer.pid,
                terminal: link.peer.terminal.clone(),
            })
            .collect(),
        environments: engine
            .given_variables()
            .into_iter()
            .map(|(thread_id, given)| {
                let ClientName { name, version } = given.client.clone();
                EnvironmentDocument {
                    thread_id: thread_id.clone(),
                    client: ClientDocument { name, version },
                    terminal: given.terminal.clone(),
                    variables: given.names.clone(),
                }
            })
            .collect(),
    }
}
