//! What of a `data` section can be checked before anything is read.

use crate::set::Problem;
use crate::spec::DataSpec;
use fl_core::Task;
use fl_core::settings::{Setting, read_value};
use std::path::Path;

/// One file for each client.
pub(crate) fn check_files(set: &str, files: Option<usize>, clients: usize) -> anyhow::Result<()> {
    let Some(files) = files else {
        anyhow::bail!(
            "by-file is for sets that are read from a file for each client, and `{set}` is not; take another split"
        );
    };
    anyhow::ensure!(
        files == clients,
        "by-file gives each client a file of its own, and there are {files} training files for {clients} clients; leave \
         `clients` away"
    );
    Ok(())
}

/// One share for each client, not all 0.
pub(crate) fn check_shares(shares: &[f64], clients: usize) -> anyhow::Result<()> {
    anyhow::ensure!(
        shares.len() == clients,
        "{} shares for {clients} clients; there must be one for each",
        shares.len()
    );
    let sum: f64 = shares.iter().sum();
    anyhow::ensure!(
        sum > 0.0 && sum.is_finite(),
        "the shares sum to {sum}; they must not all be 0"
    );
    Ok(())
}

/// Are settings that a program wrote in their ranges, as those that were read are?
pub(crate) fn check<T: Setting>(settings: &T) -> anyhow::Result<()> {
    read_value::<T>(&settings.write()).map(drop)
}

impl fl_registry::DataSection for DataSpec {
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

    fn resolve(&mut self, folder: &Path) -> Vec<Problem> {
        DataSpec::resolve(self, folder)
    }
}

/// What the program does to clients' rows it cannot do where they are not.
pub(crate) fn check_own(spec: &DataSpec) -> anyhow::Result<()> {
    let cannot = [
        ("class-order", spec.class_order.is_some()),
        ("domains", spec.domains.is_some()),
        ("validation", spec.validation != 0.0),
    ];
    match cannot.iter().find(|(_, there)| *there) {
        Some((name, _)) => anyhow::bail!(
            "each client owns its rows, and `{name}` is for rows that are shared out; leave it away"
        ),
        None => Ok(()),
    }
}
