//! `fl run`, and the processes that it starts for clients.

use crate::log::complain;
use crate::progress::{notes, progress, text};
use crate::watch::Watch;
use crate::{DataDir, Done, Failure, Overrides, not_stopped, print, say};
use anyhow::Context;
use bytesize::ByteSize;
use clap::Args;
use fl_core::privacy::Protection;
use fl_engine::{
    ClientProcess, DataOwnership, ExecuteOptions, MOST_THREADS, Placement, RunRequest, Signals,
    Source,
};
use fl_registry::Catalogue;
use fl_sim::{Execution, Outcome};
use indicatif::ProgressBar;
use std::path::PathBuf;
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
    /// Continue the stopped run in this folder. With `--set protocol.rounds=100` it gets more
    /// rounds, even when it is done, and ends as a run with that number from the start.
    #[arg(long, value_name = "DIR", conflicts_with = "spec")]
    resume: Option<PathBuf>,
    /// Load only the plugins that the `fl.lock` beside the spec pins. A run that goes on always
    /// has the plugins that it was begun with.
    #[arg(long, conflicts_with = "resume")]
    locked: bool,
    /// Stop after this number of steps; `--resume` continues.
    #[arg(long, value_name = "STEPS", value_parser = at_least_one)]
    stop_after: Option<usize>,
    /// Send every message through its wire form, as between processes. Results do not depend on it.
    #[arg(long)]
    wire: bool,
    /// Run clients in N other processes. A process that dies is started again, and parts that serve
    /// one client at a time in a process, such as PyTorch's, work side by side. Results do not
    /// depend on it.
    #[arg(long, value_name = "N", value_parser = number_of_threads, conflicts_with_all = ["wire", "memory"])]
    processes: Option<usize>,
    /// A node file, for a client with data of its own (`data.split: own`): its client, the
    /// place of its data, its policy, and the folder of its state. Each node runs in its own
    /// process. Once for each client.
    #[arg(long = "node", value_name = "FILE", conflicts_with_all = ["wire", "memory", "processes"])]
    nodes: Vec<PathBuf>,
    /// With `--processes` or `--node`: a client that takes longer than this counts as absent, and
    /// `faults` has the policy for that. Results depend on it.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    deadline: Option<Duration>,
    /// Clients that are served at the same time; at most, and by default, one per processor.
    /// Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = number_of_threads)]
    threads: Option<usize>,
    /// The most memory that the program should hold, such as `4GiB`. Fewer clients train at once
    /// when another would exceed it; state of clients (models, control variates) beyond a quarter
    /// of it goes to the run folder. Data always stay in memory; a note says when the limit cannot
    /// be kept. Results do not depend on it.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// Sign the run's receipts with this secret key of minisign (`fl verify --new-key` makes one);
    /// `fl verify --key` checks it. By default FL_SIGN_KEY, if it is set. Results do not depend on
    /// it.
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// Keep a page of the run in its folder, `watch.html`, which renews itself in a browser: lines
    /// over rounds, seconds, bytes or epsilon. Results do not depend on it.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    data: DataDir,
    /// One JSON object on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct ClientArgs {
    /// The resolved spec.
    spec: PathBuf,
    /// The folder that the processes share.
    home: PathBuf,
    /// The node file, if the data are its own.
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// The folder of the spec that the leader has read, if that names libraries.
    #[arg(long, value_name = "DIR")]
    of_folder: Option<PathBuf>,
    /// The leader is to stop already.
    #[arg(long)]
    hurries: bool,
    #[command(flatten)]
    data: DataDir,
}

pub fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| "must be a whole number, at least 1".into())
}

pub fn number_of_threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|n| (1..=MOST_THREADS).contains(n));
    number.ok_or_else(|| format!("must be a whole number from 1 to {MOST_THREADS}"))
}

/// What `--memory` may be.
fn size(text: &str) -> Result<ByteSize, String> {
    let size = text.parse().ok();
    size.ok_or_else(|| "must be a size, such as `4GiB` or `500MB`".into())
}

/// What `--deadline` may be.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|s| *s > 0.0);
    let duration = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    duration.ok_or_else(|| "must be a number of seconds, above 0".into())
}

/// Where the clients are, by the arguments.
fn placement(args: &RunArgs) -> Result<Option<Placement>, Failure> {
    let owners = match (args.processes, &args.nodes[..]) {
        (Some(processes), _) => DataOwnership::Leader { processes },
        (None, []) if args.deadline.is_some() => {
            return Err(Failure::usage(
                "--deadline works only with --processes or --node",
            ));
        }
        (None, []) => return Ok(None),
        (None, files) => DataOwnership::Nodes(files.to_vec()),
    };
    Ok(Some(Placement {
        owners,
        deadline: args.deadline,
    }))
}

pub fn run(args: &RunArgs, catalogue: &Catalogue, command: &[String]) -> Done {
    let signals = Signals::listen().context("listening to signals")?;
    let placement = placement(args)?;
    let program = command.first().map_or("fl", String::as_str);
    let owners = placement.as_ref().map(|p| p.owners.to_string());
    let execution = Execution {
        threads: fl_engine::threads(args.threads),
        memory: args.memory.map(|size| size.0),
        wire: args.wire,
        stop_after: args.stop_after,
        stop: signals.stop.clone(),
        ..Execution::default()
    };
    let request = RunRequest {
        source: match (&args.resume, &args.spec) {
            (Some(dir), _) => Source::Stopped(dir.clone()),
            (None, Some(path)) => Source::File(path.clone()),
            (None, None) => return Err(Failure::usage("a spec or --resume is needed")),
        },
        set: args.set.set.clone(),
        locked: args.locked,
        out: args.out.clone(),
        options: ExecuteOptions {
            placement,
            sign: args.sign.clone(),
            ..ExecuteOptions::new(args.data.path(), command.to_vec(), execution)
        },
    };
    let bar = crate::log::bar(ProgressBar::no_length());
    let watch = Watch::default();
    let mut resolved = None;
    let outcome = fl_engine::run(request, catalogue, |spec, options| {
        resolved = Some(spec.resolved.clone());
        let listeners = &mut options.execution.listeners;
        listeners.push(Box::new(progress(&spec.name, &bar)?));
        listeners.push(Box::new(notes(&bar)));
        if args.watch {
            listeners.push(Box::new(watch.listener()));
        }
        Ok(())
    });
    watch.end();
    bar.finish_and_clear();
    let outcome = match (outcome.map_err(Failure::from), signals.exit_code()) {
        // a call of a library that a signal has ended, for one
        (Err(Failure::Failed(error)), Some(code)) => {
            complain(format_args!("error: {error:#}"));
            return Err(Failure::Stopped(code));
        }
        (Err(Failure::NotRun(why)), Some(code)) => {
            complain(why);
            return Err(Failure::Stopped(code));
        }
        (outcome, _) => outcome?,
    };
    let Some(outcome) = outcome else {
        complain("nothing was begun");
        return not_stopped(&signals);
    };
    if let (Some(after), Some(out)) = (&outcome.stopped, &outcome.out) {
        complain(format_args!(
            "stopped after {after}; resume with: {program} run --resume {out}{}",
            owners.unwrap_or_default()
        ));
    }
    show(&outcome, args.json)?;
    let privacy = outcome.privacy.iter().flatten();
    let seen = privacy.flat_map(|(_, protection)| match protection {
        Protection::Nothing { nothing, .. } => &nothing[..],
        Protection::Holds(_) => &[],
    });
    let seen = seen.map(String::as_str);
    if let Some(hint) = resolved.and_then(|spec| fl_report::shown_models(&spec, seen)) {
        say(format_args!("note: {hint}"));
    }
    match outcome.stopped {
        Some(_) => not_stopped(&signals),
        None => Ok(()),
    }
}

/// Prints the outcome and adds it to the log.
fn show(outcome: &Outcome, json: bool) -> Done {
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
    let result = if json {
        serde_json::to_string(outcome)?
    } else {
        text(outcome)
    };
    // the run is done and in its folder, whether or not this can be read
    if let (Err(Failure::Failed(error)), Some(out)) = (print(result), &outcome.out) {
        let lost =
            format!("the run is done, and its results are in {out}; they could not be printed");
        return Err(Failure::Failed(error.context(lost)));
    }
    Ok(())
}

/// Serves clients to the program that started this process.
#[cfg(unix)]
pub fn serve(args: ClientArgs, catalogue: &Catalogue) -> Done {
    let process = ClientProcess {
        data_dir: args.data.path(),
        spec: args.spec,
        home: args.home,
        node: args.node,
        of_folder: args.of_folder,
        hurries: args.hurries,
    };
    Ok(fl_engine::serve(process, catalogue)?)
}

#[cfg(not(unix))]
pub fn serve(_: ClientArgs, _: &Catalogue) -> Done {
    Err(Failure::usage(
        "this system has no sockets between processes",
    ))
}
