//! Which processes may call us: none that is confined more than we are.
//!
//! A command that the model runs in the sandbox of codex can reach a socket whose path it learns, if the sandbox has access to
//! the network. The sandbox cannot be left: whatever runs in it has `no_new_privs` set, a filter for system calls, and
//! namespaces of its own. So a peer that has any of these, and this process has not, is refused. The comparison with this
//! process makes the rule work inside of a container as well.
//!
//! The kernel names the peer as it was when it connected, and [`Callers::check`] reads what the kernel says of that process now.
//! [`super::holder`] sees to it that no other process has taken its id in between.

#[cfg(target_os = "linux")]
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use super::holder::Holder;
use super::peer::Peer;

/// Callers are compared with this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Callers {
    own: Confinement,
    /// Cgroups whose processes may call although they are confined.
    trusted: Vec<PathBuf>,
}

/// A peer that may not call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) peer: Peer,
    /// The name of its program, at most 15 bytes: what the kernel shows.
    pub(crate) program: Option<String>,
    pub(crate) restriction: Restriction,
}

/// How a process is confined more than this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restriction {
    NoNewPrivileges,
    Seccomp,
    PidNamespace,
    UserNamespace,
    MountNamespace,
    /// The kernel does not show it: it has ended, hides itself, or is outside of our container.
    Unknown,
}

impl Restriction {
    /// Its name in events and responses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Restriction::NoNewPrivileges => "no_new_privs",
            Restriction::Seccomp => "seccomp",
            Restriction::PidNamespace => "pid_namespace",
            Restriction::UserNamespace => "user_namespace",
            Restriction::MountNamespace => "mount_namespace",
            Restriction::Unknown => "unknown",
        }
    }
}

impl Refused {
    /// The reason and the remedy.
    pub(crate) fn message(&self) -> String {
        let program = self.program.as_deref().unwrap_or("a process");
        let peer = self.peer;
        let why = match self.restriction {
            Restriction::NoNewPrivileges => "has `no_new_privs` set",
            Restriction::Seccomp => "has a filter for its system calls",
            Restriction::PidNamespace => "has a process namespace of its own",
            Restriction::UserNamespace => "has a user namespace of its own",
            Restriction::MountNamespace => "has a mount namespace of its own",
            Restriction::Unknown => "has ended, or runs outside of the container of codex-shim",
        };
        format!(
            "{program} ({peer}) {why}: a process in a sandbox may not use codex-shim; run it outside, or name the cgroup of your \
             container in `trusted_cgroups`"
        )
    }
}

/// What the kernel shows of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Confinement {
    program: Option<String>,
    no_new_privs: Option<u32>,
    seccomp_mode: Option<u32>,
    /// Filters can only be added. Linux before 5.9 does not count them.
    seccomp_filters: Option<u32>,
    /// The process ids that it has in our process namespace and in those below.
    pids: Option<usize>,
    /// The users of its namespace, as ours sees them.
    users: Option<String>,
    /// The process, user and mount namespace; `None` for a process that forbids debuggers, such as those of root.
    namespaces: [Option<PathBuf>; 3],
}

impl Confinement {
    /// Of `/proc/PID/status`.
    fn parse(status: &str) -> Confinement {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let number = |name| value(name).and_then(|text| text.parse().ok());
        Confinement {
            program: value("Name").map(str::to_owned),
            no_new_privs: number("NoNewPrivs"),
            seccomp_mode: number("Seccomp"),
            seccomp_filters: number("Seccomp_filters"),
            pids: value("NSpid").map(|pids| pids.split_whitespace().count()),
            ..Confinement::default()
        }
    }

    /// How a process is confined more than this one.
    fn restriction_of(&self, other: &Confinement) -> Option<Restriction> {
        if other.no_new_privs > self.no_new_privs {
            return Some(Restriction::NoNewPrivileges);
        }
        if other.seccomp_mode > self.seccomp_mode || other.seccomp_filters > self.seccomp_filters {
            return Some(Restriction::Seccomp);
        }
        let [pid, user, mount] = [0, 1, 2].map(|kind| match (&self.namespaces[kind], &other.namespaces[kind]) {
            (own, Some(theirs)) => own.as_ref() != Some(theirs),
            (_, None) => false,
        });
        // These are shown of every process.
        if pid || other.pids > self.pids {
            return Some(Restriction::PidNamespace);
        }
        if user || other.users != self.users {
            return Some(Restriction::UserNamespace);
        }
        mount.then_some(Restriction::MountNamespace)
    }
}

/// Whether a cgroup is in another, or is that one.
fn is_within(cgroup: &Path, outer: &Path) -> bool {
    cgroup.starts_with(outer)
}

/// The cgroup in `/proc/PID/cgroup`: that of the unified hierarchy, or else the one that systemd keeps. All processes can be in the
/// root of one, as in a container with a root of its own.
fn cgroup(text: &str) -> Option<PathBuf> {
    let path =
        |start: &str| text.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(start)).map(PathBuf::from);
    path(":").filter(|path| path != Path::new("/")).or_else(|| path("name=systemd:")).or_else(|| path(":"))
}

#[cfg(target_os = "linux")]
impl Callers {
    /// `trusted` are cgroups whose processes may call although they are confined. Commands of the model are in the cgroup of
    /// `server`, the process of codex, or of this process, so a cgroup that contains one of these is left out.
    pub(crate) fn new(trusted: &[PathBuf], server: Option<u32>) -> Callers {
        let of_model: Vec<PathBuf> =
            [Some(std::process::id()), server].into_iter().flatten().filter_map(read_cgroup).collect();
        let mut cgroups = Vec::new();
        for outer in trusted {
            if of_model.iter().any(|cgroup| is_within(cgroup, outer)) {
                tracing::warn!(cgroup = %outer.display(), "commands of the model run in this trusted cgroup: it is ignored");
            } else {
                cgroups.push(outer.clone());
            }
        }
        Callers { own: read_confinement("self").unwrap_or_default(), trusted: cgroups }
    }

    /// Checks that the process at the other end may call.
    ///
    /// # Errors
    ///
    /// It is confined more than this process, or the kernel does not show it.
    pub(crate) fn check(&self, stream: &impl AsFd, peer: Peer) -> Result<(), Box<Refused>> {
        let refused = |program, restriction| Box::new(Refused { peer, program, restriction });
        let Some(pid) = peer.pid else { return Err(refused(None, Restriction::Unknown)) };
        let holder = Holder::of(stream, pid);
        let (confinement, cgroup) = (read_confinement(&pid.to_string()), read_cgroup(pid));
        // Then what was read is its own.
        let is_peer = || holder.is_peer(Peer::of(stream).ok().and_then(|peer| peer.pid));
        let Some(confinement) = confinement.ok().filter(|_| is_peer()) else {
            return Err(refused(None, Restriction::Unknown));
        };
        let Some(restriction) = self.own.restriction_of(&confinement) else { return Ok(()) };
        if cgroup.is_some_and(|cgroup| self.trusted.iter().any(|outer| is_within(&cgroup, outer))) {
            return Ok(());
        }
        Err(refused(confinement.program, restriction))
    }
}

/// Other systems show nothing of this kind.
#[cfg(not(target_os = "linux"))]
impl Callers {
    pub(crate) fn new(trusted: &[PathBuf], _server: Option<u32>) -> Callers {
        Callers { trusted: trusted.to_vec(), ..Callers::default() }
    }

    pub(crate) fn check(&self, _stream: &impl AsFd, _peer: Peer) -> Result<(), Box<Refused>> {
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn read_confinement(process: &str) -> io::Result<Confinement> {
    let status = std::fs::read(format!("/proc/{process}/status"))?;
    let namespace = |kind: &str| std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    let namespaces = ["pid", "user", "mnt"].map(namespace);
    let users = std::fs::read_to_string(format!("/proc/{process}/uid_map")).ok();
    Ok(Confinement { namespaces, users, ..Confinement::parse(&String::from_utf8_lossy(&status)) })
}

#[cfg(target_os = "linux")]
fn read_cgroup(pid: u32) -> Option<PathBuf> {
    cgroup(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Command, Stdio};

    const STATUS: &str = "Name:\tpython3\nPid:\t7\nNSpid:\t7\t2\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    #[test]
    fn status_is_parsed() {
        let parsed = Confinement::parse(STATUS);
        assert_eq!(parsed.program.as_deref(), Some("python3"));
        assert_eq!((parsed.no_new_privs, parsed.seccomp_mode, parsed.seccomp_filters), (Some(1), Some(2), Some(1)));
        assert_eq!(parsed.pids, Some(2));
        assert_eq!(Confinement::parse("garbage\n:\nSeccomp:x\n"), Confinement::default());
    }

    /// Numbers as `/proc/PID/status` has them, and the namespaces.
    fn confinement(numbers: [u32; 3], namespaces: [&str; 3]) -> Confinement {
        let [no_new_privs, seccomp_mode, seccomp_filters] = numbers.map(Some);
        let namespaces = namespaces.map(|name| (!name.is_empty()).then(|| PathBuf::from(name)));
        Confinement { no_new_privs, seccomp_mode, seccomp_filters, namespaces, ..Confinement::default() }
    }

    #[test]
    fn only_what_is_confined_more_is_refused() {
        use Restriction::*;
        let plain = [0, 0, 0];
        let home = ["p", "u", "m"];
        let docker = [0, 2, 1];
        for (own, own_in, other, other_in, expected) in [
            (plain, home, plain, home, None),
            (plain, home, [1, 0, 0], home, Some(NoNewPrivileges)),
            (plain, home, [1, 2, 1], ["x", "x", "x"], Some(NoNewPrivileges)),
            (plain, home, [0, 2, 1], home, Some(Seccomp)),
            (plain, home, [0, 1, 0], home, Some(Seccomp)),
            (plain, home, plain, ["x", "u", "m"], Some(PidNamespace)),
            (plain, home, plain, ["p", "x", "m"], Some(UserNamespace)),
            (plain, home, plain, ["p", "u", "x"], Some(MountNamespace)),
            // A process that forbids debuggers.
            (plain, home, plain, ["", "", ""], None),
            (plain, home, [1, 0, 0], ["", "", ""], Some(NoNewPrivileges)),
            // A kernel without user namespaces.
            (plain, ["p", "", "m"], plain, ["p", "", "m"], None),
            // We run in a container.
            (docker, home, docker, home, None),
            (docker, home, plain, home, None),
            (docker, home, [1, 2, 1], home, Some(NoNewPrivileges)),
            (docker, home, [0, 2, 2], home, Some(Seccomp)),
            // No process of this one's may gain privileges: the filters and namespaces are left.
            ([1, 2, 1], home, [1, 2, 1], home, None),
            ([1, 2, 1], home, [1, 2, 2], home, Some(Seccomp)),
            ([1, 0, 0], home, [1, 0, 0], ["p", "u", "x"], Some(MountNamespace)),
        ] {
            let (own, other) = (confinement(own, own_in), confinement(other, other_in));
            assert_eq!(own.restriction_of(&other), expected, "{own:?} {other:?}");
        }
    }

    #[test]
    fn hidden_namespaces_show_in_ids_and_users() {
        let shown = |pids, users: &str| {
            let hidden = confinement([0, 0, 0], ["", "", ""]);
            Confinement { pids: Some(pids), users: Some(users.to_owned()), ..hidden }
        };
        let own = Confinement { namespaces: confinement([0, 0, 0], ["p", "u", "m"]).namespaces, ..shown(1, "0 0 9") };
        assert_eq!(own.restriction_of(&shown(1, "0 0 9")), None);
        assert_eq!(own.restriction_of(&shown(2, "0 0 9")), Some(Restriction::PidNamespace));
        assert_eq!(own.restriction_of(&shown(1, "0 7 1")), Some(Restriction::UserNamespace));
    }

    #[test]
    fn cgroups_are_read_in_both_forms() {
        for (text, expected) in [
            ("0::/user.slice/a.scope\n", Some("/user.slice/a.scope")),
            ("12:pids:/p\n1:name=systemd:/s\n0::/u\n", Some("/u")),
            ("12:pids:/p\n1:name=systemd:/s\n0::/\n", Some("/s")),
            ("12:pids:/p\n1:name=systemd:/s\n", Some("/s")),
            ("0::/\n", Some("/")),
            ("12:pids:/p\n", None),
            ("", None),
        ] {
            assert_eq!(cgroup(text), expected.map(PathBuf::from), "{text}");
        }
        assert!(is_within(Path::new("/a/b"), Path::new("/a")) && !is_within(Path::new("/ab"), Path::new("/a")));
    }

    #[test]
    fn cgroup_of_the_model_is_not_trusted() {
        let own = read_cgroup(std::process::id());
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
