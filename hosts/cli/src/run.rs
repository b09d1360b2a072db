//! `fl run`.

use crate::ask::{Ask, Source, carry_out};
use crate::processes::{self, Apart, Who};
use crate::shown::{shown, text};
use crate::{DataDir, Done, Failure, Overrides, print, say, stop};
use anyhow::{Context, bail};
use bytesize::ByteSize;
use clap::Args;
use fl_core::privacy::{Noise, NoiseSource};
use fl_core::{BuildContext, Problem, Protocol, Public, RunOptions, Stream};
use fl_data::spec::Split;
use fl_data::{Assembled, DataSpec, PublicSamples};
use fl_registry::{Catalogue, Mistakes, SessionPart, Spec};
use fl_sim::{Hashed, Manifest, Outcome, Paused, Progress, RunFolder, Session, Setup, Warn, Watch};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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
    /// Let clients live in so many processes of their own: one that dies is begun anew, and parts that serve one client at a time
    /// in a process, such as PyTorch's, work side by side. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = a_number_of_threads, conflicts_with_all = ["wire", "memory"])]
    processes: Option<usize>,
    /// A client with data of its own (`data.split: own`): a file that says which client it is, where its data are, what it allows,
    /// and where it keeps what lasts. It works in a process of its own. Once for each client.
    #[arg(long = "node", value_name = "FILE", conflicts_with_all = ["wire", "memory", "processes"])]
    nodes: Vec<PathBuf>,
    /// With `--processes` or `--node`: a client that has not answered after so long has not answered at all, and `faults` says what
    /// becomes of that. Results depend on it.
    #[arg(long, value_name = "SECONDS", value_parser = processes::seconds)]
    deadline: Option<Duration>,
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
    let session = session_parts(spec)?.into_iter().map(|part| Hashed {
        path: part.name,
        sha256: part.sha256,
    });
    Ok(Manifest::new(
        Session::now(env!("CARGO_PKG_VERSION"), command),
        spec.seed,
        yaml,
        libraries.chain(session).collect(),
        data,
    ))
}

/// The parts of a spec that only this process has.
fn session_parts(spec: &Spec<DataSpec>) -> anyhow::Result<Vec<SessionPart>> {
    let parts = spec.parts.iter().map(|part| part.decl);
    fl_registry::session_parts(parts, spec.libraries.iter())
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

/// Makes a protocol of a spec's.
pub type Instead<'a> = Box<dyn FnOnce(Box<dyn Protocol>) -> Box<dyn Protocol> + 'a>;

/// How a spec is run. Results do not depend on it.
pub struct How<'a> {
    pub data: &'a DataDir,
    /// The command line, for `run.json`.
    pub command: &'a [String],
    pub threads: usize,
    pub wire: bool,
    /// Clients live in processes of their own.
    pub processes: Option<Apart>,
    pub stop_after: Option<usize>,
    /// Once this is set: stop after the step that is going on.
    pub stop: Arc<AtomicBool>,
    pub memory: Option<u64>,
    /// Told of each step.
    pub progress: Progress<'a>,
    /// Told what the user should know.
    pub warn: Warn<'a>,
    /// Shown everything that an observer sees.
    pub watch: Option<Watch<'a>>,
    /// What it makes of the spec's protocol is run in its place.
    pub instead: Option<Instead<'a>>,
    /// Told the run folder, once it is there.
    pub begun: Box<dyn FnOnce(&Path) + 'a>,
}

impl<'a> How<'a> {
    /// In this process, to the end or until `stop` is set, and nobody is told anything.
    pub fn quiet(
        data: &'a DataDir,
        command: &'a [String],
        threads: usize,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            data,
            command,
            threads,
            wire: false,
            processes: None,
            stop_after: None,
            stop,
            memory: None,
            progress: Box::new(|_| {}),
            warn: Box::new(|_| {}),
            watch: None,
            instead: None,
            begun: Box::new(|_| {}),
        }
    }
}

/// The public samples, as both sides of a run have them.
pub fn everybody(public: PublicSamples) -> Public {
    match public.labelled {
        Some(examples) => Public::labelled(examples),
        None => Public::unlabelled(public.samples).with_truth(public.truth),
    }
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
    let own = matches!(spec.data.split(), Split::Own);
    let who = how.processes.as_ref().map(|apart| &apart.who);
    match (own, who) {
        (true, None | Some(Who::Split(_))) => bail!(
            "clients own their data by this spec (`data.split: own`), so each must be named: --node FILE"
        ),
        (false, Some(Who::Own(_))) => bail!(
            "--node is for clients that own their data, and by this spec they own a part of its set; take `data.split: own`"
        ),
        _ => {}
    }
    // an engine may have its clients in this process
    let alone = match who {
        Some(Who::Split(_)) => session_parts(spec)?,
        _ => Vec::new(),
    };
    if !alone.is_empty() {
        let all: Vec<&str> = alone.iter().map(|part| &part.alone[..]).collect();
        bail!(
            "clients in processes of their own cannot use a part that only this process has; {}",
            all.join("; ")
        );
    }
    let all = spec.data.clients();
    let apart = how.processes.as_ref();
    let apart = apart.map_or(String::new(), |apart| apart.who.to_string());
    let ready = how.processes.map(|apart| processes::ready(apart, all));
    let ready = ready.transpose()?;
    let yaml = spec.yaml()?;
    let data_files = data_files(&spec.data, how.data)?;
    let hashes: Vec<String> = data_files.iter().map(|file| file.sha256.clone()).collect();
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
    let mut protocol = spec.make_protocol(&make)?;
    if let Some(instead) = how.instead {
        protocol = instead(protocol);
    }
    let out = folder.path().to_path_buf();
    (how.begun)(&out);
    let elsewhere = match ready {
        Some(ready) => Some(processes::clients(&yaml, &hashes, &out, ready, how.data)?),
        None => None,
    };
    let outcome = fl_sim::run(Setup {
        name: &spec.name,
        protocol_name: spec.protocol.name,
        protocol: Arc::from(protocol),
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
        clients: if own { Vec::new() } else { clients },
        elsewhere,
        public: public.map(everybody),
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
        watch: how.watch,
        exposed: inferred,
        warn: how.warn,
    });
    outcome.inspect_err(|error| {
        // what a budget refuses it refuses again
        let refused = matches!(error.downcast_ref(), Some(Problem::Budget(_)));
        if out.join("state").is_file() && !refused {
            let program = how.command.first().map_or("fl", String::as_str);
            say(format_args!(
                "what was done until the last checkpoint is kept; go on with: {program} run --resume {}{apart}",
                out.display()
            ));
        }
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
        processes: match (args.processes, &args.nodes[..], args.deadline) {
            (None, [], Some(_)) => {
                return Err(Failure::usage("--deadline is for --processes and --node"));
            }
            (None, [], None) => None,
            (None, nodes, deadline) => Some(Apart {
                who: Who::Own(nodes.to_vec()),
                deadline,
            }),
            (Some(number), _, deadline) => Some(Apart {
                who: Who::Split(number),
                deadline,
            }),
        },
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
        let apart = ask.processes.as_ref();
        let apart = apart.map_or(String::new(), |apart| apart.who.to_string());
        let program = command.first().map_or("fl", String::as_str);
        say(format_args!(
            "stopped after {after}; go on with: {program} run --resume {out}{apart}"
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
