//! `fl attack membership`: who is among those that a run's models learnt from.

use super::search::{Common, RemovedOnDrop};
use crate::finished_run::{FinishedRun, Target};
use crate::{DataDir, Done, Failure, print};
use anyhow::{Context, Result};
use clap::Args;
use fl_attack::{Halves, Strength, bound, lira, losses, margins, strength};
use fl_core::privacy::{Guarantee, Neighbours, Noise, Observer, Unit, UpperBound};
use fl_core::{Examples, Stream};
use fl_data::{Assembled, DataSpec};
use fl_engine::{ExecuteOptions, Folder, Signals};
use fl_registry::{Catalogue, Spec};
use fl_report::Run;
use fl_sim::Execution;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// The most shadow runs.
const MOST: usize = 1024;

#[derive(Args)]
pub struct MembershipArgs {
    /// The folder of a run that is done.
    #[arg(value_name = "RUN")]
    dir: PathBuf,
    /// Run the spec N times more (an even number), each time without a half of all clients'
    /// examples, and compare with those models (LiRA).
    #[arg(long, value_name = "N", default_value_t = 0)]
    shadows: usize,
    /// Clients that a shadow run serves at the same time; every processor's worth if not given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    common: Common,
}

/// What an attack on a model came to.
#[derive(Serialize)]
struct AttackResult {
    model: String,
    attack: &'static str,
    #[serde(flatten)]
    strength: Strength,
}

/// What shadow models say of the members and of the others, one model after the other.
type ShadowScores = Vec<(Vec<f64>, Vec<f64>)>;

/// The owner that the test rows count as, when halves are drawn.
const NOBODY: u64 = u64::MAX;

pub fn membership(args: &MembershipArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    if args.shadows % 2 == 1 || args.shadows > MOST {
        return Err(Failure::usage(format!(
            "--shadows: must be an even number up to {MOST}, because shadow runs are made in pairs, got {}",
            args.shadows
        )));
    }
    let run = Run::open(&args.dir).map_err(crate::report::unreadable)?;
    let FinishedRun {
        spec,
        data,
        targets,
    } = FinishedRun::open(&args.dir, &args.common.data, catalogue, line)?;
    if data.task.kind.is_dense() {
        let why =
            "the attack needs classes or labels of whole samples, and this task labels every pixel";
        return Err(Failure::usage(why));
    }
    let mut found = Vec::new();
    for target in &targets {
        let mut model = target.load(&args.dir, &spec, &data)?;
        let mut score = |examples: &Examples| -> Result<Vec<f64>> {
            let losses = losses(model.as_mut(), examples);
            Ok(losses?.into_iter().map(|loss| -loss).collect())
        };
        let mut members = Vec::new();
        for owner in target.owners(&data) {
            members.extend(score(owned(&data, owner)?)?);
        }
        found.push(AttackResult {
            model: target.name.clone(),
            attack: "loss",
            strength: strength(&members, &score(&data.test)?)
                .with_context(|| format!("model `{}`", target.name))?,
        });
    }
    if args.shadows > 0 {
        found.extend(compare_with_shadows(args, &spec, &data, &targets, line)?);
    }
    let kept = kept(&run);
    let at_most = kept.as_ref().map(|kept| bound(kept.epsilon, kept.delta));
    match args.common.json {
        true => print(serde_json::json!({
            "run": args.dir, "shadows": args.shadows, "seed": args.common.seed, "bound": at_most, "attacks": found,
        })),
        false => print(text(&found, kept.as_ref().zip(at_most))),
    }
}

fn owned(data: &Assembled, owner: usize) -> Result<&Examples> {
    let own = data.clients.get(owner);
    own.with_context(|| format!("there is no client {owner} by the spec"))
}

/// The run's guarantee for one example against readers. A guarantee for a party
/// holds for each of its examples.
fn kept(run: &Run) -> Option<Guarantee> {
    let outcome = &run.summary.as_ref()?.outcome;
    let protection = outcome.protection(Observer::Readers)?;
    let of_one = |g: &&Guarantee| g.unit == Unit::Example || g.neighbours == Neighbours::Replaced;
    protection.guarantee().filter(of_one).cloned()
}

/// Runs the spec again on halves of the data, and compares what its models say with what these do.
fn compare_with_shadows(
    args: &MembershipArgs,
    spec: &Spec<DataSpec>,
    data: &Assembled,
    targets: &[Target],
    line: &[String],
) -> Result<Vec<AttackResult>, Failure> {
    let asked = Signals::listen().context("listening to signals")?;
    let halves = Halves::new(Stream::root(args.common.seed).child("shadows", 0));
    let folder = std::env::temp_dir().join(format!("fl-attack-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
    let _folder = RemovedOnDrop(&folder);
    let mut said: Vec<ShadowScores> = targets.iter().map(|_| Vec::new()).collect();
    let bar = crate::log::bar(indicatif::ProgressBar::new(args.shadows as u64));
    for shadow in 0..args.shadows {
        let dir = folder.join(shadow.to_string());
        let half = half(spec, &args.common.data, &halves, shadow)?;
        let execution = Execution {
            threads: fl_engine::threads(args.threads),
            stop: asked.stop.clone(),
            ..Execution::default()
        };
        let options = ExecuteOptions::new(args.common.data.path(), line.to_vec(), execution);
        let outcome = fl_engine::execute(spec, half, Folder::New(dir.clone()), options)
            .with_context(|| format!("shadow run {} of {}", shadow + 1, args.shadows))?;
        if outcome.stopped.is_some() || asked.stop.load(Ordering::Relaxed) {
            bar.finish_and_clear();
            return Err(asked.exit_code().map_or_else(
                || anyhow::anyhow!("a shadow run stopped early").into(),
                Failure::Stopped,
            ));
        }
        for (target, said) in targets.iter().zip(&mut said) {
            let mut model = target.load(&dir, spec, data)?;
            let mut members = Vec::new();
            for owner in target.owners(data) {
                members.extend(margins(model.as_mut(), owned(data, owner)?)?);
            }
            said.push((members, margins(model.as_mut(), &data.test)?));
        }
        std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let one = |(target, said): (&Target, &ShadowScores)| -> Result<AttackResult> {
        let mut model = target.load(&args.dir, spec, data)?;
        let mut scores = Vec::new();
        let mut missing = Vec::new();
        for owner in target.owners(data) {
            let own = owned(data, owner)?;
            scores.extend(margins(model.as_mut(), own)?);
            missing.push((owner as u64, own.len()));
        }
        let members: Vec<&[f64]> = said.iter().map(|(members, _)| &members[..]).collect();
        let members = lira(&scores, &without(&halves, &members, &missing))?;
        let others: Vec<&[f64]> = said.iter().map(|(_, others)| &others[..]).collect();
        let missing = [(NOBODY, data.test.len())];
        let others = lira(
            &margins(model.as_mut(), &data.test)?,
            &without(&halves, &others, &missing),
        )?;
        Ok(AttackResult {
            model: target.name.clone(),
            attack: "lira",
            strength: strength(&members, &others)?,
        })
    };
    let found: Result<Vec<AttackResult>> = targets.iter().zip(&said).map(one).collect();
    Ok(found?)
}

/// For each example the scores of the shadow models that lack it: `said` by shadow run, examples by
/// owner and how many it has.
fn without(halves: &Halves, said: &[&[f64]], owners: &[(u64, usize)]) -> Vec<Vec<f64>> {
    let mut all: Vec<Vec<f64>> = Vec::new();
    for (owner, n) in owners {
        let from = all.len();
        all.resize(from + n, Vec::new());
        for (shadow, said) in said.iter().enumerate() {
            let has = halves.of(shadow, *owner, *n);
            for (at, _) in has.iter().enumerate().filter(|(_, has)| !**has) {
                all[from + at].push(said[from + at]);
            }
        }
    }
    all
}

/// The spec's data with a half of each client's examples.
fn half(spec: &Spec<DataSpec>, dir: &DataDir, halves: &Halves, shadow: usize) -> Result<Assembled> {
    let mut data = fl_engine::data(spec, &dir.path())?;
    for (owner, own) in data.clients.iter_mut().enumerate() {
        let has = halves.of(shadow, owner as u64, own.len());
        let at: Vec<usize> = (0..own.len()).filter(|at| has[*at]).collect();
        *own = own.pick(&at);
    }
    Ok(data)
}

fn text(found: &[AttackResult], kept: Option<(&Guarantee, f64)>) -> String {
    let width = found
        .iter()
        .map(|f| f.model.len())
        .max()
        .unwrap_or(0)
        .max(5);
    let rate = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.4}"));
    let mut out = format!(
        "{:width$}  attack  members  others     AUC  advantage   at 1 %  at 0.1 %\n",
        "model"
    );
    for AttackResult {
        model,
        attack,
        strength: s,
    } in found
    {
        out += &format!(
            "{model:width$}  {attack:6}  {:7}  {:6}  {:.4}  {:9.4}  {:>7}  {:>8}\n",
            s.members,
            s.others,
            s.auc,
            s.advantage,
            rate(s.at_1_percent),
            rate(s.at_01_percent),
        );
    }
    let kept = kept.map(|(guarantee, bound)| (guarantee, UpperBound(bound)));
    out += &match kept {
        Some((Guarantee { noise: Noise::Seeded, .. }, bound)) => format!("the run's epsilon and delta against readers would limit the advantage to {bound} if its noise did not follow a seed that an attacker may know"),
        Some((_, bound)) => format!("the run's epsilon and delta against readers limit the advantage to {bound}"),
        None => "the run has no guarantee for one example against readers, so nothing limits the advantage".into(),
    };
    out
}
