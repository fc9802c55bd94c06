//! Memory for what is large: a mapping of its own.
//!
//! Allocators keep what is freed. After a long line that would be most of the memory of a relay, and a buffer that grows would be copied
//! again and again, for a moment with twice its size. A mapping grows by moving its pages, and goes back to the system once it is freed.
//! On other systems their own allocator decides.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A block of at least this size, in bytes, is a mapping.
const LARGE_BYTES_MIN: usize = 1 << 20;

/// Every page is aligned to this, in bytes.
const PAGE_BYTES_MIN: usize = 4_096;

static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// How much memory large blocks take now, in bytes, used or not. Where no block is large, this is 0.
#[must_use]
pub fn large_bytes() -> usize {
    LARGE_BYTES.load(Ordering::Relaxed)
}

/// An allocator whose large blocks are mappings on Linux.
#[derive(Debug)]
pub struct LargeApart<A>(pub A);

const fn is_large(layout: Layout) -> bool {
    cfg!(target_os = "linux") && layout.size() >= LARGE_BYTES_MIN && layout.align() <= PAGE_BYTES_MIN
}

// It is not inlined: that would add 0.6 MiB to the binary.
#[expect(unsafe_code, reason = "an allocator has no safe interface")]
// SAFETY: whether a block is a mapping depends on its layout alone, so it is freed as it was allocated. A mapping is as large as its
// layout, and aligned to a page.
unsafe impl<A: GlobalAlloc> GlobalAlloc for LargeApart<A> {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return mapping::new(layout.size());
        }
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, here and below.
        unsafe { self.0.alloc(layout) }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return mapping::new(layout.size());
        }
        // SAFETY: see above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: see above.
            return unsafe { mapping::free(block, layout.size()) };
        }
        // SAFETY: see above.
        unsafe { self.0.dealloc(block, layout) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller gives a size that is valid with this alignment.
        let resized = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_large(layout), is_large(resized)) {
            // SAFETY: see above.
            (false, false) => unsafe { self.0.realloc(block, layout, size) },
            // SAFETY: see above.
            (true, true) => unsafe { mapping::resize(block, layout.size(), size) },
            (false, true) | (true, false) => {
                // SAFETY: see above.
                let moved = unsafe { self.alloc(resized) };
                if !moved.is_null() {
                    // SAFETY: two blocks of at least this size, and the first is not used after it.
                    unsafe {
                        moved.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                }
                moved
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "an allocator has no safe interface")]
mod mapping {
    use std::ptr::null_mut;

    use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

    use super::{LARGE_BYTES, Ordering};

    /// Pages of zeros; null if there is no memory.
    pub(super) fn new(size: usize) -> *mut u8 {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing is.
        let Ok(block) = (unsafe { mmap_anonymous(null_mut(), size, access, MapFlags::PRIVATE) }) else {
            return null_mut();
        };
        LARGE_BYTES.fetch_add(size, Ordering::Relaxed);
        block.cast()
    }

    /// Null if there is no memory; the block is then as it was.
    pub(super) unsafe fn resize(block: *mut u8, from: usize, to: usize) -> *mut u8 {
        // SAFETY: the caller names a mapping of ours, and uses only what is returned.
        let Ok(resized) = (unsafe { mremap(block.cast(), from, to, MremapFlags::MAYMOVE) }) else { return null_mut() };
        LARGE_BYTES.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        resized.cast()
    }

    pub(super) unsafe fn free(block: *mut u8, size: usize) {
        // SAFETY: the caller names a mapping of ours, which nothing uses any more. If the kernel has no room to split what it has
        // joined, the pages stay.
        let _ = unsafe { munmap(block.cast(), size) };
        LARGE_BYTES.fetch_sub(size, Ordering::Relaxed);
    }
}

/// No block is large.
#[cfg(not(target_os = "linux"))]
mod mapping {
    pub(super) fn new(_: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    #[expect(unsafe_code, reason = "as on Linux")]
    pub(super) unsafe fn resize(_: *mut u8, _: usize, _: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    #[expect(unsafe_code, reason = "as on Linux")]
    pub(super) unsafe fn free(_: *mut u8, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;

    /// Lies around the size from which a block is a mapping.
    fn size() -> impl Strategy<Value = usize> {
        prop_oneof![1..5_000_usize, LARGE_BYTES_MIN - 5_000..LARGE_BYTES_MIN + 5_000, 1..4 * LARGE_BYTES_MIN]
    }

    /// The byte at an index of a block.
    fn expected(index: usize) -> u8 {
        (index % 251) as u8
    }

    /// The first and the last bytes of a block, and some between them.
    fn indexes(size: usize) -> impl Iterator<Item = usize> {
        (0..size).step_by(997).chain(size.saturating_sub(100)..size)
    }

    /// Held by whoever allocates here, since the count is of the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    #[expect(unsafe_code, reason = "an allocator has no safe interface")]
    fn large_blocks_are_counted() {
        let _held = ONE_AT_A_TIME.lock();
        let layout = |size| Layout::from_size_align(size, 8).expect("BUG: a valid layout");
        let (allocator, before) = (LargeApart(System), large_bytes());
        let check = |bytes: usize| {
            let counted = if cfg!(target_os = "linux") { bytes } else { 0 };
            assert_eq!(large_bytes(), before + counted);
        };
        // SAFETY: the layouts are those of the blocks.
        unsafe {
            let mut block = allocator.alloc(layout(LARGE_BYTES_MIN));
            check(LARGE_BYTES_MIN);
            for (from, to) in [(1, 5), (5, 3), (3, 0), (0, 2)] {
                let bytes = |blocks: usize| if blocks == 0 { 100 } else { blocks * LARGE_BYTES_MIN };
                block = allocator.realloc(block, layout(bytes(from)), bytes(to));
                check(to * LARGE_BYTES_MIN);
            }
            allocator.dealloc(block, layout(2 * LARGE_BYTES_MIN));
        }
        check(0);
    }

    #[expect(unsafe_code, reason = "an allocator has no safe interface")]
    fn resized(sizes: &[usize], align: usize, is_zeroed: bool) {
        let layout = |size| Layout::from_size_align(size, align).expect("BUG: a valid layout");
        let _held = ONE_AT_A_TIME.lock();
        let allocator = LargeApart(System);
        let mut at = sizes[0];
        // SAFETY: the layouts are those of the blocks, and no index is outside one.
        unsafe {
            let mut block = if is_zeroed { allocator.alloc_zeroed(layout(at)) } else { allocator.alloc(layout(at)) };
            assert!(!block.is_null() && block.addr().is_multiple_of(align));
            assert!(!is_zeroed || indexes(at).all(|index| block.add(index).read() == 0));
            for to in sizes {
                indexes(at).for_each(|index| block.add(index).write(expected(index)));
                block = allocator.realloc(block, layout(at), *to);
                assert!(!block.is_null() && block.addr().is_multiple_of(align));
                let stays = at.min(*to);
                assert!(
                    indexes(at).filter(|index| *index < stays).all(|index| block.add(index).read() == expected(index))
                );
                at = *to;
            }
            allocator.dealloc(block, layout(at));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn blocks_keep_their_bytes(
            sizes in proptest::collection::vec(size(), 1..8),
            align in prop_oneof![Just(1_usize), Just(16), Just(4_096), Just(65_536)],
            is_zeroed: bool,
        ) {
            resized(&sizes, align, is_zeroed);
        }
    }
}
