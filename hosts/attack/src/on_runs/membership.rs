//! Who is among those that a run's models learnt from.

use super::search::{RemovedOnDrop, not_stopped};
use super::{AttackRun, usage};
use crate::{Halves, Strength, bound, lira, losses, margins, strength};
use anyhow::{Context, Result, bail};
use clap::Args;
use fl_core::privacy::{Guarantee, Neighbours, Observer, Unit};
use fl_core::{ClientId, Examples, Role, Stream};
use fl_data::{Assembled, DataSpec};
use fl_engine::{ExecuteOptions, FinishedRun, Folder, Signals, Target};
use fl_registry::Spec;
use fl_report::{Entry, Run};
use fl_sim::Execution;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The most shadow runs.
const MOST: usize = 1024;

/// What an attack on a model came to.
#[derive(Debug, Serialize)]
pub struct AttackResult {
    /// The model.
    pub model: String,
    /// How: `loss`, or `lira` with shadow runs.
    pub attack: &'static str,
    /// How well it tells members from others.
    #[serde(flatten)]
    pub strength: Strength,
}

/// What shadow models say of the members and of the others, one model after the other.
type ShadowScores = Vec<(Vec<f64>, Vec<f64>)>;

/// The owner that the test rows count as, when halves are drawn.
const NOBODY: u64 = u64::MAX;

/// What an attack on membership takes.
#[derive(Args, Clone, Debug)]
pub struct MembershipOptions {
    /// The folder of a run that is done.
    #[arg(value_name = "RUN")]
    pub dir: PathBuf,
    /// Run the spec N times more (an even number), each time without a half of all clients'
    /// examples, and compare with those models (LiRA).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub shadows: usize,
    /// Clients that a shadow run serves at the same time; every processor's worth if not given.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// What an attack on membership came to.
#[derive(Debug)]
pub struct MembershipFound {
    /// The run's guarantee for one example against readers, and the largest advantage that it
    /// allows.
    pub kept: Option<(Guarantee, f64)>,
    /// What each attack on each model came to.
    pub attacks: Vec<AttackResult>,
}

/// Tells from a run's kept models which examples the clients have that took part in it.
///
/// # Errors
/// If the run cannot be read, its spec has no examples here, or its task has no classes or labels of
/// whole samples.
pub fn attack_membership(
    options: &MembershipOptions,
    how: &AttackRun<'_>,
) -> Result<MembershipFound> {
    if options.shadows % 2 == 1 || options.shadows > MOST {
        return Err(usage(format!(
            "--shadows: must be an even number up to {MOST}, because shadow runs are made in pairs, got {}",
            options.shadows
        )));
    }
    let run = Run::open(&options.dir)?;
    let FinishedRun {
        spec,
        data,
        targets,
        trains,
    } = FinishedRun::open(&options.dir, &how.data_dir, how.catalogue, how.line)?;
    if !data.task.kind.scores_classes() {
        let why = "the attack needs classes or labels of whole samples, and this task has a value for every pixel, or numbers to predict";
        return Err(usage(why));
    }
    let owners = Owners::of(&run, &trains, &spec);
    let mut found = Vec::new();
    for target in &targets {
        let mut model = target.load(&options.dir, &spec, &data)?;
        let mut score = |examples: &Examples| -> Result<Vec<f64>> {
            let losses = losses(model.as_mut(), examples);
            Ok(losses?.into_iter().map(|loss| -loss).collect())
        };
        let mut members = Vec::new();
        for owner in owners.learnt_from(target, &data) {
            members.extend(score(owned(&data, owner)?)?);
        }
        found.push(AttackResult {
            model: target.name.clone(),
            attack: "loss",
            strength: strength(&members, &score(&data.test)?)
                .with_context(|| format!("model `{}`", target.name))?,
        });
    }
    if options.shadows > 0 {
        found.extend(compare_with_shadows(
            (options, how),
            &spec,
            &data,
            (&targets, &owners),
        )?);
    }
    let kept = kept(&run);
    let kept = kept.map(|kept| {
        let at_most = bound(kept.epsilon, kept.delta);
        (kept, at_most)
    });
    Ok(MembershipFound {
        kept,
        attacks: found,
    })
}

/// Whose examples a run learnt from.
struct Owners<'a> {
    /// The clients that trained; none if the journal does not name them all.
    trained: BTreeSet<ClientId>,
    spec: &'a Spec<DataSpec>,
}

impl<'a> Owners<'a> {
    fn of(run: &Run, trains: &[String], spec: &'a Spec<DataSpec>) -> Self {
        let trains = |entry: &&Entry| trains.iter().any(|label| **label == *entry.question);
        let asked = || run.journal.iter().filter(trains);
        // the journal does not list the answers of many clients
        let whole = |entry: &Entry| {
            let known = entry.answers.len() + entry.dropped.len();
            entry.clients == known as u64
        };
        let listed = asked().filter(|_| asked().all(whole));
        let answers = listed.flat_map(|entry| &entry.answers);
        Self {
            trained: answers.map(|(id, _)| *id).collect(),
            spec,
        }
    }

    /// Returns whose examples a model learnt from; everyone's, if nothing says who took part. What
    /// an attacker answers need not come from its examples.
    fn learnt_from(&self, target: &Target, data: &Assembled) -> Vec<usize> {
        let parts = &self.spec.parts;
        let attacks = |id| {
            let mut all = parts.iter().filter(|part| part.decl.role == Role::Attack);
            all.any(|part| parts.has_for(&part.slot, id))
        };
        let mut all = target.owners(data);
        all.retain(|id| {
            let id = *id as ClientId;
            let trained = self.trained.is_empty() || self.trained.contains(&id);
            trained && !attacks(id)
        });
        all
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
    (options, how): (&MembershipOptions, &AttackRun<'_>),
    spec: &Spec<DataSpec>,
    data: &Assembled,
    (targets, owners): (&[Target], &Owners<'_>),
) -> Result<Vec<AttackResult>> {
    let asked = Signals::listen().context("listening to signals")?;
    let halves = Halves::new(Stream::root(how.seed).child("shadows", 0));
    let folder = std::env::temp_dir().join(format!("fl-attack-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
    let _folder = RemovedOnDrop(&folder);
    let mut said: Vec<ShadowScores> = targets.iter().map(|_| Vec::new()).collect();
    let bar = (how.progress)(options.shadows as u64);
    for shadow in 0..options.shadows {
        let dir = folder.join(shadow.to_string());
        let half = half(spec, &how.data_dir, &halves, shadow)?;
        let execution = Execution {
            threads: fl_engine::threads(options.threads),
            stop: asked.stop.clone(),
            ..Execution::default()
        };
        let shadow_run = ExecuteOptions::new(how.data_dir.clone(), how.line.to_vec(), execution);
        let outcome = fl_engine::execute(spec, half, Folder::New(dir.clone()), shadow_run)
            .with_context(|| format!("shadow run {} of {}", shadow + 1, options.shadows))?;
        if outcome.stopped.is_some() || asked.stop.load(Ordering::Relaxed) {
            bar.end();
            not_stopped(&asked)?;
            bail!("a shadow run stopped early");
        }
        for (target, said) in targets.iter().zip(&mut said) {
            let mut model = target.load(&dir, spec, data)?;
            let mut members = Vec::new();
            for owner in owners.learnt_from(target, data) {
                members.extend(margins(model.as_mut(), owned(data, owner)?)?);
            }
            said.push((members, margins(model.as_mut(), &data.test)?));
        }
        std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        bar.step();
    }
    bar.end();
    let one = |(target, said): (&Target, &ShadowScores)| -> Result<AttackResult> {
        let mut model = target.load(&options.dir, spec, data)?;
        let mut scores = Vec::new();
        let mut missing = Vec::new();
        for owner in owners.learnt_from(target, data) {
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
    targets.iter().zip(&said).map(one).collect()
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
fn half(spec: &Spec<DataSpec>, dir: &Path, halves: &Halves, shadow: usize) -> Result<Assembled> {
    let mut data = fl_engine::data(spec, dir)?;
    for (owner, own) in data.clients.iter_mut().enumerate() {
        let has = halves.of(shadow, owner as u64, own.len());
        let at: Vec<usize> = (0..own.len()).filter(|at| has[*at]).collect();
        *own = own.pick(&at);
    }
    Ok(data)
}
