//! The items that the tests, benchmarks and fuzz targets of this repository use. Not an API: it changes without notice.

pub mod capture {
    pub use crate::capture::{Watch, Whose};
}

pub mod config {
    pub use crate::config::{Environment, Flags, RetentionBounds, SETTING_VARIABLES, Settings, parse_duration};
}

pub mod control {
    pub use crate::control::{new_commands, resolve, with_choices};

    pub mod client {
        pub use crate::control::client::{get, post};
    }
}

pub mod engine {
    pub use crate::engine::{
        AnswerBefore, ApiCallId, ApiReply, ApiRequest, AssemblySettings, ContextBounds, ContextChange, ContextSettings,
        Decision, Effect, Engine, EngineSettings, Exit, GivenAnswer, Incoming, Input, LedgerEntry, MARKER_END,
        MARKER_START, Note, Now, OpenBefore, Order, OwnLine, PROJECTION_START, Passage, Peer, Preview, Provenance,
        PushedCommand, Remembered, RequestKind, RequestSettings, RequestSource, RequestStatus, RequestType, Rule,
        ServerOwner, Token, Transport, WaitingCommand, acceptable_words, decisions, one_line, request_digest, valid,
    };
}

pub mod history {
    pub use crate::history::{Fold, Rows, Seen, SessionActivity, UiFold};
}

pub mod index {
    pub use crate::index::{
        Cursor, Follower, HISTORY_FILE, History, Index, IndexSettings, Next, Patience, TranscriptFiles,
    };
}

pub mod journal {
    pub use crate::journal::{
        Batch, Bounds, Content, FORMAT, Generation, Header, IndexedTo, Origin, Position, Previous, Record, SegmentName,
        ServerOrigin, Writer,
    };

    pub mod reader {
        pub use crate::journal::reader::{Reader, Step};
    }
}

pub mod protocol {
    pub use crate::protocol::change::{Form, Line, LineKind, Lines, Listed, Text, lines, list, shown};
}

pub mod replay {
    pub use crate::replay::{Player, Script, Strictness, Tape};
}

pub mod store {
    pub use crate::store::{OfflineLedger, SeqMark, SeqWish};
}

pub mod secrets {
    pub use crate::secrets::{InPieces, Masker, Pieces, redacted, redacted_json};
}

pub mod websocket {
    pub use crate::websocket::{
        Accepting, CLIENT_MESSAGE_BYTES_MAX, Close, ConnectError, Connecting, End, Ended, Flushed, Reading, Refusal,
        Request, Response, SERVER_FRAME_BYTES_MAX, SERVER_MESSAGE_BYTES_MAX, Utf8Bytes, Violation,
    };
}

pub mod wire {
    pub use crate::wire::{
        Body, Conn, Frame, Framer, Glance, LINE_BYTES_MAX, Line, LineEnd, Members, Side, elements, stands_verbatim,
        text, tokens, written_members,
    };
}
