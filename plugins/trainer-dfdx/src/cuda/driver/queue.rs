//! A queue of work for a card: buffers, copies and launches.

use super::argument::{Argument, int};
use super::buffer::Buffer;
use super::card::Card;
use super::functions::{Functions, Handle, OUT_OF_MEMORY, functions};
use super::stream::{Stream, THREADS, Work};
use crate::cuda::meeting::Meetings;
use anyhow::{Context, bail, ensure};
use fl_core::Result;
use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A queue of work for a card, done in the order of the calls.
#[derive(Clone, Debug)]
pub struct Queue(Arc<Stream>);

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
    pub(in crate::cuda) fn most(&self) -> Option<u64> {
        (self.0.most < u64::MAX).then_some(self.0.most)
    }

    /// Keeps work from now on, until [`Queue::taken`], or does it at once again.
    pub(in crate::cuda) fn keep(&self, keep: bool) -> Result<()> {
        let mut later = self.0.later();
        if keep {
            later.get_or_insert_default();
            return Ok(());
        }
        let kept = later.take().unwrap_or_default();
        kept.iter().try_for_each(|work| self.0.now(&[work]))
    }

    /// Takes the kept work, in its order.
    pub(in crate::cuda) fn taken(&self) -> Vec<Work> {
        let mut later = self.0.later();
        later.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Does the work of several queues together, piece by piece: at most [`MEMBERS`], whose lists
    /// have pieces of the same kinds. The streams of all follow.
    ///
    /// # Errors
    /// If the card refuses.
    pub(in crate::cuda) fn together(queues: &[Self], lists: &[&[Work]]) -> Result<()> {
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
    pub(in crate::cuda) fn is(&self, other: &Self) -> bool {
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
        let mut allocate = || unsafe { (all.allocate)(&mut address, bytes, stream) };
        let mut code = allocate();
        if code == OUT_OF_MEMORY && self.0.card.sets.clear() {
            code = allocate();
        }
        if code != 0 {
            self.0.card.held.fetch_sub(bytes as u64, Ordering::Relaxed);
            let failed = all.check(code, &format!("no room for {n} numbers"));
            match code {
                OUT_OF_MEMORY => failed.with_context(|| {
                    format!(
                        "device: cuda: {} has no memory left; use smaller batches, train fewer clients at once (`--threads`), or end what else uses it",
                        self.0.card.name
                    )
                })?,
                _ => failed?,
            }
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
