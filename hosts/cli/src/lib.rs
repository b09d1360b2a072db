//! `fl`, the program, as a library: federated learning and distillation from a YAML file. A protocol of one's own, in a crate
//! of its own, is in the program that links it:
//!
//! ```no_run
//! use fl_plugins as _; // every part of fl; and `use my_protocol as _;`
//! fn main() -> std::process::ExitCode {
//!     fl_cli::main()
//! }
//! ```
//!
//! `fl new protocol` writes such a crate. Parts are found by being linked: those of `fl-plugins` are there only if the program
//! names it.
//!
//! Exit codes: 0 done, 1 the run failed or two runs differ, 2 wrong usage or wrong spec and nothing was run, 3 a plugin was refused,
//! 128 and the signal's number: a signal stopped the run, which can go on.
#![warn(clippy::print_stderr)]

mod account;
#[cfg(feature = "plugins")]
mod attack;
mod capture;
mod cases;
mod doctor;
mod export;
mod inspect_topics;
#[cfg(unix)]
mod lazy_executor;
mod log;
mod new;
mod plan;
mod progress;
mod report;
mod run;
mod sanitize;
mod show;
mod study;
#[cfg(unix)]
mod supervise;
mod try_part;

pub use capture::{Answered, answered, bar};
pub use cases::answer_of;
pub use progress::progress;

use clap::{Args, CommandFactory, Parser, Subcommand};
use fl_core::PartDecl;
use fl_data::DataSpec;
use fl_engine::{NotRun, Signals};
use fl_registry::{Catalogue, Library, Spec};
use log::{complain, say};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Federated learning and federated distillation, composed from plugins in a YAML file.
#[derive(Parser)]
#[command(name = "fl", version, arg_required_else_help = true)]
struct Cli {
    /// A library with more parts. May be given several times.
    #[arg(long = "plugin", value_name = "LIB", global = true)]
    plugins: Vec<PathBuf>,
    /// Give every such library, and those that specs name, processes of their own: one that crashes, exits or never returns is
    /// an error of its part, and not the end of the run. Results do not depend on it.
    #[arg(long, global = true)]
    isolate: bool,
    /// Say nothing but errors: no notes, no progress.
    #[arg(long, global = true)]
    quiet: bool,
    /// Add to this file what is said, and how far runs are, each line with its time.
    #[arg(long, value_name = "FILE", global = true)]
    log: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a spec; results on stdout, progress on stderr, and a run folder.
    Run(run::RunArgs),
    /// Make a page of a run folder, or of several beside each other, to open in a browser.
    Report(report::ReportArgs),
    /// Say what tells two run folders apart: specs, where they part, measurements. Exit code 1 if their results differ.
    Compare(report::CompareArgs),
    /// Write what was measured, and models, in the forms that other tools read.
    Export(export::ExportArgs),
    /// Hold parts to files of cases: what they answered last, a bound, or a refusal. Exit code 1 on a difference.
    ///
    /// A file is YAML, `cases: [..]`. A case has a `name`, a `part` (`aggregator mean`), its `settings`, and an `input` as `fl try`
    /// reads it, with a `seed` (0). It is held to the answer in the file beside it, all bits or `close: 1e-6` (relative to 1 and to
    /// the number); or to bounds, `within: { tensors.w: [0, 1] }`; or `refused: text` says what the error has in it. Instead of an
    /// input `conformance: true` holds the part to its claims.
    Test(cases::TestArgs),
    /// Print what a shell needs to complete commands: `fl completions bash > /etc/bash_completion.d/fl`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command into a folder.
    Man {
        /// The folder.
        dir: PathBuf,
    },
    /// Say what this machine has for a run: data folder, cards and whether they compute as the processor does, Python.
    Doctor(doctor::DoctorArgs),
    /// Do every run that a study asks for, each once, and make its tables.
    Study(study::StudyArgs),
    /// Find every mistake of every spec, and note data sets that are not there; runs nothing.
    Check {
        /// Spec files.
        #[arg(required = true)]
        specs: Vec<PathBuf>,
        #[command(flatten)]
        set: Overrides,
        /// One JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Say which questions will be asked, of whom, with what payload and how many bytes.
    Plan(plan::PlanArgs),
    /// List the parts that specs can name.
    List {
        /// Only this role: protocol, aggregator, selector, privacy, generator, trainer or accountant.
        role: Option<String>,
        /// One JSON object instead of a table.
        #[arg(long)]
        json: bool,
        /// All parts by role and by paper, in Markdown: `plugins/PARTS.md`.
        #[arg(long, conflicts_with_all = ["json", "role"])]
        markdown: bool,
    },
    /// Show one part, data set, split or network: what it does, its settings, ranges, defaults, signature and origin.
    Inspect {
        /// Its name in specs.
        name: String,
        /// One JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of a spec with every known part in it, for editors.
    Schema {
        /// A page for people instead, with every field of a spec: `specs/README.md`.
        #[arg(long)]
        markdown: bool,
    },
    /// Write a new part: a crate, or a C library, that builds and passes its tests at once.
    New(new::NewArgs),
    /// Give one part numbers, and see its answer alone.
    Try(try_part::TryArgs),
    /// Say what releases cost without a run, or how much noise an epsilon needs.
    Account {
        #[command(subcommand)]
        command: account::AccountCommand,
    },
    /// Serve clients to the program that has begun this process, on the socket that is its standard input.
    #[command(hide = true)]
    ClientProcess(run::ClientArgs),
    #[cfg(feature = "plugins")]
    /// Attack a run: what does it give away of the examples that it learnt from?
    Attack {
        #[command(subcommand)]
        command: attack::AttackCommand,
    },
    /// Look at data sets.
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
}

#[derive(Subcommand)]
enum DataCommand {
    /// List the known sets, where each is looked for, and what is there.
    List {
        #[command(flatten)]
        place: DataDir,
        /// One JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Show what each client of a spec gets, as a table and a picture, before a run.
    Show {
        /// The spec.
        spec: PathBuf,
        #[command(flatten)]
        set: Overrides,
        #[command(flatten)]
        place: DataDir,
        /// One JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
}

/// Changes to a spec from the command line.
#[derive(Args, Clone, Default)]
struct Overrides {
    /// Change a value of the spec: `--set protocol.rounds=5`. May be given several times.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    set: Vec<String>,
}

/// Where data sets are.
#[derive(Args, Clone)]
struct DataDir {
    /// The data directory; otherwise FL_DATA_DIR, otherwise the platform's data folder.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl DataDir {
    fn path(&self) -> PathBuf {
        fl_data::data_dir(self.data_dir.as_deref())
    }
}

impl Overrides {
    /// The checked spec in a file.
    fn read(&self, path: &Path, catalogue: &Catalogue) -> Result<Spec<DataSpec>, Failure> {
        let spec = fl_engine::parse(path)?.set(&self.set);
        Ok(fl_engine::read(&spec, catalogue)?)
    }
}

/// Why a command did not do what it was asked.
pub enum Failure {
    /// Nothing was run.
    NotRun(NotRun),
    /// It was tried, and failed.
    Failed(anyhow::Error),
    /// What was compared differs, and that has been said.
    Differs,
    /// A signal stopped it; everything has been said.
    Stopped(u8),
}

impl Failure {
    fn usage(text: impl Display) -> Self {
        Self::NotRun(NotRun::Usage(text.to_string()))
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        match error.into().downcast() {
            Ok(not_run) => Self::NotRun(not_run),
            Err(error) => Self::Failed(error),
        }
    }
}

type Done = Result<(), Failure>;

/// An error if a signal has stopped the program.
fn not_stopped(signals: &Signals) -> Done {
    let stopped = signals.exit_code().map(Failure::Stopped);
    stopped.map_or(Ok(()), Err)
}

/// Prints a result. A reader that has gone away (`fl list | head`) is no error.
fn print(text: impl Display) -> Done {
    let text = sanitize::plain(&text.to_string());
    if capture::keep(capture::Stream::Out, &text) {
        return Ok(());
    }
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn dispatch(cli: Cli, command: &[String], more: &[&'static PartDecl]) -> Done {
    log::begin(cli.quiet || capture::keeps(), cli.log.as_deref())?;
    fl_core::abi::on_log(|level, part, line| {
        if level <= 3 {
            // a line that a library says is one line, so that it cannot pass for one of the program's
            say(format_args!("{part}: {}", sanitize::line(line)));
        }
    });
    let libraries: Vec<_> = cli.plugins.iter().map(Library::at).collect();
    let mut catalogue = Catalogue::new([&fl_core::linked_parts(), more].concat())?;
    if cli.isolate {
        catalogue = catalogue.isolating(fl_core::settings::defaults());
    }
    let catalogue = catalogue.with(&libraries).map_err(NotRun::Refused)?;
    match cli.command {
        Command::Run(args) => run::run(&args, &catalogue, command),
        Command::Report(args) => report::report(&args),
        Command::Compare(args) => report::compare(&args),
        Command::Export(args) => export::export(&args, &catalogue),
        Command::Test(args) => cases::test(&args, &catalogue),
        Command::Completions { shell } => completions(shell),
        Command::Man { dir } => man(&dir),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Study(args) => study::study(&args, &catalogue, command),
        Command::Check { specs, set, json } => show::check(&specs, &set.set, json, &catalogue),
        Command::Plan(args) => plan::plan(&args, &catalogue),
        Command::List { markdown: true, .. } => print(catalogue.parts_page().trim_end()),
        Command::List { role, json, .. } => show::list(role.as_deref(), json, &catalogue),
        Command::Inspect { name, json } => show::inspect(&name, json, &catalogue),
        Command::Schema { markdown: true } => print(catalogue.spec_page::<DataSpec>().trim_end()),
        Command::Schema { .. } => print(serde_json::to_string_pretty(
            &catalogue.schema::<DataSpec>(),
        )?),
        Command::New(args) => new::new(&args, &catalogue),
        Command::Try(args) => try_part::try_part(&args, &catalogue),
        Command::ClientProcess(args) => run::serve(args, &catalogue),
        Command::Account { command } => account::account(&command, &catalogue),
        #[cfg(feature = "plugins")]
        Command::Attack { command: asked } => attack::attack(&asked, &catalogue, command),
        Command::Data {
            command: DataCommand::List { place, json },
        } => show::data(&place, json),
        Command::Data {
            command:
                DataCommand::Show {
                    spec,
                    set,
                    place,
                    json,
                },
        } => show::split(&spec, &set, &place, json, &catalogue),
    }
}

/// What a shell needs to complete this program's commands.
fn completions(shell: clap_complete::Shell) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fl", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}

/// A page for each command.
fn man(dir: &Path) -> Done {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)?;
    print(format_args!("man pages are in {}", dir.display()))
}

/// From now on only errors are printed.
pub fn quiet() {
    // without a log there is nothing that could fail
    let _ = log::begin(true, None);
}

/// Does what the command line says: the whole of a program with parts of its own.
pub fn main() -> ExitCode {
    #[cfg(unix)]
    {
        let args: Vec<OsString> = std::env::args_os().collect();
        // where the system refuses, a file that is too large ends the program
        let _ = Signals::outlive_large_files();
        if args.get(1).is_some_and(|arg| arg == fl_registry::ARGUMENT) {
            return match fl_registry::library_process(
                &args[2..],
                &lazy_executor::LazyExecutor::default(),
            ) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    complain(format_args!("error: {error:#}"));
                    ExitCode::from(1)
                }
            };
        }
        // this very program, whatever is built in its place meanwhile
        let program = match cfg!(target_os = "linux") {
            true => Ok("/proc/self/exe".into()),
            false => std::env::current_exe(),
        };
        if let Ok(program) = program {
            fl_engine::start_processes_with(vec![program.clone().into()]);
            fl_registry::isolate_with(program.clone());
            supervise::begin(program, &args);
        }
        let code = run_with(args, &[]);
        ExitCode::from(supervise::exit_code(code))
    }
    #[cfg(not(unix))]
    run(std::env::args_os())
}

/// Does what `args` say; the first is the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(run_with(args.into_iter().collect(), &[]))
}

/// As [`run`]; gives the exit code as a number.
pub fn run_for_exit_code(args: Vec<OsString>) -> u8 {
    run_with(args, &[])
}

/// As [`code`], with parts besides those that are linked.
fn run_with(args: Vec<OsString>, more: &[&'static PartDecl]) -> u8 {
    let command: Vec<String> = args
        .iter()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(asked) => {
            if !capture::keep(capture::Stream::Err, &asked.render().to_string()) {
                let _ = asked.print();
            }
            return asked.exit_code() as u8;
        }
    };
    match dispatch(cli, &command, more) {
        Ok(()) => 0,
        Err(Failure::NotRun(why)) => {
            complain(&why);
            match why {
                NotRun::Usage(_) | NotRun::Mistakes(_) => 2,
                NotRun::Refused(_) => 3,
            }
        }
        Err(Failure::Failed(error)) => {
            complain(format_args!("error: {error:#}"));
            1
        }
        Err(Failure::Differs) => 1,
        Err(Failure::Stopped(code)) => code,
    }
}
