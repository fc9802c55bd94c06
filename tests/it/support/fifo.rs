//! Named pipes.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Creates a named pipe for this user.
#[expect(unsafe_code, reason = "no safe interface creates a FIFO on every system")]
pub fn make_fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL");
    // SAFETY: the name ends with a NUL and outlives the call.
    let made = unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
    assert_eq!(made, 0, "a FIFO: {}", std::io::Error::last_os_error());
}
