//! The CUDA driver, opened at the first use of a card: functions, streams, buffers, launches.
//!
//! It is not needed to build, or to run without a card. All unsafe code for the card is in this
//! file. A program cannot corrupt its own memory with it. Lengths of copies come from slices, and
//! the arguments of a launch have the lengths that the kernel's text declares.
#![allow(unsafe_code, reason = "the driver's interface is C")]

use super::meeting::Meetings;
use super::sets::Sets;
use anyhow::{Context, anyhow, bail, ensure};
use fl_core::Result;
use libloading::Library;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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

/// The most models that one launch works for (`MEMBERS` in kernels/common.cuh).
pub(super) const MEMBERS: usize = 8;

/// A loaded kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    /// The driver's handle.
    handle: usize,
    /// Length of the arguments for one model, in words of eight bytes.
    words: usize,
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
    /// Bytes in all buffers.
    held: AtomicU64,
    launches: AtomicU64,
    /// The data sets that stay on the card.
    pub(super) sets: Sets,
    /// The models that train together.
    pub(super) meetings: Meetings,
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
            held: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            sets: Sets::default(),
            meetings: Meetings::default(),
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
        card.keep_memory(all, u64::MAX);
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

    /// Keeps this many bytes of freed memory with the process for the next step; without it every
    /// step requests memory from the system.
    fn keep_memory(&self, all: &Functions, mut bytes: u64) {
        const RELEASE_THRESHOLD: c_int = 4;
        let mut pool = null_mut();
        // SAFETY: the pool is written first, and the attribute is a number of 64 bits. A card
        // without pools gives an error, and works without
        unsafe {
            if (all.device_pool)(&mut pool, self.device) == 0 {
                (all.pool_attribute)(pool, RELEASE_THRESHOLD, (&raw mut bytes).cast());
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
        for (name, words) in declared(text)? {
            let symbol = CString::new(name.as_str())?;
            let mut handle = null_mut();
            // SAFETY: the module is loaded, the name ends in 0
            let code = unsafe { (all.function)(&mut handle, module, symbol.as_ptr()) };
            all.check(code, &format!("no kernel `{name}`"))?;
            let handle = handle as usize;
            self.kernels.insert(name, Kernel { handle, words });
        }
        Ok(())
    }

    /// Returns the bytes in all buffers.
    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns how many kernels were launched.
    #[cfg(test)]
    pub(super) fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// Makes the driver use this card on the calling thread.
    fn enter(&self, all: &Functions) -> Result<()> {
        // SAFETY: the context is never given back
        let code = unsafe { (all.use_context)(self.context as Handle) };
        all.check(code, "cannot use the card")
    }
}

/// Returns the kernels of a module, with the words of the arguments for one model. A kernel has one
/// parameter, the arguments of all models of a launch.
fn declared(text: &str) -> Result<Vec<(String, usize)>> {
    let one = |part: &str| {
        let (name, list) = part
            .split_once('(')
            .context("a kernel without parameters")?;
        let list = list.split_once(')').context("parameters without an end")?.0;
        let bytes = list.trim().trim_end_matches(']').rsplit_once('[');
        let bytes = bytes.and_then(|(_, n)| n.parse::<usize>().ok());
        let bytes = bytes.filter(|n| n.is_multiple_of(8 * MEMBERS));
        let bytes = bytes.with_context(|| format!("kernel {name}: not made by `KERNEL`"))?;
        Ok((name.trim().to_string(), bytes / 8 / MEMBERS))
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
    /// Marks how far its work is, for other streams.
    event: usize,
    /// The most bytes of all buffers on the card when this queue makes one.
    most: u64,
    /// The work that waits for that of other models; `None` if work begins at once.
    later: Mutex<Option<Vec<Work>>>,
}

/// One piece of work that may be done together with that of other models.
#[derive(Debug)]
pub(super) enum Work {
    Launch {
        kernel: Kernel,
        grid: [u32; 2],
        arguments: Vec<u64>,
    },
    Clear {
        address: u64,
        n: usize,
    },
    Free {
        address: u64,
        bytes: u64,
    },
}

impl Work {
    /// Returns what must agree for pieces of work to be one launch: the kernel, or 0 and 1.
    pub fn kind(&self) -> usize {
        match self {
            Self::Launch { kernel, .. } => kernel.handle,
            Self::Clear { .. } => 0,
            Self::Free { .. } => 1,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(all) = functions()
            && self.card.enter(all).is_ok()
        {
            // SAFETY: both were made by `Queue::new`; no buffer holds the stream any more
            unsafe {
                (all.end_event)(self.event as Handle);
                (all.end_stream)(self.handle as Handle);
            }
        }
    }
}

impl Stream {
    fn later(&self) -> MutexGuard<'_, Option<Vec<Work>>> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Result<&'static Functions> {
        let all = functions()?;
        self.card.enter(all)?;
        Ok(all)
    }

    /// Does this work now, or later together with that of other models.
    fn does(&self, work: Work) -> Result<()> {
        match &mut *self.later() {
            Some(later) => {
                later.push(work);
                Ok(())
            }
            None => self.now(&[&work]),
        }
    }

    /// Does one piece of work of several models, which all have the same kind: one launch.
    fn now(&self, works: &[&Work]) -> Result<()> {
        let (all, stream) = (self.begin()?, self.handle as Handle);
        let mut launch = None::<(Kernel, [u32; 2], Vec<u64>, u32)>;
        for work in works {
            match work {
                Work::Clear { address, n } => {
                    // SAFETY: the numbers lie in a buffer, see `Queue::clear`; it is freed later
                    let code = unsafe { (all.fill)(*address, 0, *n, stream) };
                    all.check(code, "cannot clear memory of the card")?;
                }
                Work::Free { address, bytes } => {
                    self.card.held.fetch_sub(*bytes, Ordering::Relaxed);
                    // SAFETY: a buffer that was dropped; all work on it comes before
                    let code = unsafe { (all.free)(*address, stream) };
                    all.check(code, "cannot free memory of the card")?;
                }
                Work::Launch {
                    kernel,
                    grid,
                    arguments,
                } => {
                    let room = || (*kernel, [0, 0], vec![0; kernel.words * MEMBERS], 0);
                    let (_, largest, block, members) = launch.get_or_insert_with(room);
                    block[*members as usize * kernel.words..][..kernel.words]
                        .copy_from_slice(arguments);
                    *largest = [0, 1].map(|i| largest[i].max(grid[i]));
                    *members += 1;
                }
            }
        }
        let Some((kernel, grid, block, members)) = launch else {
            return Ok(());
        };
        self.card.launches.fetch_add(1, Ordering::Relaxed);
        let block: [*const c_void; 1] = [block.as_ptr().cast()];
        // SAFETY: the kernel is loaded in this context; its one parameter is as long as `block`,
        // whose buffers are freed later; the driver copies it before it returns
        let code = unsafe {
            (all.launch)(
                kernel.handle as Handle,
                grid[0],
                grid[1],
                members,
                THREADS,
                1,
                1,
                0,
                stream,
                block.as_ptr(),
                std::ptr::null(),
            )
        };
        let text = || {
            let mut known = self.card.kernels.iter();
            let name = known.find(|(_, k)| k.handle == kernel.handle);
            let name = name.map_or("", |(name, _)| name);
            format!("kernel `{name}` on {}", self.card.name)
        };
        match code {
            0 => Ok(()),
            _ => all.check(code, &text()),
        }
    }

    /// Lets later work of this stream wait for the work of another one so far.
    fn follow(&self, other: &Self) -> Result<()> {
        let all = self.begin()?;
        // SAFETY: streams and event live as long as their queues
        let codes = unsafe {
            [
                (all.record)(other.event as Handle, other.handle as Handle),
                (all.wait_event)(self.handle as Handle, other.event as Handle, 0),
            ]
        };
        let check = |code| all.check(code, "cannot order two streams");
        codes.into_iter().try_for_each(check)
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
        let (address, bytes) = (self.address, 4 * self.len.max(1) as u64);
        // a card that fails says so at its next work
        let _ = self.stream.does(Work::Free { address, bytes });
    }
}

impl Buffer {
    /// Returns how many numbers it holds.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Queue {
    /// Makes a new queue. `most`: of all buffers on the card together, in bytes.
    ///
    /// # Errors
    /// If the driver has none left.
    pub fn new(card: Arc<Card>, most: Option<u64>) -> Result<Self> {
        // work on it does not wait for other streams
        const NON_BLOCKING: c_uint = 1;
        const NO_TIMES: c_uint = 2;
        let (all, mut handle, mut event) = (functions()?, null_mut(), null_mut());
        card.enter(all)?;
        if let Some(most) = most {
            card.keep_memory(all, most);
        }
        // SAFETY: `handle` and `event` are good for a write
        unsafe {
            all.check((all.stream)(&mut handle, NON_BLOCKING), "no stream")?;
            all.check((all.event)(&mut event, NO_TIMES), "no event")?;
        }
        Ok(Self(Arc::new(Stream {
            card,
            handle: handle as usize,
            event: event as usize,
            most: most.unwrap_or(u64::MAX),
            later: Mutex::new(None),
        })))
    }

    /// Returns the most bytes of all buffers on the card, if there is such a bound.
    pub(super) fn most(&self) -> Option<u64> {
        (self.0.most < u64::MAX).then_some(self.0.most)
    }

    /// Keeps work from now on, until [`Queue::taken`], or does it at once again.
    pub(super) fn keep(&self, keep: bool) -> Result<()> {
        let mut later = self.0.later();
        if keep {
            later.get_or_insert_default();
            return Ok(());
        }
        let kept = later.take().unwrap_or_default();
        kept.iter().try_for_each(|work| self.0.now(&[work]))
    }

    /// Takes the kept work, in its order.
    pub(super) fn taken(&self) -> Vec<Work> {
        let mut later = self.0.later();
        later.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Does the work of several queues together, piece by piece: at most [`MEMBERS`], whose lists
    /// have pieces of the same kinds. The streams of all follow.
    ///
    /// # Errors
    /// If the card refuses.
    pub(super) fn together(queues: &[Self], lists: &[&[Work]]) -> Result<()> {
        let Some((first, others)) = queues.split_first() else {
            return Ok(());
        };
        others.iter().try_for_each(|q| first.0.follow(&q.0))?;
        for at in 0..lists
            .iter()
            .map(|list| list.len())
            .min()
            .unwrap_or_default()
        {
            let works: Vec<&Work> = lists.iter().map(|list| &list[at]).collect();
            first.0.now(&works)?;
        }
        others.iter().try_for_each(|q| q.0.follow(&first.0))
    }

    /// Waits until all work so far is done.
    ///
    /// # Errors
    /// If it failed.
    pub fn wait(&self) -> Result<()> {
        let (all, stream) = self.begin()?;
        // SAFETY: the stream lives as long as the queue
        all.check(unsafe { (all.wait)(stream) }, "the card failed")
    }

    /// Returns the card that does the work.
    pub fn card(&self) -> &Arc<Card> {
        &self.0.card
    }

    /// Returns whether both are the same queue.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn begin(&self) -> Result<(&'static Functions, Handle)> {
        Ok((self.0.begin()?, self.0.handle as Handle))
    }

    /// Allocates `n` numbers, which must be written before they are read.
    ///
    /// # Errors
    /// If the card or its bound has no memory left, or kernels cannot count so far.
    pub fn room(&self, n: usize) -> Result<Buffer> {
        int(n)?;
        let (all, stream) = self.begin()?;
        let (mut address, bytes) = (0, 4 * n.max(1));
        self.reserve(bytes as u64)?;
        // SAFETY: `address` is good for a write
        let code = unsafe { (all.allocate)(&mut address, bytes, stream) };
        if code != 0 {
            self.0.card.held.fetch_sub(bytes as u64, Ordering::Relaxed);
            all.check(code, &format!("no room for {n} numbers on the card"))?;
        }
        Ok(Buffer {
            stream: self.0.clone(),
            address,
            len: n,
        })
    }

    /// Counts bytes of a new buffer. Data sets leave the card first if it would hold too many.
    fn reserve(&self, bytes: u64) -> Result<()> {
        let Stream { card, most, .. } = &*self.0;
        let fits = || {
            let add = |held: u64| held.checked_add(bytes).filter(|sum| sum <= most);
            let both = (Ordering::Relaxed, Ordering::Relaxed);
            card.held.fetch_update(both.0, both.1, add).is_ok()
        };
        if fits() || (card.sets.clear() && fits()) {
            return Ok(());
        }
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        bail!(
            "device: memory: all models on {} hold {} MiB, and {} MiB more are too many for a bound of {} MiB; raise it, use smaller batches, or train fewer clients at once (`--threads`)",
            card.name,
            mib(card.held.load(Ordering::Relaxed)),
            mib(bytes),
            mib(*most)
        )
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
        let address = buffer.address + 4 * at as u64;
        self.0.does(Work::Clear { address, n })
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

    /// Copies numbers to the card, into a buffer from `at` on, before all kept work.
    ///
    /// # Errors
    /// If they do not fit, or the driver fails.
    pub fn write(&self, values: &[f32], buffer: &Buffer, at: usize) -> Result<()> {
        let n = values.len();
        ensure!(
            at + n <= buffer.len,
            "{n} numbers from {at} on lie in no buffer"
        );
        let (all, stream) = self.begin()?;
        let to = buffer.address + 4 * at as u64;
        // SAFETY: the numbers lie in the buffer, see above; the driver reads all of `values`, which
        // is no page-locked memory, before it returns
        let code = unsafe { (all.to_card)(to, values.as_ptr().cast(), 4 * n, stream) };
        all.check(code, "cannot copy to the card")
    }

    /// Copies numbers from `at` on to the host, after all work so far. Kept work is done first,
    /// together with that of the other models of a meeting.
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
        Meetings::flush(self)?;
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
        let words = |a: &Argument<'_>| a.storage.into_iter().take(a.bytes.div_ceil(8));
        let arguments: Vec<u64> = arguments.iter().flat_map(words).collect();
        ensure!(
            found.words == arguments.len(),
            "kernel `{kernel}` takes arguments of {} words, and was given {}",
            found.words,
            arguments.len()
        );
        self.0.does(Work::Launch {
            kernel: *found,
            grid,
            arguments,
        })
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
