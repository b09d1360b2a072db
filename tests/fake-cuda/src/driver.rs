//! The driver's table of functions. Names, arguments and codes are those of `cuda.h`, version 12.1.
//!
//! A refused launch gives code 719, a refused module 218; `cuGetErrorString` then tells why.
#![allow(
    unsafe_code,
    non_snake_case,
    reason = "the interface that programs of CUDA call"
)]

use crate::memory::Memory;
use crate::ptx::{self, Kernel};
use crate::run::Launch;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

type Code = c_int;
type Handle = *mut c_void;

const OK: Code = 0;
const INVALID_VALUE: Code = 1;
const INVALID_DEVICE: Code = 101;
const INVALID_PTX: Code = 218;
const NOT_FOUND: Code = 500;
const LAUNCH_FAILED: Code = 719;

static MEMORY: LazyLock<Memory> = LazyLock::new(Memory::default);
static LAUNCHES: AtomicU32 = AtomicU32::new(0);
static RUN: Mutex<BTreeMap<String, (u64, u64)>> = Mutex::new(BTreeMap::new());

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

/// Names of kernels with the number of their launches and of their instructions.
pub fn launches() -> BTreeMap<String, (u64, u64)> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Number of live buffers.
pub fn live_buffers() -> usize {
    MEMORY.live()
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
    cuStreamSynchronize(Handle);
    cuStreamDestroy_v2(Handle);
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

/// A stream; everything runs at once, in the order of the calls.
///
/// # Safety
/// As the driver's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(to: *mut Handle, _: c_uint) -> Code {
    // SAFETY: see the top of the file
    unsafe { put(to, 16 as Handle) }
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
pub unsafe extern "C" fn cuMemAllocAsync(to: *mut u64, bytes: usize, _: Handle) -> Code {
    if bytes == 0 {
        return refuse(INVALID_VALUE, "a buffer of 0 bytes".into());
    }
    // SAFETY: see the top of the file
    unsafe { put(to, MEMORY.allocate(bytes as u64)) }
}

/// Frees memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(at: u64, _: Handle) -> Code {
    match MEMORY.free(at) {
        true => OK,
        false => refuse(INVALID_VALUE, format!("no buffer begins at {at:#x}")),
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
    _: Handle,
) -> Code {
    // SAFETY: see the top of the file; bytes have no alignment
    let bytes = unsafe { std::slice::from_raw_parts(from, bytes) };
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return refuse(INVALID_VALUE, "a copy of no whole words".into());
    }
    let words: Vec<u32> = words.iter().map(|b| u32::from_le_bytes(*b)).collect();
    match MEMORY.write(to, &words) {
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
    _: Handle,
) -> Code {
    let mut words = vec![0; bytes / 4];
    if let Err(why) = MEMORY.read(from, &mut words) {
        return refuse(INVALID_VALUE, why);
    }
    let all: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    // SAFETY: see the top of the file; `all` has no more than `bytes` bytes
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), to, all.len()) }
    OK
}

/// Copies whole words on the card.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _: Handle) -> Code {
    let mut words = vec![0; bytes / 4];
    let copied = MEMORY.read(from, &mut words);
    match copied.and_then(|()| MEMORY.write(to, &words)) {
        Ok(()) => OK,
        Err(why) => refuse(INVALID_VALUE, why),
    }
}

/// Fills words.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32Async(to: u64, value: c_uint, n: usize, _: Handle) -> Code {
    match MEMORY.write(to, &vec![value; n]) {
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
    _: Handle,
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
    };
    match kernel.run(launch, &parameters, &MEMORY) {
        Ok(instructions) => {
            let mut run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = run.entry(kernel.name.clone()).or_default();
            *entry = (entry.0 + 1, entry.1 + instructions);
            OK
        }
        Err(why) => refuse(LAUNCH_FAILED, why),
    }
}
