//! Numbers that numpy and PyTorch see without a copy.
#![allow(unsafe_code, reason = "Python's buffer protocol")]

use crate::keep;
use fl_core::abi::raw::{FL_BITS, FL_F32, FL_F64, FL_I64, FL_U32, FlTensor};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::any::Any;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A tensor: lent by the host for one call and read-only, or an owner of its numbers.
#[pyclass(frozen)]
pub struct Buffer {
    data: *mut c_void,
    shape: Vec<isize>,
    /// In bytes.
    strides: Vec<isize>,
    size: isize,
    format: &'static CStr,
    /// Arrays that use it.
    exports: AtomicUsize,
    /// The call in which it was lent is over.
    over: AtomicBool,
    /// Holds its own numbers.
    own: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: what is lent is only read, and stays where it is for the call; an owner's numbers are
// Python's to guard.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// How Python writes a type, and its bytes.
fn format(dtype: u32) -> (&'static CStr, isize) {
    match dtype {
        FL_F32 => (c"f", 4),
        FL_F64 => (c"d", 8),
        FL_U32 => (c"I", 4),
        FL_I64 => (c"q", 8),
        _ => (c"B", 1),
    }
}

impl Buffer {
    /// # Safety
    /// `tensor` is as `FlTensor` says, until [`Buffer::end`].
    pub unsafe fn lent(tensor: &FlTensor) -> Self {
        let (format, size) = format(tensor.dtype);
        let at = |i: usize| {
            // SAFETY: there is one for each dimension.
            unsafe { (*tensor.shape.add(i) as isize, *tensor.strides.add(i) * size) }
        };
        let (shape, strides) = match tensor.dtype {
            // Python sees the bytes
            FL_BITS => {
                // SAFETY: there is one for each dimension.
                let sizes =
                    (0..tensor.dimensions as usize).map(|i| unsafe { *tensor.shape.add(i) });
                let bytes = sizes.product::<usize>().div_ceil(8);
                (vec![bytes as isize], vec![1])
            }
            _ => (0..tensor.dimensions as usize).map(at).unzip(),
        };
        Self {
            data: tensor.data.cast_mut(),
            shape,
            strides,
            size,
            format,
            exports: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            own: None,
        }
    }

    /// Floats in row order.
    pub fn owner(shape: &[usize], mut numbers: Vec<f32>) -> Self {
        let data = numbers.as_mut_ptr().cast();
        Self::holding(shape, FL_F32, data, Box::new(numbers))
    }

    /// Numbers of this type in row order, which begin at the first word of `memory`.
    pub fn words(shape: &[usize], dtype: u32, mut memory: Vec<u64>) -> Self {
        let data = memory.as_mut_ptr().cast();
        match dtype {
            // Python sees the bytes
            FL_BITS => {
                let bytes = shape.iter().product::<usize>().div_ceil(8);
                Self::holding(&[bytes], dtype, data, Box::new(memory))
            }
            _ => Self::holding(shape, dtype, data, Box::new(memory)),
        }
    }

    fn holding(
        shape: &[usize],
        dtype: u32,
        data: *mut c_void,
        own: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let (format, size) = format(dtype);
        let shape: Vec<isize> = shape.iter().map(|n| *n as isize).collect();
        let mut strides = vec![size; shape.len()];
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at] * shape[at].max(1);
        }
        Self {
            data,
            shape,
            strides,
            size,
            format,
            exports: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            own: Some(own),
        }
    }

    /// Does anything use it now?
    pub fn used(&self) -> bool {
        self.exports.load(Ordering::Acquire) > 0
    }

    /// The call is over.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Somebody will use it for ever.
    pub fn keep(&self) {
        // from the lowest address to the highest
        let far = |(n, s): (&isize, &isize)| (n - 1).max(0) * s;
        let steps = || self.shape.iter().zip(&self.strides).map(far);
        let low: isize = steps().filter(|s| *s < 0).sum();
        let high: isize = steps().filter(|s| *s > 0).sum();
        let start = self.data.cast::<u8>().wrapping_offset(low);
        keep::keep(start, (high - low + self.size) as usize);
    }

    fn rows(&self) -> bool {
        let mut due = self.size;
        self.shape.iter().zip(&self.strides).rev().all(|(n, s)| {
            let fits = *n <= 1 || *s == due;
            due *= n.max(&1);
            fits
        })
    }
}

#[pymethods]
impl Buffer {
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        if this.over.load(Ordering::Acquire) {
            return Err(PyBufferError::new_err(
                "this array was lent for a call that has ended: keep a copy (`array.copy()`)",
            ));
        }
        let wants = |what: c_int| flags & what == what;
        if wants(ffi::PyBUF_WRITABLE) && this.own.is_none() {
            return Err(PyBufferError::new_err(
                "this array is read-only: copy it first (`array.copy()`)",
            ));
        }
        let order = [
            ffi::PyBUF_C_CONTIGUOUS,
            ffi::PyBUF_F_CONTIGUOUS,
            ffi::PyBUF_ANY_CONTIGUOUS,
        ];
        if !this.rows() && (!wants(ffi::PyBUF_STRIDES) || order.into_iter().any(wants)) {
            return Err(PyBufferError::new_err("its numbers are not in row order"));
        }
        this.exports.fetch_add(1, Ordering::AcqRel);
        // SAFETY: Python lends the view; what it points to lives in `slf`, to which it holds a
        // reference.
        unsafe {
            (*view).buf = this.data;
            (*view).len = this.shape.iter().product::<isize>() * this.size;
            (*view).itemsize = this.size;
            (*view).readonly = c_int::from(this.own.is_none());
            (*view).ndim = this.shape.len() as c_int;
            (*view).format = this.format.as_ptr().cast_mut();
            (*view).shape = this.shape.as_ptr().cast_mut();
            (*view).strides = this.strides.as_ptr().cast_mut();
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.exports.fetch_sub(1, Ordering::AcqRel);
    }
}
