//! The binary: everything it does is in the library.

fn main() {
    std::process::exit(codex_shim::main());
}

/// The allocator of musl gives memory back to the system again and again while messages pass, which doubles the time of a call through
/// a hub. This one needs less memory at rest than others of its speed.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;
