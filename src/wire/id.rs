//! Request ids, with the protocol's rules for equality.

use std::fmt;

use serde_json::value::RawValue;

/// The id of a request. The JSON type is part of it: `92` and `"92"` are different ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RpcId {
    /// An integer that fits the protocol's `int64`.
    Integer(i64),
    /// A string, unescaped.
    Text(String),
    /// Any other JSON value in the place of an id, as it was written.
    Other(String),
}

impl RpcId {
    /// The id `null`, which answers an unreadable line.
    #[must_use]
    pub fn null() -> RpcId {
        RpcId::Other("null".to_owned())
    }

    /// Reads an id from its JSON text.
    #[must_use]
    pub fn from_raw(raw: &RawValue) -> RpcId {
        let text = raw.get();
        if let Ok(integer) = serde_json::from_str::<i64>(text) {
            return RpcId::Integer(integer);
        }
        match serde_json::from_str::<String>(text) {
            Ok(text) => RpcId::Text(text),
            Err(_) => RpcId::Other(text.to_owned()),
        }
    }
}

impl fmt::Display for RpcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RpcId::Integer(integer) => write!(f, "{integer}"),
            RpcId::Text(text) => write!(f, "{text:?}"),
            RpcId::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RpcId {
        RpcId::from_raw(serde_json::from_str(text).expect("BUG: test ids are JSON"))
    }

    #[test]
    fn ids_compare_by_type_and_value() {
        assert_eq!(id("92"), RpcId::Integer(92));
        assert_ne!(id("92"), id("\"92\""));
        assert_eq!(id(r#""a""#), id(r#""\u0061""#));
        assert_eq!(id("9223372036854775808"), RpcId::Other("9223372036854775808".to_owned()));
        assert_eq!(id(r#""\ud800""#), RpcId::Other(r#""\ud800""#.to_owned()));
        assert_eq!(id("null").to_string(), "null");
        assert_eq!(id("\"92\"").to_string(), "\"92\"");
    }
}
