//! `fl plan`: every question before it is asked.

use crate::enough_noise::enough_noise;
use crate::{DataDir, Done, Overrides, print, progress, width};
use clap::Args;
use fl_core::ExchangeSpec;
use fl_core::privacy::{Observer, Protection, UpperBound};
use fl_engine::{Plan, PlannedCohort, PlannedExchange};
use fl_registry::{Catalogue, columns, fill};
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
    for note in fl_engine::check_data(&spec, &data)?.all() {
        crate::say(format_args!("note: {note}"));
    }
    let plan = Plan::new(&spec, &data)?;
    if let Some(note) = plan.large_delta() {
        crate::say(format_args!("note: {note}"));
    }
    let forecast = fl_engine::forecast(&spec, &data, &plan, catalogue)?;
    let Plan {
        everyone,
        public,
        exchanges: rows,
        exposed,
        reached,
        ..
    } = &plan;
    let (everyone, accounts) = (*everyone, spec.parts.has("accountant"));
    let seen: Vec<_> = if accounts {
        Observer::ALL.map(|o| (o, exposed.to(o))).into()
    } else {
        Vec::new()
    };
    let sum = |bytes: fn(&PlannedExchange) -> Option<u64>| {
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
            json!({ "without-price": seen, "reached": reached, "ledger": forecast.as_ref().map(ledger_json), "name": spec.name, "method": spec.method, "protocol": spec.protocol_name, "questions": questions, "bytes": { "up": up, "down": down } }),
        );
    }
    let line = |text: String| fill(&text, width()) + "\n";
    let of = if spec.method == spec.protocol_name {
        format!("protocol `{}`", spec.protocol_name)
    } else {
        format!(
            "method `{}`, protocol `{}`",
            spec.method, spec.protocol_name
        )
    };
    let mut out = line(format!(
        "{}: {of}, {everyone} clients, {public} public samples",
        spec.name
    ));
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
        out += &line(match what[..] {
            [] => format!("all that {observer} will see has a price"),
            _ => format!("{observer} will see without a price: {}", what.join("; ")),
        });
    }
    let disclosed = seen
        .iter()
        .flat_map(|(_, what)| what.iter().map(|what| &**what));
    out += &fl_report::shown_models(&spec.resolved, disclosed).map_or(String::new(), line);
    for (observer, guarantee) in reached {
        let budget = spec.budget.as_ref();
        let budget = budget.filter(|b| b.against == *observer);
        out += &line(match guarantee {
            Some(guarantee) => match budget.filter(|b| !b.allows(guarantee.epsilon)) {
                Some(budget) => {
                    let noise = enough_noise(&spec, &data, budget);
                    let noise = noise.map(|(setting, noise)| {
                        format!("; `{setting}: {noise}` keeps it to the last round")
                    });
                    format!(
                        "against {observer} at most {guarantee}: more than the budget of {}, which may end the run early{}",
                        budget.epsilon,
                        noise.unwrap_or_default()
                    )
                }
                None => format!("against {observer} at most {guarantee}"),
            },
            None => format!("epsilon against {observer} is known only after the run"),
        });
    }
    if let Some(forecast) = &forecast {
        out += &ledger_text(forecast);
    }
    let sum = format!(
        "bytes in all: at most {} up and {} down, without envelopes (sample and class counts, training losses)",
        bytes(up),
        bytes(down)
    );
    print(out + &fill(&sum, width()))
}

fn bytes(known: Option<u64>) -> String {
    known.map_or("?".into(), progress::bytes)
}

fn cells(row: &PlannedExchange, everyone: usize) -> [String; 6] {
    let asked = &row.asked;
    let clients = match row.cohort {
        PlannedCohort::Fixed(n) if n == everyone => n.to_string(),
        PlannedCohort::Fixed(n) => format!("{n} of {everyone}"),
        PlannedCohort::Drawn(least, most) => format!("~{least}-{most} of {everyone}"),
        PlannedCohort::Unknown => format!("? of {everyone}"),
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

/// What a run would add to its ledger.
fn ledger_text(forecast: &fl_engine::Forecast) -> String {
    let runs = match forecast.others {
        1 => "1 other run".into(),
        n => format!("{n} other runs"),
    };
    let mut out = format!(
        "over all runs on {} ({runs} in the ledger):\n",
        forecast.data
    );
    for (observer, after) in &forecast.after {
        let before = match forecast.before.get(observer) {
            Some(Protection::Holds(before)) => format!(" (so far {})", UpperBound(before.epsilon)),
            Some(Protection::Nothing { .. }) => " (so far nothing)".into(),
            None => String::new(),
        };
        let most = match after {
            Protection::Holds(_) => "at most ",
            Protection::Nothing { .. } => "",
        };
        out += &(fill(
            &format!("  against {observer} {most}{after}{before}"),
            width(),
        ) + "\n");
    }
    if !forecast.publishes.is_empty() {
        let whose = forecast.publishes.join(", ");
        let text = format!(
            "its public or test rows are rows of {whose}: nothing would be guaranteed for these any more"
        );
        out += &(fill(&text, width()) + "\n");
    }
    if let Some(why) = &forecast.refused {
        out += &(fill(&format!("the run will be refused: {why}"), width()) + "\n");
    }
    out
}

fn ledger_json(forecast: &fl_engine::Forecast) -> serde_json::Value {
    json!({ "data": forecast.data, "other-runs": forecast.others, "before": forecast.before,
        "after": forecast.after, "publishes": forecast.publishes, "refused": forecast.refused })
}
