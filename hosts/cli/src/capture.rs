//! This program inside another one, such as an interpreter: what it would print is an answer, and
//! it says nothing by itself.

use fl_core::PartDecl;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::cell::RefCell;
use std::ffi::OsString;

/// What a command answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedOutput {
    /// The exit code.
    pub code: u8,
    /// What it would have printed.
    pub out: String,
    /// What went wrong.
    pub err: String,
}

pub(crate) enum Stream {
    Out,
    Err,
}

thread_local! {
    static KEPT: RefCell<Option<CapturedOutput>> = const { RefCell::new(None) };
}

/// Does this thread keep what is printed?
pub(crate) fn keeps() -> bool {
    KEPT.with_borrow(Option::is_some)
}

/// Captures a line; `false` if there is no capture, so that the line is printed.
pub(crate) fn keep(stream: Stream, line: &str) -> bool {
    KEPT.with_borrow_mut(|kept| {
        let Some(kept) = kept else { return false };
        let to = match stream {
            Stream::Out => &mut kept.out,
            Stream::Err => &mut kept.err,
        };
        to.push_str(line);
        to.push('\n');
        true
    })
}

/// Runs the command `args`, the first of which is the program's name, with the parts `more` besides
/// those that are linked, and returns its output.
pub fn answered(args: Vec<OsString>, more: &[&'static PartDecl]) -> CapturedOutput {
    KEPT.set(Some(CapturedOutput::default()));
    let code = crate::run_with(args, more);
    let kept = KEPT.take().unwrap_or_default();
    CapturedOutput { code, ..kept }
}

/// A bar for [`crate::progress`]; one that is not `seen` only keeps count.
pub fn bar(seen: bool) -> ProgressBar {
    if seen {
        ProgressBar::no_length()
    } else {
        ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
    }
}

/// What `f` gives, and what it would have printed.
#[cfg(test)]
pub(crate) fn kept<T>(f: impl FnOnce() -> T) -> (T, String) {
    KEPT.set(Some(CapturedOutput::default()));
    let given = f();
    (given, KEPT.take().unwrap_or_default().out)
}
