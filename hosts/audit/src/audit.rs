//! [`Audit`]: many runs on two neighbouring data sets, in a folder that a stopped audit resumes
//! from.

use crate::bounds;
use crate::canaries;
use crate::directions::{Directions, Observation, Pilots};
use crate::finding::{Audit, Finding, Game, OBSERVERS, Verdict, claim_of};
use crate::judge::judge;
use crate::neighbours::{self, Pair};
use crate::runner::{AuditOptions, AuditProgress, Method, Runner, WORK, key};
use anyhow::{Context, Result};
use fl_core::privacy::{Neighbours, Noise, Observer, Protections, Unit};
use fl_core::regular_file::{MOST_BINARY, MOST_TEXT, read_regular};
use fl_core::{Stream, hex};
use fl_data::{Assembled, DataSpec, Split};
use fl_registry::Spec;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The number of pairs of pilot runs, which show where to look.
const PILOTS: usize = 4;
/// The fewest runs of each world: with fewer, a fact may differ in every run by chance.
pub const LEAST_RUNS: usize = 10;
/// The delta of a bound for an observer without a claim.
const DELTA: f64 = 1e-5;
/// What the audit was asked, in its folder.
const PLAN: &str = "plan.json";
/// What the runs showed, a line each.
const RUNS: &str = "runs.jsonl";

/// One run of one world, in `runs.jsonl`.
#[derive(Serialize, Deserialize)]
struct RunRecord {
    world: usize,
    run: usize,
    views: BTreeMap<Observer, Observation>,
}

/// Audits a spec. Gives `None` when it was stopped; with the same options it goes on.
///
/// # Errors
/// If the options do not fit the spec, the folder has another audit, or no run succeeds.
pub fn audit(spec: Spec<DataSpec>, options: &AuditOptions<'_>) -> Result<Option<Audit>> {
    check(&spec, options)?;
    let notes = notes(&spec);
    let spec = &Spec {
        ledger: None,
        ..spec
    };
    let mut data = fl_engine::data(spec, &options.data_dir)?;
    if let Some(rows) = options.rows {
        neighbours::shorten(&mut data, rows);
    }
    let stream = Stream::root(options.seed).child("audit", 0);
    open(spec, options)?;
    let work = options.out.join(WORK);
    remove(&work)?;
    std::fs::create_dir(&work).with_context(|| format!("making {}", work.display()))?;
    let runner = Runner {
        spec,
        rows: None,
        options,
    };
    // the claims of a run as it is
    let Some(first) = runner.run(&data, &key(&stream, "claims", 0))? else {
        return Ok(None);
    };
    let outcome = first.outcome.with_context(|| {
        let why = first.failure.unwrap_or_default();
        format!("the spec's own run failed, so there is nothing to audit: {why}")
    })?;
    let claims = outcome.privacy.unwrap_or_default();
    let games = games(&claims, options);
    let mut audit = Audit {
        name: spec.name.clone(),
        method: String::new(),
        compared: Vec::new(),
        confidence: options.confidence,
        seed: options.seed,
        noise: spec.noise,
        findings: Vec::new(),
        notes,
        digest: String::new(),
    };
    let done = match options.method {
        Method::Runs(runs) => {
            audit.method = format!("{runs} runs of each of two data sets");
            let many = Many {
                runner,
                claims: &claims,
                stream: &stream,
                runs,
                error_rate: (1.0 - options.confidence) / (OBSERVERS * games.len() as f64),
            };
            many.play(&mut audit, &data, &games)?
        }
        Method::Canaries(canaries) => canaries::one_run(
            &mut audit, games[0], &runner, &data, canaries, &claims, &stream,
        )?,
    };
    remove(&work)?;
    Ok(done.then_some(audit))
}

fn notes(spec: &Spec<DataSpec>) -> Vec<String> {
    let mut notes = Vec::new();
    if spec.noise == Noise::Seeded {
        notes.push(
            "the spec has `noise: seeded`, which guarantees nothing; the audit draws secret noise for every run, as `noise: system` does, and tests the estimate".into(),
        );
    }
    if spec.ledger.is_some() {
        notes.push("runs of an audit are not in the ledger of the spec".into());
    }
    notes
}

fn check(spec: &Spec<DataSpec>, options: &AuditOptions<'_>) -> Result<()> {
    ensure_usage!(
        !matches!(spec.data.split(), Split::Own),
        "the clients of this spec own their data, so this machine cannot run them"
    );
    ensure_usage!(
        options.confidence > 0.0 && options.confidence < 1.0,
        "--confidence: must be between 0 and 1, got {}",
        options.confidence
    );
    if let Method::Runs(runs) = options.method {
        ensure_usage!(
            runs >= LEAST_RUNS,
            "--runs: must be at least {LEAST_RUNS}, got {runs}: with fewer, something may differ in every run by chance"
        );
    } else {
        ensure_usage!(
            options.neighbour.is_none(),
            "a neighbour is for many runs; leave out --canaries"
        );
    }
    if let Some((other, name)) = &options.neighbour {
        let rest = |spec: &Spec<DataSpec>| -> Result<String> {
            let mut value = spec.resolved.clone();
            if let Some(of) = value.as_mapping_mut() {
                for key in ["name", "data", "ledger"] {
                    of.shift_remove(key);
                }
            }
            fl_core::settings::to_yaml(&value)
        };
        ensure_usage!(
            rest(spec)? == rest(other)?,
            "{name} differs from the spec in more than its data; neighbours differ in `data` only"
        );
    }
    Ok(())
}

/// What to compare: what the claims are for, unless the user says it. A claim for a party that is
/// replaced holds for one without data too.
fn games(claims: &Protections, options: &AuditOptions<'_>) -> Vec<Game> {
    let mut games = Vec::new();
    let mut add = |unit, change| {
        let game = Game {
            unit: options.unit.unwrap_or(unit),
            change: options.change.unwrap_or(change),
        };
        if !games.contains(&game) {
            games.push(game);
        }
    };
    for claim in claims.values().filter_map(|claim| claim.guarantee()) {
        add(claim.unit, claim.neighbours);
        let of_party = claim.unit == Unit::Party && options.unit != Some(Unit::Example);
        if of_party && options.neighbour.is_none() {
            add(Unit::Party, Neighbours::Removed);
        }
    }
    if games.is_empty() {
        let game = Game {
            unit: options.unit.unwrap_or(Unit::Example),
            change: options.change.unwrap_or(Neighbours::Replaced),
        };
        games.push(game);
    }
    games
}

fn remove(dir: &Path) -> Result<()> {
    fl_files::remove(dir).with_context(|| format!("removing {}", dir.display()))
}

/// Opens the folder of an audit, new or stopped.
fn open(spec: &Spec<DataSpec>, options: &AuditOptions<'_>) -> Result<()> {
    let digest =
        |spec: &Spec<DataSpec>| -> Result<String> { Ok(hex(&Sha256::digest(spec.yaml()?))) };
    let files = |spec: &Spec<DataSpec>| -> Result<Vec<String>> {
        let files = fl_engine::input_files(spec, &options.data_dir)?;
        Ok(files.into_iter().map(|file| file.sha256).collect())
    };
    let other = options.neighbour.as_ref();
    let plan = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"), "spec": digest(spec)?, "data": files(spec)?,
        "neighbour": other.map(|(other, _)| digest(other)).transpose()?,
        "neighbour-data": other.map(|(other, _)| files(other)).transpose()?,
        "method": format!("{:?}", options.method), "unit": options.unit, "change": options.change,
        "client": options.client, "rows": options.rows, "confidence": options.confidence,
        "seed": options.seed,
    });
    let (out, path) = (&options.out, options.out.join(PLAN));
    std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    match read_regular(&path, MOST_TEXT) {
        // one without records is none
        Ok(_) if std::fs::metadata(out.join(RUNS)).map_or(0, |file| file.len()) == 0 => {}
        Ok(text) => {
            let there: serde_json::Value = serde_json::from_slice(&text)
                .with_context(|| format!("reading {}", path.display()))?;
            ensure_usage!(
                there == plan,
                "{} has another audit (of another spec, other data, or with other options); give a new folder with --out",
                out.display()
            );
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            ensure_usage!(
                std::fs::read_dir(out)?.next().is_none(),
                "{} is not empty; give a new folder with --out",
                out.display()
            );
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    }
    // who can guess a data file could check the guess by its hash
    fl_files::write_secret(&path, &serde_json::to_vec_pretty(&plan)?)
}

/// Many runs of neighbouring data sets.
struct Many<'a> {
    runner: Runner<'a>,
    claims: &'a Protections,
    stream: &'a Stream,
    runs: usize,
    error_rate: f64,
}

impl Many<'_> {
    /// Plays all games. Gives `false` when the audit was stopped.
    fn play(&self, audit: &mut Audit, data: &Assembled, games: &[Game]) -> Result<bool> {
        let options = self.runner.options;
        let mut records = Records::open(&options.out.join(RUNS))?;
        let mut played = Vec::new();
        for game in games {
            let stream = self.stream.child("game", played.len() as u64);
            let pair = self.pair(data, *game)?;
            let runner = Runner {
                rows: pair.rows.clone(),
                ..self.runner
            };
            let Some((directions, failed)) = pilots(&runner, &pair, &stream)? else {
                return Ok(false);
            };
            let claimed = self.claims.values().filter_map(|claim| claim.guarantee());
            let mut claimed = claimed.map(|claim| (claim.unit, claim.neighbours));
            if let Some(why) = failed
                && options.change.is_none()
                && options.neighbour.is_none()
                && !claimed.any(|claim| claim == (game.unit, game.change))
            {
                audit.notes.push(format!(
                    "a client without data cannot take part in this method ({why}), so no run was without the data of one"
                ));
                continue;
            }
            played.push((*game, pair, runner, directions, stream));
        }
        let of = 2 * self.runs * played.len();
        for (at, (_, pair, runner, directions, stream)) in played.iter().enumerate() {
            let side = Side {
                runner,
                pair,
                directions,
                stream,
                first: 2 * at,
            };
            if !fill(&mut records, &side, self.runs, of)? {
                return Ok(false);
            }
        }
        let mut digest = Sha256::new();
        for (at, (game, pair, _, directions, _)) in played.iter().enumerate() {
            audit.compared.push(format!("{game}: {}", pair.what));
            let worlds = [2 * at, 2 * at + 1].map(|world| {
                let all = records.all.values();
                all.filter(|r| r.world == world).collect::<Vec<_>>()
            });
            digest.update(serde_json::to_vec(&(&pair.what, &worlds))?);
            for observer in Observer::ALL {
                let none = Observation::default();
                let worlds = worlds.each_ref().map(|world| -> Vec<Observation> {
                    let seen = world
                        .iter()
                        .map(|r| r.views.get(&observer).unwrap_or(&none));
                    seen.cloned().collect()
                });
                let worlds = worlds.each_ref().map(Vec::as_slice);
                let finding = self.finding(audit, observer, *game, worlds, directions);
                audit.findings.push(finding);
            }
        }
        audit.digest = hex(&digest.finalize());
        Ok(true)
    }

    fn pair(&self, data: &Assembled, game: Game) -> Result<Pair> {
        let options = self.runner.options;
        let Some((other, name)) = &options.neighbour else {
            return Pair::of(data, (game.unit, game.change), options.client, self.stream);
        };
        let mut other = fl_engine::data(other, &options.data_dir)?;
        if let Some(rows) = options.rows {
            neighbours::shorten(&mut other, rows);
        }
        Pair::given(data.clone(), other, name)
    }

    fn finding(
        &self,
        audit: &mut Audit,
        observer: Observer,
        game: Game,
        worlds: [&[Observation]; 2],
        directions: &Directions,
    ) -> Finding {
        let (claim, no_claim) = claim_of(self.claims, observer, game);
        let delta = claim.as_ref().map_or(DELTA, |claim| claim.delta);
        let shown = judge(observer, worlds, directions, delta, self.error_rate);
        let verdict = Verdict::of(&shown, claim.as_ref().map(|claim| claim.epsilon));
        if let Some(claim) = claim.as_ref().filter(|claim| shown.most <= claim.epsilon)
            && let Some(more) = bounds::runs_for(claim.epsilon, delta, self.error_rate / 2.0)
        {
            audit.notes.push(format!(
                "{observer}, {game}: {} runs are too few to refute the claim, whatever they show; --runs {more} may",
                self.runs
            ));
        }
        Finding {
            observer,
            game,
            claim,
            no_claim,
            delta,
            shown,
            verdict,
        }
    }
}

/// Pairs of runs with the same secret randomness, which show where the unit moves what is seen; and
/// why runs of the second world fail where those of the first do not.
fn pilots(
    runner: &Runner<'_>,
    pair: &Pair,
    stream: &Stream,
) -> Result<Option<(Directions, Option<String>)>> {
    let (mut pilots, mut failed) = (Pilots::default(), None);
    for run in 0..PILOTS {
        let key = key(stream, "pilot", run);
        let [one, other] = pair.worlds.each_ref();
        let (Some(one), Some(other)) = (runner.run(one, &key)?, runner.run(other, &key)?) else {
            return Ok(None);
        };
        if one.failure.is_none() {
            failed = failed.or(other.failure);
        }
        pilots.add(one.views, &other.views);
    }
    Ok(Some((pilots.finish(), failed)))
}

/// The records of an audit, in memory and in its folder.
struct Records {
    file: File,
    all: BTreeMap<(usize, usize), RunRecord>,
}

impl Records {
    /// Reads those of a stopped audit. A line that was being written when it ended does not count.
    fn open(path: &Path) -> Result<Self> {
        let what = || format!("reading {}", path.display());
        let mut all = BTreeMap::new();
        let mut whole = 0;
        let text = fl_files::present(read_regular(path, MOST_BINARY)).with_context(what)?;
        let text = text.unwrap_or_default();
        for line in text.split_inclusive(|b| *b == b'\n') {
            if line.ends_with(b"\n") {
                let record: RunRecord = serde_json::from_slice(line).with_context(|| {
                    format!(
                        "{} is damaged; remove the folder, and audit again",
                        path.display()
                    )
                })?;
                whole += line.len() as u64;
                all.insert((record.world, record.run), record);
            }
        }
        // it has what the server saw, so it is for its owner only
        let file = fl_files::open_own(path, OpenOptions::new().create(true).append(true));
        let file = file.with_context(what)?;
        file.set_len(whole).with_context(what)?;
        Ok(Self { file, all })
    }

    fn add(&mut self, record: RunRecord) -> Result<()> {
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        self.file.write_all(&line).context("writing a record")?;
        self.file.sync_data().context("writing a record")?;
        self.all.insert((record.world, record.run), record);
        Ok(())
    }
}

/// A game that is played.
struct Side<'a> {
    runner: &'a Runner<'a>,
    pair: &'a Pair,
    directions: &'a Directions,
    stream: &'a Stream,
    /// The number of its first world in the records.
    first: usize,
}

/// Does the runs that are missing, several at once. Gives `false` when the audit was stopped.
fn fill(records: &mut Records, game: &Side<'_>, runs: usize, of: usize) -> Result<bool> {
    let Side {
        runner,
        pair,
        directions,
        stream,
        first,
    } = *game;
    let all = (0..runs).flat_map(|run| [(first, run), (first + 1, run)]);
    let mut missing: Vec<(usize, usize)> = all.filter(|at| !records.all.contains_key(at)).collect();
    missing.reverse();
    let (before, todo, began) = (records.all.len(), missing.len(), Instant::now());
    let state = Mutex::new((missing, records, Ok(true)));
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let Some((world, run)) = ({
                let mut state = lock();
                let go_on = matches!(state.2, Ok(true));
                go_on.then(|| state.0.pop()).flatten()
            }) else {
                return;
            };
            let side = world - first;
            let key = key(stream, ["with", "without"][side], run);
            let seen = runner.run(&pair.worlds[side], &key);
            let record = seen.map(|seen| {
                let views = seen?.views.into_iter();
                let views = views.map(|(o, view)| (o, directions.reduce(o, view)));
                Some(RunRecord {
                    world,
                    run,
                    views: views.collect(),
                })
            });
            let mut state = lock();
            let (_, records, result) = &mut *state;
            match record.and_then(|record| record.map(|r| records.add(r)).transpose()) {
                Ok(Some(())) => {
                    let done = records.all.len() - before;
                    let left = of - records.all.len();
                    let each = began.elapsed().div_f64(done as f64);
                    (runner.options.progress)(AuditProgress {
                        done: of - left,
                        of,
                        left: (done > 3).then(|| each.mul_f64(left as f64)),
                    });
                }
                Ok(None) => *result = Ok(false),
                Err(error) => *result = Err(error),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..runner.options.threads.min(todo) {
            // where the system gives no more threads, there are fewer
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    state.into_inner().unwrap_or_else(PoisonError::into_inner).2
}
