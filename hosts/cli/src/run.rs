//! `fl run`.

use crate::ask::{Ask, Source, Told, carry_out};
use crate::{DataDir, Done, Failure, Overrides, print, say, stop};
use anyhow::Context;
use bytesize::ByteSize;
use clap::Args;
use fl_core::privacy::{Noise, NoiseSource};
use fl_core::{BuildContext, Public, RunOptions, Stream};
use fl_data::{Assembled, DataSpec};
use fl_registry::{Catalogue, Mistakes, Spec};
use fl_sim::{Begun, Hashed, Manifest, Outcome, Paused, Progress, RunFolder, Session, Setup, Warn};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Args)]
pub struct RunArgs {
    /// The spec.
    #[arg(required_unless_present = "resume")]
    spec: Option<PathBuf>,
    #[command(flatten)]
    set: Overrides,
    /// The run folder, new or empty; otherwise `runs/NAME-1`, `runs/NAME-2`, ...
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Go on with the run that was stopped in this folder. With `--set protocol.rounds=100` it gets more rounds, also when it
    /// is done, and comes to what it would have come to with so many from the first.
    #[arg(long, value_name = "DIR", conflicts_with = "spec")]
    resume: Option<PathBuf>,
    /// Stop after this many steps; `--resume` goes on.
    #[arg(long, value_name = "STEPS", value_parser = at_least_one)]
    stop_after: Option<usize>,
    /// Send every message through its wire form, as between processes. Results do not depend on it.
    #[arg(long)]
    wire: bool,
    /// Clients that are served at the same time; otherwise one per processor. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = a_number_of_threads)]
    threads: Option<usize>,
    /// How much memory the program is to hold at most, such as `4GiB`: fewer clients train at once when another would pass it, and
    /// what clients keep between two questions (models, control variates) goes to the run folder beyond a quarter of it. Data
    /// are held in any case; what cannot be kept is said. Results do not depend on it.
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    #[command(flatten)]
    data: DataDir,
    /// One JSON object on stdout.
    #[arg(long)]
    json: bool,
}

pub fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| "must be a whole number, at least 1".into())
}

/// More threads than any machine has processors only get into each other's way.
pub const MOST_THREADS: usize = 1024;

pub fn a_number_of_threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|n| (1..=MOST_THREADS).contains(n));
    number.ok_or_else(|| format!("must be a whole number from 1 to {MOST_THREADS}"))
}

/// Reads a spec, or says everything that is wrong with it.
pub fn check(
    path: &Path,
    set: &[String],
    catalogue: &Catalogue,
) -> Result<Result<Spec<DataSpec>, Mistakes>, Failure> {
    let name = path.display().to_string();
    let text = read_file(path).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    check_text(&name, &text, set, catalogue)
}

/// As `check`, of a spec's text; what is relative in it is relative to the folder of `name`, which mistakes call it.
pub fn check_text(
    name: &str,
    text: &[u8],
    set: &[String],
    catalogue: &Catalogue,
) -> Result<Result<Spec<DataSpec>, Mistakes>, Failure> {
    let catalogue = catalogue
        .with_plugins(name, text, set)
        .map_err(Failure::Refused)?;
    Ok(fl_registry::read(name, text, set, &catalogue))
}

/// As [`check`]; mistakes are the command's failure.
pub fn read(path: &Path, set: &[String], catalogue: &Catalogue) -> Result<Spec<DataSpec>, Failure> {
    check(path, set, catalogue)?.map_err(Failure::Mistakes)
}

/// No more of a file than a spec may have, so that `fl check /dev/zero` ends too; a pipe that nobody writes to never would.
fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut text = Vec::new();
    crate::open(path)?
        .take(fl_registry::MAX_BYTES as u64 + 1)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// The data of a spec; tells what a user should know of them.
pub fn assemble(
    spec: &Spec<DataSpec>,
    dir: &DataDir,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<Assembled> {
    let data = build(spec, dir)?;
    let accounts = spec.parts.has("accountant");
    let uneven = data.uneven.iter().filter(|_| !accounts);
    data.notes.iter().chain(uneven).for_each(|note| tell(note));
    Ok(data)
}

/// The data of a spec.
pub fn build(spec: &Spec<DataSpec>, dir: &DataDir) -> anyhow::Result<Assembled> {
    let dir = fl_data::data_dir(dir.data_dir.as_deref());
    fl_data::build(&spec.data, &dir, &Stream::root(spec.seed).child("data", 0)).context("data")
}

/// The files that the data of a spec are read from.
pub fn data_files(spec: &DataSpec, dir: &DataDir) -> anyhow::Result<Vec<Hashed>> {
    let files = fl_data::fingerprints(spec, &fl_data::data_dir(dir.data_dir.as_deref()))?;
    let hashed = |(path, sha256): (PathBuf, String)| Hashed {
        path: path.display().to_string(),
        sha256,
    };
    Ok(files.into_iter().map(hashed).collect())
}

/// What a run is begun with, or goes on with, with these data files.
pub fn manifest(
    spec: &Spec<DataSpec>,
    yaml: &str,
    data: Vec<Hashed>,
    command: &[String],
) -> anyhow::Result<Manifest> {
    let libraries = spec.libraries.iter().map(|library| Hashed {
        path: library.to_string(),
        sha256: library.sha256.clone().unwrap_or_default(),
    });
    Ok(Manifest::new(
        Session::now(env!("CARGO_PKG_VERSION"), command),
        spec.seed,
        yaml,
        libraries.collect(),
        data,
    ))
}

/// Where a run's results go.
pub enum Place<'a> {
    /// `runs/NAME-1`, `runs/NAME-2`, ..
    Next,
    /// A new or empty folder.
    At(&'a Path),
    /// Where it was stopped.
    Stopped(Box<Paused>),
}

/// How a spec is run. Results do not depend on it.
pub struct How<'a> {
    pub data: &'a DataDir,
    /// The command line, for `run.json`.
    pub command: &'a [String],
    pub threads: usize,
    pub wire: bool,
    pub stop_after: Option<usize>,
    /// Once this is set: stop after the step that is going on.
    pub stop: Arc<AtomicBool>,
    pub memory: Option<u64>,
    /// Told of each step.
    pub progress: Progress<'a>,
    /// Told what the user should know.
    pub warn: Warn<'a>,
    /// Told the run folder, once it is there.
    pub begun: Box<dyn FnOnce(&Path) + 'a>,
}

/// Every processor's worth, if nobody says otherwise.
pub fn threads(asked: Option<usize>) -> usize {
    let here = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or_else(here).min(MOST_THREADS)
}

/// Runs a spec with its data. The folder comes last: a run that cannot begin leaves nothing behind.
pub fn execute(
    spec: &Spec<DataSpec>,
    data: Assembled,
    place: Place<'_>,
    how: How<'_>,
) -> anyhow::Result<Outcome> {
    let yaml = spec.yaml()?;
    let data_files = data_files(&spec.data, how.data)?;
    let manifest = manifest(spec, &yaml, data_files, how.command)?;
    let (folder, resumed) = match place {
        Place::Stopped(paused) => {
            let (folder, resumed) = paused.go_on(manifest, &yaml)?;
            if resumed.is_none() {
                say(format_args!(
                    "{}: no step was complete when it ended; the run begins anew",
                    folder.path().display()
                ));
            }
            (folder, resumed)
        }
        Place::At(out) => (RunFolder::create(out, &yaml, &manifest)?, None),
        Place::Next => {
            let runs = Path::new("runs");
            let folder = RunFolder::create_next(runs, &spec.name, &yaml, &manifest)?;
            (folder, None)
        }
    };
    let Assembled {
        client_tests,
        clients,
        public,
        test,
        task,
        inferred,
        ..
    } = data;
    let make = BuildContext {
        task: task.clone(),
        stream: Stream::root(spec.seed).child("protocol", 0),
    };
    let out = folder.path().to_path_buf();
    (how.begun)(&out);
    let outcome = fl_sim::run(Setup {
        name: &spec.name,
        protocol_name: spec.protocol.name,
        protocol: Arc::from(spec.make_protocol(&make)?),
        parts: spec.parts.clone(),
        options: RunOptions {
            seed: spec.seed,
            noise: match spec.noise {
                Noise::Seeded => NoiseSource::Seeded,
                Noise::System => NoiseSource::system()?,
            },
            task,
            faults: spec.faults.clone(),
            budget: spec.budget.clone(),
            evaluate_every: spec.evaluate_every,
        },
        clients,
        public: public.map(|p| match p.labelled {
            Some(examples) => Public::labelled(examples),
            None => Public::unlabelled(p.samples).with_truth(p.truth),
        }),
        test,
        client_tests,
        threads: how.threads,
        memory: how.memory,
        folder: Some(folder),
        resumed,
        wire: how.wire,
        checkpoints: spec.checkpoints.clone(),
        stop_after: how.stop_after,
        stop: how.stop,
        progress: how.progress,
        watch: None,
        exposed: inferred,
        warn: how.warn,
    });
    outcome.inspect_err(|_| {
        if out.join("state").is_file() {
            let program = how.command.first().map_or("fl", String::as_str);
            say(format_args!(
                "what was done until the last checkpoint is kept; go on with: {program} run --resume {}",
                out.display()
            ));
        }
    })
}

/// Shows how far the run `name` is, where a terminal is to show it, and says what the user should know.
pub fn shown(name: &str, bar: &ProgressBar) -> anyhow::Result<Told<'static>> {
    let left = ProgressStyle::with_template("{spinner} {msg} {elapsed}, about {eta} left")?;
    bar.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}")?);
    let (step, note, name) = (bar.clone(), bar.clone(), name.to_string());
    Ok(Told {
        progress: Box::new(move |begun| {
            let line = format!("{name}: {}", progress(begun));
            crate::log::note(&line);
            if begun.of > 0 {
                step.set_length(begun.of as u64);
                step.set_position(begun.number as u64);
                step.set_style(left.clone());
            }
            step.set_message(line);
            step.tick();
        }),
        warn: Box::new(move |text| note.suspend(|| say(format_args!("note: {text}")))),
        begun: Box::new(|_| {}),
    })
}

pub fn run(args: &RunArgs, catalogue: &Catalogue, command: &[String]) -> Done {
    // from here on a signal is a wish, not the end
    let asked = stop::listen().context("listening to signals")?;
    let ask = Ask {
        from: match (&args.resume, &args.spec) {
            (Some(dir), _) => Source::Stopped(dir.clone()),
            (None, Some(path)) => Source::File(path.clone()),
            (None, None) => return Err(Failure::usage("a spec or --resume is needed")),
        },
        set: args.set.set.clone(),
        out: args.out.clone(),
        threads: args.threads,
        stop_after: args.stop_after,
        wire: args.wire,
        memory: args.memory.map(|size| size.0),
        data_dir: args.data.data_dir.clone(),
        command: command.to_vec(),
        stop: asked.stop.clone(),
    };
    let bar = crate::log::bar(ProgressBar::no_length());
    let outcome = carry_out(&ask, catalogue, |spec| shown(&spec.name, &bar));
    bar.finish_and_clear();
    let Some(outcome) = outcome? else {
        say("nothing was begun");
        return asked
            .exit_code()
            .map_or(Ok(()), |code| Err(Failure::Stopped(code)));
    };
    if let (Some(after), Some(out)) = (&outcome.stopped, &outcome.out) {
        let program = command.first().map_or("fl", String::as_str);
        say(format_args!(
            "stopped after {after}; go on with: {program} run --resume {out}"
        ));
    }
    let last = outcome.metrics.iter();
    let last: Vec<String> = last
        .map(|(name, value)| format!("{name} {value:.4}"))
        .collect();
    crate::log::note(format_args!(
        "{}: {}, digest {}",
        outcome.name,
        last.join(", "),
        outcome.digest
    ));
    let result = match args.json {
        true => serde_json::to_string(&outcome)?,
        false => text(&outcome),
    };
    // the run is done and in its folder, whether or not this can be read
    if let (Err(Failure::Failed(error)), Some(out)) = (print(result), &outcome.out) {
        let lost = format!(
            "the run is done, and its results are in {out}; here they could not be written"
        );
        return Err(Failure::Failed(error.context(lost)));
    }
    match asked.exit_code().filter(|_| outcome.stopped.is_some()) {
        Some(code) => Err(Failure::Stopped(code)),
        None => Ok(()),
    }
}

/// How far a run is.
pub fn progress(begun: Begun<'_>) -> String {
    let mut line = match begun.of {
        0 => begun.step.to_string(),
        of => format!("{} of {of} rounds", begun.number),
    };
    if let Some(accuracy) = begun.accuracy {
        line += &format!(", accuracy {accuracy:.4}");
    }
    if begun.bytes > 0 {
        line += &format!(", {}", ByteSize(begun.bytes).display().si());
    }
    line
}

fn text(o: &Outcome) -> String {
    let mut out = format!(
        "{} (seed {}, {} steps, {:.1} s)\n",
        o.name, o.seed, o.rounds, o.seconds
    );
    for (name, value) in o.metrics.iter().filter(|(name, _)| !name.ends_with(".std")) {
        let std = o
            .metrics
            .get(&format!("{name}.std"))
            .map_or(String::new(), |s| format!(" +- {s:.4}"));
        let _ = writeln!(out, "  {name:<20} {value:.4}{std}");
    }
    let _ = writeln!(
        out,
        "  {:<20} {} up, {} down",
        "bytes", o.bytes.up, o.bytes.down
    );
    let _ = match &o.privacy {
        Some(all) => all.iter().try_for_each(|(observer, protection)| {
            let against = format!("against {observer}");
            writeln!(out, "  {:<20} {against}: {protection}", "privacy")
        }),
        None => writeln!(out, "  {:<20} nothing is guaranteed", "privacy"),
    };
    let _ = writeln!(out, "  {:<20} {}", "digest", o.digest);
    let _ = write!(
        out,
        "  {:<20} {}",
        "run folder",
        o.out.as_deref().unwrap_or("none")
    );
    out
}
