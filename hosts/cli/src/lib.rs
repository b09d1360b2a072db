//! `fl`, the program, as a library: federated learning and distillation from a YAML file. A
//! protocol of one's own, in a crate of its own, is in the program that links it:
//!
//! ```no_run
//! use fl_plugins as _; // every part of fl; and `use my_protocol as _;`
//! fn main() -> std::process::ExitCode {
//!     fl_cli::main()
//! }
//! ```
//!
//! `fl new protocol` writes such a crate. Parts are found by being linked: those of `fl-plugins`
//! are there only if the program names it.
//!
//! Exit codes: 0 done, 1 the run failed, two runs differ or an audit broke a claim, 2 wrong usage
//! or wrong spec and nothing was run, 3 a plugin was refused, 128 and the signal's number: a signal
//! stopped the run, which can go on.
#![warn(clippy::print_stderr)]

mod account;
#[cfg(feature = "plugins")]
mod attack;
mod audit;
mod bench;
mod capture;
mod cases;
mod distance;
mod doctor;
mod enough_noise;
mod export;
mod get;
mod inspect_topics;
#[cfg(unix)]
mod lazy_executor;
mod ledger;
mod log;
mod network_facts;
mod new;
mod plan;
mod plugins;
mod pointed;
mod progress;
mod report;
mod run;
mod sanitize;
mod show;
mod study;
#[cfg(unix)]
mod supervise;
mod try_part;
mod verify;
mod watch;

pub use capture::{CapturedOutput, answered, bar};
pub use progress::progress;
pub use show::missing_cards;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand};
use fl_core::PartDecl;
use fl_core::settings::{Reader, Setting, ValueType, Word};
use fl_data::DataSpec;
use fl_engine::{NotRun, Signals};
use fl_registry::{Catalogue, Isolation, Library, NO_LEVELS, Spec};
use log::{complain, say};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Federated learning and federated distillation, composed from plugins in a YAML file.
#[derive(Parser)]
#[command(
    name = "fl",
    version,
    arg_required_else_help = true,
    after_help = "Example:\n  fl run hello.yaml\n\n`fl COMMAND --help` explains a command and has an example."
)]
struct Cli {
    /// Load a library with more parts. May be given several times.
    #[arg(long = "plugin", value_name = "LIB", global = true)]
    plugins: Vec<PathBuf>,
    /// Run every loaded library in processes of its own and in a sandbox that reads only what the
    /// spec's `reads` names below its folder, whatever the spec says. `--isolate=false` runs libraries in this process,
    /// except those that a spec isolates. Results do not depend on it.
    #[arg(
        long,
        global = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    isolate: Option<bool>,
    /// Says what to do instead.
    #[arg(long, global = true, hide = true, value_parser = no_levels)]
    plugins_trust: Option<String>,
    /// Print results and errors only, and that a run was stopped: no notes, no progress.
    #[arg(long, global = true)]
    quiet: bool,
    /// Also write messages and progress to a file, each line with its time.
    #[arg(long, value_name = "FILE", global = true)]
    log: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

fn no_levels(_: &str) -> Result<String, &'static str> {
    Err(NO_LEVELS)
}

#[derive(Subcommand)]
enum Command {
    /// Run a spec: print results and write a run folder.
    #[command(
        after_help = "Examples:\n  fl run hello.yaml --set protocol.rounds=20\n  fl run --resume runs/hello-1"
    )]
    Run(run::RunArgs),
    /// Find every mistake of specs before a run. Notes data sets that are missing.
    #[command(after_help = "Example:\n  fl check hello.yaml other.yaml")]
    Check {
        /// Spec files.
        #[arg(required = true)]
        specs: Vec<PathBuf>,
        #[command(flatten)]
        set: Overrides,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Show what a run will exchange: requests, clients, payloads, bytes and privacy.
    #[command(after_help = "Example:\n  fl plan hello.yaml")]
    Plan(plan::PlanArgs),
    /// Write a new part or app that builds and passes its tests.
    #[command(
        after_help = "Examples:\n  fl new aggregator my-mean\n  fl new trainer my-net --lang python"
    )]
    New(new::NewArgs),
    /// Test parts against files of cases, or against what their role requires. Exit code 1 if a
    /// case differs.
    ///
    /// A file of cases is YAML, `cases: [..]`. A case has a `name`, a `part` (`aggregator mean`),
    /// its `settings`, and an `input` as `fl try` reads it, with a `seed` (0).
    ///
    /// The answer is compared with the one in the file of answers: all bits, or with
    /// `close: 1.0e-6` up to that distance (relative to 1 and to the number).
    ///
    /// In place of an answer a case can give bounds, `within: { tensors.w: [0, 1] }`, or
    /// `refused: TEXT`, a text that the error contains.
    ///
    /// `conformance: true` in place of an input checks the part against its role and its
    /// properties.
    #[command(
        after_help = "Examples:\n  fl test tests/cases\n  fl test --conformance trimmed-mean"
    )]
    Test(cases::TestArgs),
    /// List what specs can name: parts, data sets, networks, splits.
    #[command(after_help = "Examples:\n  fl list aggregator\n  fl list networks")]
    List {
        /// Only this role (protocol, aggregator, selector, privacy, generator, trainer, accountant,
        /// attack), `data`, `networks`, `splits`, or the choices of a setting such as `optimiser`.
        role: Option<String>,
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
        /// Print all parts by role and by paper, in Markdown: `plugins/PARTS.md`.
        #[arg(long, conflicts_with_all = ["json", "role"])]
        markdown: bool,
    },
    /// Describe one part, data set, split or network: settings, ranges, defaults, where it fits.
    ///
    /// Of a network it shows layers, shapes and parameters for an input, and measures the steps a
    /// second on this machine.
    #[command(
        after_help = "Examples:\n  fl inspect trimmed-mean\n  fl inspect lenet --input 3x32x32"
    )]
    Inspect {
        /// Its name in specs.
        name: String,
        /// Of a network: the shape of a sample, such as `3x32x32` [default: that of its paper].
        #[arg(long, value_name = "SHAPE")]
        input: Option<network_facts::Sides>,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// List installed plugins.
    Plugin {
        #[command(subcommand)]
        command: plugins::PluginCommand,
    },
    /// Pin the plugins of specs in the `fl.lock` beside them: version, interface and SHA-256.
    #[command(after_help = "Example:\n  fl lock hello.yaml")]
    Lock(plugins::LockArgs),
    /// Look at data sets.
    #[command(after_help = "Example:\n  fl data show hello.yaml")]
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
    /// Do the runs of a study, each once, and make its tables.
    #[command(after_help = "Example:\n  fl study specs/studies/quick.yaml --dry-run")]
    Study(study::StudyArgs),
    /// Make a page of one run folder, or of several side by side, for a browser.
    #[command(
        after_help = "Examples:\n  fl report runs/hello-1\n  fl report runs/hello-1 runs/hello-2 --out both.html"
    )]
    Report(report::ReportArgs),
    /// Compare two run folders: specs, steps and measurements. Exit code 1 if their results differ.
    #[command(after_help = "Example:\n  fl compare runs/hello-1 runs/hello-2")]
    Compare(report::CompareArgs),
    /// Check a run by its receipts: chain, signatures, files; repeat aggregations from messages
    /// that it kept. Exit code 1 at the first difference, which is named.
    #[command(after_help = "Examples:\n  fl verify runs/hello-1\n  fl verify --new-key me.key")]
    Verify(verify::VerifyArgs),
    /// Write measurements and models in formats of other tools.
    #[command(after_help = "Example:\n  fl export runs/hello-1 --csv hello.csv")]
    Export(export::ExportArgs),
    /// Run one part alone on given messages and print its answer.
    #[command(after_help = "Example:\n  fl try aggregator mean --input messages.json")]
    Try(try_part::TryArgs),
    /// Compute what releases cost without a run, or how much noise an epsilon needs.
    #[command(after_help = "Example:\n  fl account laplace --scale 2 --times 10")]
    Account {
        #[command(subcommand)]
        command: account::AccountCommand,
    },
    /// Keep a ledger of what all runs on a data set have released.
    Ledger {
        #[command(subcommand)]
        command: ledger::LedgerCommand,
    },
    #[cfg(feature = "plugins")]
    /// Attack a run: measure how much it reveals of its training examples.
    #[command(after_help = "Example:\n  fl attack membership runs/hello-1 --shadows 16")]
    Attack {
        #[command(subcommand)]
        command: attack::AttackCommand,
    },
    /// Audit the guarantees of a spec: prove a lower bound of epsilon for each observer, beside the
    /// claim. Exit code 1 if a claim is broken.
    ///
    /// The program runs the spec many times on two data sets that differ in one unit, each time
    /// with other secret noise, and looks for whatever separates the two: messages, models, the
    /// journal, bytes, the report. Half of the runs select what to look at, the other half are
    /// counted. A bound is not larger than the true epsilon, except with the probability that
    /// --confidence leaves. An audit that finds nothing proves nothing.
    ///
    /// Runs of an audit are not kept, and are in no ledger. An audit that was stopped goes on with
    /// the same command.
    #[command(
        after_help = "Examples:\n  fl audit hello.yaml --runs 200\n  fl audit hello.yaml --canaries 500 --unit example"
    )]
    Audit(audit::AuditArgs),
    /// Report what this machine has for a run: data folder, graphics cards, Python.
    #[command(after_help = "Example:\n  fl doctor")]
    Doctor(doctor::DoctorArgs),
    /// Measure this machine, in half a minute: aggregation, training steps, the C interface and the
    /// disk, beside the figures of our benchmarks.
    #[command(after_help = "Example:\n  fl bench --dir runs")]
    Bench(bench::BenchArgs),
    /// Print the JSON Schema of a spec, with every known part, for editors.
    #[command(after_help = "Example:\n  fl schema > schema.json")]
    Schema {
        /// Print the schema of a study's file instead: `specs/study.schema.json`.
        #[arg(long, conflicts_with_all = ["cases", "markdown"])]
        study: bool,
        /// Print the schema of a file of cases instead: `specs/cases.schema.json`.
        #[arg(long, conflicts_with = "markdown")]
        cases: bool,
        /// Print a page for people instead: the index of all fields of a spec (`specs/README.md`),
        /// or the page of that name in `specs/book/fields/`.
        #[arg(long, value_name = "PAGE", num_args = 0..=1, default_missing_value = "README")]
        markdown: Option<String>,
    },
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  fl completions bash > /etc/bash_completion.d/fl")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command into a folder.
    #[command(after_help = "Example:\n  fl man /usr/local/share/man/man1")]
    Man {
        /// The folder.
        dir: PathBuf,
    },
    /// Serve clients to the program that has begun this process, on the socket that is its standard
    /// input.
    #[command(hide = true)]
    ClientProcess(run::ClientArgs),
}

#[derive(Subcommand)]
enum DataCommand {
    /// List the known sets, where fl looks for each, and which are present.
    #[command(after_help = "Example:\n  fl data list")]
    List {
        #[command(flatten)]
        place: DataDir,
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Fetch the files of a set, and check them.
    ///
    /// For sets whose files have a public address (`mnist`, `fashion-mnist`, `adult-raw`). Size and
    /// SHA-256 of each are in fl: another file is an error, and leaves nothing behind. The program
    /// `curl` does the transfer. Mind the set's licence, which is printed.
    #[command(
        after_help = "Examples:\n  fl data get mnist --data-dir ~/data\n  fl data get mnist --from https://mirror.example/mnist"
    )]
    Get(get::GetArgs),
    /// Show what each client of a spec gets, as a table and a picture, before a run.
    #[command(after_help = "Example:\n  fl data show hello.yaml")]
    Show(SpecDataArgs),
    /// Measure how well a model tells the clients' samples of a spec from its public ones.
    ///
    /// The proxy A-distance 2 (1 - 2 e) (Ben-David et al. 2007): `e` is the share of samples of
    /// which the model, trained on one half of both kinds for 20 epochs, says the wrong kind on the
    /// other half. It reads the clients' rows on this machine, so it is for simulations: nothing
    /// prices what the number says of them.
    #[command(after_help = "Example:\n  fl data distance hello.yaml --clients")]
    Distance(distance::DistanceArgs),
}

/// A spec whose data a command reads.
#[derive(Args)]
struct SpecDataArgs {
    /// The spec.
    spec: PathBuf,
    #[command(flatten)]
    set: Overrides,
    #[command(flatten)]
    place: DataDir,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl SpecDataArgs {
    fn read(&self, catalogue: &Catalogue) -> Result<Spec<DataSpec>, Failure> {
        self.set.read(&self.spec, catalogue)
    }

    fn data(&self, spec: &Spec<DataSpec>) -> anyhow::Result<fl_data::Assembled> {
        fl_engine::data(spec, &self.place.path())
    }
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
    /// The data directory. By default FL_DATA_DIR, or else the platform's data folder.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl DataDir {
    fn path(&self) -> PathBuf {
        fl_data_kit::data_dir(self.data_dir.as_deref())
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
    /// A comparison found differences, and has printed them.
    Differs,
    /// A signal stopped it, and that has been printed.
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

/// The parts for run folders that other users may have made: what these say of isolation does not
/// count, except for modules of Python.
fn of_others(catalogue: Catalogue) -> Catalogue {
    catalogue.for_foreign_specs(true)
}

/// An error if a signal has stopped the program.
fn not_stopped(signals: &Signals) -> Done {
    let stopped = signals.exit_code().map(Failure::Stopped);
    stopped.map_or(Ok(()), Err)
}

/// How wide text for people may be: as the terminal, or as COLUMNS says, or 100.
fn width() -> usize {
    let terminal = || console::Term::stdout().size_checked();
    let terminal = (!capture::keeps()).then(terminal).flatten();
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let wide = terminal.map(|(_, wide)| usize::from(wide)).or_else(columns);
    wide.unwrap_or(100).max(40)
}

/// Is there a person to read errors?
fn on_terminal() -> bool {
    !capture::keeps() && console::Term::stderr().is_term()
}

/// Prints a result. A reader that has gone away (`fl list | head`) is no error.
fn print(text: impl Display) -> Done {
    print_coloured(&sanitize::plain(&text.to_string()))
}

/// Prints a result for machines (`--json`) or for people.
fn either(json: bool, machines: impl Display, people: impl Display) -> Done {
    if json { print(machines) } else { print(people) }
}

/// An option that is one of the words of a setting.
fn word<T: Setting + Clone + Send + Sync + 'static>() -> impl TypedValueParser<Value = T> {
    let words = match T::value_type() {
        ValueType::Choice { words, .. } => words,
        _ => Vec::new(),
    };
    let value = |word: Word| PossibleValue::new(&*word.name.leak()).help(word.doc);
    PossibleValuesParser::new(words.into_iter().map(value))
        .try_map(|word| T::read(&word.into(), &mut Reader::default()).ok_or("no such word"))
}

/// As [`print`], of words of the program's own, which may have colours, and of text that has passed
/// [`sanitize::plain`].
fn print_coloured(text: &str) -> Done {
    if capture::keep(capture::Stream::Out, text) {
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
            // a line that a library says is one line, so that it cannot pass for one of the
            // program's
            say(format_args!("{part}: {}", sanitize::line(line)));
        }
    });
    let libraries: Vec<_> = cli.plugins.iter().map(Library::at).collect();
    let mut catalogue = Catalogue::new([&fl_core::linked_parts(), more].concat())?;
    if let Some(isolate) = cli.isolate {
        catalogue = catalogue.isolating(if isolate {
            Isolation::On(fl_core::settings::defaults())
        } else {
            Isolation::Off
        });
    }
    let catalogue = catalogue.with(&libraries).map_err(NotRun::Refused)?;
    match cli.command {
        Command::Run(args) => run::run(&args, &catalogue, command),
        Command::Report(args) => report::report(&args, &catalogue),
        Command::Compare(args) => report::compare(&args),
        Command::Verify(args) => verify::verify(&args, &catalogue),
        Command::Export(args) => export::export(&args, &of_others(catalogue), command),
        Command::Test(args) => cases::test(&args, &catalogue),
        Command::Completions { shell } => completions(shell),
        Command::Man { dir } => man(&dir),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Bench(args) => bench::bench(&args, &catalogue),
        Command::Study(args) => study::study(&args, &catalogue, command),
        Command::Check { specs, set, json } => show::check(&specs, &set.set, json, &catalogue),
        Command::Plan(args) => plan::plan(&args, &catalogue),
        Command::List { markdown: true, .. } => print(catalogue.parts_page().trim_end()),
        Command::List {
            role: Some(name),
            json,
            ..
        } if name == "data" => show::data(&DataDir { data_dir: None }, json),
        Command::List { role, json, .. } => show::list(role.as_deref(), json, &catalogue),
        Command::Inspect { name, input, json } => {
            let input = input.as_ref().map(|input| &input.0[..]);
            show::inspect(&name, input, json, &catalogue)
        }
        Command::Schema {
            markdown: Some(page),
            ..
        } => {
            let pages = catalogue.spec_pages::<DataSpec>();
            let known: Vec<&str> = pages.keys().map(String::as_str).collect();
            let known = known.join(", ");
            let unknown = || format!("no page is called `{page}`; known: {known}");
            let text = pages.get(&page).ok_or_else(|| Failure::usage(unknown()))?;
            print(text.trim_end())
        }
        Command::Schema { study, cases, .. } => {
            let schema = match (study, cases) {
                (true, _) => fl_registry::schema_of::<fl_study::File>("A study"),
                (_, true) => fl_registry::schema_of::<fl_cases::File>("Cases of parts"),
                _ => catalogue.schema::<DataSpec>(),
            };
            print(serde_json::to_string_pretty(&schema)?)
        }
        Command::New(args) => new::new(&args, &catalogue),
        Command::Plugin { command } => plugins::plugin(command),
        Command::Lock(args) => plugins::lock(&args, &catalogue),
        Command::Try(args) => try_part::try_part(&args, &catalogue),
        Command::ClientProcess(args) => run::serve(args, &catalogue),
        Command::Account { command } => account::account(&command, &catalogue),
        Command::Ledger { command } => ledger::ledger(&command, &catalogue),
        Command::Audit(args) => audit::audit(&args, &catalogue),
        #[cfg(feature = "plugins")]
        Command::Attack { command: asked } => attack::run(&asked, &of_others(catalogue), command),
        Command::Data { command } => match command {
            DataCommand::List { place, json } => show::data(&place, json),
            DataCommand::Get(args) => get::get(&args),
            DataCommand::Show(args) => show::split(&args, &catalogue),
            DataCommand::Distance(args) => distance::distance(&args, &catalogue),
        },
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
    let made =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    anyhow::Context::with_context(made, || format!("writing man pages into {}", dir.display()))?;
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
            return ExitCode::from(library_process(&args[2..]));
        }
        // this very program, whatever is built in its place meanwhile
        let program = if cfg!(target_os = "linux") {
            Ok("/proc/self/exe".into())
        } else {
            std::env::current_exe()
        };
        if let Ok(program) = program {
            fl_engine::start_processes_with(vec![program.clone().into()]);
            fl_registry::isolate_with(vec![program.clone().into()]);
            supervise::begin(program, &args);
        }
        let code = on_own_stack(|| run_with(args, &[]));
        ExitCode::from(supervise::exit_code(code))
    }
    #[cfg(not(unix))]
    ExitCode::from(on_own_stack(|| {
        run_for_exit_code(std::env::args_os().collect())
    }))
}

/// Runs the command line on a thread: the stack of the first one is as small as its user's limit.
fn on_own_stack(command: impl FnOnce() -> u8 + Send) -> u8 {
    const STACK: usize = 8 << 20;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("main".into());
        match thread.stack_size(STACK).spawn_scoped(scope, command) {
            Ok(running) => running.join().unwrap_or(PANICKED),
            Err(error) => {
                complain(format_args!("error: beginning a thread: {error}"));
                1
            }
        }
    })
}

/// The exit code of a program that panicked, whose hook has said why.
const PANICKED: u8 = 101;

/// Serves a library to the program that has begun this process with these arguments, which follow
/// [`fl_registry::ARGUMENT`]; gives the exit code.
#[cfg(unix)]
pub fn library_process(args: &[OsString]) -> u8 {
    let threads = lazy_executor::LazyExecutor::default();
    match fl_registry::library_process(args, &threads) {
        Ok(()) => 0,
        Err(error) => {
            complain(format_args!("error: {error:#}"));
            1
        }
    }
}

/// Does what `args` say; the first is the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(run_with(args.into_iter().collect(), &[]))
}

/// As [`run`]; gives the exit code as a number.
pub fn run_for_exit_code(args: Vec<OsString>) -> u8 {
    run_with(args, &[])
}

/// As [`run_for_exit_code`], with parts besides those that are linked.
fn run_with(args: Vec<OsString>, more: &[&'static PartDecl]) -> u8 {
    let command: Vec<String> = args
        .iter()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(mut asked) => {
            // `--epsilon` is what a mechanism without noise of its own has
            let unknown = asked.get(ContextKind::InvalidArg);
            let epsilon = unknown.is_some_and(|arg| arg.to_string().starts_with("--epsilon"));
            if epsilon && command.iter().any(|word| word == "account") {
                let suggested = ContextValue::String("--target".into());
                asked.insert(ContextKind::SuggestedArg, suggested);
            }
            if !capture::keep(capture::Stream::Err, &asked.render().to_string()) {
                let _ = asked.print();
            }
            return asked.exit_code() as u8;
        }
    };
    match dispatch(cli, &command, more) {
        Ok(()) => 0,
        Err(Failure::NotRun(why)) => {
            match &why {
                NotRun::Mistakes(mistakes) if on_terminal() => {
                    complain(pointed::pointed(mistakes, width()));
                }
                _ => complain(&why),
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command that does something, below `command`.
    fn leaves(command: &clap::Command, all: &mut Vec<clap::Command>) {
        let shown = |c: &&clap::Command| !c.is_hide_set();
        if command.has_subcommands() {
            { command.get_subcommands().filter(shown) }.for_each(|c| leaves(c, all))
        } else {
            all.push(command.clone())
        }
    }

    #[test]
    fn the_help_of_every_command_has_an_example_that_is_right() {
        let mut all = Vec::new();
        leaves(&Cli::command(), &mut all);
        for command in all {
            let name = command.get_name();
            let help = command.get_after_help();
            let help = help
                .unwrap_or_else(|| panic!("{name} has no example"))
                .to_string();
            let examples: Vec<&str> = help.lines().filter(|l| l.starts_with("  fl ")).collect();
            assert!(!examples.is_empty(), "{name}: {help}");
            for example in examples {
                let words = example.split(" > ").next().unwrap_or_default();
                let words = words.replace('"', "");
                let read = Cli::try_parse_from(words.split_whitespace());
                assert!(read.is_ok(), "{example}: {}", read.err().unwrap());
                assert!(
                    words.contains(&format!(" {name} ")) || words.ends_with(name),
                    "{example}"
                );
            }
        }
    }
}
