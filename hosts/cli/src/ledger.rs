//! `fl ledger`: what all runs on a data set have released.

use crate::{Done, Failure, print, width, word};
use anyhow::Context;
use clap::Subcommand;
use fl_core::privacy::{Observer, Protection, Protections, UpperBound, short};
use fl_privacy::{AccountantId, DataLedger, DataSet, Entry, Head, Limit, State};
use fl_registry::{Catalogue, columns, fill};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub enum LedgerCommand {
    /// Make a new ledger. Specs name it: `ledger: PATH`.
    #[command(after_help = "Example:\n  fl ledger init patients.ledger --epsilon 8 --delta 1e-5")]
    Init {
        /// The ledger's file. A second file beside it ends in `.head`.
        path: PathBuf,
        /// The largest epsilon of all runs on one data set together. A run that would exceed it is
        /// refused before it releases anything.
        #[arg(long, allow_negative_numbers = true)]
        epsilon: Option<f64>,
        /// The largest delta of all runs together.
        #[arg(long, requires = "epsilon", allow_negative_numbers = true)]
        delta: Option<f64>,
        /// The observer that the limit is against.
        #[arg(long, value_parser = word::<Observer>(), default_value = "readers", requires = "epsilon")]
        against: Observer,
    },
    /// Show what all runs guarantee together, for each data set, observer and unit.
    #[command(
        after_help = "Examples:\n  fl ledger show patients.ledger\n  fl ledger show patients.ledger runs/dp-1 runs/dp-2"
    )]
    Show {
        /// The ledger's file.
        path: PathBuf,
        /// Run folders: fails if the ledger is older than one of them knows.
        runs: Vec<PathBuf>,
        /// A head that an earlier `fl ledger show` printed: fails if the ledger is older.
        #[arg(long, value_name = "NUMBER:HASH")]
        since: Option<Head>,
        /// One JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
}

pub fn ledger(command: &LedgerCommand, catalogue: &Catalogue) -> Done {
    match command {
        LedgerCommand::Init {
            path,
            epsilon,
            delta,
            against,
        } => init(path, *epsilon, *delta, *against),
        LedgerCommand::Show {
            path,
            runs,
            since,
            json,
        } => show(path, runs, since.as_ref(), *json, catalogue),
    }
}

fn init(path: &Path, epsilon: Option<f64>, delta: Option<f64>, against: Observer) -> Done {
    if epsilon.is_some_and(|epsilon| !(epsilon > 0.0 && epsilon.is_finite())) {
        return Err(Failure::usage("--epsilon: must be a finite number above 0"));
    }
    if delta.is_some_and(|delta| !(0.0..1.0).contains(&delta)) {
        return Err(Failure::usage("--delta: must be in 0..1"));
    }
    let limit = epsilon.map(|epsilon| Limit {
        epsilon,
        against,
        delta,
    });
    let about = limit.as_ref().map_or("no limit".into(), limited);
    DataLedger::init(path, limit)?;
    print(format_args!(
        "{}: a ledger with {about}; in specs: `ledger: {}`",
        path.display(),
        path.display()
    ))
}

fn limited(limit: &Limit) -> String {
    let delta = limit
        .delta
        .map(|delta| format!(" and a delta of {}", short(delta)));
    format!(
        "a limit of epsilon {}{} against {} for each data set",
        limit.epsilon,
        delta.unwrap_or_default(),
        limit.against
    )
}

fn show(
    path: &Path,
    runs: &[PathBuf],
    since: Option<&Head>,
    json: bool,
    catalogue: &Catalogue,
) -> Done {
    let ledger = DataLedger::open(path)?;
    if let Some(head) = since {
        ledger.check_contains(head, "--since")?;
    }
    for folder in runs {
        let known = fl_engine::check_ledger(&ledger, folder);
        known.with_context(|| format!("the run in {}", folder.display()))?;
    }
    let make = |id: &AccountantId| fl_engine::accountant(catalogue.parts(), id);
    let sets = ledger.data_sets();
    if json {
        let set = |set: &DataSet<'_>| {
            let run = |run: &&Entry| {
                json!({ "name": run.reservation.name, "seed": run.reservation.seed, "began": run.reservation.time,
                    "run": run.reservation.id.run, "state": state(run), "accountant": run.reservation.accountant,
                    "spending": run.spending(), "alone": alone(run, &make) })
            };
            json!({ "names": set.names, "rows": set.rows, "together": set.together(&make),
                "runs": set.runs.iter().map(run).collect::<Vec<_>>() })
        };
        return print(
            json!({ "ledger": ledger.id(), "head": ledger.head().to_string(), "limit": ledger.limit(),
            "data-sets": sets.iter().map(set).collect::<Vec<_>>() }),
        );
    }
    let about = ledger.limit().map_or("no limit".into(), limited);
    let mut out = format!(
        "{}: {about}; records: {}\nhead {}\n",
        path.display(),
        ledger.head().records,
        ledger.head()
    );
    for set in &sets {
        let rows: Vec<&str> = set
            .rows
            .iter()
            .map(|rows| &rows[..rows.len().min(12)])
            .collect();
        out += &format!("\n{} (rows {})\n", set.title(), rows.join(", "));
        let heads = [
            "id", "run", "began", "state", "server", "clients", "readers",
        ];
        let mut table = vec![heads.map(String::from)];
        let mut caveats: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for run in &set.runs {
            let alone = alone(run, &make);
            let epsilon = |observer| match alone.get(&observer).and_then(|p| p.guarantee()) {
                Some(guarantee) => UpperBound(guarantee.epsilon).to_string(),
                None => "nothing".into(),
            };
            let id = &run.reservation.id.run;
            let id = &id[..id.len().min(8)];
            let holds = alone.values().filter(|of| of.guarantee().is_some());
            for caveat in holds.flat_map(Protection::caveats) {
                caveats.entry(caveat).or_default().insert(id);
            }
            table.push([
                id.into(),
                run.title(),
                run.reservation.time.clone(),
                state(run).into(),
                epsilon(Observer::Server),
                epsilon(Observer::Clients),
                epsilon(Observer::Readers),
            ]);
        }
        out += &columns(&table, width());
        for (caveat, ids) in caveats {
            let ids = Vec::from_iter(ids).join(", ");
            out += &(fill(&format!("epsilon of {ids} is {caveat}"), width()) + "\n");
        }
        for (observer, together) in set.together(&make) {
            let text = format!("together, against {observer}: {together}");
            out += &(fill(&text, width()) + "\n");
        }
        let rules = Observer::ALL.map(|observer| fl_privacy::rule(&set.runs, 0, observer));
        for rule in BTreeSet::from(rules).iter().filter(|rule| !rule.is_empty()) {
            out += &(fill(&format!("composition: {rule}"), width()) + "\n");
        }
    }
    if sets.is_empty() {
        out += "no run has used it yet\n";
    }
    print(out.trim_end())
}

fn state(run: &Entry) -> &'static str {
    match &run.state {
        State::Settled(_) => "done",
        State::Stopped(_) => "stopped, all reserved",
        State::Open if run.spending().releases.is_none() => "not done, price unknown",
        State::Open => "not done, all reserved",
    }
}

/// What one run guarantees alone.
fn alone(run: &Entry, make: fl_privacy::MakeAccountant<'_>) -> Protections {
    let of = |observer| (observer, fl_privacy::together(&[run], observer, make));
    Observer::ALL.into_iter().map(of).collect()
}
