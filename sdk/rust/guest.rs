//! The memory shared with the gateway, and what runs between it and a policy. A module has one thread, and the gateway
//! calls it one call at a time: that is what makes the cells here sound.
use crate::{abi, Config, Decision, Facts, Policy};
use core::cell::{Cell, UnsafeCell};

#[repr(C, align(16))]
struct Buffer<const N: usize>(UnsafeCell<[u8; N]>);

unsafe impl<const N: usize> Sync for Buffer<N> {}

static REQUEST: Buffer<{ abi::REQUEST_SIZE as usize }> =
    Buffer(UnsafeCell::new([0; abi::REQUEST_SIZE as usize]));
static RESPONSE: Buffer<{ abi::RESPONSE_SIZE as usize }> =
    Buffer(UnsafeCell::new([0; abi::RESPONSE_SIZE as usize]));

pub fn request() -> usize {
    REQUEST.0.get() as usize
}

pub fn response() -> usize {
    RESPONSE.0.get() as usize
}

/// Holds the configured policy.
pub struct Slot<P>(UnsafeCell<Option<P>>);

unsafe impl<P> Sync for Slot<P> {}

impl<P: Policy> Slot<P> {
    pub const fn new() -> Self {
        Slot(UnsafeCell::new(None))
    }

    pub fn configure(&self, len: u32) -> u32 {
        let text =
            unsafe { core::slice::from_raw_parts(PARAMS.0.get() as *const u8, len as usize) };
        match P::configure(&Config::new(text)) {
            Ok(policy) => {
                unsafe { *self.0.get() = Some(policy) };
                0
            }
            Err(0) => !0, // 0 would say: accepted
            Err(code) => code,
        }
    }

    pub fn decide(&self) -> u32 {
        let facts = unsafe { &*(REQUEST.0.get() as *const Facts) };
        let decision = unsafe { &mut *(RESPONSE.0.get() as *mut Decision) };
        decision.reset();
        match unsafe { &*self.0.get() } {
            Some(policy) => policy.decide(facts, decision),
            None => abi::ABSTAINED,
        }
    }
}

struct Global(Cell<usize>);

unsafe impl Sync for Global {}

static PARAMS: Global = Global(Cell::new(0));
static TOP: Global = Global(Cell::new(0));

pub fn params_buffer(len: u32) -> usize {
    if len > abi::PARAMS_MAX {
        return 0;
    }
    PARAMS.0.set(allocate(len as usize));
    PARAMS.0.get()
}

/// Memory behind the static data: zeroed, at a multiple of 16, never freed. Traps when the module's memory is full.
#[cfg(target_arch = "wasm32")]
#[inline(never)]
fn allocate(size: usize) -> usize {
    use core::arch::wasm32::{memory_grow, memory_size, unreachable};
    extern "C" {
        static __heap_base: u8; // the linker's
    }
    const PAGE: usize = 64 << 10;
    if TOP.0.get() == 0 {
        TOP.0
            .set((unsafe { &__heap_base as *const u8 as usize } + 15) & !15);
    }
    let from = TOP.0.get();
    let to = match from.checked_add(size) {
        Some(to) if to <= usize::MAX - PAGE => (to + 15) & !15,
        _ => unreachable(),
    };
    let have = memory_size(0) * PAGE;
    if to > have && memory_grow(0, (to - have + PAGE - 1) / PAGE) == usize::MAX {
        unreachable();
    }
    TOP.0.set(to);
    from
}

#[cfg(not(target_arch = "wasm32"))]
fn allocate(_: usize) -> usize {
    let _ = &TOP;
    panic!("only a module has this memory")
}

/// Room for n values that a policy keeps from its configuration, each set to `value`. It is never freed: only while
/// configuring. It traps when the module's memory (1 MiB) is full: the activation is refused.
pub fn slice<T: Copy>(n: usize, value: T) -> &'static mut [T] {
    assert!(core::mem::align_of::<T>() <= 16);
    let size = n.checked_mul(core::mem::size_of::<T>());
    let items = allocate(size.unwrap_or(usize::MAX)) as *mut T;
    for i in 0..n {
        unsafe { items.add(i).write(value) };
    }
    unsafe { core::slice::from_raw_parts_mut(items, n) }
}

/// A list that grows where nothing else allocates meanwhile.
pub(crate) struct Growing<T: 'static>(pub &'static mut [T], usize);

impl<T: Copy> Growing<T> {
    pub fn new() -> Self {
        Growing(&mut [], 0)
    }

    /// Adds an item of 16 bytes: such blocks of 64 follow each other.
    pub fn push(&mut self, item: T) {
        const BLOCK: usize = 64;
        assert!(core::mem::size_of::<T>() == 16);
        let count = self.0.len();
        let mut first = self.0.as_mut_ptr();
        if count == self.1 {
            let at = allocate(BLOCK * 16) as *mut T;
            if count == 0 {
                first = at;
            }
            self.1 += BLOCK;
        }
        unsafe {
            first.add(count).write(item);
            self.0 = core::slice::from_raw_parts_mut(first, count + 1);
        }
    }
}

/// Writes a line (at most 256 bytes; a longer one is left out) to the gateway's log, at `LOG_DEBUG` .. `LOG_ERROR`.
pub fn log(level: u32, line: &str) {
    if line.is_empty() || line.len() > 256 {
        return;
    }
    #[cfg(target_arch = "wasm32")]
    unsafe {
        host::log(level, line.as_ptr(), line.len() as u32);
    }
    #[cfg(not(target_arch = "wasm32"))]
    let _ = level;
}

#[cfg(target_arch = "wasm32")]
mod host {
    #[link(wasm_import_module = "weir")]
    extern "C" {
        pub fn log(level: u32, ptr: *const u8, len: u32);
    }

    /// A panic is a trap: the gateway takes the binding's on_error.
    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo) -> ! {
        core::arch::wasm32::unreachable()
    }
}
