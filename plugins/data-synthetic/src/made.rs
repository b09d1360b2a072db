//! `made`: what the generator of a run made.

use anyhow::Result;
use fl_core::settings::Step;
use fl_core::{Inputs, Labels, Task};
use fl_data_kit::dataset::Problem;
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, made_inputs, made_path};
use std::path::{Path, PathBuf};

fl_core::settings! {
    /// Inputs that the generator of a finished run made, such as a run of FedIOD: public samples
    /// where there are no public data. Their labels are the classes that the run's final model
    /// predicts. What that run released counts in the guarantees of a run that uses them.
    pub struct Made {
        /// The folder of the run, relative to the spec. `fl export RUN --made N` writes the inputs
        /// there.
        run: String;
    }
}

fl_data_kit::data_set!("made" => Made);

impl DataSet for Made {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            source: "the generator of a run",
            rows: None,
            ..DataSetFacts::made(0, 0)
        }
    }

    fn task(&self) -> Option<Task> {
        None
    }

    fn load(&self, _: &Folder<'_>) -> Result<Rows> {
        let made = made_inputs(Path::new(&self.run))?;
        let (shape, classes) = (made.0.shape(), made.1.task().outputs());
        let none = Inputs::Dense {
            shape,
            data: Vec::new(),
        };
        let of = Vec::new();
        Ok(Rows::new(made, (none, Labels::Classes { of, classes })))
    }

    fn locate(&mut self, folder: &Path) -> Vec<Problem> {
        let joined = folder.join(&self.run);
        let absolute = std::path::absolute(&joined).unwrap_or(joined);
        self.run = absolute.to_string_lossy().into_owned();
        let run = &self.run;
        let text = match (made_path(&absolute).is_file(), absolute.is_dir()) {
            (true, _) => return Vec::new(),
            (_, true) => format!(
                "{run} has no made inputs; `fl export {run} --made 1000` makes 1000, if the run kept a generator"
            ),
            _ => format!("{run}: there is no such run folder"),
        };
        vec![(vec![Step::Key("run".into())], text)]
    }

    fn lacks(&self, tested: bool) -> Option<&'static str> {
        tested.then_some("made inputs are public samples; give them as `public: {from: {set: ..}}`")
    }

    fn made_by(&self) -> Option<&Path> {
        Some(Path::new(&self.run))
    }

    fn paths(&self, _: &Folder<'_>) -> Vec<PathBuf> {
        let run = Path::new(&self.run);
        vec![made_path(run), run.join("outcome.json")]
    }
}
