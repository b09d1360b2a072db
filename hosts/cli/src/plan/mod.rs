//! `fl plan`: every question before it is asked.

mod epsilon;

use crate::{DataDir, Done, Overrides, print, width};
use clap::Args;
use fl_core::message::ExchangeShape;
use fl_core::privacy::{Guarantee, Observer, Unit};
use fl_core::{
    BoxedSelector, BuildContext, COUNTS, Candidate, ClientId, ExchangeSpec, Parts, Role, Roster,
    Round, SamplingScheme, Stream, Trainer,
};
use fl_data::Split;
use fl_registry::{Catalogue, columns, fill};
use serde_json::json;
use std::path::PathBuf;

/// Rounds whose cohorts are drawn to see how large they are.
const DRAWS: usize = 32;

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

/// How many clients are asked in one round.
#[derive(Clone, Copy, PartialEq)]
enum Cohort {
    /// The same number in every round.
    Fixed(usize),
    /// A random number: the least and the most of the rounds that were drawn.
    Drawn(usize, usize),
    /// The selector must see more than there is before a run.
    Unknown,
}

/// One row of the plan.
struct Row {
    asked: ExchangeSpec,
    cohort: Cohort,
    /// How they are drawn.
    draw: SamplingScheme,
    /// Clients asked each time, at most.
    clients: usize,
    /// Bytes to one client, at most.
    down: Option<u64>,
    /// Bytes of one answer, at most.
    up: Option<u64>,
    /// Samples that it is about, at most.
    rows: usize,
    /// Filled slots through which it is released.
    releases: Vec<&'static str>,
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
    let outputs = data.task.kind.outputs();
    let parts = &spec.parts.in_slots(protocol.slots());
    let asked = protocol.exchanges().into_iter();
    let asked = asked.filter(|asked| parts.asks(asked, &make));
    let rows: Vec<Row> = asked
        .map(|asked| {
            let (params, model) = sizes(parts, asked.model, &make);
            let facts = ExchangeShape {
                params,
                rows: match asked.made {
                    true => asked.rows,
                    false => asked.rows.min(public),
                },
                inputs: data.task.width(),
                outputs,
                classes: data.task.kind.classes(),
                model,
            };
            let cohort = match asked.cohort.filter(|slot| parts.has(slot)) {
                Some(slot) => cohort(parts, slot, asked.times, &pool, &make),
                None => Cohort::Fixed(everyone),
            };
            // of several voters' messages that travel in one
            let voices = asked.voices as u64;
            let each = |bytes: u64| bytes.saturating_mul(voices);
            let copies = |bytes: u64| bytes.saturating_mul(asked.copies as u64);
            Row {
                cohort,
                draw: draw(parts, asked.cohort, &make),
                rows: facts.rows,
                clients: match cohort {
                    Cohort::Fixed(n) => n,
                    _ => everyone,
                },
                down: asked.request.expected(&facts).map(copies),
                up: asked.answer.expected(&facts).map(each),
                releases: (asked.flow.slots())
                    .chain(
                        parts
                            .sends_class_counts(&asked, &make)
                            .then_some(COUNTS.name()),
                    )
                    .filter(|slot| parts.has(slot))
                    .collect(),
                asked,
            }
        })
        .collect();
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
        Cohort::Fixed(n) if n == everyone => n.to_string(),
        Cohort::Fixed(n) => format!("{n} of {everyone}"),
        Cohort::Drawn(least, most) => format!("~{least}-{most} of {everyone}"),
        Cohort::Unknown => format!("? of {everyone}"),
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

/// How the selector in `slot` draws clients.
fn draw(parts: &Parts, slot: Option<&str>, make: &BuildContext) -> SamplingScheme {
    let Some(slot) = slot.filter(|slot| parts.has(slot)) else {
        return SamplingScheme::Everyone;
    };
    let selector = parts.build::<BoxedSelector<Roster>>(Role::Selector, slot, None, make);
    selector.map_or(SamplingScheme::Unknown, |selector| selector.draw())
}

/// How many clients the selector in `slot` picks: its cohorts are drawn as in a run.
fn cohort(parts: &Parts, slot: &str, times: usize, roster: &Roster, make: &BuildContext) -> Cohort {
    let selector = parts.build::<BoxedSelector<Roster>>(Role::Selector, slot, None, make);
    let Ok(mut selector) = selector else {
        return Cohort::Unknown;
    };
    let (mut least, mut most) = (usize::MAX, 0);
    for round in 0..times.clamp(1, DRAWS) {
        let stream = make.stream.child(slot, round as u64);
        let round = Round::first().with_stream(stream);
        // one that asks clients first decides by what they say
        if selector
            .poll(&round, roster)
            .is_ok_and(|poll| poll.is_some())
        {
            return Cohort::Unknown;
        }
        match selector.select(&round, roster) {
            Ok(picked) => (least, most) = (least.min(picked.len()), most.max(picked.len())),
            Err(_) => return Cohort::Unknown,
        }
    }
    match least == most {
        true => Cohort::Fixed(most),
        false => Cohort::Drawn(least, most),
    }
}

/// One client of each part that fills `slot`; `None` for those that the spec does not name.
fn owners(parts: &Parts, slot: &str) -> Vec<Option<ClientId>> {
    let filled = parts.iter().filter(|filled| filled.slot == slot);
    let first = filled.map(|filled| filled.clients.iter().flatten().next());
    first
        .map(|range| range.map(|range| *range.start()))
        .collect()
}

/// The largest model in `slot`: its parameters, and its bytes in its own format. Those of a forest
/// are not known before it has grown.
fn sizes(parts: &Parts, slot: &str, make: &BuildContext) -> (usize, Option<u64>) {
    let (mut params, mut bytes) = (0, parts.has(slot).then_some(0));
    for client in owners(parts, slot) {
        let own = BuildContext {
            task: parts.task(slot, &make.task),
            stream: make.stream.clone(),
        };
        let model = parts.build::<Box<dyn Trainer>>(Role::Trainer, slot, client, &own);
        let mut model = model.ok();
        let count = model.as_mut().and_then(|m| m.parametric());
        let count = count.map(|p| p.params().count());
        params = params.max(count.unwrap_or(0));
        let saved = model.filter(|_| count.is_some());
        let saved = saved.and_then(|m| m.save().ok()).map(|m| m.len() as u64);
        bytes = bytes.zip(saved).map(|(a, b)| a.max(b));
    }
    (params, bytes)
}
