//! Parts and runs held to files of cases, and a part alone on given numbers: what `fl test` and
//! `fl try` do.
//!
//! A file of cases is a [`File`]; [`CaseFiles`] reads several, and compares the answer of each case
//! with the accepted one. [`trial()`] asks one part.

mod answer;
mod answers;
mod case_files;
mod compare;
mod file;
mod inputs;
mod named;
mod trial;
mod verdict;

pub use answer::answer_of;
pub use answers::pretty;
pub use case_files::{Ask, CaseFiles, Choice, TestOptions, Tested};
pub use file::File;
pub use named::{part, role, word};
pub use trial::{Part, SLOT, aggregated, guarded, released, trial};
pub use verdict::{CaseResult, Outcome, Snapshot, Verdict, fulfils, snapshot, unused_answers};
