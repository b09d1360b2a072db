//! Memory that two processes share.

use super::SharedTensor;
use crate::Result;
use crate::abi::raw::{FL_BITS, FL_F32, FL_F64, FL_I64, FL_U8, FL_U32};
use crate::message::{Bits, View};
use anyhow::{Context, bail, ensure};
use memmap2::MmapRaw;
use ndarray::{ArrayView, ArrayViewD, ArrayViewMutD, IxDyn};
use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A tensor begins where its numbers are aligned whatever they are, and where a vector register
/// likes it.
const ALIGNED: usize = 64;
/// It grows by at least this.
const STEP: usize = 1 << 16;

/// So long a message is listened for before the system is asked to wake this thread.
const LISTEN: Duration = Duration::from_micros(50);

/// What rings when a message is sent.
#[derive(Clone, Copy)]
pub(super) enum Doorbell {
    /// The program has asked.
    CallInput = 0,
    /// The process has answered.
    Answered = 1,
}

/// A file in memory, mapped. It only grows: it is sealed against becoming shorter, so that what is
/// mapped stays.
pub(super) struct SharedMemory {
    file: File,
    map: Option<MmapRaw>,
}

impl SharedMemory {
    pub fn new(file: File) -> Self {
        Self { file, map: None }
    }

    pub fn len(&self) -> usize {
        self.map.as_ref().map_or(0, MmapRaw::len)
    }

    /// Makes it at least so long.
    pub fn reserve(&mut self, length: usize) -> Result<()> {
        if length <= self.len() {
            return Ok(());
        }
        // twice as long as before, so that a few sizes in a row do not map it anew each time
        let length = length.max(2 * self.len()).next_multiple_of(STEP) as u64;
        // the other side may have made it longer than is mapped here
        let length = length.max(self.file.metadata()?.len());
        self.file.set_len(length).context("making shared memory")?;
        self.see(length)
    }

    /// The other side has made it so long.
    pub fn see(&mut self, length: u64) -> Result<()> {
        let length = usize::try_from(length)?;
        if length <= self.len() {
            return Ok(());
        }
        let there = self.file.metadata()?.len();
        ensure!(
            there >= length as u64,
            "shared memory has {there} bytes, and {length} were announced"
        );
        // the old mapping stays until there is a new one
        self.map = Some(MmapRaw::map_raw(&self.file).context("mapping shared memory")?);
        Ok(())
    }

    /// Where tensors of these numbers of bytes lie, one after the other, and where they end.
    pub fn places(bytes: impl Iterator<Item = usize>) -> Result<(Vec<usize>, usize)> {
        let mut end: usize = ALIGNED; // the bells come first
        let mut all = Vec::new();
        for n in bytes {
            all.push(end);
            let next = end.checked_add(n).context("too many bytes")?;
            end = next
                .checked_next_multiple_of(ALIGNED)
                .context("too many bytes")?;
        }
        Ok((all, end))
    }

    /// Rings: a message has been sent.
    pub fn ring(&self, bell: Doorbell) {
        if let Some(bell) = self.bell(bell) {
            bell.fetch_add(1, Ordering::Release);
        }
    }

    /// Waits a little for a message: a sleeping thread wakes late, and most answers come at once.
    /// `heard` counts messages.
    pub fn listen(&self, bell: Doorbell, heard: &mut u32) {
        let until = Instant::now() + LISTEN;
        let silent = |bell: &AtomicU32| bell.load(Ordering::Acquire) == *heard;
        while self.bell(bell).is_some_and(silent) && Instant::now() < until {
            std::hint::spin_loop();
        }
        *heard = heard.wrapping_add(1);
    }

    fn bell(&self, bell: Doorbell) -> Option<&AtomicU32> {
        let map = self.map.as_ref()?;
        // SAFETY: the first bytes of a mapping are aligned, and used as bells alone.
        Some(unsafe { &*map.as_ptr().cast::<AtomicU32>().add(bell as usize) })
    }

    /// The address of `bytes` bytes, which are all inside.
    pub fn address(&self, at: usize, bytes: usize) -> Result<*mut u8> {
        let end = at.checked_add(bytes).filter(|end| *end <= self.len());
        ensure!(
            end.is_some() && at.is_multiple_of(ALIGNED),
            "{bytes} bytes at {at} are not in the {} bytes of shared memory",
            self.len()
        );
        Ok(match &self.map {
            // SAFETY: within the mapping, which stays while `self` is borrowed.
            Some(map) => unsafe { map.as_mut_ptr().add(at) },
            None => std::ptr::NonNull::<u64>::dangling().as_ptr().cast(),
        })
    }

    /// Writes a tensor there, in row order.
    pub fn write(&mut self, at: usize, view: &View<'_>) -> Result<()> {
        /// # Safety
        /// At `to` is room for all numbers, aligned and not shared.
        unsafe fn copy<T: Copy>(view: &ArrayViewD<'_, T>, to: *mut u8) {
            if let Some(all) = view.as_slice() {
                // SAFETY: as the caller says.
                unsafe {
                    to.cast::<T>()
                        .copy_from_nonoverlapping(all.as_ptr(), all.len())
                };
                return;
            }
            // SAFETY: as the caller says.
            let mut room = unsafe { ArrayViewMutD::from_shape_ptr(view.raw_dim(), to.cast()) };
            room.assign(view);
        }
        let to = self.address(at, view.bytes())?;
        // SAFETY: `address` has looked that there is room; the other side waits for our word.
        unsafe {
            match view {
                View::F32(a) => copy(a, to),
                View::F64(a) => copy(a, to),
                View::U32(a) => copy(a, to),
                View::U8(b) => copy(&ArrayView::from(&**b).into_dyn(), to),
                View::I64(a) => copy(a, to),
                View::Bits(b) => copy(&ArrayView::from(b.packed()).into_dyn(), to),
            }
        }
        Ok(())
    }

    /// A look at a tensor that lies there.
    ///
    /// # Safety
    /// There are no writes to it while the view lives.
    pub unsafe fn view(&self, tensor: &SharedTensor) -> Result<View<'_>> {
        let at = self.address(tensor.at, tensor.bytes()?)?;
        let shape = IxDyn(&tensor.shape);
        let bytes = tensor.bytes()?;
        // SAFETY: all numbers lie inside the memory and are aligned, any bits are numbers, and the
        // caller promises that there are no writes.
        Ok(unsafe {
            match tensor.dtype {
                FL_F32 => View::F32(ArrayViewD::from_shape_ptr(shape, at.cast_const().cast())),
                FL_F64 => View::F64(ArrayViewD::from_shape_ptr(shape, at.cast_const().cast())),
                FL_U32 => View::U32(ArrayViewD::from_shape_ptr(shape, at.cast_const().cast())),
                FL_I64 => View::I64(ArrayViewD::from_shape_ptr(shape, at.cast_const().cast())),
                FL_BITS => {
                    let packed = std::slice::from_raw_parts(at.cast_const(), bytes);
                    View::Bits(Bits::new(tensor.shape.clone(), packed)?)
                }
                _ => View::U8(std::slice::from_raw_parts(at, tensor.shape[0]).into()),
            }
        })
    }
}

impl SharedTensor {
    /// How many bytes its numbers have.
    pub fn bytes(&self) -> Result<usize> {
        let size = match self.dtype {
            FL_F32 | FL_U32 => 4,
            FL_F64 | FL_I64 => 8,
            FL_BITS => 1,
            FL_U8 if self.shape.len() == 1 => 1,
            other => bail!(
                "tensor `{}` has type {other} and {} dimensions",
                self.name,
                self.shape.len()
            ),
        };
        let mut sizes = self.shape.iter();
        let bytes = sizes.try_fold(size, |n: usize, d| n.checked_mul(*d));
        // ndarray requires this of the product without zeros too
        let whole = self.shape.iter().filter(|d| **d > 0);
        let whole = whole
            .into_iter()
            .try_fold(size, |n: usize, d| n.checked_mul(*d))
            .filter(|n| isize::try_from(*n).is_ok());
        let bytes = match self.dtype {
            FL_BITS => bytes.map(|bits| bits.div_ceil(8)),
            _ => bytes,
        };
        bytes
            .filter(|_| whole.is_some())
            .with_context(|| format!("tensor `{}` has the shape {:?}", self.name, self.shape))
    }
}

/// The type's number.
pub(super) fn dtype(view: &View<'_>) -> u32 {
    match view {
        View::F32(_) => FL_F32,
        View::F64(_) => FL_F64,
        View::U32(_) => FL_U32,
        View::U8(_) => FL_U8,
        View::I64(_) => FL_I64,
        View::Bits(_) => FL_BITS,
    }
}
