//! [`DataSpec`] as the check of a spec asks it.

use crate::build::build;
use crate::public_size::most;
use crate::section::DataSpec;
use crate::split_spec::Split;
use fl_core::{Examples, Stream, Task};
use fl_data_kit::{data_dir, dataset::Problem};
use fl_registry::DataSection;
use std::path::Path;

impl DataSection for DataSpec {
    fn task(&self) -> Option<Task> {
        self.task_of(self.set.task()?).ok()
    }

    fn clients(&self) -> usize {
        DataSpec::clients(self)
    }

    fn has_public(&self) -> bool {
        self.public.is_some()
    }

    fn has_public_labels(&self) -> bool {
        self.public.as_ref().is_some_and(|p| p.labelled)
    }

    fn most_public(&self) -> Option<usize> {
        let rows = self.set.facts().rows;
        most(self.public.as_ref()?, rows.map(|rows| self.dealt(rows)))
    }

    fn client_sizes(&self, seed: u64) -> Option<Vec<usize>> {
        if matches!(self.split(), Split::Own) {
            return None;
        }
        let stream = Stream::root(seed).child("data", 0);
        let built = build(self, &data_dir(None), &stream).ok()?;
        Some(built.clients.iter().map(Examples::len).collect())
    }

    fn own_tests(&self) -> bool {
        self.test.is_some()
    }

    fn resolve(&mut self, folder: &Path) -> Vec<Problem> {
        DataSpec::resolve(self, folder)
    }
}
