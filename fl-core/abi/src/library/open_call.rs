//! [`OpenCall`]: a call that is going on, for what may outlive it.

use super::call_context::{Host, Input};
use crate::raw::{FlHost, FlInput};
use anyhow::{Context, ensure};
use fl_roles::Result;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

/// What a call has.
#[derive(Clone, Copy)]
struct Pointers(*const FlHost, *const FlInput);
// SAFETY: `OpenCall::with` follows them on the thread of their call only, and while that runs.
unsafe impl Send for Pointers {}

/// A call of a part, for what may outlive it, such as an object in Python: it works on the thread
/// of the call, until the call ends.
pub struct OpenCall {
    now: Mutex<Option<Pointers>>,
    thread: ThreadId,
}

impl OpenCall {
    /// Runs `f` with this call, which ends when `f` returns.
    pub fn lend<R>(host: &Host<'_>, input: &Input<'_>, f: impl FnOnce(&Arc<Self>) -> R) -> R {
        // a part that is used after the call, or during a panic, finds no host
        struct Leave(Arc<OpenCall>);
        impl Drop for Leave {
            fn drop(&mut self) {
                *self.0.now.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
        }
        let call = Leave(Arc::new(Self {
            now: Mutex::new(Some(Pointers(host.0, input.0))),
            thread: std::thread::current().id(),
        }));
        f(&call.0)
    }

    /// Runs `f` with what the call has.
    ///
    /// # Errors
    /// If the call has ended, or is on another thread; or if `f` fails.
    pub fn with<R>(&self, f: impl FnOnce(&Host<'_>, &Input<'_>) -> Result<R>) -> Result<R> {
        ensure!(
            self.thread == std::thread::current().id(),
            "a part speaks to the program only on the thread of its call"
        );
        let now = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let Pointers(host, input) = now.context("it used a part of the program after its call")?;
        // SAFETY: `lend` waits for `f`, which runs on its thread, and both live longer than `lend`.
        let (host, input) = unsafe { (&*host, &*input) };
        f(&Host(host), &Input(input))
    }
}
