//! The CUDA driver, opened at the first use of a card: functions, buffers, launches.
//!
//! It is not needed to build, or to run without a card. All unsafe code for the card is in this
//! file. A program cannot corrupt its own memory with it. Lengths of copies come from slices, and
//! the arguments of a launch have the lengths that the kernel's text declares.
#![allow(unsafe_code, reason = "the driver's interface is C")]

use anyhow::{Context, anyhow, ensure};
use fl_core::Result;
use libloading::Library;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Names another library with the driver's functions, for tests.
const DRIVER: &str = "FL_CUDA_DRIVER";

/// The oldest driver that reads the kernels: that of CUDA 12.1, version 530.
const OLDEST: c_int = 12010;

/// Threads of a block in which each thread computes one number.
const THREADS: u32 = 256;

type Code = c_int;
type Handle = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($ty:ty),*);)*) => {
        /// The driver's functions, by the names of `cuda.h`.
        struct Functions { $($field: unsafe extern "C" fn($($ty),*) -> Code,)* }

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
    fn check(&self, code: Code, what: &str) -> Result<()> {
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
fn functions() -> Result<&'static Functions> {
    static ALL: OnceLock<Result<Functions, String>> = OnceLock::new();
    ALL.get_or_init(|| open().map_err(|e| format!("{e:#}")))
        .as_ref()
        .map_err(|e| anyhow!("{e}"))
}

fn library() -> PathBuf {
    #[cfg(test)]
    if let Some(fake) = super::tests::fake_driver() {
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
    let hint = || {
        format!(
            "device: cuda needs NVIDIA's driver, and {} cannot be opened; install it, or use `device: cpu`",
            path.display()
        )
    };
    // SAFETY: loading NVIDIA's driver runs its own initialisation, as every program of CUDA does
    let library = unsafe { Library::new(&path) }.with_context(hint)?;
    let all = Functions::of(&library).with_context(hint)?;
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

/// A loaded kernel.
#[derive(Clone, Debug)]
struct Kernel {
    /// The driver's handle.
    handle: usize,
    /// Length of each parameter in bytes.
    parameters: Vec<usize>,
}

/// One card of this machine, with the kernels.
#[derive(Debug)]
pub struct Card {
    /// The driver's name of the card.
    pub name: String,
    /// Compute capability, such as 7 and 0.
    pub capability: (i32, i32),
    /// Version of the driver's interface, such as 12010.
    pub version: i32,
    device: c_int,
    context: usize,
    kernels: HashMap<String, Kernel>,
    /// The result of [`Card::checked`].
    pub(super) check: OnceLock<Result<(), String>>,
}

impl Card {
    /// Returns the number of cards of this machine.
    ///
    /// # Errors
    /// If there is no driver.
    pub fn count() -> Result<usize> {
        let (all, mut count) = (functions()?, 0);
        // SAFETY: `count` is good for a write
        let code = unsafe { (all.device_count)(&mut count) };
        all.check(code, "cannot count cards")?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// Returns card `index`, opened once in a process.
    ///
    /// # Errors
    /// If there is no driver, or no such card, or it is too old.
    pub fn open(index: usize) -> Result<Arc<Self>> {
        static ALL: Mutex<BTreeMap<usize, Arc<Card>>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(card) = all.get(&index) {
            return Ok(card.clone());
        }
        let card = Arc::new(Self::with_kernels(index, &super::PTX)?);
        all.insert(index, card.clone());
        Ok(card)
    }

    /// Opens card `index` with kernels of these modules.
    ///
    /// # Errors
    /// As [`Card::open`], or if the driver refuses a module.
    pub(super) fn with_kernels(index: usize, modules: &[&str]) -> Result<Self> {
        let all = functions()?;
        let (count, mut device, mut context) = (Self::count()?, 0, null_mut());
        ensure!(
            index < count,
            "device: cuda:{index}: this machine has {count} cards, from cuda:0 on"
        );
        // SAFETY: each pointer is good for a write, and the name for 256 bytes
        unsafe {
            all.check((all.device)(&mut device, index as c_int), "no card")?;
            all.check((all.context)(&mut context, device), "cannot use the card")?;
        }
        let mut card = Self {
            name: String::new(),
            capability: (0, 0),
            version: 0,
            device,
            context: context as usize,
            kernels: HashMap::new(),
            check: OnceLock::new(),
        };
        card.describe(all)?;
        ensure!(
            card.capability >= (7, 0),
            "device: cuda:{index}: {} has compute capability {}.{}; Volta (7.0) or later is needed",
            card.name,
            card.capability.0,
            card.capability.1
        );
        card.enter(all)?;
        card.keep_memory(all);
        for module in modules {
            card.load(all, module)?;
        }
        Ok(card)
    }

    fn describe(&mut self, all: &Functions) -> Result<()> {
        let mut name = [0 as c_char; 256];
        let what = "cannot describe the card";
        // SAFETY: the name has room for the length that is given, numbers are good for a write
        unsafe {
            let code = (all.device_name)(name.as_mut_ptr(), 255, self.device);
            all.check(code, what)?;
            let (major, minor) = (&mut self.capability.0, &mut self.capability.1);
            all.check((all.device_attribute)(major, 75, self.device), what)?;
            all.check((all.device_attribute)(minor, 76, self.device), what)?;
            all.check((all.driver_version)(&mut self.version), what)?;
        }
        let bytes: Vec<u8> = name.iter().map(|c| *c as u8).collect();
        self.name = CStr::from_bytes_until_nul(&bytes)?.to_string_lossy().into();
        Ok(())
    }

    /// Keeps freed memory with the process for the next step; without it every step requests memory
    /// from the system.
    fn keep_memory(&self, all: &Functions) {
        const RELEASE_THRESHOLD: c_int = 4;
        let (mut pool, mut all_of_it) = (null_mut(), u64::MAX);
        // SAFETY: the pool is written first, and the attribute is a number of 64 bits. A card
        // without pools gives an error, and works without
        unsafe {
            if (all.device_pool)(&mut pool, self.device) == 0 {
                (all.pool_attribute)(pool, RELEASE_THRESHOLD, (&raw mut all_of_it).cast());
            }
        }
    }

    /// Loads the kernels of one module.
    fn load(&mut self, all: &Functions, text: &str) -> Result<()> {
        let image = CString::new(text).context("the kernels hold a byte 0")?;
        let mut module = null_mut();
        // SAFETY: the image ends in 0, as the text of a module must
        let code = unsafe { (all.load_module)(&mut module, image.as_ptr()) };
        all.check(code, "cannot load the kernels")?;
        for (name, parameters) in declared(text)? {
            let symbol = CString::new(name.as_str())?;
            let mut handle = null_mut();
            // SAFETY: the module is loaded, the name ends in 0
            let code = unsafe { (all.function)(&mut handle, module, symbol.as_ptr()) };
            all.check(code, &format!("no kernel `{name}`"))?;
            let handle = handle as usize;
            self.kernels.insert(name, Kernel { handle, parameters });
        }
        Ok(())
    }

    /// Makes the driver use this card on the calling thread.
    fn enter(&self, all: &Functions) -> Result<()> {
        // SAFETY: the context is never given back
        let code = unsafe { (all.use_context)(self.context as Handle) };
        all.check(code, "cannot use the card")
    }
}

/// Returns the kernels of a module, with the length of each parameter in bytes.
fn declared(text: &str) -> Result<Vec<(String, Vec<usize>)>> {
    let one = |part: &str| {
        let (name, list) = part
            .split_once('(')
            .context("a kernel without parameters")?;
        let list = list.split_once(')').context("parameters without an end")?.0;
        let length = |line: &str| {
            let array = line.trim_end_matches(']').rsplit_once('[').map(|(_, n)| n);
            match (array, line.contains(".u64")) {
                (Some(n), _) => n.parse().context("a parameter without a length"),
                (None, true) => Ok(8),
                (None, false) => Ok(4),
            }
        };
        let lines = list.split(',').map(str::trim).filter(|l| !l.is_empty());
        let lengths: Result<_> = lines.map(length).collect();
        Ok((name.trim().to_string(), lengths?))
    };
    text.split(".visible .entry ").skip(1).map(one).collect()
}

/// An argument of a kernel: a number, a struct of numbers, or a position in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    bytes: usize,
    storage: [u64; 5],
    /// The buffer lives until the launch.
    buffer: PhantomData<&'a Buffer>,
}

impl Argument<'_> {
    /// Makes a struct of numbers of 32 bits, at most ten.
    fn words(words: impl IntoIterator<Item = u32>) -> Self {
        let mut argument = Self {
            bytes: 0,
            storage: [0; 5],
            buffer: PhantomData,
        };
        for (at, word) in words.into_iter().enumerate() {
            argument.storage[at / 2] |= u64::from(word) << (at % 2 * 32);
            argument.bytes += 4;
        }
        argument
    }
}

impl From<i32> for Argument<'_> {
    fn from(v: i32) -> Self {
        Self::words([v as u32])
    }
}

impl From<bool> for Argument<'_> {
    fn from(v: bool) -> Self {
        Self::words([u32::from(v)])
    }
}

impl From<f32> for Argument<'_> {
    fn from(v: f32) -> Self {
        Self::words([v.to_bits()])
    }
}

impl<const N: usize> From<[i32; N]> for Argument<'_> {
    fn from(v: [i32; N]) -> Self {
        Self::words(v.map(|v| v as u32))
    }
}

impl<const N: usize> From<[f32; N]> for Argument<'_> {
    fn from(v: [f32; N]) -> Self {
        Self::words(v.map(f32::to_bits))
    }
}

impl<'a> From<&'a Buffer> for Argument<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Position(buffer, 0).into()
    }
}

/// A position in a buffer: number `.1`, which may be its end.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a>(pub &'a Buffer, pub usize);

impl<'a> From<Position<'a>> for Argument<'a> {
    fn from(Position(buffer, at): Position<'a>) -> Self {
        assert!(at <= buffer.len, "a place behind the end of a buffer");
        Self {
            bytes: 8,
            storage: [buffer.address + 4 * at as u64, 0, 0, 0, 0],
            buffer: PhantomData,
        }
    }
}

/// A queue of work for a card, done in the order of the calls.
#[derive(Clone, Debug)]
pub struct Queue(Arc<Stream>);

#[derive(Debug)]
struct Stream {
    card: Arc<Card>,
    handle: usize,
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(all) = functions()
            && self.card.enter(all).is_ok()
        {
            // SAFETY: the stream was made by `Queue::new`; no buffer holds it any more
            unsafe { (all.end_stream)(self.handle as Handle) };
        }
    }
}

/// Numbers of 32 bits on a card.
#[derive(Debug)]
pub struct Buffer {
    stream: Arc<Stream>,
    address: u64,
    len: usize,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Ok(all) = functions()
            && self.stream.card.enter(all).is_ok()
        {
            // SAFETY: the buffer was made on this stream; all work on it comes before
            unsafe { (all.free)(self.address, self.stream.handle as Handle) };
        }
    }
}

impl Buffer {
    /// Returns how many numbers it holds.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Queue {
    /// Makes a new queue.
    ///
    /// # Errors
    /// If the driver has none left.
    pub fn new(card: Arc<Card>) -> Result<Self> {
        // work on it does not wait for other streams
        const NON_BLOCKING: c_uint = 1;
        let (all, mut handle) = (functions()?, null_mut());
        card.enter(all)?;
        // SAFETY: `handle` is good for a write
        let code = unsafe { (all.stream)(&mut handle, NON_BLOCKING) };
        all.check(code, "no stream")?;
        let handle = handle as usize;
        Ok(Self(Arc::new(Stream { card, handle })))
    }

    /// Returns the card that does the work.
    pub fn card(&self) -> &Card {
        &self.0.card
    }

    fn begin(&self) -> Result<(&'static Functions, Handle)> {
        let all = functions()?;
        self.0.card.enter(all)?;
        Ok((all, self.0.handle as Handle))
    }

    /// Allocates `n` numbers, which must be written before they are read.
    ///
    /// # Errors
    /// If the card has no memory left, or kernels cannot count so far.
    pub fn room(&self, n: usize) -> Result<Buffer> {
        int(n)?;
        let (all, stream) = self.begin()?;
        let (mut address, bytes) = (0, 4 * n.max(1));
        // SAFETY: `address` is good for a write
        let code = unsafe { (all.allocate)(&mut address, bytes, stream) };
        all.check(code, &format!("no room for {n} numbers on the card"))?;
        Ok(Buffer {
            stream: self.0.clone(),
            address,
            len: n,
        })
    }

    /// Allocates `n` zeros.
    ///
    /// # Errors
    /// As [`Queue::room`].
    pub fn zeros(&self, n: usize) -> Result<Buffer> {
        let buffer = self.room(n)?;
        self.clear(&buffer, 0, n)?;
        Ok(buffer)
    }

    /// Sets `n` numbers of a buffer, from `at` on, to 0.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn clear(&self, buffer: &Buffer, at: usize, n: usize) -> Result<()> {
        ensure!(
            at + n <= buffer.len,
            "{n} numbers from {at} on lie in no buffer"
        );
        if n == 0 {
            return Ok(());
        }
        let (all, stream) = self.begin()?;
        // SAFETY: the numbers lie in the buffer, see above
        let code = unsafe { (all.fill)(buffer.address + 4 * at as u64, 0, n, stream) };
        all.check(code, "cannot clear memory of the card")
    }

    /// Copies numbers to the card.
    ///
    /// # Errors
    /// As [`Queue::room`].
    pub fn upload(&self, values: &[f32]) -> Result<Buffer> {
        // SAFETY: a number of 32 bits is four bytes
        unsafe { self.upload_words(values.as_ptr().cast(), values.len()) }
    }

    /// Copies whole numbers to the card.
    ///
    /// # Errors
    /// As [`Queue::room`].
    pub fn upload_ints(&self, values: &[i32]) -> Result<Buffer> {
        // SAFETY: as above
        unsafe { self.upload_words(values.as_ptr().cast(), values.len()) }
    }

    /// # Safety
    /// `from` is good for reading `n` words.
    unsafe fn upload_words(&self, from: *const c_void, n: usize) -> Result<Buffer> {
        let buffer = self.room(n)?;
        if n == 0 {
            return Ok(buffer);
        }
        let (all, stream) = self.begin()?;
        // SAFETY: the buffer has room for `n` words. The driver reads all of `from`, which is no
        // page-locked memory, before it returns
        let code = unsafe { (all.to_card)(buffer.address, from, 4 * n, stream) };
        all.check(code, "cannot copy to the card")?;
        Ok(buffer)
    }

    /// Copies numbers from `at` on to the host, after all work so far.
    ///
    /// # Errors
    /// If the work or the copy failed.
    pub fn download(&self, buffer: &Buffer, at: usize, n: usize) -> Result<Vec<f32>> {
        ensure!(
            at + n <= buffer.len,
            "{n} numbers from {at} on lie in no buffer"
        );
        let mut values = vec![0.0f32; n];
        if n == 0 {
            return Ok(values);
        }
        let (all, stream) = self.begin()?;
        let (to, from) = (values.as_mut_ptr().cast(), buffer.address + 4 * at as u64);
        // SAFETY: `to` has room for `n` words, the numbers lie in the buffer, and `values` lives
        // until the copy is done
        let copied = unsafe { (all.to_host)(to, from, 4 * n, stream) };
        // SAFETY: the stream lives as long as the queue
        let waited = unsafe { (all.wait)(stream) };
        all.check(copied, "cannot copy from the card")?;
        all.check(waited, "the card failed")?;
        Ok(values)
    }

    /// Runs a kernel with a thread for each of `n` numbers.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    pub fn each(&self, kernel: &str, n: usize, arguments: &[Argument<'_>]) -> Result<()> {
        if n == 0 {
            return Ok(());
        }
        int(n)?;
        self.launch(kernel, [(n as u32).div_ceil(THREADS), 1], arguments)
    }

    /// Runs a kernel in blocks of 256 threads.
    ///
    /// # Errors
    /// If there is no such kernel, the arguments do not match it, or the card refuses.
    pub fn launch(&self, kernel: &str, grid: [u32; 2], arguments: &[Argument<'_>]) -> Result<()> {
        let found = self.0.card.kernels.get(kernel);
        let found = found.with_context(|| format!("there is no kernel `{kernel}`"))?;
        let lengths = arguments.iter().map(|a| a.bytes);
        ensure!(
            found.parameters.iter().copied().eq(lengths),
            "kernel `{kernel}` takes {:?} bytes, and was given other arguments",
            found.parameters
        );
        let places = arguments.iter().map(|a| a.storage.as_ptr().cast());
        let places: Vec<*const c_void> = places.collect();
        let (all, stream) = self.begin()?;
        // SAFETY: the kernel is loaded in this context; there is an argument as long as it for each
        // parameter, see above; the driver copies them before it returns
        let code = unsafe {
            (all.launch)(
                found.handle as Handle,
                grid[0],
                grid[1],
                1,
                THREADS,
                1,
                1,
                0,
                stream,
                places.as_ptr(),
                std::ptr::null(),
            )
        };
        all.check(code, &format!("kernel `{kernel}` on {}", self.card().name))
    }
}

/// The most numbers of one buffer: kernels count in 32 bits, up to a whole block beyond the last.
const MOST: usize = i32::MAX as usize - 1024;

/// Converts a size to the kernels' type.
///
/// # Errors
/// If it is too large.
pub fn int(n: usize) -> Result<i32> {
    ensure!(
        n <= MOST,
        "device: cuda: {n} numbers in one operation, and {MOST} is the most; use smaller batches"
    );
    Ok(n as i32)
}
