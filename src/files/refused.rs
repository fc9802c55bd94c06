//! Why a file or folder is not used although it is there. It knows what to do about it, and opens nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

/// Why a file or folder is not used although it is there. Carried as the source of an [`io::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    path: PathBuf,
    why: Why,
}

/// The reason of a [`Refused`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Why {
    /// It belongs to the user of this uid.
    Foreign(u32),
    /// Its mode lets the group or others write.
    Writable(Mode),
    /// Not a folder but this kind of file.
    NotFolder(&'static str),
    /// Not a regular file but this kind.
    NotFile(&'static str),
}

impl Refused {
    /// The refusal behind an error, if it is one.
    #[must_use]
    pub(crate) fn behind(error: &io::Error) -> Option<&Refused> {
        error.get_ref()?.downcast_ref()
    }

    /// The problem, for a message.
    #[must_use]
    pub(crate) fn problem(&self) -> String {
        let path = self.path.display();
        match &self.why {
            Why::Foreign(uid) => format!("{path} belongs to another user (uid {uid})"),
            Why::Writable(mode) => format!("group or others can write to {path} (mode {:04o})", mode.bits()),
            Why::NotFolder(kind) => format!("{path} is {kind}, not a folder"),
            Why::NotFile(kind) => format!("{path} is {kind}, not a regular file"),
        }
    }

    /// The remedy, for a message.
    #[must_use]
    pub(crate) fn remedy(&self) -> String {
        let path = self.path.display();
        match &self.why {
            Why::Foreign(_) => "make it yours with `chown`, or set CODEX_SHIM_HOME to a folder of your own".to_owned(),
            Why::Writable(_) => format!("run `chmod go-w {path}`, or set CODEX_SHIM_HOME to a folder of your own"),
            Why::NotFolder(_) | Why::NotFile(_) => "move it away".to_owned(),
        }
    }

    /// The refusal of this file or folder, as an error.
    pub(super) fn error(path: &Path, why: Why) -> io::Error {
        let kind = match why {
            Why::Foreign(_) | Why::Writable(_) => io::ErrorKind::PermissionDenied,
            Why::NotFolder(_) | Why::NotFile(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, Refused { path: path.to_owned(), why })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem(), self.remedy())
    }
}

impl std::error::Error for Refused {}
