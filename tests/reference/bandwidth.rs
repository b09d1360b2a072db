//! What published methods cost, as their papers count it: the counting that gives the numbers they
//! print.
//!
//! A run counts its own bytes exactly and in both directions. In these formulas `width` is the
//! bytes of one number (the papers take 4 or 8) and `copies` how often everything travels. No paper
//! counts the bits of its quantiser; [`packed_logits`] does.

use crate::replay::{Inputs, Op, number};
use anyhow::{Context, Result, bail};
use fl_core::message::Grid;
use fl_core::settings::read_yaml;
use fl_core::{BuildContext, Stream, Task, TaskKind};
use fl_plugin_trainer_dfdx::{Dfdx, DfdxSettings};
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("n_params", |i| Ok(json!({ "params": n_params(i)? }))),
    ("logit_exchange", |i| {
        priced(
            i,
            logits(
                i.get("n_public")?,
                i.get("classes")?,
                i.get("clients")?,
                i.get("bytes_per_value")?,
                i.get("copies")?,
            ),
        )
    }),
    ("parameter_exchange", |i| priced(i, parameters(i)?)),
    ("feddf_exchange", |i| {
        priced(i, parameters(i)? + i.get::<u64>("extra_logit_bytes")?)
    }),
    ("fedkt_comm", |i| {
        let model = if i.has("model_bytes") {
            i.get("model_bytes")?
        } else {
            i.get::<u64>("params")? * i.get::<u64>("bytes_per_value")?
        };
        let mut got = priced(i, fedkt(model, i.get("n")?, i.get("s")?))?;
        got["fedavg_rounds_breakeven"] = number(fedkt_break_even(i.get("s")?));
        Ok(got)
    }),
    ("quantised_logits", |i| {
        let (bits, bytes) = packed_logits(
            i.get("n_public")?,
            i.get("classes")?,
            i.get("clients")?,
            i.get("levels")?,
        );
        Ok(json!({ "bits_per_value": bits, "bytes": bytes }))
    }),
    ("fedavg_total", |i| {
        let [params, clients, width, rounds] = run(i)?;
        priced(
            i,
            fedavg(params, clients, width, rounds, i.get("fraction")?),
        )
    }),
    ("scaffold_total", |i| {
        let [params, clients, width, rounds] = run(i)?;
        priced(
            i,
            scaffold(params, clients, width, rounds, i.get("fraction")?),
        )
    }),
];

fn run(i: &Inputs<'_>) -> Result<[u64; 4]> {
    Ok([
        i.get("params")?,
        i.get("clients")?,
        i.get("bytes_per_value")?,
        i.get("rounds")?,
    ])
}

fn parameters(i: &Inputs<'_>) -> Result<u64> {
    Ok(of_parameters(
        i.get("params")?,
        i.get("clients")?,
        i.get("bytes_per_value")?,
        i.get("copies")?,
    ))
}

/// Bytes, and the same in the unit that the paper prints.
fn priced(i: &Inputs<'_>, bytes: u64) -> Result<Value> {
    let mut got = json!({ "bytes": bytes });
    if i.has("published_unit") {
        let name: String = i.get("published_unit")?;
        let unit = Unit::named(&name).with_context(|| format!("no unit is called `{name}`"))?;
        got["in_unit"] = number(unit.of(bytes));
    }
    Ok(got)
}

/// Parameters of a model that a paper describes: those of the network that a trainer here builds of
/// it.
fn n_params(i: &Inputs<'_>) -> Result<u64> {
    let model: String = i.get("model")?;
    let classes = if i.has("classes") {
        i.get("classes")?
    } else {
        10
    };
    let input = if i.has("input") {
        i.get("input")?
    } else {
        vec![3, 32, 32]
    };
    let count = match model.as_str() {
        "FedKD ResNet-8 (128-256-512)" => built("resnet-8-wide", input, classes)?,
        "FedDF ResNet-8 (16-32-64)" => built("resnet-8", input, classes)?,
        "DistilBERT base uncased classifier" => distilbert(classes),
        described => {
            let layers = described
                .split(", ")
                .map(layer)
                .collect::<Result<Vec<_>>>()?;
            // the last number is the number of classes
            let classes = described.rsplit(", ").next().unwrap_or_default().parse()?;
            built(&format!("[{}]", layers.join(", relu, ")), input, classes)?
        }
    };
    let unused = i.has("with_unused_second_head_and_embedding")
        && i.get("with_unused_second_head_and_embedding")?;
    Ok(count
        + if unused {
            unused_in_fedkd_resnet(classes)
        } else {
            0
        })
}

/// `conv5x5-6`, `pool`, `120`
fn layer(text: &str) -> Result<String> {
    if text == "pool" {
        return Ok("{pool: 2}".into());
    }
    if let Some((kernel, out)) = text
        .strip_prefix("conv")
        .and_then(|rest| rest.split_once('-'))
    {
        let kernel = kernel.split_once('x').map_or(kernel, |(k, _)| k);
        return Ok(format!("{{conv: {{out: {out}, kernel: {kernel}}}}}"));
    }
    let Ok(width) = text.parse::<u64>() else {
        bail!("no layer is described as `{text}`")
    };
    Ok(format!("{{linear: {width}}}"))
}

fn built(net: &str, input: Vec<usize>, classes: u64) -> Result<u64> {
    let settings: DfdxSettings = read_yaml(&format!("{{net: {net}}}"))?;
    let task = Task {
        input,
        kind: TaskKind::Classes(classes as usize),
    };
    Ok(Dfdx::new(
        settings,
        &BuildContext {
            task,
            stream: Stream::root(0),
        },
    )?
    .parameters() as u64)
}

/// A unit that papers print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// 10^6 bytes (FedKT).
    Megabyte,
    /// 10^9 bytes.
    Gigabyte,
    /// 2^20 bytes (FedKD's tables of texts).
    Mebibyte,
    /// 2^30 bytes (FedKD's rows of parameter methods).
    Gibibyte,
    /// 1024 * 10^6 bytes: the unit that FedKD's rows of logit methods turn out to have.
    MixedGigabyte,
}

impl Unit {
    /// As the vectors in `bandwidth.json` write it: `MB`, `GB`, `MiB`, `GiB`, `GB_mixed`.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "MB" => Self::Megabyte,
            "GB" => Self::Gigabyte,
            "MiB" => Self::Mebibyte,
            "GiB" => Self::Gibibyte,
            "GB_mixed" => Self::MixedGigabyte,
            _ => return None,
        })
    }

    /// Bytes of one.
    fn bytes(self) -> f64 {
        match self {
            Self::Megabyte => 1e6,
            Self::Gigabyte => 1e9,
            Self::Mebibyte => 1_048_576.0,
            Self::Gibibyte => 1_073_741_824.0,
            Self::MixedGigabyte => 1024e6,
        }
    }

    /// This number of bytes in this unit.
    fn of(self, bytes: u64) -> f64 {
        bytes as f64 / self.bytes()
    }
}

/// Scores of `samples` public samples from every client: FedKD with one copy for each pass over the
/// public samples, FedMD with two for each round in which a client takes part.
fn logits(samples: u64, classes: u64, clients: u64, width: u64, copies: u64) -> u64 {
    samples * classes * clients * width * copies
}

/// Bits of one packed score, and bytes of the scores of all clients, each of which packs its own.
fn packed_logits(samples: u64, classes: u64, clients: u64, levels: u32) -> (u32, u64) {
    let grid = Grid {
        levels,
        lowest: 0.0,
        step: 1.0,
    };
    (
        grid.bits(),
        clients * (samples * classes * u64::from(grid.bits())).div_ceil(8),
    )
}

/// Parameters to and from every client; `copies` counts both directions.
fn of_parameters(count: u64, clients: u64, width: u64, copies: u64) -> u64 {
    count * clients * width * copies
}

/// How many clients take part in a round: the share rounded, at least one.
fn participants(clients: u64, share: f64) -> u64 {
    ((clients as f64 * share).round() as u64).max(1)
}

/// A run of FedAvg, and of FedAvgM, FedProx and FedDF, whose rounds cost the same: down and up for
/// every participant.
fn fedavg(count: u64, clients: u64, width: u64, rounds: u64, share: f64) -> u64 {
    of_parameters(count, participants(clients, share), width, 2 * rounds)
}

/// A run of SCAFFOLD: control variates travel with the parameters, both ways.
fn scaffold(count: u64, clients: u64, width: u64, rounds: u64, share: f64) -> u64 {
    2 * fedavg(count, clients, width, rounds, share)
}

/// FedKT: the final model to, and `students` models from, every party, once.
fn fedkt(model_bytes: u64, parties: u64, students: u64) -> u64 {
    parties * (students + 1) * model_bytes
}

/// Rounds of FedAvg that cost as much as FedKT.
fn fedkt_break_even(students: u64) -> f64 {
    (students + 1) as f64 / 2.0
}

/// Parameters of FedKD's published ResNet-8 that its predictions do not use and its tables count: a
/// second classifier on the 2048 features, and an embedding of the classes in themselves.
fn unused_in_fedkd_resnet(classes: u64) -> u64 {
    2048 * classes + classes + classes * classes
}

/// Parameters of the uncased DistilBERT base with its classifier (Sanh et al. 2019), which FedKD's
/// tables of texts count and no trainer here trains.
fn distilbert(classes: u64) -> u64 {
    let (words, places, width, inner, blocks) = (30_522, 512, 768, 3072, 6);
    let linear = |from: u64, to: u64| from * to + to;
    let norm = 2 * width;
    let block = 4 * linear(width, width) + linear(width, inner) + linear(inner, width) + 2 * norm;
    (words + places) * width + norm + blocks * block + linear(width, width) + linear(width, classes)
}
