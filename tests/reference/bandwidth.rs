//! What published methods cost, as their papers count it.

use crate::replay::{Inputs, Op, number};
use anyhow::{Context, Result, bail};
use fl_core::bandwidth::{self, Unit};
use fl_core::settings::read_yaml;
use fl_core::{BuildContext, Stream, Task, TaskKind};
use fl_plugin_trainer_dfdx::{Dfdx, DfdxSettings};
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("n_params", |i| Ok(json!({ "params": n_params(i)? }))),
    ("logit_exchange", |i| {
        priced(
            i,
            bandwidth::logits(
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
        let model = match i.has("model_bytes") {
            true => i.get("model_bytes")?,
            false => i.get::<u64>("params")? * i.get::<u64>("bytes_per_value")?,
        };
        let mut got = priced(i, bandwidth::fedkt(model, i.get("n")?, i.get("s")?))?;
        got["fedavg_rounds_breakeven"] = number(bandwidth::fedkt_break_even(i.get("s")?));
        Ok(got)
    }),
    ("quantised_logits", |i| {
        let (bits, bytes) = bandwidth::packed_logits(
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
            bandwidth::fedavg(params, clients, width, rounds, i.get("fraction")?),
        )
    }),
    ("scaffold_total", |i| {
        let [params, clients, width, rounds] = run(i)?;
        priced(
            i,
            bandwidth::scaffold(params, clients, width, rounds, i.get("fraction")?),
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
    Ok(bandwidth::parameters(
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

/// Parameters of a model that a paper describes: those of the network that a trainer here builds of it.
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
        "DistilBERT base uncased classifier" => bandwidth::distilbert(classes),
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
            bandwidth::unused_in_fedkd_resnet(classes)
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
