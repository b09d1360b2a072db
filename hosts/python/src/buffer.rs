//! Numbers that numpy and PyTorch see without a copy.

use fl_core::message::{Tensor, View};
use ndarray::{Array1, ArrayD, ArrayView1, ArrayViewD};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::any::Any;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A tensor: lent by the host for one call and read-only, or an owner of its numbers.
#[pyclass(frozen)]
pub struct Buffer {
    data: AtomicPtr<c_void>,
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

impl Buffer {
    /// Numbers of someone else, who waits for [`Buffer::end`] and, if they are still used then,
    /// keeps them as [`Buffer::keep`] does.
    pub fn lent(numbers: &View<'_>) -> Self {
        let bytes = |bytes: &[u8]| Self::of(&ArrayView1::from(bytes).into_dyn(), c"B");
        match numbers {
            View::F32(a) => Self::of(a, c"f"),
            View::F64(a) => Self::of(a, c"d"),
            View::U32(a) => Self::of(a, c"I"),
            View::I64(a) => Self::of(a, c"q"),
            View::U8(b) => bytes(b),
            // Python sees the bytes
            View::Bits(b) => bytes(b.packed()),
        }
    }

    fn of<T>(a: &ArrayViewD<'_, T>, format: &'static CStr) -> Self {
        let size = size_of::<T>() as isize;
        Self {
            data: AtomicPtr::new(a.as_ptr().cast_mut().cast()),
            shape: a.shape().iter().map(|n| *n as isize).collect(),
            strides: a.strides().iter().map(|step| step * size).collect(),
            size,
            format,
            exports: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            own: None,
        }
    }

    /// Numbers of its own.
    pub fn owning(numbers: Tensor) -> Self {
        fn own<T: Send + Sync + 'static>(mut a: ArrayD<T>, format: &'static CStr) -> Buffer {
            let data = AtomicPtr::new(a.as_mut_ptr().cast());
            Buffer {
                data,
                ..Buffer::of(&a.view(), format)
            }
            .holding(a)
        }
        match numbers {
            Tensor::F32(a) => own(a, c"f"),
            Tensor::F64(a) => own(a, c"d"),
            Tensor::U32(a) => own(a, c"I"),
            Tensor::I64(a) => own(a, c"q"),
            Tensor::U8(b) => own(Array1::from(b).into_dyn(), c"B"),
            Tensor::Bits(b) => own(Array1::from(b.packed().to_vec()).into_dyn(), c"B"),
        }
    }

    fn holding(self, own: impl Any + Send + Sync) -> Self {
        let own: Option<Box<dyn Any + Send + Sync>> = Some(Box::new(own));
        Self { own, ..self }
    }

    /// Floats in row order.
    pub fn owner(shape: &[usize], numbers: Vec<f32>) -> Self {
        let numbers = ArrayD::from_shape_vec(shape, numbers);
        Self::owning(Tensor::F32(numbers.expect("as many as the shape says")))
    }

    /// Does anything use it now?
    pub fn used(&self) -> bool {
        self.exports.load(Ordering::Acquire) > 0
    }

    /// The call is over.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Keeps the numbers for ever, for something uses them.
    pub fn keep(&self) {
        // from the lowest address to the highest
        let far = |(n, s): (&isize, &isize)| (n - 1).max(0) * s;
        let steps = || self.shape.iter().zip(&self.strides).map(far);
        let low: isize = steps().filter(|s| *s < 0).sum();
        let high: isize = steps().filter(|s| *s > 0).sum();
        let start = self.data.load(Ordering::Relaxed).cast::<u8>();
        fl_core::keep_memory(
            start.wrapping_offset(low),
            (high - low + self.size) as usize,
        );
    }

    fn rows(&self) -> bool {
        let mut due = self.size;
        let mut axes = self.shape.iter().zip(&self.strides).rev();
        self.shape.contains(&0)
            || axes.all(|(n, s)| {
                let fits = *n == 1 || *s == due;
                due *= n;
                fits
            })
    }
}

#[allow(unsafe_code, reason = "Python's buffer protocol")]
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
        // reference, or is lent, and kept if the view outlives the call.
        unsafe {
            (*view).buf = this.data.load(Ordering::Relaxed);
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
