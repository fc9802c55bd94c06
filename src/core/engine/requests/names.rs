//! The names of requests in the ledger.

use sha2::{Digest as _, Sha256};

use super::Requests;
use crate::wire::RpcId;

/// Request names remembered; one more clears them.
const NAMES_MAX: usize = 100_000;

/// Longest id text used unchanged in a name. Source: the contract of the ledger.
const PLAIN_ID_CHARS_MAX: usize = 40;

/// The name of a request before it is made unique: `raw` is the id as written.
pub(super) fn request_name(generation: &str, id: &RpcId, raw: &str) -> String {
    let is_plain = |text: &str| {
        (1..=PLAIN_ID_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    match id {
        RpcId::Integer(number) => format!("{generation}-{number}"),
        RpcId::Text(text) if is_plain(text) => format!("{generation}-s.{text}"),
        RpcId::Text(_) | RpcId::Other(_) => {
            let digest = Sha256::digest(raw.as_bytes());
            let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("{generation}-h.{hex}")
        }
    }
}

impl Requests {
    /// A name that no row has.
    pub(super) fn free_name(&mut self, name: String) -> String {
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        let used = self.names.entry(name.clone()).or_insert(0);
        *used += 1;
        if *used == 1 { name } else { format!("{name}.{used}") }
    }

    /// A row has this name.
    pub(super) fn name_is_used(&mut self, name: &str) {
        let numbered = name.rsplit_once('.').and_then(|(base, number)| Some((base, number.parse::<u64>().ok()?)));
        let (name, number) = match numbered {
            // A point also separates the text of an id; see [`request_name`].
            Some((base, number)) if !base.ends_with("-s") => (base, number),
            Some(_) | None => (name, 1),
        };
        let used = self.names.entry(name.to_owned()).or_insert(0);
        *used = number.max(*used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_distinguish_id_types() {
        let check = |raw: &str, expect: &str| {
            let id = RpcId::from_raw(serde_json::from_str(raw).expect("BUG: test ids are JSON"));
            assert_eq!(request_name("g", &id, raw), expect);
        };
        check("0", "g-0");
        check("-7", "g--7");
        check("\"a_B-9\"", "g-s.a_B-9");
        check("\"0\"", "g-s.0");
        check("\"a b\"", "g-h.5e229e245c3e5252");
        check("\"\"", "g-h.12ae32cb1ec02d01");
        check("1.5", "g-h.9f29a130438b8117");
    }
}
