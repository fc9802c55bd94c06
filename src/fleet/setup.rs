//! The streams and buckets of a fleet: how the administrator makes them.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, context};

use super::connection::Connection;
use super::subject::{self, EVENTS_STREAM, HOSTS_BUCKET, LATER_STREAM, PENDING_BUCKET};
use super::wire::{MESSAGE_BYTES_MAX, QUESTION_BYTES_MAX};

/// How long the server may take to make a stream.
const MADE_WITHIN: Duration = Duration::from_secs(10);

/// How long events are kept. Source: the age limit of a history.
const EVENTS_AGE_MAX: Duration = Duration::from_secs(14 * 86_400);

/// How long an answer can wait for its host.
const LATER_AGE_MAX: Duration = Duration::from_secs(7 * 86_400);

/// How long a host is named that has not come back.
const HOST_AGE_MAX: Duration = Duration::from_secs(90 * 86_400);

/// How long the server knows the ids of messages, and drops those that it has.
const DUPLICATES_FOR: Duration = Duration::from_secs(600);

/// Room for headers beside the payload of a message, in bytes.
const HEADERS_BYTES_MAX: usize = 4 << 10;

/// The streams, each with so many copies in a cluster.
pub(crate) fn streams(replicas: usize) -> [Config; 4] {
    let stream = |name: String, subjects: &str, max_age: Duration, bytes_max: usize| Config {
        name,
        subjects: vec![subjects.to_owned()],
        max_age,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: -1,
        max_message_size: i32::try_from(bytes_max + HEADERS_BYTES_MAX).unwrap_or(i32::MAX),
        max_consumers: -1,
        storage: StorageType::File,
        num_replicas: replicas,
        duplicate_window: DUPLICATES_FOR,
        allow_direct: true,
        ..Config::default()
    };
    let bucket = |bucket: &str| Config {
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        ..stream(subject::stream_of(bucket), &subject::keys(bucket), HOST_AGE_MAX, MESSAGE_BYTES_MAX)
    };
    [
        stream(EVENTS_STREAM.to_owned(), subject::ALL_EVENTS, EVENTS_AGE_MAX, MESSAGE_BYTES_MAX),
        stream(LATER_STREAM.to_owned(), subject::ALL_LATER, LATER_AGE_MAX, QUESTION_BYTES_MAX),
        bucket(HOSTS_BUCKET),
        bucket(PENDING_BUCKET),
    ]
}

/// Makes the streams, or changes those that are there; returns their names.
///
/// # Errors
///
/// What the server refuses, such as these credentials.
pub(crate) async fn set_up(connection: &Connection, replicas: usize) -> Result<Vec<String>, String> {
    let jetstream: jetstream::Context = context::ContextBuilder::new().timeout(MADE_WITHIN).build(connection.client.clone());
    let mut made = Vec::new();
    for config in streams(replicas) {
        let name = config.name.clone();
        let info = jetstream.create_or_update_stream(config).await;
        info.map_err(|error| format!("make the stream {name}: {error}"))?;
        made.push(name);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consoles_read_every_stream_directly() {
        let all = streams(3);
        assert!(all.iter().all(|stream| stream.allow_direct && stream.num_replicas == 3));
        let names: Vec<&str> = all.iter().map(|stream| stream.name.as_str()).collect();
        assert_eq!(names, ["CSHIM_EV", "CSHIM_LATER", "KV_cshim_hosts", "KV_cshim_pending"]);
        assert!(all.iter().all(|stream| stream.duplicate_window <= stream.max_age));
    }
}
