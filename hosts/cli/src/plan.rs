//! `fl plan`: every question before it is asked.

use crate::{DataDir, Done, Overrides, print, run};
use clap::Args;
use fl_core::message::Facts;
use fl_core::{BuildContext, Stream};
use fl_registry::Catalogue;
use serde_json::json;
use std::path::PathBuf;

#[derive(Args)]
pub struct PlanArgs {
    /// The spec.
    spec: PathBuf,
    #[command(flatten)]
    set: Overrides,
    #[command(flatten)]
    data: DataDir,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub fn plan(args: &PlanArgs, catalogue: &Catalogue) -> Done {
    let spec = run::read(&args.spec, &args.set.set, catalogue)?;
    let data = run::assemble(&spec, &args.data)?;
    let make = BuildContext {
        task: data.task.clone(),
        stream: Stream::root(spec.seed),
    };
    let protocol = spec.make_protocol(&make)?;
    let clients = data.clients.iter().filter(|c| !c.is_empty()).count();
    let clients = if protocol.pools_data() { 1 } else { clients };
    let public = data.public.as_ref().map_or(0, |p| p.samples.len());
    let params = |slot: &str| -> usize {
        let model = spec
            .parts
            .trainer(slot, None, &make)
            .or_else(|_| spec.parts.trainer(slot, Some(0), &make));
        model
            .ok()
            .and_then(|mut m| m.parametric().map(|p| p.params().count()))
            .unwrap_or(0)
    };
    let mut rows = Vec::new();
    let (mut down_total, mut up_total) = (Some(0), Some(0));
    for asked in protocol.questions() {
        let facts = Facts {
            params: params(asked.model),
            rows: asked.rows.min(public),
            outputs: data.task.kind.outputs(),
        };
        let (down, up) = ((asked.down_bytes)(&facts), (asked.up_bytes)(&facts));
        let up = up.map(|bytes| bytes * asked.voices as u64);
        let all = (asked.times * clients) as u64;
        let sum = |total: Option<u64>, one: Option<u64>| Some(total? + one? * all);
        (down_total, up_total) = (sum(down_total, down), sum(up_total, up));
        rows.push((asked, down, up));
    }
    if args.json {
        let questions: Vec<_> = rows
            .iter()
            .map(|(a, down, up)| {
                json!({ "question": a.label, "times": a.times, "clients": clients, "down": { "kind": a.down, "bytes": down },
                    "up": { "kind": a.up, "bytes": up }, "releases": a.releases })
            })
            .collect();
        return print(
            json!({ "name": spec.name, "protocol": spec.protocol.name, "questions": questions, "bytes": { "up": up_total, "down": down_total } }),
        );
    }
    let bytes = |b: &Option<u64>| b.map_or("?".to_string(), |b| b.to_string());
    let mut out = format!(
        "{}: protocol `{}`, {clients} clients, {public} public samples\n",
        spec.name, spec.protocol.name
    );
    out += &format!(
        "{:<44} {:>8} {:>8}  {:<24} {:<24}\n",
        "question", "times", "clients", "down, bytes each", "up, bytes each (at most)"
    );
    for (a, down, up) in &rows {
        let (down, up) = (
            format!("{} {}", a.down, bytes(down)),
            format!("{} {}", a.up, bytes(up)),
        );
        out += &format!(
            "{:<44} {:>8} {:>8}  {down:<24} {up:<24}",
            a.label, a.times, clients
        );
        if !a.releases.is_empty() {
            out += &format!(" released through {}", a.releases.join(", "));
        }
        out += "\n";
    }
    print(format!(
        "{out}at most {} bytes up and {} down in all, envelopes (sample and class counts) apart",
        bytes(&up_total),
        bytes(&down_total)
    ))
}
