//! [`Broken`]: a property that does not hold.

use std::fmt::{Display, Formatter};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A property that does not hold, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The property: `claims order_free`.
    pub property: &'static str,
    /// The place, and the value found.
    pub found: String,
}

impl Broken {
    pub(crate) fn new(property: &'static str, found: impl Into<String>) -> Self {
        let found = found.into();
        Self { property, found }
    }
}

impl Display for Broken {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.property, self.found)
    }
}

impl std::error::Error for Broken {}

/// The result of a check.
pub(crate) type Held<T = ()> = Result<T, Broken>;

/// Breaks `property` unless `holds`.
pub(crate) fn must(property: &'static str, holds: bool, found: impl FnOnce() -> String) -> Held {
    if holds {
        Ok(())
    } else {
        Err(Broken::new(property, found()))
    }
}

/// Breaks `property` if something was found at this place.
pub(crate) fn none(property: &'static str, place: &str, found: Option<String>) -> Held {
    found.map_or(Ok(()), |found| {
        Err(Broken::new(property, format!("{found} ({place})")))
    })
}

/// Runs `work` on another thread; a panic there breaks `property`.
pub(crate) fn elsewhere<T: Send>(
    property: &'static str,
    work: impl FnOnce() -> Held<T> + Send,
) -> Held<T> {
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|_| Err(Broken::new(property, "the thread panicked")))
}

/// Runs a function of the part: an error or a panic breaks `property`.
pub(crate) fn run<T>(
    property: &'static str,
    place: &str,
    f: impl FnOnce() -> fl_core::Result<T>,
) -> Held<T> {
    match attempt(property, place, f)? {
        Ok(value) => Ok(value),
        Err(e) => Err(Broken::new(property, format!("{place}: {e:#}"))),
    }
}

/// Runs a function of the part that may fail: only a panic breaks `property`.
pub(crate) fn attempt<T>(
    property: &'static str,
    place: &str,
    f: impl FnOnce() -> fl_core::Result<T>,
) -> Held<fl_core::Result<T>> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = fl_core::panic_text(&*panic).unwrap_or_else(|| "no text".into());
        Broken::new(property, format!("{place}: it panicked: {text}"))
    })
}
