//! Who and where this program is.

/// The user that our files, sockets and callers belong to.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The user that has logged in, also if this program runs as another one.
pub fn login_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
