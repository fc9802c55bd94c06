//! Which processes may call us: none that is confined more than we are.
//!
//! A command that the model runs in the sandbox of codex can reach a socket whose path it learns, if the sandbox has access to
//! the network. The sandbox cannot be left: whatever runs in it has `no_new_privs` set, a filter for system calls, and
//! namespaces of its own. So a peer that has any of these, and this process has not, is refused. The comparison with this
//! process makes the rule work inside of a container as well.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::os::confinement::{Confinement, Restriction, cgroup_of, is_within};
use crate::os::peers::Peer;

/// Callers are compared with this process.
#[derive(Debug, Clone, Default)]
pub struct Callers {
    /// Read at the first call, because a start does not need it.
    own: OnceLock<Confinement>,
    /// Cgroups whose processes may call although they are confined.
    trusted: Vec<PathBuf>,
}

/// A peer that may not call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub peer: Peer,
    /// The name of its program, at most 15 bytes: what the kernel shows.
    pub program: Option<String>,
    pub restriction: Restriction,
}

impl Refused {
    /// The reason and the remedy.
    pub fn message(&self) -> String {
        let program = self.program.as_deref().unwrap_or("a process");
        let peer = self.peer;
        let remedy = match self.restriction {
            // Cgroups are those of Linux.
            Restriction::Sandbox => "run it outside",
            Restriction::NoNewPrivileges
            | Restriction::Seccomp
            | Restriction::PidNamespace
            | Restriction::UserNamespace
            | Restriction::MountNamespace
            | Restriction::Unknown => "run it outside, or name the cgroup of your container in `trusted_cgroups`",
        };
        let why = match self.restriction {
            Restriction::NoNewPrivileges => "has `no_new_privs` set",
            Restriction::Seccomp => "has a filter for its system calls",
            Restriction::PidNamespace => "has a process namespace of its own",
            Restriction::UserNamespace => "has a user namespace of its own",
            Restriction::MountNamespace => "has a mount namespace of its own",
            Restriction::Sandbox => "is in a sandbox",
            Restriction::Unknown => "has ended, or runs outside of the container of codex-shim",
        };
        format!("{program} ({peer}) {why}: a process in a sandbox may not use codex-shim; {remedy}")
    }
}

impl Callers {
    /// `trusted` are cgroups whose processes may call although they are confined. Commands of the model are in the cgroup of
    /// `server`, the process of codex, or of this process, so a cgroup that contains one of these is left out.
    pub fn new(trusted: &[PathBuf], server: Option<u32>) -> Callers {
        if trusted.is_empty() {
            return Callers::default();
        }
        let of_model: Vec<PathBuf> =
            [Some(std::process::id()), server].into_iter().flatten().filter_map(cgroup_of).collect();
        let mut cgroups = Vec::new();
        for outer in trusted {
            if of_model.iter().any(|cgroup| is_within(cgroup, outer)) {
                tracing::warn!(cgroup = %outer.display(), "commands of the model run in this trusted cgroup: it is ignored");
            } else {
                cgroups.push(outer.clone());
            }
        }
        Callers { own: OnceLock::new(), trusted: cgroups }
    }

    /// Checks that the process at the other end may call.
    ///
    /// # Errors
    ///
    /// It is confined more than this process, or the kernel does not show it.
    pub fn check(&self, stream: &impl AsFd, peer: Peer) -> Result<(), Box<Refused>> {
        let refused = |program, restriction| Box::new(Refused { peer, program, restriction });
        let Some(confinement) = Confinement::of_peer(stream, peer) else {
            return Err(refused(None, Restriction::Unknown));
        };
        let Some(restriction) = self.own.get_or_init(Confinement::own).restriction_of(&confinement) else {
            return Ok(());
        };
        if confinement.is_within(&self.trusted) {
            return Ok(());
        }
        Err(refused(confinement.program, restriction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::confinement::is_shown;
    use std::io::{self, Write as _};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Command, Stdio};

    /// Otherwise prints that a test is skipped.
    fn is_shown_or_skip(test: &str) -> bool {
        if !is_shown() {
            let _ =
                writeln!(io::stderr(), "SKIPPED: {test}: nothing here shows how a process is confined as Linux does");
        }
        is_shown()
    }

    #[test]
    fn cgroup_of_the_model_is_not_trusted() {
        if !is_shown_or_skip("cgroup_of_the_model_is_not_trusted") {
            return;
        }
        let own = cgroup_of(std::process::id());
        let named = [PathBuf::from("/"), PathBuf::from("/elsewhere")];
        let trusted = Callers::new(&[named.to_vec(), own.into_iter().collect()].concat(), None).trusted;
        assert_eq!(trusted, [PathBuf::from("/elsewhere")]);
    }

    /// The answer to a process that connects by way of `wrapper`; `None` if the system lacks the wrapper or forbids it.
    fn check_behind(wrapper: &[&str]) -> Option<Result<(), Restriction>> {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).expect("it can be bound");
        let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)";
        let mut words = wrapper.to_vec();
        words.extend(["python3", "-c", script]);
        let mut child = Command::new(words[0]).args(&words[1..]).arg(&path).stderr(Stdio::null()).spawn().ok()?;
        listener.set_nonblocking(true).expect("it is open");
        let stream: UnixStream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                // It could not connect.
                Err(_) if child.try_wait().expect("it is ours").is_some() => return None,
                Err(_) => std::thread::yield_now(),
            }
        };
        let peer = Peer::of(&stream).expect("the kernel says");
        let checked = Callers::new(&[], None).check(&stream, peer);
        drop(stream);
        child.wait().expect("it is ours");
        Some(checked.map_err(|refused| refused.restriction))
    }

    #[test]
    fn confined_processes_are_recognized() {
        if !is_shown_or_skip("confined_processes_are_recognized") {
            return;
        }
        use Restriction::*;
        for (wrapper, expected) in [
            (&["env"][..], Ok(())),
            (&["setpriv", "--no-new-privs"], Err(NoNewPrivileges)),
            (&["unshare", "--mount"], Err(MountNamespace)),
            (&["unshare", "--user"], Err(UserNamespace)),
            (&["unshare", "--pid", "--fork"], Err(PidNamespace)),
        ] {
            match check_behind(wrapper) {
                Some(checked) => assert_eq!(checked, expected, "{wrapper:?}"),
                None => drop(writeln!(io::stderr(), "SKIPPED: {wrapper:?} does not work here")),
            }
        }
    }

    #[test]
    fn processes_that_have_ended_are_refused() {
        if !is_shown_or_skip("processes_that_have_ended_are_refused") {
            return;
        }
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).expect("it can be bound");
        let script = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
        let mut child = Command::new("python3").args(["-c", script]).arg(&path).spawn().expect("python3 runs");
        let (stream, _) = listener.accept().expect("it connects");
        child.wait().expect("it is ours");
        let peer = Peer::of(&stream).expect("the kernel says");
        let refused = Callers::new(&[], None).check(&stream, peer).expect_err("the process is gone");
        assert_eq!(refused.restriction, Restriction::Unknown);
    }
}
