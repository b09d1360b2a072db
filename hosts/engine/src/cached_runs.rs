//! Runs of a study that are there already.

use crate::prepare;
use fl_core::settings::Setting;
use fl_data::DataSpec;
use fl_files::FileHash;
use fl_registry::Spec;
use fl_sim::Manifest;
use fl_study::RunResult;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads runs that are done, if each has the requested spec and the data of this machine.
pub(crate) struct CachedRuns<'a> {
    data_dir: &'a Path,
    command: &'a [String],
    /// By the spec's section, and the model that it begins with: hashing takes as long as reading.
    data: BTreeMap<String, Vec<FileHash>>,
}

impl<'a> CachedRuns<'a> {
    /// For runs of these data.
    pub fn new(data_dir: &'a Path, command: &'a [String]) -> Self {
        Self {
            data_dir,
            command,
            data: BTreeMap::new(),
        }
    }

    /// The result of the run in `folder`, if it is that of `spec`; otherwise why it is not used.
    pub fn read(&mut self, folder: &Path, spec: &Spec<DataSpec>) -> Result<RunResult, String> {
        let read = self
            .looked_at(folder, spec)
            .and_then(|()| RunResult::read(folder));
        read.map_err(|error| {
            let folder = folder.display();
            format!("{error:#}; remove {folder}, and it is run again")
        })
    }

    fn looked_at(&mut self, folder: &Path, spec: &Spec<DataSpec>) -> anyhow::Result<()> {
        self.present(spec)?.is_of(folder)
    }

    /// What a run of `spec` would start from now; without data files where they are not there.
    pub fn present(&mut self, spec: &Spec<DataSpec>) -> anyhow::Result<Manifest> {
        let initial = prepare::initial_model(spec)?.map(|initial| initial.file);
        let section = serde_json::to_string(&(spec.data.write(), initial))?;
        let data = match self.data.get(&section) {
            Some(data) => data.clone(),
            None => {
                let missing = |error: &anyhow::Error| {
                    let io = error
                        .chain()
                        .find_map(|e| e.downcast_ref::<std::io::Error>());
                    io.is_some_and(|e| e.kind() == std::io::ErrorKind::NotFound)
                };
                let data = match prepare::input_files(spec, self.data_dir) {
                    // tables can be made again where the data are not
                    Err(error) if missing(&error) => Vec::new(),
                    data => data?,
                };
                self.data.insert(section, data.clone());
                data
            }
        };
        prepare::manifest(spec, &spec.yaml()?, data, self.command)
    }
}
