//! `fl bench`: how fast this machine is, beside the machine of the benchmarks' page.

use crate::{Done, print};
use anyhow::Context;
use clap::Args;
use fl_core::message::{Params, check};
use fl_core::settings::Value;
use fl_core::{
    BoxedAggregator, BuildContext, ClientMessage, FitOptions, Inbox, Length, Loss, PartDecl,
    Result, Role, Round, Samples, SharedExecutor, Stream, Target, Task, TaskKind, Trainer,
};
use fl_registry::Catalogue;
use ndarray::{Array2, ArrayD, IxDyn};
use serde_json::json;
use std::fmt::{Display, Formatter};
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct BenchArgs {
    /// The folder whose disk is measured. Nothing stays in it.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Sizes so small that it takes a second or two, and has no figures of the page beside it.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// What the page says of its machine.
const PAGE: &str = "two cores of a Zen 4, tests/bench/README.md";

/// What is measured, in milliseconds of the best of several repetitions, and what the page says.
const ROWS: [(Kind, Option<f64>); 21] = [
    (Kind::Read, Some(14.8)),
    (Kind::Many("mean", 10, 10, false), Some(29.8)),
    (Kind::Many("mean", 10, 10, true), Some(17.6)),
    (Kind::Many("median", 50, 1, false), Some(104.0)),
    (Kind::Many("median", 50, 1, true), Some(63.8)),
    (Kind::Many("Krum", 50, 1, false), Some(149.0)),
    (Kind::Many("Krum", 50, 1, true), Some(78.7)),
    (Kind::Step("LeNet", 32), Some(0.88)),
    (Kind::Step("LeNet", 512), Some(15.4)),
    (Kind::Step("MLP 1024-512-256", 32), Some(4.35)),
    (Kind::Step("MLP 1024-512-256", 512), Some(41.7)),
    (Kind::Step("ResNet-8", 32), Some(33.1)),
    (Kind::Step("ResNet-8", 512), Some(578.0)),
    (Kind::Call(Way::Linked, 1, 10), None),
    (Kind::Call(Way::Loaded, 1, 10), None),
    (Kind::Call(Way::Isolated, 1, 10), None),
    (Kind::Call(Way::Linked, 10, 1_000), None),
    (Kind::Call(Way::Loaded, 10, 1_000), None),
    (Kind::Call(Way::Isolated, 10, 1_000), None),
    (Kind::Write("write and sync 64 MiB", 64 << 20), None),
    (Kind::Write("write, sync and rename 4 KiB", 4 << 10), None),
];

#[derive(Clone, Copy)]
enum Kind {
    /// The numbers of ten messages are added up, as a limit for the mean.
    Read,
    /// An aggregator, the number of clients, and millions of parameters. Does it use all threads?
    Many(&'static str, u32, usize, bool),
    /// A network and its batch, on one thread.
    Step(&'static str, usize),
    /// A mean; the numbers are those of clients and of parameters.
    Call(Way, u32, usize),
    /// A file, with its bytes.
    Write(&'static str, usize),
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read => write!(f, "read 400 MB, one thread"),
            Self::Many(part, clients, millions, all) => {
                let threads = if *all { "all threads" } else { "one thread" };
                write!(f, "{part} of {clients} x {millions}M, {threads}")
            }
            Self::Step(net, batch) => write!(f, "step of {net}, batch {batch}"),
            Self::Call(way, clients, numbers) => {
                let way = match way {
                    Way::Linked => "linked",
                    Way::Loaded => "through the C interface",
                    Way::Isolated => "in a process of its own",
                };
                write!(f, "mean of {clients} x {numbers}, {way}")
            }
            Self::Write(what, _) => f.write_str(what),
        }
    }
}

/// How a part is called.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Linked,
    Loaded,
    Isolated,
}

pub fn bench(args: &BenchArgs, catalogue: &Catalogue) -> Done {
    let threads = fl_engine::threads(None);
    let bench = Bench {
        args,
        catalogue,
        all: fl_sim::executor(threads)?,
    };
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let mut rows = Vec::new();
    for (kind, page) in ROWS {
        let name = kind.to_string();
        // the sizes are others
        let page = page.filter(|_| !args.quick);
        let (millis, why) = match bench.measured(kind).with_context(|| kind)? {
            Ok(seconds) => (Some(seconds * 1e3), None),
            Err(why) => (None, Some(why)),
        };
        rows.push((name, millis, page, why));
    }
    if args.json {
        let row = |(name, millis, page, why): &(_, _, _, _)| json!({ "name": name, "milliseconds": millis, "page": page, "why": why });
        let rows: Vec<_> = rows.iter().map(row).collect();
        return print(json!({
            "fl": env!("CARGO_PKG_VERSION"), "processor": fl_sim::processor(), "threads": threads,
            "load": load, "quick": args.quick, "rows": rows,
        }));
    }
    let load = load.map_or(String::new(), |load| format!(", load {load}"));
    let mut lines = vec![
        format!(
            "fl {}, {}, {threads} threads{load}",
            env!("CARGO_PKG_VERSION"),
            fl_sim::processor()
        ),
        format!(
            "{:<46}{:>14}{:>12}",
            "milliseconds, the least of several", "this machine", "the page"
        ),
    ];
    for (name, millis, page, why) in rows {
        let page = page.map_or(String::new(), number);
        let here = millis.map(number).or(why).unwrap_or_default();
        lines.push(format!("{name:<46}{here:>14}{page:>12}").trim_end().into());
    }
    if args.quick {
        lines.push("sizes are smaller than their names say: --quick".into())
    } else {
        lines.push(format!("the page: {PAGE}"))
    }
    print(lines.join("\n"))
}

/// Three digits that count.
fn number(millis: f64) -> String {
    let digits = match millis {
        m if m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        m if m >= 0.1 => 3,
        _ => 5,
    };
    format!("{millis:.digits$}")
}

struct Bench<'a> {
    args: &'a BenchArgs,
    catalogue: &'a Catalogue,
    /// Every thread.
    all: SharedExecutor,
}

impl Bench<'_> {
    /// Seconds; or why this program or this system cannot do it.
    fn measured(&self, kind: Kind) -> Result<Result<f64, String>> {
        let small = |size: usize| {
            if self.args.quick {
                size.div_ceil(1000)
            } else {
                size
            }
        };
        Ok(Ok(match kind {
            Kind::Read => {
                let inbox = inbox(10, small(10_000_000))?;
                self.least(|| {
                    // that every number is finite takes less time than to read it
                    inbox.iter().try_for_each(|mail| check(&mail.body))
                })?
            }
            Kind::Many(name, clients, millions, all) => {
                let part = self.part(Role::Aggregator, &name.to_lowercase());
                return self.aggregated(part, clients, small(millions * 1_000_000), all);
            }
            Kind::Call(way, clients, numbers) => {
                let part = self.called(way);
                return self.aggregated(part, clients, numbers, false);
            }
            Kind::Step(net, batch) => {
                let part = match self.part(Role::Trainer, "dfdx") {
                    Ok(part) => part,
                    Err(why) => return Ok(Err(why)),
                };
                let batch = if self.args.quick {
                    batch.div_ceil(64)
                } else {
                    batch
                };
                let name = net.split(' ').next().unwrap_or(net);
                self.step(part, &name.to_lowercase(), batch)?
            }
            Kind::Write(_, bytes) => {
                let bytes = vec![7; small(bytes)];
                let folder = tempfile::tempdir_in(&self.args.dir);
                let place = || format!("making a folder in {}", self.args.dir.display());
                let folder = folder.with_context(place)?;
                self.least(|| written(folder.path(), &bytes))?
            }
        }))
    }

    fn longest(&self) -> Duration {
        Duration::from_millis(if self.args.quick { 10 } else { 1000 })
    }

    fn least(&self, once: impl FnMut() -> Result<()>) -> Result<f64> {
        least(self.longest(), once)
    }

    fn part(&self, role: Role, name: &str) -> Result<&'static PartDecl, String> {
        let part = self.catalogue.find(role, name);
        part.map_err(|_| "not linked".into())
    }

    /// The mean, called so.
    fn called(&self, way: Way) -> Result<&'static PartDecl, String> {
        let linked = self.part(Role::Aggregator, "mean")?;
        let parts = match way {
            Way::Linked => return Ok(linked),
            Way::Loaded => fl_core::abi::import_linked("this program"),
            #[cfg(unix)]
            Way::Isolated => fl_registry::isolated_program()?,
            #[cfg(not(unix))]
            Way::Isolated => return Err("Linux only".into()),
        };
        let same = |part: &&&PartDecl| (part.role, part.name) == (linked.role, linked.name);
        let found = parts.iter().find(same).copied();
        found.ok_or_else(|| "not exported".into())
    }

    fn aggregated(
        &self,
        part: Result<&'static PartDecl, String>,
        clients: u32,
        numbers: usize,
        all: bool,
    ) -> Result<Result<f64, String>> {
        let part = match part {
            Ok(part) => part,
            Err(why) => return Ok(Err(why)),
        };
        let mut part: BoxedAggregator<Params, Params> = part.make(&Value::Null, &context(&[1]))?;
        let inbox = inbox(clients, numbers)?;
        let exec = if all {
            self.all.clone()
        } else {
            Arc::new(fl_core::Serial)
        };
        let round = Round::new("round 1", 1, true, Stream::root(0), exec);
        // the clock is too coarse for one small call
        let times = (10_000 / (clients as usize * numbers)).clamp(1, 100);
        let took = self.least(|| {
            for _ in 0..times {
                black_box(part.aggregate(&round, &inbox)?);
            }
            Ok(())
        })?;
        Ok(Ok(took / times as f64))
    }

    fn step(&self, part: &'static PartDecl, net: &str, batch: usize) -> Result<f64> {
        let input: &[usize] = match net {
            "resnet-8" => &[3, 32, 32],
            _ => &[1, 28, 28],
        };
        let context = context(input);
        seconds_of_step(part, net, (&context.task, false), batch, self.longest())
    }
}

/// The seconds of the fastest of several repetitions; the first is not counted.
fn least(longest: Duration, mut once: impl FnMut() -> Result<()>) -> Result<f64> {
    once()?;
    let (began, mut least) = (Instant::now(), f64::INFINITY);
    for turn in 0.. {
        if turn >= 2 && began.elapsed() >= longest {
            break;
        }
        let began = Instant::now();
        once()?;
        least = least.min(began.elapsed().as_secs_f64());
    }
    Ok(least)
}

/// The seconds of a step of Adam on a mini-batch, on one thread: the least of several, which take
/// about `longest`. Inputs are normal numbers, or if `words`, numbers of words.
pub(crate) fn seconds_of_step(
    part: &'static PartDecl,
    net: &str,
    (task, words): (&Task, bool),
    batch: usize,
    longest: Duration,
) -> Result<f64> {
    let settings: Value =
        serde_yaml::from_str(&format!("{{net: {net}, optimiser: {{adam: {{}}}}}}"))?;
    let context = BuildContext::new(task.clone(), Stream::root(7));
    let mut model: Box<dyn Trainer> = part.make(&settings, &context)?;
    let mut draws = Stream::root(0).draws();
    let size = (batch, task.width());
    let values = Array2::from_shape_simple_fn(size, || {
        if words {
            draws.below(80) as f32 + 1.0
        } else {
            draws.normal() as f32
        }
    });
    let x = Samples::fresh(values, task.input.clone())?;
    let classes: Vec<u32> = (0..batch as u32).map(|i| i * 7919 % 10).collect();
    let pixels = match task.kind {
        TaskKind::Pixels { height, width, .. } => height * width,
        _ => 0,
    };
    let pixels = Array2::from_shape_fn((batch, pixels), |(row, at)| ((row + at) % 10) as u8);
    // several steps in a call, as in a round: between two calls a trainer frees large buffers
    const STEPS: usize = 3;
    let pass = FitOptions::new(Length::Steps(STEPS), batch, Loss::CrossEntropy);
    let took = least(longest, || {
        let target = if pixels.is_empty() {
            Target::Classes(&classes)
        } else {
            Target::Pixels(pixels.view())
        };
        black_box(model.fit(&x, target, &pass, &Stream::root(1))?);
        Ok(())
    })?;
    Ok(took / STEPS as f64)
}

fn context(input: &[usize]) -> BuildContext {
    BuildContext::new(
        Task::new(input.to_vec(), TaskKind::Classes(10)),
        Stream::root(7),
    )
}

/// Messages of normal numbers; beyond a thousand they come again.
fn inbox(clients: u32, numbers: usize) -> Result<Inbox<Params>> {
    let mail = |client: u32| {
        let mut draws = Stream::root(7).child("client", client.into()).draws();
        let some: Vec<f32> = (0..1013).map(|_| draws.normal() as f32).collect();
        let mut all = some.repeat(numbers.div_ceil(some.len()));
        all.truncate(numbers);
        let tensor = ArrayD::from_shape_vec(IxDyn(&[numbers]), all)?;
        let weight = 1.0 + f64::from(client);
        let body = Params([("w".to_string(), tensor)].into());
        Ok(ClientMessage::new(client, weight, body))
    };
    Inbox::new((0..clients).map(mail).collect::<Result<_>>()?)
}

/// As a checkpoint is written: a new file, on the disk, in the place of the last.
fn written(folder: &Path, bytes: &[u8]) -> Result<()> {
    let (new, name) = (folder.join("new"), folder.join("file"));
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(std::fs::rename(new, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_the_page() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bench/README.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (name, figure) in ROWS {
            let figure = figure.map_or("-".into(), number);
            let row = format!("| {name} | {figure} |");
            assert!(
                page.contains(&row),
                "tests/bench/README.md has no row {row}"
            );
        }
    }
}
