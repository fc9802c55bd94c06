//! Gives back the pages that only the start needed: those of the program's file, and free ones of the heap.
//!
//! A start runs code from all over the program, and the kernel maps the neighbours of each page that is used. A relay at rest
//! needs few of them, and maps these again at their next use. The file's content stays in the kernel's cache. The parser of the
//! command line leaves more than half a megabyte of free memory in the middle of the heap.

use super::portable::is_portable;

/// Unmaps the program's code and constants, and what is free in the heap. Nothing is lost: no mapping that this program can write
/// to is touched, but for its heap, whose free pages the allocator knows. Only Linux says where the program is, and only the GNU
/// library gives free memory back: elsewhere this does nothing.
pub fn give_back() {
    if is_portable() {
        return;
    }
    trim_heap();
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    for range in of_program(&maps, give_back as *const () as usize) {
        unmap(range);
    }
}

/// The read-only mappings of the file that has `code` in one of its mappings, as far as they hold only what is in the file.
fn of_program(maps: &str, code: usize) -> Vec<std::ops::Range<usize>> {
    let mappings: Vec<Mapping<'_>> = maps.lines().filter_map(Mapping::of).collect();
    // Code without a file, as of a packed program, would be lost.
    let has_code = |mapping: &&Mapping<'_>| mapping.range.contains(&code) && mapping.file.1 != "0";
    let Some(ours) = mappings.iter().find(has_code) else { return Vec::new() };
    let is_unchanged = |mapping: &&Mapping<'_>| match mapping.access {
        "r-xp" => true,
        // Others are read-only only after the loader has written addresses into them.
        "r--p" => mapping.offset == 0,
        _ => false,
    };
    let of_ours = mappings.iter().filter(|mapping| mapping.file == ours.file);
    of_ours.filter(is_unchanged).map(|mapping| mapping.range.clone()).collect()
}

/// One line of proc_pid_maps(5).
struct Mapping<'a> {
    range: std::ops::Range<usize>,
    access: &'a str,
    offset: usize,
    /// Device and inode.
    file: (&'a str, &'a str),
}

impl<'a> Mapping<'a> {
    fn of(line: &'a str) -> Option<Mapping<'a>> {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let range = number(from)?..number(to)?;
        let (access, offset) = (fields.next()?, number(fields.next()?)?);
        Some(Mapping { range, access, offset, file: (fields.next()?, fields.next()?) })
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "no safe interface gives pages back")]
fn trim_heap() {
    // SAFETY: it gives back only pages that no allocation uses.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim_heap() {}

#[expect(unsafe_code, reason = "no safe interface gives pages back")]
fn unmap(range: std::ops::Range<usize>) {
    // SAFETY: the pages are read-only and as they are in the file, from which the kernel reads them again.
    unsafe { libc::madvise(range.start as *mut libc::c_void, range.len(), libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_pages_of_the_program_are_given_back() {
        let maps = "\
            1000-2000 r--p 00000000 fe:00 7  /bin/codex-shim\n\
            2000-5000 r-xp 00001000 fe:00 7  /bin/codex-shim\n\
            5000-6000 r--p 00004000 fe:00 7  /bin/codex-shim\n\
            6000-7000 rw-p 00005000 fe:00 7  /bin/codex-shim\n\
            7000-8000 r-xp 00000000 00:00 0\n\
            8000-9000 rw-p 00000000 00:00 0\n\
            a000-b000 r-xp 00000000 fe:00 9  /lib/libc.so.6\n";
        assert_eq!(of_program(maps, 0x4fff), [0x1000..0x2000, 0x2000..0x5000]);
        assert!(of_program(maps, 0x9fff).is_empty());
        assert!(of_program(maps, 0x7fff).is_empty(), "it has no file");
        give_back();
    }
}
