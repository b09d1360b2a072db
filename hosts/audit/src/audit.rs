//! [`Audit`]: many runs on two neighbouring data sets, in a folder that a stopped audit resumes
//! from.

use crate::bounds;
use crate::canaries;
use crate::directions::{Directions, Observation, Pilots};
use crate::judge::{LowerBound, judge};
use crate::neighbours::{self, Pair};
use crate::views::{self, View, Views, Watcher};
use anyhow::{Context, Result, ensure};
use fl_core::privacy::{
    Guarantee, Neighbours, Noise, NoiseSource, Observer, Protection, Protections, Unit,
};
use fl_core::{Examples, Stream, hex};
use fl_data::{Assembled, DataSpec, Split};
use fl_engine::{ExecuteOptions, Folder, NotRun};
use fl_registry::Spec;
use fl_sim::{Execution, Outcome, Watch};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

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
/// The folder of runs that go on.
const WORK: &str = "work";

/// How the two data sets come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Many runs of each of two worlds: this number.
    Runs(usize),
    /// One run with this number of canaries.
    Canaries(usize),
}

/// What to audit, and how.
pub struct AuditOptions<'a> {
    /// The number of runs or of canaries.
    pub method: Method,
    /// The unit and the change of neighbours; otherwise those of the claim.
    pub unit: Option<Unit>,
    /// As `unit`.
    pub change: Option<Neighbours>,
    /// The client that has the unit; otherwise one is drawn.
    pub client: Option<usize>,
    /// The first rows of every client that are kept.
    pub rows: Option<usize>,
    /// A neighbour that the user gives, and its name.
    pub neighbour: Option<(Spec<DataSpec>, String)>,
    /// The probability that no bound of this audit is wrong.
    pub confidence: f64,
    /// All draws of the audit follow from it.
    pub seed: u64,
    /// The folder of the audit.
    pub out: PathBuf,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The number of runs at the same time.
    pub threads: usize,
    /// Once this is set, the audit stops.
    pub stop: Arc<AtomicBool>,
    /// Called after each run.
    pub progress: &'a (dyn Fn(AuditProgress) + Sync),
}

/// How far an audit is.
#[derive(Clone, Copy, Debug)]
pub struct AuditProgress {
    /// Number of runs done.
    pub done: usize,
    /// Number of runs in all.
    pub of: usize,
    /// How long the others will take, once a few are done.
    pub left: Option<Duration>,
}

/// Whether a claim holds as far as the audit can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The bound is above the claim, or something differs in every run.
    Broken,
    /// The audit has found nothing against the claim.
    NotRefuted,
    /// There is no claim for this observer and unit.
    NoClaim,
    /// The observer sees nothing that this method can judge.
    NotJudged,
}

/// What two neighbours differ in, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Game {
    /// The unit.
    pub unit: Unit,
    /// The change.
    pub change: Neighbours,
}

impl Display for Game {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.unit, self.change) {
            (Unit::Example, Neighbours::Removed) => "example added or removed",
            (Unit::Example, Neighbours::Replaced) => "example replaced",
            (Unit::Party, Neighbours::Removed) => "party with its data or none",
            (Unit::Party, Neighbours::Replaced) => "party replaced",
        })
    }
}

/// What an audit has found about one observer.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The observer.
    pub observer: Observer,
    /// What the neighbours differ in.
    #[serde(flatten)]
    pub game: Game,
    /// The claimed guarantee against it.
    pub claim: Option<Guarantee>,
    /// The reasons if there is none.
    pub no_claim: Vec<String>,
    /// The delta of the bound.
    pub delta: f64,
    /// What was shown.
    pub shown: LowerBound,
    /// What follows.
    pub verdict: Verdict,
}

/// What an audit has found.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// The name of the spec.
    pub name: String,
    /// The method and its size, for people.
    pub method: String,
    /// The differences of the neighbours, for people.
    pub compared: Vec<String>,
    /// The probability that all bounds are right.
    pub confidence: f64,
    /// The seed of the audit.
    pub seed: u64,
    /// The source of noise in the spec.
    pub noise: Noise,
    /// By observer.
    pub findings: Vec<Finding>,
    /// What a user should know.
    pub notes: Vec<String>,
    /// The digest of everything that the runs showed.
    pub digest: String,
}

impl Audit {
    /// Returns whether a claim is broken.
    pub fn broken(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.verdict == Verdict::Broken)
    }
}

/// One run of one world, in `runs.jsonl`.
#[derive(Serialize, Deserialize)]
struct RunRecord {
    world: usize,
    run: usize,
    views: BTreeMap<Observer, Observation>,
}

/// What one run showed.
pub(crate) struct Observed {
    pub views: Views,
    pub outcome: Option<Outcome>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// What runs of an audit have in common.
pub(crate) struct Runner<'a> {
    pub spec: &'a Spec<DataSpec>,
    pub rows: Option<Examples>,
    pub options: &'a AuditOptions<'a>,
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

/// The number of observers, whose bounds share the probability of an error.
pub(crate) const OBSERVERS: f64 = Observer::ALL.len() as f64;

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
    ensure!(
        !matches!(spec.data.split(), Split::Own),
        NotRun::Usage(
            "the clients of this spec own their data, so this machine cannot run them".into()
        )
    );
    ensure!(
        options.confidence > 0.0 && options.confidence < 1.0,
        NotRun::Usage(format!(
            "--confidence: must be between 0 and 1, got {}",
            options.confidence
        ))
    );
    if let Method::Runs(runs) = options.method {
        ensure!(
            runs >= LEAST_RUNS,
            NotRun::Usage(format!(
                "--runs: must be at least {LEAST_RUNS}, got {runs}: with fewer, something may differ in every run by chance"
            ))
        );
    } else {
        ensure!(
            options.neighbour.is_none(),
            NotRun::Usage("a neighbour is for many runs; leave out --canaries".into())
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
        ensure!(
            rest(spec)? == rest(other)?,
            NotRun::Usage(format!(
                "{name} differs from the spec in more than its data; neighbours differ in `data` only"
            ))
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

/// Secret randomness of one run.
pub(crate) fn key(stream: &Stream, what: &str, run: usize) -> Stream {
    stream.child(what, run as u64)
}

fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Opens the folder of an audit, new or stopped.
fn open(spec: &Spec<DataSpec>, options: &AuditOptions<'_>) -> Result<()> {
    let digest =
        |spec: &Spec<DataSpec>| -> Result<String> { Ok(hex(&Sha256::digest(spec.yaml()?))) };
    let files = |spec: &Spec<DataSpec>| -> Result<Vec<String>> {
        let files = fl_engine::data_files(&spec.data, &options.data_dir)?;
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
    match std::fs::read(&path) {
        // one without records is none
        Ok(_) if std::fs::metadata(out.join(RUNS)).map_or(0, |file| file.len()) == 0 => {}
        Ok(text) => {
            let there: serde_json::Value = serde_json::from_slice(&text)
                .with_context(|| format!("reading {}", path.display()))?;
            ensure!(
                there == plan,
                NotRun::Usage(format!(
                    "{} has another audit (of another spec, other data, or with other options); give a new folder with --out",
                    out.display()
                ))
            );
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            ensure!(
                std::fs::read_dir(out)?.next().is_none(),
                NotRun::Usage(format!(
                    "{} is not empty; give a new folder with --out",
                    out.display()
                ))
            );
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    }
    fl_sim::write(&path, &serde_json::to_vec_pretty(&plan)?)
}

impl Runner<'_> {
    /// Runs the spec on these data with this secret randomness, in the folder `run` of the one that
    /// it returns with the outcome. Gives `None` when the audit was stopped.
    ///
    /// # Errors
    /// If the machine fails; that says nothing about the data.
    pub fn execute(
        &self,
        data: &Assembled,
        key: &Stream,
        watch: Watch<'_>,
    ) -> Result<Option<(TempDir, Result<Outcome>)>> {
        let stop = &self.options.stop;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let folder = tempfile::tempdir_in(self.options.out.join(WORK));
        let folder = folder.context("making a folder for a run")?;
        let execution = Execution {
            stop: stop.clone(),
            watch: Some(watch),
            ..Execution::default()
        };
        let options = ExecuteOptions {
            noise: Some(NoiseSource::System(key.clone())),
            ..ExecuteOptions::new(self.options.data_dir.clone(), Vec::new(), execution)
        };
        let dir = Folder::New(folder.path().join("run"));
        match fl_engine::execute(self.spec, data.clone(), dir, options) {
            Ok(outcome) if outcome.stopped.is_some() => Ok(None),
            Err(error) if error.chain().any(|e| e.is::<std::io::Error>()) => Err(error),
            outcome => Ok(Some((folder, outcome))),
        }
    }

    /// Runs the spec, and collects what observers see. A run that fails is a fact that all see.
    ///
    /// # Errors
    /// As [`Runner::execute`].
    pub fn run(&self, data: &Assembled, key: &Stream) -> Result<Option<Observed>> {
        let watcher = Arc::new(Mutex::new(Watcher::default()));
        let watching = watcher.clone();
        let watch = move |observer, what: &str, bytes: &[u8]| {
            let mut watcher = watching.lock().unwrap_or_else(PoisonError::into_inner);
            watcher.see(observer, what, bytes);
        };
        let Some((folder, outcome)) = self.execute(data, key, Box::new(watch))? else {
            return Ok(None);
        };
        let watcher = std::mem::take(&mut *watcher.lock().unwrap_or_else(PoisonError::into_inner));
        let mut views = watcher.finish();
        let (outcome, failure) = match outcome {
            Ok(outcome) => {
                let (dir, rows) = (folder.path().join("run"), self.rows.as_ref());
                views::add_files(&mut views, &dir, self.spec, &data.task, (rows, &data.test))?;
                (Some(outcome), None)
            }
            Err(error) => {
                let why = format!("{error:#}");
                for observer in Observer::ALL {
                    let view: &mut View = views.entry(observer).or_default();
                    view.facts.insert("the run fails".into(), why.clone());
                }
                (None, Some(why))
            }
        };
        Ok(Some(Observed {
            views,
            outcome,
            failure,
        }))
    }
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
        let verdict = match &claim {
            None => Verdict::NoClaim,
            Some(claim) if shown.epsilon > claim.epsilon || shown.different > 0 => Verdict::Broken,
            Some(_) => Verdict::NotRefuted,
        };
        if let Some(claim) = claim.as_ref().filter(|claim| shown.most <= claim.epsilon)
            && let Some(more) = bounds::runs_for(claim.epsilon, delta, self.error_rate / 2.0)
        {
            audit.notes.push(format!(
                "{observer}, {game}: {} runs cannot show more than the claim; --runs {more} could",
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

/// The claim against an observer for these neighbours, or why there is none.
pub(crate) fn claim_of(
    claims: &Protections,
    observer: Observer,
    game: Game,
) -> (Option<Guarantee>, Vec<String>) {
    let claim = match claims.get(&observer) {
        None => return (None, vec!["the spec has no accountant".into()]),
        Some(Protection::Nothing { nothing, .. }) => return (None, nothing.clone()),
        Some(Protection::Holds(claim)) => claim,
    };
    // what holds when a row is replaced does not hold with the same epsilon for one row more; a
    // party may be replaced by one without data
    let covers = claim.neighbours == game.change
        || (claim.unit == Unit::Party && claim.neighbours == Neighbours::Replaced);
    match claim.unit == game.unit && covers {
        true => (Some(claim.clone()), Vec::new()),
        false => (None, vec![format!("its claim is another: {claim}")]),
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
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(what),
        };
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
        let file = fl_sim::open_own(path, OpenOptions::new().create(true).append(true));
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
