//! The driver's functions, by the names of `cuda.h`, and how the library with them is found.

use anyhow::{anyhow, ensure};
use fl_core::Result;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Names another library with the driver's functions, for tests.
const DRIVER: &str = "FL_CUDA_DRIVER";

/// The oldest driver that reads the kernels: that of CUDA 12.1, version 530.
const OLDEST: c_int = 12010;

/// The driver's code for a card that is full.
pub(super) const OUT_OF_MEMORY: Code = 2;

pub(super) type Code = c_int;
pub(super) type Handle = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($ty:ty),*);)*) => {
        /// The driver's functions, by the names of `cuda.h`.
        pub(super) struct Functions { $(pub(super) $field: unsafe extern "C" fn($($ty),*) -> Code,)* }

        impl Functions {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of `cuda.h`; the library is never closed, so they
                // stay
                unsafe { Ok(Self { $($field: *library.get($symbol.to_bytes_with_nul())?,)* }) }
            }
        }
    };
}

functions! {
    init = c"cuInit"(c_uint);
    driver_version = c"cuDriverGetVersion"(*mut c_int);
    device_count = c"cuDeviceGetCount"(*mut c_int);
    device = c"cuDeviceGet"(*mut c_int, c_int);
    device_name = c"cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_attribute = c"cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    device_pool = c"cuDeviceGetDefaultMemPool"(*mut Handle, c_int);
    pool_attribute = c"cuMemPoolSetAttribute"(Handle, c_int, *mut c_void);
    context = c"cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    use_context = c"cuCtxSetCurrent"(Handle);
    load_module = c"cuModuleLoadData"(*mut Handle, *const c_char);
    function = c"cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    stream = c"cuStreamCreate"(*mut Handle, c_uint);
    end_stream = c"cuStreamDestroy_v2"(Handle);
    wait = c"cuStreamSynchronize"(Handle);
    event = c"cuEventCreate"(*mut Handle, c_uint);
    end_event = c"cuEventDestroy_v2"(Handle);
    record = c"cuEventRecord"(Handle, Handle);
    wait_event = c"cuStreamWaitEvent"(Handle, Handle, c_uint);
    allocate = c"cuMemAllocAsync"(*mut u64, usize, Handle);
    free = c"cuMemFreeAsync"(u64, Handle);
    to_card = c"cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, Handle);
    to_host = c"cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, Handle);
    fill = c"cuMemsetD32Async"(u64, c_uint, usize, Handle);
    launch = c"cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
        *const *const c_void, *const *const c_void
    );
    error_name = c"cuGetErrorName"(Code, *mut *const c_char);
    error_text = c"cuGetErrorString"(Code, *mut *const c_char);
}

impl Functions {
    /// Returns an error with the failed action and the driver's reason.
    pub(super) fn check(&self, code: Code, what: &str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let text = |f: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: the function writes the address of a text that ends in 0, or gives an error
            let known = unsafe { f(code, &mut text) } == 0 && !text.is_null();
            known.then(|| {
                // SAFETY: as above
                let text = unsafe { CStr::from_ptr(text) };
                text.to_string_lossy().into_owned()
            })
        };
        let name = text(self.error_name).unwrap_or_else(|| format!("code {code}"));
        let why = text(self.error_text).unwrap_or_default();
        Err(anyhow!("CUDA: {what}: {name}: {why}"))
    }
}

/// Returns the driver of this process.
pub(super) fn functions() -> Result<&'static Functions> {
    static ALL: OnceLock<Result<Functions, String>> = OnceLock::new();
    ALL.get_or_init(|| open().map_err(|e| format!("{e:#}")))
        .as_ref()
        .map_err(|e| anyhow!("{e}"))
}

fn library() -> PathBuf {
    #[cfg(test)]
    if let Some(fake) = crate::cuda::tests::fake_driver() {
        return fake;
    }
    let usual = if cfg!(windows) {
        "nvcuda.dll"
    } else {
        "libcuda.so.1"
    };
    std::env::var_os(DRIVER).map_or_else(|| usual.into(), PathBuf::from)
}

fn open() -> Result<Functions> {
    let path = library();
    let unusable = |error: libloading::Error| {
        // the system's own text, which names the file or the function
        let why = std::error::Error::source(&error)
            .map_or_else(|| error.to_string(), ToString::to_string);
        anyhow!("device: cuda needs NVIDIA's driver: {why}; install it, or use `device: cpu`")
    };
    // SAFETY: loading NVIDIA's driver runs its own initialisation, as every program of CUDA does
    let library = unsafe { Library::new(&path) }.map_err(unusable)?;
    let all = Functions::of(&library).map_err(unusable)?;
    // its functions are used until the process ends
    std::mem::forget(library);
    // SAFETY: flags must be 0
    all.check(unsafe { (all.init)(0) }, "cannot begin")?;
    let mut version = 0;
    // SAFETY: `version` is good for a write
    all.check(unsafe { (all.driver_version)(&mut version) }, "no version")?;
    ensure!(
        version >= OLDEST,
        "device: cuda needs a driver for CUDA 12.1 (530) or later, and this is for {}.{}; update it, or use `device: cpu`",
        version / 1000,
        version % 1000 / 10
    );
    Ok(all)
}
