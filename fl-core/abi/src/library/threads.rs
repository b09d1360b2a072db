//! The host's threads as an executor.

use crate::raw::FlHost;
use fl_roles::{Executor, Result, SharedExecutor};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

struct HostPointer(*const FlHost);
// SAFETY: only `parallel_for` is called through it, which any thread may do during the call;
// `Threads` forgets it after.
unsafe impl Send for HostPointer {}
// SAFETY: as above.
unsafe impl Sync for HostPointer {}

/// The host's threads, while the call runs.
pub(super) struct Threads(RwLock<Option<HostPointer>>);

impl Threads {
    /// Runs `f` with the threads of `host`.
    pub fn lend(host: &FlHost, f: &mut dyn FnMut(SharedExecutor) -> Result<()>) -> Result<()> {
        let threads = Arc::new(Self(RwLock::new(Some(HostPointer(host)))));
        // if the executor is used after the call, even in a panic, it works
        // alone
        struct Leave(Arc<Threads>);
        impl Drop for Leave {
            fn drop(&mut self) {
                *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = None;
            }
        }
        let _leave = Leave(threads.clone());
        f(threads)
    }
}

type Panic = Box<dyn std::any::Any + Send>;

struct Job<'a> {
    work: &'a (dyn Fn(usize, &mut [f32]) + Sync),
    panic: Mutex<Option<Panic>>,
}

/// # Safety
/// `argument` is a `Job` that outlives the call; `chunk` has `length` numbers that are not
/// shared.
unsafe extern "C" fn one_chunk(argument: *mut c_void, i: usize, chunk: *mut f32, length: usize) {
    // SAFETY: as the caller says; a job is only ever shared.
    let job = unsafe { &*argument.cast::<Job<'_>>() };
    // SAFETY: as the caller says.
    let chunk = unsafe { std::slice::from_raw_parts_mut(chunk, length) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (job.work)(i, chunk))) {
        let mut slot = job.panic.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(panic);
    }
}

impl Executor for Threads {
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let pointer = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(HostPointer(host)) = &*pointer else {
            return fl_roles::Serial.chunks(data, size, work);
        };
        // SAFETY: the call that the pointer belongs to waits for this lock before it ends.
        let host = unsafe { &**host };
        let Some(parallel_for) = host.parallel_for else {
            return fl_roles::Serial.chunks(data, size, work);
        };
        let job = Job {
            work,
            panic: Mutex::new(None),
        };
        let argument = std::ptr::from_ref(&job).cast_mut().cast();
        // SAFETY: `data` and `job` are ours until it returns, and it returns when all is done.
        unsafe {
            parallel_for(
                host.context,
                data.as_mut_ptr(),
                data.len(),
                size,
                Some(one_chunk),
                argument,
            );
        }
        let panic = job.panic.into_inner();
        if let Some(panic) = panic.unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }
}
