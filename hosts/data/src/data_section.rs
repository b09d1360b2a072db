//! [`DataSpec`] as the check of a spec asks it.

use crate::build::build;
use crate::features::Features;
use crate::public::PublicFrom;
use crate::public_size::{most, taken};
use crate::section::DataSpec;
use crate::split_spec::Split;
use fl_core::settings::Step;
use fl_core::{Examples, Stream, Task};
use fl_data_kit::{data_dir, dataset::Problem};
use fl_registry::{Catalogue, DataSection, DataSizes};
use std::path::Path;

impl DataSection for DataSpec {
    fn task(&self) -> Option<Task> {
        self.task_of(self.set.task()?).ok()
    }

    fn vocabulary(&self) -> Option<usize> {
        match &self.features {
            Some(_) => Some(0),
            None => self.set.vocabulary(),
        }
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

    fn has_other_public(&self) -> bool {
        let public = self.public.as_ref();
        public.is_some_and(|p| matches!(p.from, PublicFrom::Set(_) | PublicFrom::HalfOfTest))
    }

    fn has_public_truth(&self) -> bool {
        self.public.as_ref().is_none_or(|p| {
            let mixed = p.mix.as_ref().is_some_and(|mix| mix.share > 0.0);
            !mixed && (p.labelled || !matches!(p.from, PublicFrom::Set(_)))
        })
    }

    fn takes_public(&self) -> Option<String> {
        let public = self.public.as_ref()?;
        if self.features.as_ref().is_some_and(Features::needs_public) {
            return None;
        }
        let rows = self.set.facts().rows;
        Some(taken(
            public,
            rows.map(|rows| self.dealt(self.limit.of(rows))),
        ))
    }

    fn sets_aside(&self) -> Option<(&'static str, String)> {
        let share = self.validation;
        (share > 0.0).then(|| {
            let text = format!(
                "sets {share} of each client's rows aside, and no part uses them: leave it out, unless this run is to train on as few rows as another that has it"
            );
            ("validation", text)
        })
    }

    fn most_public(&self) -> Option<usize> {
        let rows = self.set.facts().rows;
        most(self.public.as_ref()?, rows.map(|rows| self.dealt(rows)))
    }

    fn sizes(&self, seed: u64) -> Option<DataSizes> {
        if matches!(self.split(), Split::Own) {
            return None;
        }
        let stream = Stream::root(seed).child("data", 0);
        let mut plain = self.clone();
        plain.features = None;
        let built = build(&plain, &data_dir(None), &stream).ok()?;
        let public = built.public.map_or(0, |public| public.samples.len());
        let clients = built.clients.iter().map(Examples::len).collect();
        Some(DataSizes { clients, public })
    }

    fn own_tests(&self) -> bool {
        self.test.is_some()
    }

    fn resolve(&mut self, folder: &Path, catalogue: &Catalogue) -> Vec<Problem> {
        let loaded = self
            .features
            .as_mut()
            .map(|how| how.load(folder, catalogue));
        let wrong = loaded.and_then(Result::err).map(|error| {
            // without it the rest can be checked
            self.features = None;
            let at = ["features", "kept-model", "file"].map(|key| Step::Key(key.into()));
            (at.to_vec(), format!("{error:#}"))
        });
        wrong
            .into_iter()
            .chain(DataSpec::resolve(self, folder))
            .collect()
    }
}
