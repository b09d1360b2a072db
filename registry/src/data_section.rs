//! [`DataSection`]: what a check needs to know of the `data` of a spec.

use crate::catalogue::Catalogue;
use fl_core::Task;
use fl_core::settings::{Settings, Step};
use std::path::Path;

/// How many examples a run has.
#[derive(Clone)]
pub struct DataSizes {
    /// Those of each client.
    pub clients: Vec<usize>,
    /// Public samples.
    pub public: usize,
}

/// The `data` section: its settings belong to the host, and checking needs to know this much of it
/// without loading data.
pub trait DataSection: Settings {
    /// What is to be learnt, if that is known before data are loaded.
    fn task(&self) -> Option<Task>;
    /// The largest number of a word in the rows, 0 if they hold other numbers; `None` if that is
    /// not known before data are loaded.
    fn vocabulary(&self) -> Option<usize> {
        None
    }
    /// How many clients there are.
    fn clients(&self) -> usize;
    /// Is there public data?
    fn has_public(&self) -> bool;
    /// May a protocol see the labels of public data?
    fn has_public_labels(&self) -> bool {
        false
    }
    /// Are the public samples test rows, or rows of another data set?
    fn has_other_public(&self) -> bool {
        false
    }
    /// Are the classes of the public samples known, for measurements alone?
    fn has_public_truth(&self) -> bool {
        true
    }
    /// What `public` takes that a run without it would have, such as `takes 600 training rows`;
    /// `None` if there is no `public`, or the section itself uses it.
    fn takes_public(&self) -> Option<String> {
        None
    }
    /// A setting that takes rows away which nothing uses, and what to say of it.
    fn sets_aside(&self) -> Option<(&'static str, String)> {
        None
    }
    /// The most public samples that there can be, if that is known before data are loaded.
    fn most_public(&self) -> Option<usize> {
        None
    }
    /// How many examples there are, for a run with this seed. Loads the data; `None` if they are not
    /// there, or not here.
    fn sizes(&self, _seed: u64) -> Option<DataSizes> {
        None
    }
    /// Does each client have test rows of its own?
    fn own_tests(&self) -> bool {
        false
    }
    /// Settles what depends on where the spec is (`folder`), and on files that the section names,
    /// among them models of the parts of a catalogue. Returns what is wrong, such as a file that is
    /// missing: where below `data`, and the mistake.
    fn resolve(&mut self, _folder: &Path, _parts: &Catalogue) -> Vec<(Vec<Step>, String)> {
        Vec::new()
    }
}
