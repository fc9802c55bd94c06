//! The binary: everything it does is in the library.

fn main() {
    std::process::exit(codex_shim::main());
}

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

#[cfg(target_env = "musl")]
mod allocator {
    use std::alloc::{GlobalAlloc, Layout};

    use dlmalloc::GlobalDlmalloc;

    /// dlmalloc. The allocator of musl gives memory back to the system again and again while messages pass, which doubles the time of
    /// a call through a hub. mimalloc is as fast, and needs nearly twice the memory at rest.
    ///
    /// Its calls are not inlined: that would add 0.6 MiB to the binary.
    pub(crate) struct Allocator;

    #[expect(unsafe_code, reason = "an allocator has no safe interface")]
    // SAFETY: each call goes to dlmalloc as it is.
    unsafe impl GlobalAlloc for Allocator {
        #[inline(never)]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller keeps the contract of `GlobalAlloc`, here and below.
            unsafe { GlobalDlmalloc.alloc(layout) }
        }

        #[inline(never)]
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: see above.
            unsafe { GlobalDlmalloc.alloc_zeroed(layout) }
        }

        #[inline(never)]
        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: see above.
            unsafe { GlobalDlmalloc.dealloc(block, layout) }
        }

        #[inline(never)]
        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: see above.
            unsafe { GlobalDlmalloc.realloc(block, layout, size) }
        }
    }
}
