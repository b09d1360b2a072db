//! `fl data distance`: how well a model tells the clients' samples from the public ones.

use crate::{Done, Failure, SpecDataArgs, print};
use anyhow::{Context, Result};
use clap::Args;
use fl_cases::guarded;
use fl_core::settings::Value;
use fl_core::{
    BuildContext, FitOptions, Length, Loss, PartDecl, Role, Samples, Stream, Target, Task,
    TaskKind, Trainer,
};
use fl_registry::Catalogue;
use fl_study::Sample;
use ndarray::Array2;
use serde_json::json;

/// With fewer samples of a kind nothing is measured.
const FEWEST: usize = 20;

const EPOCHS: usize = 20;
const BATCH: usize = 32;

#[derive(Args)]
pub struct DistanceArgs {
    #[command(flatten)]
    of: SpecDataArgs,
    /// The trainer that tells them apart, with its settings.
    #[arg(long, value_name = "YAML", default_value = "{use: linear}")]
    model: String,
    /// The most samples to draw of each kind. The command draws the same number of both.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(FEWEST as u64..=1_000_000_000))]
    samples: u64,
    /// How many times samples are drawn and models trained.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    repeats: u64,
    /// Also measure each client's own samples against the public ones.
    #[arg(long)]
    clients: bool,
}

/// What one comparison came to.
#[derive(Clone, Copy)]
struct Distance {
    /// Samples of each kind.
    samples: usize,
    mean: f64,
    std: f64,
}

/// Tells samples of one kind from those of another.
struct Judge {
    decl: &'static PartDecl,
    settings: Value,
    input: Vec<usize>,
    repeats: u64,
    most: usize,
}

pub fn distance(args: &DistanceArgs, catalogue: &Catalogue) -> Done {
    let spec = args.of.read(catalogue)?;
    let (decl, settings) = model(&args.model, catalogue)?;
    let data = args.of.data(&spec)?;
    let none = "this spec has no public samples; add `data.public`";
    let public = data.public.as_ref();
    let public = &public.ok_or_else(|| Failure::usage(none))?.samples;
    let judge = Judge {
        decl,
        settings,
        input: data.task.input.clone(),
        repeats: args.repeats,
        most: args.samples as usize,
    };
    let stream = Stream::root(spec.seed).child("distance", 0);
    let of = |private: &[Samples], stream: &Stream| {
        guarded(decl, || judge.distance(private, public, stream))
    };
    let own: Vec<Samples> = data.clients.iter().map(|c| c.samples.clone()).collect();
    let all = of(&own, &stream)?;
    let Some(all) = all else {
        let n: usize = own.iter().map(Samples::len).sum();
        return Err(Failure::usage(format!(
            "{n} samples of clients and {} public ones: at least {FEWEST} of each are needed",
            public.len()
        )));
    };
    let mut each = Vec::new();
    if args.clients {
        for (at, client) in own.iter().enumerate() {
            let stream = stream.child("client", at as u64);
            each.push(of(std::slice::from_ref(client), &stream)?);
        }
    }
    if args.of.json {
        let json = |d: &Distance| json!({ "samples": d.samples, "distance": d.mean, "std": d.std });
        let mut out = json!({ "name": spec.name, "model": decl.name, "distance": json(&all) });
        if args.clients {
            out["clients"] = each.iter().map(|d| d.as_ref().map(json)).collect();
            out["mean"] = json!(weighted(&own, &each));
        }
        return print(out);
    }
    let mut text = format!(
        "{}: proxy A-distance of clients' and public samples by `{}`: {all}\n\
         (0: not told apart, 2: always told apart; {} of each kind)",
        spec.name, decl.name, all.samples
    );
    for (at, found) in each.iter().enumerate() {
        text += &match found {
            Some(d) => format!("\nclient {at:5}  {d}  ({} of each kind)", d.samples),
            None => format!("\nclient {at:5}  fewer than {FEWEST} samples"),
        };
    }
    if let Some(mean) = weighted(&own, &each) {
        text += &format!("\nmean of the clients, weighted by their samples: {mean:.3}");
    }
    print(text)
}

/// `{use: linear, ..}`, with its settings checked.
fn model(text: &str, catalogue: &Catalogue) -> Result<(&'static PartDecl, Value), Failure> {
    let wrong = |why: &dyn std::fmt::Display| Failure::usage(format!("--model: {why}"));
    let read: Value = serde_yaml::from_str(text).map_err(|e| wrong(&e))?;
    let named = "must be a trainer with its settings, such as `{use: linear, lr: 0.1}`";
    let Value::Mapping(mut settings) = read else {
        return Err(wrong(&named));
    };
    let name = settings.shift_remove("use");
    let name = name.as_ref().and_then(Value::as_str);
    let name = name.ok_or_else(|| wrong(&named))?;
    let decl = catalogue.find(Role::Trainer, name).map_err(|e| wrong(&e))?;
    let settings = Value::Mapping(settings);
    decl.read(&settings).map_err(|e| wrong(&e))?;
    Ok((decl, settings))
}

/// The mean distance of the clients that have one, weighted by their samples.
fn weighted(own: &[Samples], each: &[Option<Distance>]) -> Option<f64> {
    let found = own.iter().zip(each);
    let found = found.filter_map(|(own, d)| Some((own.len() as f64, d.as_ref()?.mean)));
    let (sum, weight) = found.fold((0.0, 0.0), |(sum, all), (n, d)| (sum + n * d, all + n));
    (weight > 0.0).then(|| sum / weight)
}

impl Judge {
    /// `None` if a kind has too few samples.
    fn distance(
        &self,
        private: &[Samples],
        public: &Samples,
        stream: &Stream,
    ) -> Result<Option<Distance>> {
        let places: Vec<(usize, usize)> = private
            .iter()
            .enumerate()
            .flat_map(|(client, of)| (0..of.len()).map(move |at| (client, at)))
            .collect();
        let n = places.len().min(public.len()).min(self.most) / 2 * 2;
        if n < FEWEST {
            return Ok(None);
        }
        let mut found = Vec::new();
        for repeat in 0..self.repeats {
            let stream = stream.child("repeat", repeat);
            let mut draws = stream.draws();
            // `choose` keeps the order of the rows; halves must not depend on it
            let mut some = |of: usize| draws.permutation(of).into_iter().take(n);
            let ours: Vec<_> = some(places.len()).map(|at| places[at]).collect();
            let theirs: Vec<_> = some(public.len()).collect();
            let kinds = |half: std::ops::Range<usize>| -> Result<(Samples, Vec<u32>)> {
                let mut values = Array2::zeros((2 * half.len(), public.width()));
                let all = values.as_slice_mut().expect("a fresh array is contiguous");
                let (private_rows, public_rows) = all.split_at_mut(all.len() / 2);
                let private_rows = private_rows.chunks_mut(public.width().max(1));
                for ((client, at), row) in ours[half.clone()].iter().zip(private_rows) {
                    private[*client].write(&[*at], row);
                }
                public.write(&theirs[half.clone()], public_rows);
                let classes = [vec![0; half.len()], vec![1; half.len()]].concat();
                Ok((Samples::fresh(values, self.input.clone())?, classes))
            };
            let halves = [kinds(0..n / 2)?, kinds(n / 2..n)?];
            // each half judges the other
            let mut wrong = 0;
            for (at, order) in [[0, 1], [1, 0]].into_iter().enumerate() {
                let [(x, classes), (other, truth)] = order.map(|half| &halves[half]);
                let scores = self.scores(x, classes, other, &stream.child("half", at as u64))?;
                wrong += scores.iter().zip(truth).filter(|(a, b)| a != b).count();
            }
            found.push(2.0 * (1.0 - 2.0 * wrong as f64 / (2 * n) as f64));
        }
        let found = Sample::new(found);
        Ok(found.map(|found| Distance {
            samples: n,
            mean: found.mean(),
            std: found.std().unwrap_or(0.0),
        }))
    }

    /// The kinds that a model says of `other`, after it has learnt from `x`.
    fn scores(
        &self,
        x: &Samples,
        classes: &[u32],
        other: &Samples,
        stream: &Stream,
    ) -> Result<Vec<u32>> {
        let make = BuildContext::new(
            Task::new(self.input.clone(), TaskKind::Classes(2)),
            stream.child("model", 0),
        );
        let mut model: Box<dyn Trainer> = self.decl.make(&self.settings, &make)?;
        let pass = FitOptions::new(Length::Epochs(EPOCHS), BATCH, Loss::CrossEntropy);
        let learnt = model.fit(x, Target::Classes(classes), &pass, stream);
        learnt.with_context(|| format!("trainer `{}`", self.decl.name))?;
        let scores = model.predict(other)?;
        let kind = |row: ndarray::ArrayView1<f32>| u32::from(row[1] > row[0]);
        Ok(scores.outer_iter().map(kind).collect())
    }
}

impl std::fmt::Display for Distance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} +- {:.3}", self.mean, self.std)
    }
}
