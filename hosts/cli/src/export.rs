//! `fl export`.

use crate::{DataDir, Done, Failure, Overrides, print, say};
use anyhow::Context;
use clap::Args;
use fl_core::regular_file::{MOST_BINARY, read_regular};
use fl_core::{BuildContext, Samples, Stream, TaskKind};
use fl_data::DataSpec;
use fl_engine::{BATCH, FinishedRun, kept_generator, samples};
use fl_registry::{Catalogue, Spec};
use fl_report::Run;
use ndarray::Axis;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

#[derive(Args)]
pub struct ExportArgs {
    /// Run folders.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Every measurement of all of them, also of single clients, and bytes and epsilon after each
    /// step, as one CSV.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["tensorboard", "safetensors", "made"])]
    csv: Option<PathBuf>,
    /// An event file for each, below this folder: `tensorboard --logdir DIR`.
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
    /// Kept models as safetensors files, below this folder.
    #[arg(long, value_name = "DIR")]
    safetensors: Option<PathBuf>,
    /// Let the kept generator of each make this many inputs, in its own folder: the data set
    /// `made`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    made: Option<u32>,
    /// The made inputs follow from it.
    #[arg(long, default_value_t = 0, requires = "made")]
    seed: u64,
    #[command(flatten)]
    data: DataDir,
}

pub fn export(args: &ExportArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    let runs = Run::open_all(&args.dirs).map_err(crate::report::unreadable)?;
    for run in &runs {
        for notice in &run.notices {
            say(format_args!("note: {}: {notice}", run.path.display()));
        }
    }
    let mut written = Vec::new();
    if let Some(file) = &args.csv {
        let head = fl_report::CSV_HEAD;
        let first = fl_files::beginning(file, head.len());
        if !first.is_empty() && first != head.as_bytes() {
            let other =
                "it has other columns than an export, which would replace it: name another file";
            return Err(Failure::usage(format!("--csv {}: {other}", file.display())));
        }
        fl_files::write_with(file, |out| fl_report::csv(&runs, out))?;
        written.push(file.clone());
    }
    for run in &runs {
        // a path becomes one name
        let name = run.label.replace(['/', '\\'], "-");
        if let Some(dir) = args.tensorboard.as_ref().map(|dir| dir.join(&name)) {
            let began = humantime::parse_rfc3339(run.began()).ok();
            let began = began.and_then(|t| t.duration_since(UNIX_EPOCH).ok());
            let began = began.unwrap_or_default();
            std::fs::create_dir_all(&dir)?;
            let file = dir.join(format!("events.out.tfevents.{:010}.fl", began.as_secs()));
            fl_files::write_with(&file, |out| {
                fl_report::tensorboard(run, began.as_secs_f64(), out)
            })?;
            written.push(file);
        }
        if let Some(dir) = args.safetensors.as_ref().map(|dir| dir.join(&name)) {
            std::fs::create_dir_all(&dir)?;
            written.extend(models(run, &dir, args, catalogue)?);
        }
    }
    for run in runs.iter().filter(|_| args.made.is_some()) {
        written.push(make_inputs(&run.path, args, catalogue, line)?);
    }
    let written: Vec<String> = written.iter().map(|p| p.display().to_string()).collect();
    print(written.join("\n"))
}

/// Lets the generator of a run make inputs, and its final model name their classes. Returns the
/// file.
fn make_inputs(
    dir: &Path,
    args: &ExportArgs,
    catalogue: &Catalogue,
    line: &[String],
) -> Result<PathBuf, Failure> {
    let finished = FinishedRun::open(dir, &args.data.path(), catalogue, line)?;
    let (spec, data) = (&finished.spec, &finished.data);
    let TaskKind::Classes(classes) = data.task.kind else {
        return Err(Failure::usage(format!(
            "{}: made inputs have one class each, and this run has {}",
            dir.display(),
            data.task.kind
        )));
    };
    if data.features.is_some() {
        return Err(Failure::usage(format!(
            "{}: this run's inputs are features (`data.features`), and no other run can take them as samples",
            dir.display()
        )));
    }
    let mut generator = kept_generator(dir, spec, data)?;
    let mut targets = finished.targets.iter();
    let last = targets.find(|target| target.client.is_none());
    let last = last.context("the server of this run has kept no model that names classes")?;
    let mut model = last.load(dir, spec, data)?;
    let stream = Stream::root(args.seed).child("made", 0);
    let n = args.made.unwrap_or_default() as usize;
    let rows = samples(generator.as_mut(), n, &stream)?;
    let mut labels = Vec::new();
    for rows in rows.axis_chunks_iter(Axis(0), BATCH) {
        let samples = Samples::fresh(rows.to_owned(), data.task.input.clone())?;
        let scores = model.predict(&samples)?;
        labels.extend(
            scores
                .rows()
                .into_iter()
                .map(|row| fl_core::metrics::argmax(row) as u32),
        );
    }
    // another run takes away what it takes from its own inputs
    let (mut rows, _) = rows.into_raw_vec_and_offset();
    if let Some(normalise) = &data.normalise {
        let width = data.task.width();
        rows.chunks_mut(width).for_each(|row| normalise.undo(row));
    }
    let path = fl_data_kit::made_path(dir);
    fl_files::write(
        &path,
        &fl_data_kit::made_file(&data.task.input, &rows, &labels, classes)?,
    )?;
    Ok(path)
}

/// Every model of a run that has parameters; says which have none.
fn models(
    run: &Run,
    out: &Path,
    args: &ExportArgs,
    catalogue: &Catalogue,
) -> Result<Vec<PathBuf>, Failure> {
    let kept = run.path.join("models");
    let files = std::fs::read_dir(&kept).with_context(|| format!("reading {}", kept.display()))?;
    let mut files: Vec<PathBuf> = files.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    // what parts are made with is looked up only if a model is in its part's own form
    let mut spec: Option<(Spec<DataSpec>, BuildContext)> = None;
    let mut written = Vec::new();
    for file in files {
        let bytes = read_regular(&file, MOST_BINARY);
        let bytes = bytes.with_context(|| format!("reading {}", file.display()))?;
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let tensors = if SafeTensors::deserialize(&bytes).is_ok() {
            Ok(bytes)
        } else {
            if spec.is_none() {
                let read = Overrides::default().read(&run.path.join("spec.yaml"), catalogue)?;
                let task = fl_engine::data(&read, &args.data.path())?.task;
                let make = read.part_context(&task);
                spec = Some((read, make));
            }
            let (spec, make) = spec.as_ref().context("the spec has been read")?;
            tensors(spec, make, &name, &bytes)
        };
        match tensors {
            Ok(bytes) => {
                let to = out.join(format!("{name}.safetensors"));
                fl_files::write(&to, &bytes)?;
                written.push(to);
            }
            Err(error) => say(format_args!(
                "note: {} is left out: {error:#}",
                file.display()
            )),
        }
    }
    Ok(written)
}

/// The parameters of a kept model.
fn tensors(
    spec: &Spec<DataSpec>,
    make: &BuildContext,
    name: &str,
    bytes: &[u8],
) -> anyhow::Result<Vec<u8>> {
    let model = spec.kept_model(make, name, bytes)?;
    let mut model =
        model.context("it is no model of a slot of the spec, and no safetensors file")?;
    let params = model.parametric().context("it has no parameters")?.params();
    let little = |v: &f32| v.to_le_bytes();
    let bytes = params
        .0
        .values()
        .map(|v| v.iter().flat_map(little).collect());
    let bytes: Vec<Vec<u8>> = bytes.collect();
    let views = params.0.iter().zip(&bytes).map(|((name, v), bytes)| {
        let view = TensorView::new(Dtype::F32, v.shape().to_vec(), bytes)?;
        Ok((name, view))
    });
    let views: Vec<(&String, TensorView<'_>)> = views.collect::<anyhow::Result<_>>()?;
    Ok(serialize(views, None)?)
}
