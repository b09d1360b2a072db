//! `fl audit`: what a spec's runs prove against its guarantees.

use crate::log::say;
use crate::run::number_of_threads;
use crate::{DataDir, Done, Failure, Overrides, either, not_stopped, width, word};
use anyhow::Context;
use clap::Args;
use fl_audit::{Audit, AuditOptions, AuditProgress, LEAST_RUNS, Method};
use fl_core::privacy::{Neighbours, Unit};
use fl_engine::Signals;
use fl_registry::{Catalogue, columns, fill};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use std::path::PathBuf;

/// The most runs of each data set, and the most canaries.
const MOST: i64 = 1_000_000;

#[derive(Args)]
pub struct AuditArgs {
    /// The spec.
    spec: PathBuf,
    #[command(flatten)]
    set: Overrides,
    /// Runs of each of the two data sets.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(LEAST_RUNS as i64..=MOST))]
    runs: u32,
    /// Instead of many runs, audit one run with N canaries, each of which is in the data by the
    /// toss of a coin. It judges observers that see models.
    #[arg(long, value_name = "N", conflicts_with_all = ["runs", "neighbour", "neighbour_set", "client"], value_parser = clap::value_parser!(u32).range(8..=MOST))]
    canaries: Option<u32>,
    /// What the two data sets differ in; by default the unit of the claim.
    #[arg(long, value_name = "UNIT", value_parser = word::<Unit>())]
    unit: Option<Unit>,
    /// How they differ in it; by default as in the claim.
    #[arg(long, value_name = "CHANGE", value_parser = word::<Neighbours>())]
    change: Option<Neighbours>,
    /// The client whose data differ; otherwise one is drawn.
    #[arg(long, value_name = "ID")]
    client: Option<usize>,
    /// A spec with the neighbouring data; it differs in `data` only.
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["client", "change"])]
    neighbour: Option<PathBuf>,
    /// Make the neighbouring data by a change of the spec: `--neighbour-set
    /// data.set.files.train=less.csv`. May be given several times.
    #[arg(long, value_name = "PATH=VALUE", conflicts_with_all = ["client", "change"])]
    neighbour_set: Vec<String>,
    /// Keep only the first N rows of every client, so that runs are short and a unit weighs more.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
    /// The probability that no bound of the audit is too large.
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    confidence: f64,
    /// All draws of the audit follow from it.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder of the audit; otherwise `audits/NAME`. An audit that was stopped goes on there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs at the same time; at most, and by default, one per processor. Results do not depend on
    /// it.
    #[arg(long, value_name = "N", value_parser = number_of_threads)]
    threads: Option<usize>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataDir,
}

pub fn audit(args: &AuditArgs, catalogue: &Catalogue) -> Done {
    let signals = Signals::listen().context("listening to signals")?;
    let spec = args.set.read(&args.spec, catalogue)?;
    let neighbour = match (&args.neighbour, &args.neighbour_set[..]) {
        (None, []) => None,
        (file, sets) => {
            let path = file.as_ref().unwrap_or(&args.spec);
            let changed = Overrides {
                set: [&args.set.set[..], sets].concat(),
            };
            let name = match file {
                Some(path) => path.display().to_string(),
                None => sets.join(", "),
            };
            Some((changed.read(path, catalogue)?, name))
        }
    };
    let bar = crate::log::bar(ProgressBar::no_length());
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} runs, {elapsed} {msg}");
    bar.set_style(style?);
    let told = bar.clone();
    let progress = |at: AuditProgress| {
        told.set_length(at.of as u64);
        told.set_position(at.done as u64);
        let left = at.left.map(HumanDuration);
        let left = left.map_or(String::new(), |left| format!("about {left} left"));
        crate::log::note(format_args!("{} of {} runs {left}", at.done, at.of));
        told.set_message(left);
    };
    let out = args.out.clone();
    let options = AuditOptions {
        method: match args.canaries {
            Some(canaries) => Method::Canaries(canaries as usize),
            None => Method::Runs(args.runs as usize),
        },
        unit: args.unit,
        change: args.change,
        client: args.client,
        rows: args.rows.map(|rows| rows as usize),
        neighbour,
        confidence: args.confidence,
        seed: args.seed,
        out: out.unwrap_or_else(|| PathBuf::from("audits").join(&spec.name)),
        data_dir: args.data.path(),
        threads: fl_engine::threads(args.threads),
        stop: signals.stop.clone(),
        progress: &progress,
    };
    let audit = fl_audit::audit(spec, &options);
    bar.finish_and_clear();
    let Some(audit) = audit? else {
        say(format_args!(
            "stopped; the same command goes on with the audit in {}",
            options.out.display()
        ));
        return not_stopped(&signals);
    };
    let files = audit.write(&options.out)?;
    either(args.json, serde_json::to_string(&audit)?, text(&audit))?;
    let [json, markdown, page] = files.each_ref().map(|file| file.display());
    say(format_args!("audit: {page}, {markdown}, {json}"));
    if audit.broken() {
        Err(Failure::Differs)
    } else {
        Ok(())
    }
}

fn text(audit: &Audit) -> String {
    let width = width();
    let mut out = fill(&format!("{}: {}", audit.name, audit.about()), width) + "\n\n";
    out += &columns(&audit.table(), width);
    for line in audit.differences().iter().chain(&audit.remarks()) {
        out += "\n";
        out += &fill(line, width);
    }
    out + &format!("\ndigest {}", audit.digest)
}
