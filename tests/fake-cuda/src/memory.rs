//! The card's memory: buffers with a note for each word of who wrote it.

use crate::order::{Moment, Uses};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The note of a word that the host wrote.
const HOST: u64 = u64::MAX;

/// One buffer. Its address is invented, so a stray access never meets the memory of this process.
#[derive(Debug)]
pub struct Buffer {
    /// Address of the first byte.
    pub start: u64,
    /// Length in bytes, a multiple of 4.
    pub bytes: u64,
    words: Box<[AtomicU32]>,
    /// For each word: 0 when no one wrote it, [`HOST`], or launch and block of the last writer.
    writers: Box<[AtomicU64]>,
    uses: Mutex<Uses>,
}

/// One block of one launch, as the writer of a word.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// Number of the launch, at least 1.
    pub launch: u32,
    /// Number of the block in its grid.
    pub block: u32,
}

impl Writer {
    fn note(self) -> u64 {
        u64::from(self.launch) << 32 | u64::from(self.block)
    }
}

impl Buffer {
    fn new(start: u64, bytes: u64) -> Self {
        let n = (bytes / 4) as usize;
        Self {
            start,
            bytes,
            words: (0..n).map(|_| AtomicU32::new(u32::MAX)).collect(),
            writers: (0..n).map(|_| AtomicU64::new(0)).collect(),
            uses: Mutex::default(),
        }
    }

    /// Notes that work reads it.
    ///
    /// # Errors
    /// When work of another stream writes it, and may come later.
    pub fn read(&self, moment: &Moment) -> Result<(), String> {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.read(moment)
    }

    /// Notes that work writes or frees it.
    ///
    /// # Errors
    /// When work of another stream uses it, and may come later.
    pub fn written(&self, moment: &Moment) -> Result<(), String> {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.write(moment)
    }

    /// The word at index `at`, read by a block.
    ///
    /// # Errors
    /// When no one wrote it, or another block of the same launch did.
    #[inline(always)]
    pub fn load(&self, at: usize, reader: Writer) -> Result<u32, &'static str> {
        let note = self.writers[at].load(Relaxed);
        if note == 0 {
            return Err("reads a word that no one wrote");
        }
        if note != HOST && (note >> 32) as u32 == reader.launch && note != reader.note() {
            return Err("reads a word that another block of this launch wrote");
        }
        Ok(self.words[at].load(Relaxed))
    }

    /// Writes the word at index `at`.
    ///
    /// # Errors
    /// When another block of the same launch wrote it.
    #[inline(always)]
    pub fn store(&self, at: usize, value: u32, writer: Writer) -> Result<(), &'static str> {
        let note = self.writers[at].swap(writer.note(), Relaxed);
        if note != HOST && (note >> 32) as u32 == writer.launch && note != writer.note() {
            return Err("writes a word that another block of this launch wrote");
        }
        self.words[at].store(value, Relaxed);
        Ok(())
    }
}

/// All live buffers.
#[derive(Debug)]
pub struct Memory {
    buffers: RwLock<BTreeMap<u64, Arc<Buffer>>>,
    next: AtomicU64,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            buffers: RwLock::default(),
            next: AtomicU64::new(0x7000_0000_0000),
        }
    }
}

impl Memory {
    /// A new buffer of `bytes`, whose words no one has written; its address.
    pub fn allocate(&self, bytes: u64, moment: &Moment) -> u64 {
        let bytes = bytes.next_multiple_of(4);
        // a gap behind each buffer: an index out of range meets no other buffer
        let room = (bytes + 4096).next_multiple_of(256);
        let start = self.next.fetch_add(room, Relaxed);
        let mut all = self.buffers.write().unwrap_or_else(PoisonError::into_inner);
        let buffer = Buffer::new(start, bytes);
        buffer.written(moment).unwrap_or_default();
        all.insert(start, Arc::new(buffer));
        start
    }

    /// Frees the buffer at `start`.
    ///
    /// # Errors
    /// When there is none, or work of another stream may still use it.
    pub fn free(&self, start: u64, moment: &Moment) -> Result<(), String> {
        let mut all = self.buffers.write().unwrap_or_else(PoisonError::into_inner);
        let buffer = all.remove(&start);
        let buffer = buffer.ok_or_else(|| format!("no buffer begins at {start:#x}"))?;
        buffer.written(moment)
    }

    /// The buffer that holds the byte at `address`.
    pub fn find(&self, address: u64) -> Option<Arc<Buffer>> {
        let all = self.buffers.read().unwrap_or_else(PoisonError::into_inner);
        let (start, buffer) = all.range(..=address).next_back()?;
        (address < start + buffer.bytes).then(|| buffer.clone())
    }

    /// The buffer and the words at `address`, `n` words long.
    ///
    /// # Errors
    /// When they do not lie in one buffer.
    fn words(&self, address: u64, n: usize) -> Result<(Arc<Buffer>, usize), String> {
        let outside = || format!("{n} words at {address:#x} lie in no buffer");
        let buffer = self.find(address).ok_or_else(outside)?;
        let first = ((address - buffer.start) / 4) as usize;
        if address.is_multiple_of(4) && first + n <= buffer.words.len() {
            Ok((buffer, first))
        } else {
            Err(outside())
        }
    }

    /// Copies words from the host.
    ///
    /// # Errors
    /// When they do not fit the buffer at `address`, or work of another stream may use it later.
    pub fn write(&self, address: u64, values: &[u32], moment: &Moment) -> Result<(), String> {
        let (buffer, first) = self.words(address, values.len())?;
        buffer.written(moment)?;
        for (at, value) in values.iter().enumerate() {
            buffer.words[first + at].store(*value, Relaxed);
            buffer.writers[first + at].store(HOST, Relaxed);
        }
        Ok(())
    }

    /// Copies words to the host.
    ///
    /// # Errors
    /// When they do not lie in one buffer, or no one wrote one of them.
    pub fn read(&self, address: u64, values: &mut [u32], moment: &Moment) -> Result<(), String> {
        let (buffer, first) = self.words(address, values.len())?;
        buffer.read(moment)?;
        for (at, value) in values.iter_mut().enumerate() {
            if buffer.writers[first + at].load(Relaxed) == 0 {
                return Err(format!(
                    "a copy to the host reads word {at}, which no one wrote"
                ));
            }
            *value = buffer.words[first + at].load(Relaxed);
        }
        Ok(())
    }
}
