//! `fl export`.

use crate::{DataDir, Done, Failure, Overrides, print, say};
use anyhow::{Context, bail};
use clap::Args;
use fl_core::{BuildContext, ClientId, Role, Stream, Trainer};
use fl_data::DataSpec;
use fl_registry::{Catalogue, Spec};
use fl_report::Run;
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
    #[arg(long, value_name = "FILE", required_unless_present_any = ["tensorboard", "safetensors"])]
    csv: Option<PathBuf>,
    /// An event file for each, below this folder: `tensorboard --logdir DIR`.
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
    /// Kept models as safetensors files, below this folder.
    #[arg(long, value_name = "DIR")]
    safetensors: Option<PathBuf>,
    #[command(flatten)]
    data: DataDir,
}

pub fn export(args: &ExportArgs, catalogue: &Catalogue) -> Done {
    let runs = Run::open_all(&args.dirs).map_err(|e| Failure::usage(format!("{e:#}")))?;
    for run in &runs {
        for notice in &run.notices {
            say(format_args!("note: {}: {notice}", run.path.display()));
        }
    }
    let mut written = Vec::new();
    if let Some(file) = &args.csv {
        fl_sim::write(file, &fl_report::csv(&runs)?)?;
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
            fl_sim::write(&file, &fl_report::tensorboard(run, began.as_secs_f64()))?;
            written.push(file);
        }
        if let Some(dir) = args.safetensors.as_ref().map(|dir| dir.join(&name)) {
            std::fs::create_dir_all(&dir)?;
            written.extend(models(run, &dir, args, catalogue)?);
        }
    }
    let written: Vec<String> = written.iter().map(|p| p.display().to_string()).collect();
    print(written.join("\n"))
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
        let bytes = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
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
                let make = BuildContext {
                    task: fl_engine::data(&read, &args.data.path())?.task,
                    stream: Stream::root(read.seed),
                };
                spec = Some((read, make));
            }
            let (spec, make) = spec.as_ref().context("the spec has been read")?;
            tensors(spec, make, &name, &bytes)
        };
        match tensors {
            Ok(bytes) => {
                let to = out.join(format!("{name}.safetensors"));
                fl_sim::write(&to, &bytes)?;
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

/// What `clustered-rounds` calls its models, each of which is one of slot `model`.
const CENTRE: &str = "centre";

/// A kept model, made again from its content; its name is its slot's, and for a client's own
/// `SLOT-CLIENT`.
///
/// # Errors
/// When no slot of the spec is called so, or the content is no model of its part.
pub fn kept_model(
    spec: &Spec<DataSpec>,
    make: &BuildContext,
    name: &str,
    bytes: &[u8],
) -> anyhow::Result<Box<dyn Trainer>> {
    let of_client = name.rsplit_once('-');
    let of_client = of_client.and_then(|(slot, id)| Some((slot, id.parse::<ClientId>().ok()?)));
    let (slot, client) = match of_client {
        _ if spec.parts.has(name) => (name, None),
        Some((slot, id)) if spec.parts.has(slot) => (slot, Some(id)),
        Some((CENTRE, _)) if spec.parts.has("model") => ("model", None),
        _ => bail!("it is neither a slot of the spec nor a safetensors file"),
    };
    let mut model: Box<dyn Trainer> = spec.parts.build(Role::Trainer, slot, client, make)?;
    model.load(bytes)?;
    Ok(model)
}

/// The parameters of a kept model.
fn tensors(
    spec: &Spec<DataSpec>,
    make: &BuildContext,
    name: &str,
    bytes: &[u8],
) -> anyhow::Result<Vec<u8>> {
    let mut model = kept_model(spec, make, name, bytes)?;
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
