//! The items that the tests, benchmarks and fuzz targets of this repository use. Not an API: it changes without notice.

pub mod api {
    pub use crate::api::Request;
}

pub mod capture {
    pub use crate::capture::{Watch, Whose};
}

pub mod config {
    pub use crate::config::{
        ContextScope, Environment, Flags, RetentionBounds, Settings, parse_duration, setting_variables,
    };
}

pub mod control {
    pub use crate::control::{new_commands, resolve};

    pub mod client {
        pub use crate::control::client::{get, post};
    }
}

pub mod driver {
    pub use crate::driver::{Driver, Elsewhere, Host, Links, Passed};
    pub use crate::hub::links::{HubLinks, Own};
    pub use crate::hub::{Link, LinkEnd};
    pub use crate::relay::{Broken, Direction, Pair, ReadEnd, ReadOutcome, WriteEnd};
}

pub mod engine {
    pub use crate::engine::{
        AnswerBefore, ApiCallId, ApiReply, ApiRequest, AssemblySettings, ChildEffect, ClientName, ContextBounds,
        ContextChange, ContextSettings, Decision, Effect, Engine, EngineSettings, Exit, GivenAnswer, Incoming, Input,
        LedgerEntry, LinkEffect, MARKER_END, MARKER_START, Note, Now, OpenBefore, Order, OwnLine, PROJECTION_START,
        Passage, Peer, Preview, Provenance, PushedCommand, Remembered, RequestKind, RequestSettings, RequestSource,
        RequestStatus, RequestType, Rule, ServerOwner, Token, Transport, WaitingCommand, acceptable_words, decisions,
        one_line, request_digest, valid,
    };

    pub mod terminal {
        pub use crate::engine::terminal::{KEPT_BYTES, Parser, Piece, Remains, Screen, Size};
    }
}

pub mod history {
    pub use crate::history::{
        Activity, Facts, Filter, FilterChoices, FilterPlace, Fold, Rows, Seen, SessionActivity, UiFold, complete,
    };
}

pub mod index {
    pub use crate::api::Cursor;
    pub use crate::index::{Follower, HISTORY_FILE, History, Index, IndexSettings, Next, Patience, TranscriptFiles};
}

pub mod invariants {
    pub use crate::invariants::{Shared, panic_at_once, take_broken};
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

pub mod sessions {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::SystemTime;

    use crate::history::{Filter, FilterPlace};
    use crate::sessions::entry::{Entry, Matcher, Sifter};
    use crate::sessions::news::Page;
    use crate::sessions::reader::Pager;
    use crate::sessions::search::known_facts;
    use crate::sessions::source::Recorded as _;
    use crate::store::Found;

    /// The entries of a session that the search in a timeline finds, from the start on.
    ///
    /// # Errors
    ///
    /// The query is not valid, or the session cannot be read.
    pub fn found_in_timeline(home: &Path, session: &str, query: &str) -> Result<Vec<String>, String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|error| error.to_string())?;
        let filter = Filter::read(query, &FilterPlace::nowhere(now.as_micros() as u64))?;
        let all = Found::all(home).map_err(|error| error.to_string())?;
        let found = all.iter().find(|found| found.id == session).ok_or("no such session")?;
        let known = known_facts(found).map_err(|error| error.to_string())?;
        let sifter = Some(Arc::new(Sifter { filter, known: Arc::new(known) }));
        let matcher = Matcher { sifter, ..Matcher::default() };
        let pager = Pager::new(&found.dir, Arc::new(AtomicBool::new(true)));
        let failed = |error: std::io::Error| error.to_string();
        let (mut page, mut texts) = (pager.start().map_err(failed)?, Vec::new());
        while let Some(Page { entries, is_last }) = page.take() {
            texts.extend(entries.iter().filter(|entry| matcher.takes(entry)).map(Entry::whole));
            if let Some(last) = entries.last().filter(|_| !is_last) {
                page = pager.newer(&last.key).map_err(failed)?;
            }
        }
        Ok(texts)
    }
}

pub mod store {
    use std::path::Path;

    use crate::config::ContextScope;
    pub use crate::store::{OfflineLedger, SeqMark, SeqWish};
    use crate::store::{OpenThread, in_scope};

    /// The ids of those of `threads`, each with its id and folder, that get a command which ran in `cwd`.
    #[must_use]
    pub fn threads_in_scope(threads: &[(String, String)], cwd: &Path, scope: ContextScope) -> Vec<String> {
        let open = |(id, folder): &(String, String)| OpenThread {
            id: id.clone(),
            cwd: folder.into(),
            is_open: true,
            takes_messages: true,
            ..OpenThread::default()
        };
        let threads: Vec<OpenThread> = threads.iter().map(open).collect();
        in_scope(&threads, cwd, scope).map(|thread| thread.id.clone()).collect()
    }
}

pub mod confinement {
    pub use crate::os::confinement::is_shown;
}

pub mod secrets {
    pub use crate::secrets::{InPieces, Masker, Pieces, redacted, redacted_json};
}

pub mod terminals {
    pub use crate::os::terminals::pair;
}

pub mod websocket {
    pub use crate::websocket::{
        Accepting, CLIENT_MESSAGE_BYTES_MAX, Close, ConnectError, Connecting, End, Ended, Flushed, Reading, Refusal,
        Response, SERVER_FRAME_BYTES_MAX, SERVER_MESSAGE_BYTES_MAX, UpgradeRequest, Utf8Bytes, Violation,
    };
}

pub mod wire {
    pub use crate::wire::{
        Body, Conn, Frame, Framer, Glance, LINE_BYTES_MAX, Line, LineEnd, Members, Side, elements, stands_verbatim,
        text, tokens, written_members,
    };
}
