//! Launchers that start a program with their own blocked and ignored signals, limits and descriptors.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The settings that a launcher applies to its child.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launcher {
    pub name: &'static str,
    pub blocks: &'static [i32],
    pub ignores: &'static [i32],
    /// File mode mask, niceness and the limit on open descriptors.
    pub bounds: Option<(libc::mode_t, i32, libc::rlim_t)>,
    pub closes: &'static [RawFd],
}

const ALL: &[i32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 34, 50,
    64,
];

const NONE: Launcher = Launcher { name: "none", blocks: &[], ignores: &[], bounds: None, closes: &[] };

/// Launchers with different settings.
pub const LAUNCHERS: [Launcher; 10] = [
    NONE,
    Launcher { name: "blocks TERM and CHLD", blocks: &[libc::SIGTERM, libc::SIGCHLD], ..NONE },
    Launcher { name: "ignores CHLD", ignores: &[libc::SIGCHLD], ..NONE },
    Launcher { name: "ignores PIPE and XFSZ", ignores: &[libc::SIGPIPE, libc::SIGXFSZ], ..NONE },
    Launcher { name: "ignores HUP, as nohup", ignores: &[libc::SIGHUP], ..NONE },
    Launcher { name: "ignores INT and QUIT, as a shell", ignores: &[libc::SIGINT, libc::SIGQUIT], ..NONE },
    Launcher {
        name: "ignores TERM and stops",
        ignores: &[libc::SIGTERM, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU],
        ..NONE
    },
    Launcher { name: "blocks all", blocks: ALL, ..NONE },
    Launcher { name: "ignores all", ignores: ALL, ..NONE },
    Launcher { name: "bounds", bounds: Some((0o027, 5, 200)), closes: &[2], ..NONE },
];

impl Launcher {
    /// Makes `command` start through this launcher.
    #[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
    pub fn launch(self, command: &mut Command) -> &mut Command {
        // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                let mut mask: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut mask);
                for number in self.blocks {
                    libc::sigaddset(&raw mut mask, *number);
                }
                for number in 1..=64 {
                    libc::signal(number, if self.ignores.contains(&number) { libc::SIG_IGN } else { libc::SIG_DFL });
                }
                if let Some((umask, nice, files)) = self.bounds {
                    libc::umask(umask);
                    libc::setpriority(libc::PRIO_PROCESS, 0, nice);
                    let limit = libc::rlimit { rlim_cur: files, rlim_max: files };
                    libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                }
                for fd in self.closes {
                    libc::close(*fd);
                }
                match libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        command
    }
}

/// The number under which a program of [`inherits`] receives the descriptor: higher than any that a test opens.
pub const INHERITED: RawFd = 777;

/// Makes `command` inherit `end`, under the number [`INHERITED`].
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub fn inherits(command: &mut Command, end: OwnedFd) -> &mut Command {
    // SAFETY: the closure makes one plain system call, which is async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(move || match libc::dup2(end.as_raw_fd(), INHERITED) {
            INHERITED => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    command
}

/// The descriptors of a process and their targets.
pub fn descriptors(pid: u32) -> Vec<(RawFd, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is there");
    let mut seen: Vec<(RawFd, String)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let number = path.file_name()?.to_str()?.parse().ok()?;
            Some((number, fs::read_link(&path).ok()?.to_string_lossy().into_owned()))
        })
        .collect();
    seen.sort();
    seen
}

/// A program with arguments that reports how it was started: it copies the kernel's data about itself into a folder.
pub fn report(into: &Path) -> Vec<String> {
    let files = ["status", "limits", "oom_score_adj", "personality", "stat"];
    let from = files.iter().map(|file| format!("/proc/self/{file}"));
    ["cp".to_owned()].into_iter().chain(from).chain([into.display().to_string()]).collect()
}

/// The report of such a program, without values that differ between processes; `None` while it is incomplete.
pub fn reported(dir: &Path) -> Option<String> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    let stat = read("stat").filter(|stat| stat.ends_with('\n'))?;
    let status = read("status")?;
    let kept = ["SigBlk", "SigIgn", "SigCgt", "Umask", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Cap", "Groups"];
    let status = status.lines().filter(|line| kept.iter().any(|name| line.starts_with(name)));
    let stat: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    // Session, terminal, priority and niceness; numbers of proc(5), minus the three fields before the state.
    let stat = [6, 7, 18, 19].map(|field| stat[field - 3]);
    let rest = [read("limits")?, read("oom_score_adj")?, read("personality")?].concat();
    Some(format!("{}\n{stat:?}\n{rest}", status.collect::<Vec<_>>().join("\n")))
}
