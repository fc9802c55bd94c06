//! The protocol of `codex app-server`: the methods that this program knows, and their meaning.
//!
//! No other room names methods. This one never parses messages and holds no state but the names in [`newer`]. [`change`] reads the
//! diffs in messages, and [`hunk`] their parts.

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use serde::de::value::StrDeserializer;

pub mod change;
#[cfg(test)]
mod change_tests;
mod early;
mod event;
pub mod hunk;
mod method;
mod newer;
mod played;
mod review;
mod thread;
mod word;

pub use early::{
    BYTE_RANGES, CommandText, Dialect, EVENT_MEMBER, Encoding, ItemEvent, OTHER_THREAD_ID, PAST_EVENTS, THREAD_NAMES,
    USER_MESSAGES, approval_member, first_own_change, has_user_words, is_item_number, is_turn_number, own_changes,
    piece_stream, renamed, says_all,
};
pub use event::{
    Event, ItemPlace, PLACE_MEMBERS, RANKS, inject_items_params, item_id, notification_line, raw_item, request_line,
    thread_id, token_counts,
};
pub use method::Listed;
pub use method::{Method, PastForm, RESPONSES, Secrecy, starts_turn};
pub use method::{
    answers_with_credentials, may_ask_for_secret, may_write_config, names_method_with_secret_answer,
    names_method_with_secret_members, names_secret_method, stand_in,
};

pub use newer::NewerName;
pub use played::{PlayedItem, declared_tools, is_dispensable, is_path, leave_harmless, may_be_played};
pub use review::{Denial, overruled_review, review_widens};
pub use thread::{Showing, SpawnedThread, ThreadDescription, ThreadKind, ThreadSettings, cwd_in};
pub use word::Word;

/// Declares an enum whose variants have names in rows and documents. An `open` one also takes the names of newer relays.
macro_rules! named {
    ($(#[$attr:meta])* $vis:vis open enum $enum:ident {
        $($(#[$doc:meta])* $variant:ident = $name:literal,)*
    }) => {
        $(#[$attr])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $enum {
            $($(#[$doc])* $variant,)*
            /// A name that only a newer relay has.
            Newer($crate::protocol::NewerName),
        }

        impl $enum {
            /// The name in rows and documents. Source: the contract.
            #[must_use]
            $vis fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)*
                    $enum::Newer(newer) => newer.name(),
                }
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $enum {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$enum, D::Error> {
                let name: std::borrow::Cow<'de, str> = serde::Deserialize::deserialize(deserializer)?;
                Ok(match &*name {
                    $($name => $enum::$variant,)*
                    newer => $enum::Newer($crate::protocol::NewerName::of(newer)),
                })
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
    ($(#[$attr:meta])* $vis:vis enum $enum:ident {
        $($(#[$doc:meta])* $variant:ident = $name:literal,)*
    }) => {
        $(#[$attr])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $vis enum $enum { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl $enum {
            /// All, in order.
            #[allow(dead_code, reason = "not every enum is listed")]
            $vis const ALL: [$enum; [$($name),*].len()] = [$($enum::$variant,)*];

            /// The name in rows and documents. Source: the contract.
            #[must_use]
            $vis fn name(self) -> &'static str {
                match self { $($enum::$variant => $name,)* }
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use named;

/// The variant with this name.
pub fn of_name<'a, T: Deserialize<'a>>(name: &'a str) -> Option<T> {
    let name: StrDeserializer<'a, serde::de::value::Error> = name.into_deserializer();
    T::deserialize(name).ok()
}
