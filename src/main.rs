//! The binary: everything it does is in the library.

use codex_shim_core::os::allocator::LargeApart;

fn main() {
    std::process::exit(codex_shim::main());
}

#[cfg(not(target_env = "musl"))]
#[global_allocator]
static ALLOCATOR: LargeApart<std::alloc::System> = LargeApart(std::alloc::System);

/// dlmalloc. The allocator of musl gives memory back to the system again and again while messages pass, which doubles the time of
/// a call through a hub. mimalloc is as fast, and needs nearly twice the memory at rest.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: LargeApart<dlmalloc::GlobalDlmalloc> = LargeApart(dlmalloc::GlobalDlmalloc);
