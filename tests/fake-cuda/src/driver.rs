//! The driver's table of functions. Names, arguments and codes are those of `cuda.h`, version 12.1.
//!
//! A refused launch gives code 719, a refused module 218; `cuGetErrorString` then tells why.
#![allow(
    unsafe_code,
    non_snake_case,
    reason = "the interface that programs of CUDA call"
)]

use crate::memory::Memory;
use crate::order::Order;
use crate::ptx::{self, Kernel};
use crate::run::{Counts, Launch};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

type Code = c_int;
type Handle = *mut c_void;

const OK: Code = 0;
const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const INVALID_DEVICE: Code = 101;
const INVALID_PTX: Code = 218;
const NOT_FOUND: Code = 500;
const LAUNCH_FAILED: Code = 719;

static MEMORY: LazyLock<Memory> = LazyLock::new(Memory::default);
static ORDER: LazyLock<Order> = LazyLock::new(Order::default);
static LAUNCHES: AtomicU32 = AtomicU32::new(0);
/// After this many launches no memory is left.
static MEMORY_ENDS: LazyLock<u32> = LazyLock::new(|| {
    let text = std::env::var("FAKE_CUDA_MEMORY_ENDS").unwrap_or_default();
    text.parse().unwrap_or(u32::MAX)
});
/// Why memory could not be freed, first.
static WRONG: Mutex<Option<String>> = Mutex::new(None);

thread_local! {
    /// Why the last call of this thread was refused.
    static WHY: RefCell<CString> = RefCell::default();
}

fn refuse(code: Code, why: String) -> Code {
    let why = CString::new(why.replace('\0', " ")).unwrap_or_default();
    WHY.with_borrow_mut(|w| *w = why);
    code
}

fn seed() -> u64 {
    let text = std::env::var("FAKE_CUDA_SHUFFLE").unwrap_or_default();
    text.parse().unwrap_or_default()
}

/// Appends a launch to the file that `FAKE_CUDA_COUNTS` names: kernel, blocks, instructions of all
/// threads, words read and written, bytes of the buffers.
fn count(kernel: &str, grid: [u32; 3], counts: Counts) {
    static FILE: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
        let path = std::env::var_os("FAKE_CUDA_COUNTS")?;
        let file = File::options().create(true).append(true).open(path);
        file.ok().map(Mutex::new)
    });
    let Some(file) = &*FILE else { return };
    let blocks: u64 = grid.iter().map(|n| u64::from(*n)).product();
    let Counts {
        instructions,
        accesses,
        bytes,
    } = counts;
    let line = format!("{kernel} {blocks} {instructions} {accesses} {bytes}\n");
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    // a count that cannot be written is missed by whoever reads the file
    let _ = file.write_all(line.as_bytes());
}

// SAFETY of all functions below: the caller keeps to the contract of the driver's function of the
// same name, so every pointer is null where that allows it or good for what is read and written.

macro_rules! does_nothing {
    ($($name:ident($($ty:ty),*);)*) => { $(
        #[doc = concat!("`", stringify!($name), "`: nothing to do here.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $ty),*) -> Code { OK }
    )* };
}

does_nothing! {
    cuInit(c_uint);
    cuCtxSetCurrent(Handle);
    cuDevicePrimaryCtxRelease_v2(c_int);
    cuStreamDestroy_v2(Handle);
    cuEventDestroy_v2(Handle);
    cuModuleUnload(Handle);
    cuMemPoolSetAttribute(Handle, c_int, *mut c_void);
}

/// Writes what `to` points at.
///
/// # Safety
/// `to` is good for a write.
unsafe fn put<T>(to: *mut T, value: T) -> Code {
    // SAFETY: the caller promises it
    unsafe { to.write(value) }
    OK
}

/// The version of the interface, 12.1.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(to: *mut c_int) -> Code {
    // SAFETY: see the top of the file
    unsafe { put(to, 12010) }
}

/// There is one card.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(to: *mut c_int) -> Code {
    // SAFETY: see the top of the file
    unsafe { put(to, 1) }
}

/// Card 0.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(to: *mut c_int, at: c_int) -> Code {
    match at {
        // SAFETY: see the top of the file
        0 => unsafe { put(to, 0) },
        _ => refuse(INVALID_DEVICE, format!("no card {at}: there is one")),
    }
}

/// Compute capability 7.0; all else is 0.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(to: *mut c_int, which: c_int, _: c_int) -> Code {
    // SAFETY: see the top of the file
    unsafe { put(to, if which == 75 { 7 } else { 0 }) }
}

/// The name of the card.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(to: *mut c_char, room: c_int, _: c_int) -> Code {
    let name = c"PTX interpreter".to_bytes_with_nul();
    if (room as usize) < name.len() {
        return refuse(INVALID_VALUE, "no room for the name".into());
    }
    // SAFETY: there is room for the name, see above
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), to, name.len()) }
    OK
}

/// A context.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: *mut Handle, _: c_int) -> Code {
    // SAFETY: see the top of the file
    unsafe { put(to, 8 as Handle) }
}

/// A stream. Its work runs at once, in the order of the calls; what must not depend on that order
/// is checked.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(to: *mut Handle, _: c_uint) -> Code {
    // SAFETY: see the top of the file
    unsafe { put(to, ORDER.handle() as Handle) }
}

/// Waits for a stream. Fails if memory was freed before the work on it.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: Handle) -> Code {
    ORDER.wait(stream as u64);
    let wrong = WRONG.lock().unwrap_or_else(PoisonError::into_inner);
    match &*wrong {
        Some(why) => refuse(LAUNCH_FAILED, format!("freed too early: {why}")),
        None => OK,
    }
}

/// An event.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(to: *mut Handle, _: c_uint) -> Code {
    // SAFETY: see the top of the file
    unsafe { put(to, ORDER.handle() as Handle) }
}

/// An event happens after all work of a stream so far.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> Code {
    ORDER.record(event as u64, stream as u64);
    OK
}

/// Later work of a stream comes after an event.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _: c_uint) -> Code {
    ORDER.wait_for(stream as u64, event as u64);
    OK
}

/// A pool of memory.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(to: *mut Handle, _: c_int) -> Code {
    // SAFETY: see the top of the file
    unsafe { put(to, 24 as Handle) }
}

/// The name of a code.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: Code, to: *mut *const c_char) -> Code {
    let name = match code {
        OK => c"CUDA_SUCCESS",
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
        INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
        NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        _ => c"CUDA_ERROR_LAUNCH_FAILED",
    };
    // SAFETY: see the top of the file
    unsafe { put(to, name.as_ptr()) }
}

/// Why the last call of this thread was refused. Good until the next one is.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_: Code, to: *mut *const c_char) -> Code {
    // SAFETY: see the top of the file
    WHY.with_borrow(|why| unsafe { put(to, why.as_ptr()) })
}

/// Memory that no one has written.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(to: *mut u64, bytes: usize, stream: Handle) -> Code {
    if bytes == 0 {
        return refuse(INVALID_VALUE, "a buffer of 0 bytes".into());
    }
    if LAUNCHES.load(Relaxed) >= *MEMORY_ENDS {
        return refuse(OUT_OF_MEMORY, "out of memory".into());
    }
    // SAFETY: see the top of the file
    unsafe {
        put(
            to,
            MEMORY.allocate(bytes as u64, &ORDER.work(stream as u64)),
        )
    }
}

/// Frees memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(at: u64, stream: Handle) -> Code {
    match MEMORY.free(at, &ORDER.work(stream as u64)) {
        Ok(()) => OK,
        Err(why) => {
            // a program frees memory where it cannot say that it failed: every later wait says so
            let mut first = WRONG.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| why.clone());
            refuse(INVALID_VALUE, why)
        }
    }
}

/// Copies whole words to the card.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const u8,
    bytes: usize,
    stream: Handle,
) -> Code {
    // SAFETY: see the top of the file; bytes have no alignment
    let bytes = unsafe { std::slice::from_raw_parts(from, bytes) };
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return refuse(INVALID_VALUE, "a copy of no whole words".into());
    }
    let words: Vec<u32> = words.iter().map(|b| u32::from_le_bytes(*b)).collect();
    match MEMORY.write(to, &words, &ORDER.work(stream as u64)) {
        Ok(()) => OK,
        Err(why) => refuse(INVALID_VALUE, why),
    }
}

/// Copies whole words to the host.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut u8,
    from: u64,
    bytes: usize,
    stream: Handle,
) -> Code {
    let mut words = vec![0; bytes / 4];
    if let Err(why) = MEMORY.read(from, &mut words, &ORDER.work(stream as u64)) {
        return refuse(INVALID_VALUE, why);
    }
    let all: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    // SAFETY: see the top of the file; `all` has no more than `bytes` bytes
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), to, all.len()) }
    OK
}

/// Fills words.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32Async(to: u64, value: c_uint, n: usize, stream: Handle) -> Code {
    match MEMORY.write(to, &vec![value; n], &ORDER.work(stream as u64)) {
        Ok(()) => OK,
        Err(why) => refuse(INVALID_VALUE, why),
    }
}

/// Reads PTX. A module is never freed: kernels point into it.
///
/// # Safety
/// As the driver's function; the image is text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(to: *mut Handle, image: *const c_char) -> Code {
    // SAFETY: see the top of the file
    let text = unsafe { CStr::from_ptr(image) }.to_string_lossy();
    match ptx::read(&text) {
        // SAFETY: see the top of the file
        Ok(kernels) => unsafe { put(to, Box::into_raw(Box::new(kernels)).cast()) },
        Err(why) => refuse(INVALID_PTX, why),
    }
}

/// A kernel of a module.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    to: *mut Handle,
    module: Handle,
    name: *const c_char,
) -> Code {
    // SAFETY: `cuModuleLoadData` made the module, which is never freed
    let kernels = unsafe { &*module.cast::<Vec<Kernel>>() };
    // SAFETY: see the top of the file
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    match kernels.iter().find(|k| k.name == name) {
        // SAFETY: see the top of the file
        Some(kernel) => unsafe { put(to, std::ptr::from_ref(kernel).cast_mut().cast()) },
        None => refuse(NOT_FOUND, format!("no kernel is called `{name}`")),
    }
}

/// Runs a kernel to its end.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    kernel: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared_bytes: c_uint,
    stream: Handle,
    arguments: *const *const u8,
    _: Handle,
) -> Code {
    // SAFETY: `cuModuleGetFunction` gave the kernel, whose module is never freed
    let kernel = unsafe { &*kernel.cast_const().cast::<Kernel>() };
    let room = kernel.parameters.last().map_or(0, |p| p.at + p.bytes);
    let mut parameters = vec![0u8; room];
    for (i, p) in kernel.parameters.iter().enumerate() {
        let to = parameters[p.at..].as_mut_ptr();
        // SAFETY: there is an argument as long as it for each parameter, and room for it in `to`
        unsafe { std::ptr::copy_nonoverlapping(*arguments.add(i), to, p.bytes) }
    }
    let launch = Launch {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        number: LAUNCHES.fetch_add(1, Relaxed).wrapping_add(1).max(1),
        shuffle: seed(),
        moment: ORDER.work(stream as u64),
    };
    match kernel.run(&launch, &parameters, &MEMORY) {
        Ok(counts) => {
            count(&kernel.name, launch.grid, counts);
            OK
        }
        Err(why) => refuse(LAUNCH_FAILED, why),
    }
}
