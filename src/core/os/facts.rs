//! What every system shows of processes, each by calls of its own: which there are, and of each its program, its arguments and its
//! environment, its parent and its children, its terminal, and when it started.
//!
//! Linux has them in `/proc`, also in portable mode, where that stands for the calls of macOS: those of `libproc.h`, and the sysctl
//! `KERN_PROCARGS2`. These answer for the processes of the same user, and the last one without the environment of programs that macOS
//! protects, which is then empty.
//!
//! A process that ends or becomes another one while it is looked at leaves nothing that is cut off or mixed.

use std::path::{Path, PathBuf};

/// The facts about a process that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) parent: u32,
    /// Its name below `/dev`.
    pub(super) terminal: Option<String>,
    /// When it started, as the kernel says: comparable only for equality.
    pub(super) started: String,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io::{self, Read as _};

    use super::{Facts, Path, PathBuf};
    use crate::os::clocks::booted_unix_s;

    /// Clock ticks in a second, as `/proc` counts. Source: `USER_HZ` of the architectures that Rust supports on Linux.
    pub(in crate::os) const TICKS_IN_A_SECOND: u64 = 100;

    /// Most command lines and environments fit. In bytes.
    const FIRST_READ_BYTES: usize = 64 * 1024;

    /// Linux allows a quarter of the stack, at most 6 MiB, for both together. Source: execve(2).
    const LAST_READ_BYTES: usize = 8 * 1024 * 1024;

    /// Fields of proc(5), counted from the state on: 4, 7 and 22.
    const PARENT: usize = 1;
    const TERMINAL: usize = 4;
    const STARTED: usize = 19;

    impl Facts {
        pub(in crate::os) fn of(pid: u32) -> Option<Facts> {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            Facts::in_stat(&stat(pid)?, boot.trim())
        }

        /// Of a line of `/proc/PID/stat`. Its start is the boot, and the clock ticks since then.
        pub(super) fn in_stat(stat: &str, boot: &str) -> Option<Facts> {
            let ticks = ticks_of(stat)?;
            let field = |number| stat_fields(stat)?.nth(number);
            let terminal = field(TERMINAL)?.parse().ok().and_then(terminal_named);
            Some(Facts { parent: field(PARENT)?.parse().ok()?, terminal, started: format!("{boot}:{ticks}") })
        }
    }

    pub(in crate::os) fn program(pid: u32) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{pid}/exe")).ok()
    }

    pub(in crate::os) fn all() -> Option<Vec<u32>> {
        let entries = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        Some(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    pub(in crate::os) fn arguments(pid: u32) -> Option<Vec<u8>> {
        memory(pid, "cmdline")
    }

    pub(in crate::os) fn environment(pid: u32) -> Option<Vec<u8>> {
        memory(pid, "environ")
    }

    /// Oldest first, zombies included.
    pub(in crate::os) fn children(pid: u32) -> Option<Vec<u32>> {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Some(children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }

    pub(in crate::os) fn folder(pid: u32) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
    }

    pub(in crate::os) fn written_files(pid: u32, is_wanted: impl Fn(&Path) -> bool) -> Option<Vec<PathBuf>> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.filter_map(Result::ok);
        let wanted = entries.filter_map(|entry| {
            let path = std::fs::read_link(entry.path()).ok().filter(|path| is_wanted(path))?;
            let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_str()?)).ok()?;
            is_written(&info).then_some(path)
        });
        Some(wanted.collect())
    }

    /// Whether a file is open to be written to. Source: `flags` of `/proc/PID/fdinfo/FD`, in octal, whose lowest two bits are 0 for reading.
    pub(super) fn is_written(info: &str) -> bool {
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & 3 != 0)
    }

    pub(in crate::os) fn started_unix_s(pid: u32) -> Option<u64> {
        Some(booted_unix_s()? + started_ticks(pid)? / TICKS_IN_A_SECOND)
    }

    /// A text that the kernel takes from the memory of a process. Empty once it has ended.
    fn memory(pid: u32, name: &str) -> Option<Vec<u8>> {
        let path = format!("/proc/{pid}/{name}");
        from_memory(|text| File::open(&path)?.read(text))
    }

    /// The text that `read` puts into an empty buffer, from its beginning at each call. It is read at once: a process that ends or
    /// becomes another between two reads would leave a text that is cut off or mixed.
    pub(super) fn from_memory(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Option<Vec<u8>> {
        let mut size = FIRST_READ_BYTES;
        while size <= LAST_READ_BYTES {
            let mut text = vec![0; size];
            let length = read(&mut text).ok()?;
            if length < size {
                text.truncate(length);
                return Some(text);
            }
            size *= 2;
        }
        None
    }

    fn stat(pid: u32) -> Option<String> {
        Some(String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned())
    }

    /// When a process started, in ticks since the boot; `None` if it has exited.
    pub(in crate::os) fn started_ticks(pid: u32) -> Option<u64> {
        ticks_of(&stat(pid)?)
    }

    /// The fields of `/proc/PID/stat` from the state on, which is field 3 of proc(5). The name of a process, before it, may contain
    /// anything, so the fields are counted from its end.
    fn stat_fields(stat: &str) -> Option<std::str::SplitAsciiWhitespace<'_>> {
        Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
    }

    fn ticks_of(stat: &str) -> Option<u64> {
        let mut fields = stat_fields(stat)?;
        if matches!(fields.clone().next()?, "Z" | "X") {
            return None;
        }
        fields.nth(STARTED)?.parse().ok()
    }

    /// The name of a terminal by its device. Source: devices.txt of Linux: pseudo terminals have the major numbers 136 to 143, and the
    /// consoles 4 with minor numbers below 64.
    pub(super) fn terminal_named(device: i32) -> Option<String> {
        let device = device.cast_unsigned();
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0x000f_ff00);
        match major {
            136..=143 => Some(format!("pts/{}", (major - 136) * 256 + minor)),
            4 if minor < 64 => Some(format!("tty{minor}")),
            _ => None,
        }
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::{
    TICKS_IN_A_SECOND, all, arguments, children, environment, folder, program, started_ticks, started_unix_s,
    written_files,
};

#[cfg(target_vendor = "apple")]
mod apple {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    use super::{Facts, Path, PathBuf, ProcessMemory, ttys_named};

    /// Room for processes that start between two calls.
    const MORE_PROCESSES: usize = 64;

    impl Facts {
        /// Its start is in microseconds since the Unix epoch.
        pub(in crate::os) fn of(pid: u32) -> Option<Facts> {
            let info = info(pid)?;
            let started = format!("{}.{:06}", info.pbi_start_tvsec, info.pbi_start_tvusec);
            Some(Facts { parent: info.pbi_ppid, terminal: ttys_named(info.e_tdev), started })
        }
    }

    #[expect(unsafe_code, reason = "no safe interface reads what a process is")]
    fn info(pid: u32) -> Option<libc::proc_bsdinfo> {
        let (pid, size) = (i32::try_from(pid).ok()?, i32::try_from(size_of::<libc::proc_bsdinfo>()).ok()?);
        // SAFETY: an all-zero value is valid, and the call writes at most its size.
        let (read, info) = unsafe {
            let mut info: libc::proc_bsdinfo = std::mem::zeroed();
            let read = libc::proc_pidinfo(pid, libc::PROC_PIDTBSDINFO, 0, (&raw mut info).cast(), size);
            (read, info)
        };
        (read == size && info.pbi_status != libc::SZOMB).then_some(info)
    }

    #[expect(unsafe_code, reason = "no safe interface lists processes")]
    pub(in crate::os) fn all() -> Option<Vec<u32>> {
        // SAFETY: without a buffer the call only counts.
        let count = unsafe { libc::proc_listallpids(std::ptr::null_mut(), 0) };
        listed(usize::try_from(count).ok()?, |buffer, bytes| {
            // SAFETY: the call writes at most `bytes`, the size of the buffer.
            unsafe { libc::proc_listallpids(buffer, bytes) }
        })
    }

    #[expect(unsafe_code, reason = "no safe interface lists processes")]
    pub(in crate::os) fn children(pid: u32) -> Option<Vec<u32>> {
        let pid = i32::try_from(pid).ok()?;
        // SAFETY: the call writes at most `bytes`, the size of the buffer.
        let mut children = listed(0, |buffer, bytes| unsafe { libc::proc_listchildpids(pid, buffer, bytes) })?;
        // The newest come first, so of more than `MORE_PROCESSES` the first ones are missing. One that has ended tells no start.
        let started = |pid: &u32| info(*pid).map(|info| (info.pbi_start_tvsec, info.pbi_start_tvusec, *pid));
        children.sort_by_key(|pid| started(pid).map_or((1, None), |started| (0, Some(started))));
        Some(children)
    }

    /// The processes that a call of `libproc.h` writes into a buffer. Its result is their number.
    fn listed(count: usize, call: impl FnOnce(*mut libc::c_void, i32) -> i32) -> Option<Vec<u32>> {
        let mut pids = vec![0_i32; count + MORE_PROCESSES];
        let bytes = i32::try_from(size_of_val(&*pids)).ok()?;
        let written = usize::try_from(call(pids.as_mut_ptr().cast(), bytes)).ok()?;
        pids.truncate(written);
        Some(pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect())
    }

    pub(in crate::os) fn arguments(pid: u32) -> Option<Vec<u8>> {
        Some(ProcessMemory::of(&memory(pid)?)?.arguments.to_vec())
    }

    pub(in crate::os) fn environment(pid: u32) -> Option<Vec<u8>> {
        Some(ProcessMemory::of(&memory(pid)?)?.environment.to_vec())
    }

    /// The arguments and the environment of a process, as `KERN_PROCARGS2` has them.
    #[expect(unsafe_code, reason = "no safe interface reads the arguments of a process")]
    fn memory(pid: u32) -> Option<Vec<u8>> {
        let sysctl = |mut name: Vec<i32>, into: *mut libc::c_void, bytes: &mut usize| {
            let parts = u32::try_from(name.len()).ok()?;
            // SAFETY: the call reads `parts` numbers, and writes at most `bytes`, the size of what `into` points to.
            let failed = unsafe { libc::sysctl(name.as_mut_ptr(), parts, into, bytes, std::ptr::null_mut(), 0) } != 0;
            (!failed).then_some(())
        };
        let mut max = 0_i32;
        sysctl(vec![libc::CTL_KERN, libc::KERN_ARGMAX], (&raw mut max).cast(), &mut size_of::<i32>())?;
        let mut text = vec![0_u8; usize::try_from(max).ok()?];
        let mut bytes = text.len();
        let name = vec![libc::CTL_KERN, libc::KERN_PROCARGS2, i32::try_from(pid).ok()?];
        sysctl(name, text.as_mut_ptr().cast(), &mut bytes)?;
        text.truncate(bytes);
        Some(text)
    }

    #[expect(unsafe_code, reason = "no safe interface reads what a process runs")]
    pub(in crate::os) fn program(pid: u32) -> Option<PathBuf> {
        let mut path = vec![0_u8; usize::try_from(libc::PROC_PIDPATHINFO_MAXSIZE).ok()?];
        let size = u32::try_from(path.len()).ok()?;
        // SAFETY: the call writes at most `size` bytes, the length of `path`.
        let written = unsafe { libc::proc_pidpath(i32::try_from(pid).ok()?, path.as_mut_ptr().cast(), size) };
        path.truncate(usize::try_from(written).ok().filter(|written| *written > 0)?);
        Some(OsString::from_vec(path).into())
    }

    pub(in crate::os) fn started_unix_s(pid: u32) -> Option<u64> {
        Some(info(pid)?.pbi_start_tvsec)
    }

    #[expect(unsafe_code, reason = "no safe interface reads where a process is")]
    pub(in crate::os) fn folder(pid: u32) -> Option<PathBuf> {
        let pid = i32::try_from(pid).ok()?;
        // SAFETY: an all-zero value is valid, and the call writes at most its size.
        let paths: libc::proc_vnodepathinfo =
            unsafe { filled(|into, bytes| libc::proc_pidinfo(pid, libc::PROC_PIDVNODEPATHINFO, 0, into, bytes)) }?;
        path_of(&paths.pvi_cdir)
    }

    /// What `PROC_PIDFDVNODEPATHINFO` has of an open file. Source: `sys/proc_info.h` of xnu.
    #[repr(C)]
    struct OpenFile {
        /// `proc_fileinfo`, of which the first member says how the file is open.
        flags: u32,
        info: [u32; 5],
        vnode: libc::vnode_info_path,
    }

    const PROC_PIDFDVNODEPATHINFO: i32 = 2;
    const PROX_FDTYPE_VNODE: u32 = 1;
    /// Source: `sys/fcntl.h` of xnu.
    const FWRITE: u32 = 2;

    #[expect(unsafe_code, reason = "no safe interface lists what a process has open")]
    pub(in crate::os) fn written_files(pid: u32, is_wanted: impl Fn(&Path) -> bool) -> Option<Vec<PathBuf>> {
        let pid = i32::try_from(pid).ok()?;
        // SAFETY: without a buffer the call only says how many bytes it would write.
        let bytes = unsafe { libc::proc_pidinfo(pid, libc::PROC_PIDLISTFDS, 0, std::ptr::null_mut(), 0) };
        let count = usize::try_from(bytes).ok()? / size_of::<libc::proc_fdinfo>();
        let mut fds = vec![libc::proc_fdinfo { proc_fd: 0, proc_fdtype: 0 }; count];
        let size = i32::try_from(size_of_val(&*fds)).ok()?;
        // SAFETY: the call writes at most `size` bytes, the size of the buffer.
        let bytes = unsafe { libc::proc_pidinfo(pid, libc::PROC_PIDLISTFDS, 0, fds.as_mut_ptr().cast(), size) };
        fds.truncate(usize::try_from(bytes).ok()? / size_of::<libc::proc_fdinfo>());
        let of_file = |fd: &libc::proc_fdinfo| {
            // SAFETY: an all-zero value is valid, and the call writes at most its size.
            let file: OpenFile = unsafe {
                filled(|into, bytes| libc::proc_pidfdinfo(pid, fd.proc_fd, PROC_PIDFDVNODEPATHINFO, into, bytes))
            }?;
            path_of(&file.vnode).filter(|path| file.flags & FWRITE != 0 && is_wanted(path))
        };
        Some(fds.iter().filter(|fd| fd.proc_fdtype == PROX_FDTYPE_VNODE).filter_map(of_file).collect())
    }

    /// The value that a call writes whole.
    ///
    /// # Safety
    ///
    /// An all-zero value of `T` is valid, and the call writes only such.
    #[expect(unsafe_code, reason = "the caller knows what the call writes")]
    unsafe fn filled<T>(call: impl FnOnce(*mut libc::c_void, i32) -> i32) -> Option<T> {
        let size = i32::try_from(size_of::<T>()).ok()?;
        // SAFETY: the caller promises it.
        let mut value: T = unsafe { std::mem::zeroed() };
        (call((&raw mut value).cast(), size) == size).then_some(value)
    }

    fn path_of(vnode: &libc::vnode_info_path) -> Option<PathBuf> {
        // The crate splits the array to be able to copy it.
        let bytes: Vec<u8> = vnode.vip_path.iter().flatten().map(|byte| byte.cast_unsigned()).collect();
        let end = bytes.iter().position(|byte| *byte == 0)?;
        (end > 0).then(|| OsString::from_vec(bytes[..end].to_vec()).into())
    }
}

#[cfg(target_vendor = "apple")]
pub(super) use apple::{all, arguments, children, environment, folder, program, started_unix_s, written_files};

/// What the sysctl `KERN_PROCARGS2` of macOS has of a process. Source: `sysctl_procargsx` and `exec_extract_strings` of xnu: the number of
/// arguments, the path of the program, 0 bytes, the arguments and then the variables, each with a 0 byte behind it, at most 7 more 0 bytes,
/// and texts of the system, one of [`OF_SYSTEM`] first.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(target_os = "linux", allow(dead_code, reason = "its test runs here"))]
struct ProcessMemory<'a> {
    arguments: &'a [u8],
    environment: &'a [u8],
}

/// How texts of the system begin that are not variables. Source: `exec_add_apple_strings` of xnu.
const OF_SYSTEM: [&[u8]; 6] =
    [b"pfz=", b"stack_guard=", b"malloc_entropy=", b"ptr_munge=", b"main_stack=", b"executable_file="];

#[cfg_attr(target_os = "linux", allow(dead_code, reason = "its test runs here"))]
impl ProcessMemory<'_> {
    fn of(text: &[u8]) -> Option<ProcessMemory<'_>> {
        let (count, text) = text.split_first_chunk()?;
        let path = text.iter().position(|byte| *byte == 0)?;
        let first = path + text[path..].iter().position(|byte| *byte != 0)?;
        let rest = &text[first..];
        let mut ends = rest.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at + 1);
        let count = usize::try_from(i32::from_ne_bytes(*count)).ok()?;
        let arguments = if count == 0 { 0 } else { ends.nth(count - 1)? };
        let (mut end, mut from) = (rest.len(), arguments);
        for at in ends {
            if at == from + 1 || OF_SYSTEM.iter().any(|text| rest[from..].starts_with(text)) {
                end = from;
                break;
            }
            from = at;
        }
        Some(ProcessMemory { arguments: &rest[..arguments], environment: &rest[arguments..end] })
    }
}

/// The name of a pseudo terminal of macOS by its device, which has the major number in its highest byte. Source: `tty_ptmx.c` of xnu:
/// the side of the programs has the major number 16, and names of three digits.
#[cfg_attr(target_os = "linux", allow(dead_code, reason = "its test runs here"))]
fn ttys_named(device: u32) -> Option<String> {
    const OF_PROGRAMS: u32 = 16;
    (device >> 24 == OF_PROGRAMS).then(|| format!("ttys{:03}", device & 0x00ff_ffff))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn own_process_is_known() {
        let own = Facts::of(std::process::id()).expect("it runs");
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(all().expect("the system lists them").contains(&std::process::id()));
        let program = program(std::process::id()).expect("it is ours");
        assert_eq!(program.file_name(), std::env::current_exe().expect("it is there").file_name());
    }

    #[test]
    fn what_the_own_process_has_open_is_known() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().canonicalize().expect("it is there");
        let own = std::process::id();
        let is_its = |found: &Path| found == path;
        assert_eq!(written_files(own, is_its), Some(vec![path.clone()]));
        let _reading = std::fs::File::open("Cargo.toml").expect("it is there");
        let read = std::path::absolute("Cargo.toml").expect("a path");
        assert_eq!(written_files(own, |found| found == read), Some(Vec::new()));
        assert_eq!(folder(own), std::env::current_dir().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later").as_secs();
        let started = started_unix_s(own).expect("it runs");
        // The boot is known to a second.
        assert!(started <= now + 1, "{started} {now}");
    }

    #[test]
    fn terminals_of_macos_have_the_names_of_their_files() {
        for (device, name) in [
            (0x1000_0000, Some("ttys000")),
            (0x1000_0003, Some("ttys003")),
            (0x1000_03e8, Some("ttys1000")),
            // The console, and none.
            (0, None),
            (u32::MAX, None),
        ] {
            assert_eq!(ttys_named(device).as_deref(), name, "{device:x}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn ending_process_shows_its_whole_text_or_none() {
        for length in [0, 1, 31, 32, 33, 65_535, 65_536, 65_537, 300_000, 8 * 1024 * 1024 - 1, 8 * 1024 * 1024] {
            for reads_left in 0..10_u32 {
                let whole: Vec<u8> = (0..=250).cycle().take(length).collect();
                let mut reads = 0;
                let text = linux::from_memory(|text| {
                    reads += 1;
                    let read = if reads > reads_left { 0 } else { whole.len().min(text.len()) };
                    text[..read].copy_from_slice(&whole[..read]);
                    Ok(read)
                });
                let is_too_long = length == 8 * 1024 * 1024 && reads_left >= 8;
                let is_right = text.as_ref().map_or(is_too_long, |text| text.is_empty() || *text == whole);
                assert!(is_right, "{length}, {reads_left}: {:?}", text.map(|text| text.len()));
            }
        }
    }

    #[test]
    fn command_line_and_environment_of_a_process_are_read() {
        let mut child =
            Command::new("sleep").arg("600").env("OF_THE_TEST", "x".repeat(100_000)).spawn().expect("it runs");
        // They are empty for a moment in which the process becomes the program. macOS protects the environment of this one.
        let (began, is_protected) = (std::time::Instant::now(), cfg!(target_vendor = "apple"));
        while arguments(child.id()).expect("it is ours").is_empty()
            || !is_protected && environment(child.id()).expect("it is ours").is_empty()
        {
            assert!(began.elapsed().as_secs() < 60, "it has none");
            std::thread::yield_now();
        }
        assert_eq!(arguments(child.id()).as_deref(), Some(&b"sleep\x00600\0"[..]));
        let environment = environment(child.id()).expect("it is ours");
        let is_its = |variable: &[u8]| variable.len() == "OF_THE_TEST=".len() + 100_000;
        assert!(environment.split(|byte| *byte == 0).any(is_its) || is_protected && environment.is_empty());
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }

    #[test]
    fn memory_of_a_process_of_macos_is_taken_apart() {
        let check = |count: i32, text: &str, expect: Option<(&str, &str)>| {
            let bytes = [&count.to_ne_bytes(), text.as_bytes()].concat();
            let of = ProcessMemory::of(&bytes).map(|of| (of.arguments, of.environment));
            assert_eq!(of, expect.map(|(one, other)| (one.as_bytes(), other.as_bytes())), "{text:?}");
        };
        let both = Some(("codex\0app-server\0", "A=1\0B=\0"));
        check(2, "/bin/codex\0\0\0\0codex\0app-server\0A=1\0B=\0\0pfz=0x1\0", both);
        check(2, "/bin/codex\0codex\0app-server\0A=1\0B=\0", both);
        check(2, "/bin/codex\0codex\0app-server\0A=1\0B=\0ptr_munge=\0main_stack=\0", both);
        check(1, "/x\0x\0", Some(("x\0", "")));
        // An argument may be empty, but for the first one.
        check(3, "/x\0\0x\0\0y\0A=1\0", Some(("x\0\0y\0", "A=1\0")));
        check(0, "/x\0\0A=1\0", Some(("", "A=1\0")));
        for (count, cut) in [(2, "/x\0x\0"), (1, "/x\0\0"), (1, "/x"), (-1, "/x\0x\0"), (1, "")] {
            check(count, cut, None);
        }
        assert_eq!(ProcessMemory::of(b"\x01\0"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn terminals_have_the_names_of_their_files() {
        for (device, name) in [
            (0, None),
            (34_816, Some("pts/0")),
            (34_819, Some("pts/3")),
            // Minor number 256 is above the byte of the first 256.
            (34_816 | 1 << 20, Some("pts/256")),
            (1_025, Some("tty1")),
            // A serial line.
            (1_088, None),
        ] {
            assert_eq!(linux::terminal_named(device).as_deref(), name, "{device}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_of_processes_do_not_confuse() {
        let line = "7 (a) Z (b 1) S 1 7 7 34819 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10";
        let facts = |line: &str| Facts::in_stat(line, "boot");
        let expect = Facts { parent: 1, terminal: Some("pts/3".to_owned()), started: "boot:4711".to_owned() };
        assert_eq!(facts(line), Some(expect));
        assert_eq!(facts(&line.replace(" S ", " Z ")), None);
        assert_eq!(facts("7 (a) S 1"), None);
        assert_eq!(facts(""), None);
    }
}
