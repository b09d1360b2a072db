//! Where the events of a run go while it runs.

use fl_core::settings::{Setting as _, to_json};
use std::path::{Path, absolute};

fl_core::choices! {
    /// Where the events of a run go while it runs. Needs the `fl` of the Python package.
    pub enum Sink {
        /// One JSON object a line: `begin`, each `step`, and `end`.
        JsonLines(FileSink) = "json-lines",
        /// The last values, as the text format of Prometheus; written anew after each step, for the
        /// text-file collector of its node exporter.
        Prometheus(FileSink) = "prometheus",
        /// Events of TensorBoard, in a folder for each run. Needs the package `tensorboard`.
        TensorBoard(FolderSink) = "tensorboard",
        /// A run of MLflow. Needs the package `mlflow` or `mlflow-skinny`.
        MlFlow(MlFlowSink) = "mlflow",
        /// A run of Weights & Biases. Needs the package `wandb`.
        Wandb(WandbSink) = "wandb",
    }
}

fl_core::settings! {
    /// A sink that is a file.
    pub struct FileSink {
        /// The file, relative to the spec; if not given, one in the run folder.
        path: Option<String> = None;
    }
}

fl_core::settings! {
    /// A sink that is a folder.
    pub struct FolderSink {
        /// The folder, relative to the spec; if not given, one in the run folder.
        path: Option<String> = None;
    }
}

fl_core::settings! {
    /// A run of MLflow.
    pub struct MlFlowSink {
        /// The tracking server or database; if not given what MLFLOW_TRACKING_URI says.
        uri: Option<String> = None;
        /// The experiment; if not given, the name of the run.
        experiment: Option<String> = None;
    }
}

fl_core::settings! {
    /// A run of Weights & Biases.
    pub struct WandbSink {
        /// The project; if not given, the name of the run.
        project: Option<String> = None;
        /// Offline, in the run folder, until `wandb sync`; or online, which sends it to their
        /// servers.
        mode: WandbMode = WandbMode::Offline;
    }
}

fl_core::choices! {
    /// Where Weights & Biases writes.
    pub enum WandbMode {
        /// In the run folder.
        Offline = "offline",
        /// To the servers of Weights & Biases.
        Online = "online",
    }
}

impl Sink {
    /// Makes a path that is relative to `folder` absolute.
    pub(crate) fn locate(&mut self, folder: &Path) {
        let path = match self {
            Self::JsonLines(FileSink { path }) | Self::Prometheus(FileSink { path }) => path,
            Self::TensorBoard(FolderSink { path }) => path,
            Self::MlFlow(_) | Self::Wandb(_) => return,
        };
        if let Some(path) = path {
            let joined = folder.join(&*path);
            *path = absolute(&joined)
                .unwrap_or(joined)
                .to_string_lossy()
                .into_owned();
        }
    }

    /// As JSON, such as `{"json-lines": {"path": "events.jsonl"}}`.
    pub fn json(&self) -> serde_json::Value {
        to_json(&self.write())
    }
}
