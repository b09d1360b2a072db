//! A card with its kernels.

use super::functions::{Functions, Handle, functions};
use crate::cuda::meeting::Meetings;
use crate::cuda::sets::Sets;
use anyhow::{Context, ensure};
use fl_core::Result;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;
#[cfg(test)]
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The most models that one launch works for (`MEMBERS` in kernels/common.cuh).
pub const MEMBERS: usize = 8;

/// A loaded kernel.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Kernel {
    /// The driver's handle.
    pub(super) handle: usize,
    /// Length of the arguments for one model, in words of eight bytes.
    pub(super) words: usize,
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
    pub(super) kernels: HashMap<String, Kernel>,
    /// Bytes in all buffers.
    pub(super) held: AtomicU64,
    pub(super) launches: AtomicU64,
    /// The data sets that stay on the card.
    pub(in crate::cuda) sets: Sets,
    /// The models that train together.
    pub(in crate::cuda) meetings: Meetings,
    /// The result of [`Card::checked`].
    pub(in crate::cuda) check: OnceLock<Result<(), String>>,
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
        let card = Arc::new(Self::with_kernels(index, &crate::cuda::modules()?)?);
        all.insert(index, card.clone());
        Ok(card)
    }

    /// Checks that this machine has a card `index`.
    ///
    /// # Errors
    /// If it has not, or no driver.
    pub fn ensure_there(index: usize) -> Result<()> {
        let count = Self::count()?;
        ensure!(
            index < count,
            "device: cuda:{index}: this machine has {count} cards, from cuda:0 on"
        );
        Ok(())
    }

    /// Opens card `index` with kernels of these modules.
    ///
    /// # Errors
    /// As [`Card::open`], or if the driver refuses a module.
    pub(in crate::cuda) fn with_kernels(index: usize, modules: &[String]) -> Result<Self> {
        let all = functions()?;
        Self::ensure_there(index)?;
        let (mut device, mut context) = (0, null_mut());
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
    pub(super) fn keep_memory(&self, all: &Functions, mut bytes: u64) {
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
    pub(in crate::cuda) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns how many kernels were launched.
    #[cfg(test)]
    pub(in crate::cuda) fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// Makes the driver use this card on the calling thread.
    pub(super) fn enter(&self, all: &Functions) -> Result<()> {
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
