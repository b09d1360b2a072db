//! `fl plan`: every question before it is asked.

mod epsilon;
mod rows;

use crate::{DataDir, Done, Overrides, print, width};
use clap::Args;
use fl_core::privacy::{Guarantee, Observer, Unit};
use fl_core::{BuildContext, Candidate, ClientId, ExchangeSpec, Stream};
use fl_data::Split;
use fl_registry::{Catalogue, columns, fill};
use rows::{CohortSize, Row, rows};
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
    let spec = args.set.read(&args.spec, catalogue)?;
    let data = fl_engine::data_with_notes(&spec, &args.data.path(), &mut |note| {
        crate::say(format_args!("note: {note}"));
    })?;
    let make = BuildContext {
        task: data.task.clone(),
        stream: Stream::root(spec.seed),
    };
    let protocol = spec.make_protocol(&make)?;
    let owners = data.clients.iter().enumerate();
    // what is at nodes is not known here
    let at_nodes = matches!(spec.data.split(), Split::Own);
    let accounts = spec.parts.has("accountant");
    let owners = owners.filter(|(_, own)| at_nodes || accounts || !own.is_empty());
    let mut roster: Vec<(ClientId, usize)> = owners
        .map(|(id, own)| (id as ClientId, own.len()))
        .collect();
    if protocol.pools_data() {
        roster = vec![(0, roster.iter().map(|(_, n)| n).sum())];
    }
    let everyone = roster.len();
    let pool: Vec<Candidate> = roster.iter().map(|(id, _)| Candidate::new(*id)).collect();
    let public = data.public.as_ref().map_or(0, |p| p.samples.len());
    let parts = &spec.parts.in_slots(protocol.slots());
    let rows = rows(&*protocol, parts, &pool, public, &make);
    let mut exposed = fl_core::exposed(protocol.as_ref(), parts, &make);
    for what in &data.inferred {
        exposed.add(&Observer::ALL, what);
    }
    let mut reached = match accounts {
        true => {
            let how = (spec.noise, spec.data.split().deals());
            epsilon::reach(parts, &rows, everyone, &exposed, &make, how)
        }
        false => Vec::new(),
    };
    if let Some(twice) = &data.twice {
        let of_example = |g: &Option<Guarantee>| g.as_ref().is_none_or(|g| g.unit == Unit::Example);
        for (observer, _) in reached.extract_if(.., |(_, g)| of_example(g)) {
            exposed.add(&[observer], twice);
        }
    }
    let seen: Vec<_> = match accounts {
        true => Observer::ALL.map(|o| (o, exposed.to(o))).into(),
        false => Vec::new(),
    };
    let sum = |bytes: fn(&Row) -> Option<u64>| {
        rows.iter().try_fold(0_u64, |sum, row| {
            let times = (row.asked.times as u64).saturating_mul(row.clients as u64);
            Some(sum.saturating_add(bytes(row)?.saturating_mul(times)))
        })
    };
    let (down, up) = (sum(|row| row.down), sum(|row| row.up));
    if args.json {
        let questions: Vec<_> = rows
            .iter()
            .map(|row| {
                let ExchangeSpec { label, times, down, up, .. } = &row.asked;
                json!({ "question": label, "times": times, "clients": row.clients, "of": everyone, "down": { "kind": down, "bytes": row.down },
                    "up": { "kind": up, "bytes": row.up }, "releases": row.releases })
            })
            .collect();
        return print(
            json!({ "without-price": seen, "reached": reached, "name": spec.name, "protocol": spec.protocol.name, "questions": questions, "bytes": { "up": up, "down": down } }),
        );
    }
    let mut out = format!(
        "{}: protocol `{}`, {everyone} clients, {public} public samples\n",
        spec.name, spec.protocol.name
    );
    let heads = [
        "exchange",
        "times",
        "clients",
        "down, bytes each",
        "up, bytes each",
        "released through",
    ];
    let mut table = vec![heads.map(String::from)];
    if rows.iter().all(|row| row.releases.is_empty()) {
        table[0][5].clear();
    }
    table.extend(rows.iter().map(|row| cells(row, everyone)));
    out += &columns(&table, width());
    for (observer, what) in &seen {
        out += &match what[..] {
            [] => format!("all that {observer} will see has a price\n"),
            _ => {
                fill(
                    &format!("{observer} will see without a price: {}", what.join("; ")),
                    width(),
                ) + "\n"
            }
        };
    }
    for (observer, guarantee) in &reached {
        let budget = spec.budget.as_ref();
        let budget = budget.filter(|b| Observer::from(&b.against) == *observer);
        out += &match guarantee {
            Some(guarantee) => match budget.filter(|b| !b.allows(guarantee.epsilon)) {
                Some(budget) => format!(
                    "against {observer} at most {guarantee}: more than the budget of {}, which may end the run early\n",
                    budget.epsilon
                ),
                None => format!("against {observer} at most {guarantee}\n"),
            },
            None => format!("epsilon against {observer} is known only after the run\n"),
        };
    }
    let sum = format!(
        "at most {} bytes up and {} down in all, without envelopes (sample and class counts, training losses)",
        bytes(up),
        bytes(down)
    );
    print(out + &fill(&sum, width()))
}

fn bytes(known: Option<u64>) -> String {
    known.map_or("?".into(), |bytes| bytes.to_string())
}

fn cells(row: &Row, everyone: usize) -> [String; 6] {
    let asked = &row.asked;
    let clients = match row.cohort {
        CohortSize::Fixed(n) if n == everyone => n.to_string(),
        CohortSize::Fixed(n) => format!("{n} of {everyone}"),
        CohortSize::Drawn(least, most) => format!("~{least}-{most} of {everyone}"),
        CohortSize::Unknown => format!("? of {everyone}"),
    };
    [
        asked.label.into(),
        asked.times.to_string(),
        clients,
        format!("{} {}", asked.down, bytes(row.down)),
        format!("{} {}", asked.up, bytes(row.up)),
        row.releases.join(", "),
    ]
}
