//! How a process is confined, as far as the system shows it.
//!
//! Linux shows `no_new_privs`, filters for system calls, and namespaces, all of which a process can only add to. macOS says whether a
//! process is in a sandbox, which none can leave. Other systems show nothing of the kind: there no process counts as confined.
//!
//! The kernel names a peer as it was when it connected, and shows a process as it is now. `Holder` sees to it that no other process
//! has taken its id in between.

use std::fmt::Display;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use super::holder::Holder;
use super::peers::Peer;
#[cfg(target_os = "linux")]
use super::portable::is_portable;
use super::processes::shown;

/// How a process is confined more than this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restriction {
    NoNewPrivileges,
    Seccomp,
    PidNamespace,
    UserNamespace,
    MountNamespace,
    /// That of macOS.
    Sandbox,
    /// The kernel does not show it: it has ended, hides itself, or is outside of our container.
    Unknown,
}

impl Restriction {
    /// Its name in events and responses.
    pub fn name(self) -> &'static str {
        match self {
            Restriction::NoNewPrivileges => "no_new_privs",
            Restriction::Seccomp => "seccomp",
            Restriction::PidNamespace => "pid_namespace",
            Restriction::UserNamespace => "user_namespace",
            Restriction::MountNamespace => "mount_namespace",
            Restriction::Sandbox => "sandbox",
            Restriction::Unknown => "unknown",
        }
    }
}

/// What the kernel shows of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The name of its program, at most 15 bytes.
    pub program: Option<String>,
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
    cgroup: Option<PathBuf>,
    /// It is in a sandbox of macOS.
    is_in_sandbox: bool,
}

impl Confinement {
    /// Of this process.
    pub fn own() -> Confinement {
        // Not by its id, which differs if `/proc` is that of another namespace.
        let own = Confinement::read("self").unwrap_or_default();
        #[cfg(target_vendor = "apple")]
        // An error must not let everybody in.
        let own = Confinement { is_in_sandbox: sandbox_answer(std::process::id()) > 0, ..own };
        own
    }

    /// Of the process at the other end of a connection that was just accepted. `None` if the system does not show it: it has ended,
    /// hides itself, or is outside of our container.
    pub fn of_peer(stream: &impl AsFd, peer: Peer) -> Option<Confinement> {
        #[cfg(target_os = "linux")]
        if !is_portable() {
            let pid = peer.pid?;
            let holder = Holder::of(stream, pid);
            let confinement = Confinement::read(pid)?;
            // Then what was read is its own.
            return holder.is_peer(Peer::of(stream).ok().and_then(|peer| peer.pid)).then_some(confinement);
        }
        #[cfg(target_vendor = "apple")]
        {
            // The system names no process once the other end is closed.
            let pid = peer.pid?;
            let started = super::facts::Facts::of(pid)?.started;
            let is_in_sandbox = sandbox_answer(pid) != 0;
            // Then what was read is about one process, and the socket still names that. A process that has taken the id between the
            // connect and this looks like the peer, also with the token of `LOCAL_PEERTOKEN`, which is made when it is asked for.
            let is_same = super::facts::Facts::of(pid).is_some_and(|facts| facts.started == started)
                && Peer::of(stream).is_ok_and(|now| now == peer);
            is_same.then(|| Confinement { is_in_sandbox, ..Confinement::default() })
        }
        #[cfg(not(target_vendor = "apple"))]
        {
            let _ = (stream, peer);
            Some(Confinement::default())
        }
    }

    fn read(process: impl Display + Copy) -> Option<Confinement> {
        let status = shown::file(process, "status")?;
        let namespaces = ["pid", "user", "mnt"].map(|kind| shown::link(process, &format!("ns/{kind}")));
        let users = shown::file(process, "uid_map").map(|users| String::from_utf8_lossy(&users).into_owned());
        let status = String::from_utf8_lossy(&status);
        Some(Confinement { namespaces, users, cgroup: cgroup_of(process), ..Confinement::parse(&status) })
    }

    /// Whether its cgroup is one of these, or in one.
    pub fn is_within(&self, cgroups: &[PathBuf]) -> bool {
        let is_in = |cgroup: &PathBuf| cgroups.iter().any(|outer| is_within(cgroup, outer));
        self.cgroup.as_ref().is_some_and(is_in)
    }

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
    pub fn restriction_of(&self, other: &Confinement) -> Option<Restriction> {
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
        if mount {
            return Some(Restriction::MountNamespace);
        }
        (other.is_in_sandbox && !self.is_in_sandbox).then_some(Restriction::Sandbox)
    }
}

/// The answer of macOS about a process: 1 in a sandbox, 0 outside, negative on an error. No header declares the call; browsers ask it
/// so. Source: `sandbox_check` of libsystem_sandbox without an operation.
#[cfg(target_vendor = "apple")]
#[expect(unsafe_code, reason = "no safe interface says whether a process is in a sandbox")]
fn sandbox_answer(pid: u32) -> i32 {
    unsafe extern "C" {
        fn sandbox_check(pid: libc::pid_t, operation: *const libc::c_char, kind: libc::c_int, ...) -> libc::c_int;
    }
    let Ok(pid) = i32::try_from(pid) else { return -1 };
    // SAFETY: without an operation the call reads nothing but these arguments.
    unsafe { sandbox_check(pid, std::ptr::null(), 0) }
}

/// Whether the system shows how a process is confined in each of the ways of Linux.
pub fn is_shown() -> bool {
    cfg!(target_os = "linux") && !super::portable::is_portable()
}

/// Whether a cgroup is in another, or is that one.
pub fn is_within(cgroup: &Path, outer: &Path) -> bool {
    cgroup.starts_with(outer)
}

/// The cgroup in `/proc/PID/cgroup`: that of the unified hierarchy, or else the one that systemd keeps. All processes can be in the
/// root of one, as in a container with a root of its own.
fn cgroup(text: &str) -> Option<PathBuf> {
    let path =
        |start: &str| text.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(start)).map(PathBuf::from);
    path(":").filter(|path| path != Path::new("/")).or_else(|| path("name=systemd:")).or_else(|| path(":"))
}

/// The cgroup of a process.
pub fn cgroup_of(process: impl Display) -> Option<PathBuf> {
    cgroup(&String::from_utf8_lossy(&shown::file(process, "cgroup")?))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn sandbox_of_macos_restricts_unless_it_is_ours() {
        let of = |is_in_sandbox| Confinement { is_in_sandbox, ..Confinement::default() };
        for (own, other, expect) in
            [(false, false, None), (false, true, Some(Restriction::Sandbox)), (true, true, None), (true, false, None)]
        {
            assert_eq!(of(own).restriction_of(&of(other)), expect, "{own} {other}");
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
}
