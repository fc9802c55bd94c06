//! Names of sessions and threads that every front end writes alike.

use uuid::Uuid;

/// Shortest prefix of an id.
const ID_CHARS_MIN: usize = 8;

/// The machine of a session, by the session's id; `None` for a session of this machine.
pub fn host_of(id: &str) -> Option<&str> {
    id.split_once('/').map(|(host, _)| host)
}

/// The shortest unique prefix of a thread's id, which every command accepts. A name that a user chose stays whole.
pub fn short_id<'a, 'b>(id: &'a str, all: impl Iterator<Item = &'b str> + Clone) -> &'a str {
    if Uuid::try_parse(id).is_err() {
        return id;
    }
    let ends = id.char_indices().map(|(at, char)| at + char.len_utf8()).filter(|end| *end >= ID_CHARS_MIN);
    for end in ends {
        let is_taken = all.clone().any(|other| other != id && other.starts_with(&id[..end]));
        if !is_taken && !id[..end].ends_with('-') {
            return &id[..end];
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_id_is_a_unique_prefix() {
        let ids = ["0192c4f0-1111-7000-8000-000000000001", "0192c4f0-1112-7000-8000-000000000001", "work"];
        let short = |id| short_id(id, ids.iter().copied());
        assert_eq!(short(ids[0]), "0192c4f0-1111");
        assert_eq!(short(ids[2]), "work");
        assert_eq!(short_id(ids[0], ids[..1].iter().copied()), "0192c4f0");
        assert_eq!(short("thread-0001"), "thread-0001");
    }
}
