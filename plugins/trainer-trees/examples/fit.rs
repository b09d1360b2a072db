//! Fits one method to a LIBSVM set and prints seconds and accuracy as JSON: what `tests/bench`
//! compares with.
//!
//! `fit METHOD SETTINGS(YAML) TRAIN TEST WIDTH REPEATS`

use anyhow::{Context, Result, bail, ensure};
use fl_core::settings::{Setting, read_yaml};
use fl_core::{
    BuildContext, FitOptions, Inputs, Length, Loss, Samples, Stream, Target, Task, TaskKind,
    Trainer,
};
use fl_plugin_trainer_trees::{Boosting, Forest, Tree, Trees};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Instant;

fn read(path: &str, width: usize) -> Result<(Samples, Vec<u32>)> {
    let bytes = std::fs::read(path).with_context(|| path.to_string())?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text)?;
    let (mut starts, mut columns, mut values, mut classes) = (vec![0], vec![], vec![], vec![]);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        classes.push(u32::from(
            words.next().context("a label")?.parse::<f32>()? > 0.0,
        ));
        for word in words {
            let (column, value) = word.split_once(':').context("index:value")?;
            let column = column.parse::<usize>()? - 1;
            ensure!(column < width, "{path}: index above {width}");
            columns.push(column as u32);
            values.push(value.parse()?);
        }
        starts.push(columns.len());
    }
    let inputs = Inputs::Sparse {
        width,
        starts,
        columns,
        values,
    };
    Ok((Samples::all(Arc::new(inputs)), classes))
}

fn model<S: Setting>(text: &str) -> Result<S> {
    read_yaml(text)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [method, settings, train, test, width, repeats] = &args[..] else {
        bail!("fit METHOD SETTINGS TRAIN TEST WIDTH REPEATS");
    };
    let (width, repeats) = (width.parse()?, repeats.parse::<u64>()?);
    let ((x, y), (xt, yt)) = (read(train, width)?, read(test, width)?);
    let task = Task::new(vec![width], TaskKind::Classes(2));
    for seed in 0..repeats {
        let make = BuildContext::new(task.clone(), Stream::root(seed));
        let mut trainer: Box<dyn Trainer> = match method.as_str() {
            "tree" => Box::new(Trees::new(model::<Tree>(settings)?, &make)?),
            "forest" => Box::new(Trees::new(model::<Forest>(settings)?, &make)?),
            "boosting" => Box::new(Trees::new(model::<Boosting>(settings)?, &make)?),
            other => bail!("no method `{other}`"),
        };
        let pass = FitOptions::new(Length::Epochs(1), 1, Loss::CrossEntropy);
        let start = Instant::now();
        let fitted = trainer.fit(&x, Target::Classes(&y), &pass, &make.stream)?;
        let fit = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let scores = trainer.predict(&xt)?;
        let predict = start.elapsed().as_secs_f64();
        let right = scores
            .rows()
            .into_iter()
            .zip(&yt)
            .filter(|(s, y)| u32::from(s[1] > s[0]) == **y)
            .count();
        let accuracy = right as f64 / yt.len() as f64;
        let (loss, bytes) = (fitted.loss, trainer.save()?.len());
        writeln!(
            std::io::stdout(),
            r#"{{"seed": {seed}, "fit": {fit}, "predict": {predict}, "accuracy": {accuracy}, "loss": {loss}, "bytes": {bytes}}}"#
        )?;
    }
    Ok(())
}
