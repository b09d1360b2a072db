//! Runs a checked spec on its data.

use crate::data_check::{check_data, describe};
use crate::events::TakeEvent;
use crate::placement::{self, DataOwnership, Placement};
use crate::prepare;
use crate::run_folder::RUN_PAGE;
use anyhow::bail;
use fl_core::privacy::NoiseSource;
use fl_core::{PrivacyEvent, Problem, Protocol, RunOptions, Task};
use fl_data::{Assembled, DataSpec, Split};
use fl_privacy::{Plan, RowKey, RunSpending, book};
use fl_receipts::{ReceiptOptions, SigningKey};
use fl_registry::{Keep, Spec};
use fl_sim::{Execution, Listener, Manifest, Outcome, ResumePoint, RunFolder, Setup, StoppedRun};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the results of a run go.
pub enum Folder {
    /// `runs/NAME-1`, `runs/NAME-2`, ..
    Next,
    /// A new or empty folder.
    New(PathBuf),
    /// The folder of a stopped run, which goes on.
    Stopped(Box<StoppedRun>),
}

/// Where folders of runs are numbered.
const RUNS: &str = "runs";

impl Folder {
    /// Where it is, or the folder of that which will be numbered.
    fn place(&self) -> &Path {
        match self {
            Self::Next => Path::new(RUNS),
            Self::New(out) => out,
            Self::Stopped(paused) => paused.path(),
        }
    }
}

/// Makes the protocol to run from the protocol of the spec.
pub type ProtocolOverride<'a> = Box<dyn FnOnce(Box<dyn Protocol>) -> Box<dyn Protocol> + 'a>;

/// How a spec is run.
pub struct ExecuteOptions<'a> {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The command line, for `run.json`.
    pub command: Vec<String>,
    /// Threads, memory, listeners.
    pub execution: Execution<'a>,
    /// Where the clients are; `None`: in this process.
    pub placement: Option<Placement>,
    /// The file of the secret key that signs the run's receipts; otherwise that in FL_SIGN_KEY, if
    /// it is set.
    pub sign: Option<PathBuf>,
    /// Replaces the spec's protocol.
    pub protocol: Option<ProtocolOverride<'a>>,
    /// The source of the run's noise, instead of the spec's: an audit repeats runs with keys of its
    /// own.
    pub noise: Option<NoiseSource>,
    /// Takes the events of the run, as the sinks of its spec do.
    pub events: Option<TakeEvent>,
}

impl<'a> ExecuteOptions<'a> {
    /// With all clients in this process.
    pub fn new(data_dir: PathBuf, command: Vec<String>, execution: Execution<'a>) -> Self {
        Self {
            data_dir,
            command,
            execution,
            placement: None,
            sign: None,
            protocol: None,
            noise: None,
            events: None,
        }
    }
}

/// More threads than any machine has processors.
pub const MOST_THREADS: usize = 1024;

/// The number of threads that a user asked for, otherwise the number of processors, which is also
/// the most ([`fl_sim::workers`]).
pub fn threads(wanted: Option<usize>) -> usize {
    fl_sim::workers(wanted.unwrap_or(usize::MAX))
}

/// Runs a spec on its data. The run folder is made last: a run that cannot begin leaves nothing.
///
/// # Errors
/// When the placement does not fit the spec, the folder is in use, or the run fails. Then the run
/// folder keeps the last checkpoint.
pub fn execute(
    spec: &Spec<DataSpec>,
    data: Assembled,
    folder: Folder,
    options: ExecuteOptions<'_>,
) -> anyhow::Result<Outcome> {
    let owners = options.placement.as_ref().map(|p| &p.owners);
    check_owners(spec, owners)?;
    let hint = owners.map_or(String::new(), ToString::to_string);
    let ready = options.placement;
    let place = folder.place();
    let ready = ready.map(|placement| placement::ready(placement, spec.data.clients(), place));
    let ready = ready.transpose()?;
    let accounts = spec.parts.has("accountant") || spec.ledger.is_some();
    // a stopped run has begun with its model
    let notes = match &folder {
        Folder::Stopped(_) => Vec::new(),
        _ if accounts => check_data(spec, &data)?.notes,
        _ => check_data(spec, &data)?.all().cloned().collect(),
    };
    // what the ledger refuses leaves no folder
    let plan = accounts.then(|| Plan::new(spec, &data)).transpose()?;
    let signer = signer(options.sign.clone())?;
    if let Folder::Stopped(paused) = &folder {
        paused.check_signer(signer.as_ref())?;
    }
    let spending = spending(spec, &folder, &data, plan.as_ref())?;
    let yaml = spec.yaml()?;
    let mut files = prepare::data_files(&spec.data, &options.data_dir)?;
    let hashes: Vec<String> = files.iter().map(|file| file.sha256.clone()).collect();
    files.extend(prepare::initial_file(spec)?);
    let mut manifest = prepare::manifest(spec, &yaml, files, &options.command)?;
    if let Some(plan) = &plan {
        manifest.book = Some(sealed_book(spec, &data, plan)?);
    }
    describe(&mut manifest, spec, &data)?;
    let receipts = receipts(spec, signer, &manifest);
    let (folder, resumed) = open(folder, &spec.name, &yaml, manifest)?;
    let resumes = resumed.is_some();
    let protocol = spec.make_protocol(&prepare::protocol_context(spec, &data.task))?;
    let protocol = match options.protocol {
        Some(replace) => replace(protocol),
        None => protocol,
    };
    let out = folder.path().to_path_buf();
    let elsewhere = ready.map(|ready| ready.clients(spec, &yaml, &hashes, &out, &options.data_dir));
    let noise = options.noise;
    let noise = noise.map_or_else(|| prepare::noise_source(spec), Ok)?;
    let run_options = run_options(spec, (data.task, data.inherited), noise, spending.as_ref());
    let guard = spending.map(|spending| Box::new(spending) as Box<dyn Listener>);
    let outcome = fl_sim::run(Setup {
        name: &spec.name,
        protocol_name: &spec.protocol_name,
        protocol: Arc::from(protocol),
        parts: spec.parts.clone(),
        options: run_options,
        clients: match spec.data.split() {
            Split::Own => Vec::new(),
            _ => data.clients,
        },
        elsewhere: elsewhere.transpose()?,
        public: data.public.map(prepare::public),
        test: data.test,
        client_tests: data.client_tests,
        own_tests: data.own_tests,
        exposed: data.inferred,
        data_notes: [data.notes, data.hidden_notes].concat(),
        report_notes: data.uneven,
        twice: data.twice,
        notes,
        folder: Some(folder),
        resumed,
        checkpoints: spec.checkpoints.clone(),
        stop_when: spec.stop_when.clone(),
        receipts,
        guards: Vec::from_iter(guard),
        execution: options.execution,
    });
    outcome.inspect_err(|error| {
        let program = options.command.first().map_or("fl", String::as_str);
        let again = format!("{program} run --resume {}{hint}", out.display());
        let accounts = spec.parts.has("accountant");
        tell_rest(error, &out, &again, accounts && !resumes);
    })
}

/// Reserves what the plan allows in the spec's ledger, if it names one.
fn spending(
    spec: &Spec<DataSpec>,
    folder: &Folder,
    data: &Assembled,
    plan: Option<&Plan>,
) -> anyhow::Result<Option<RunSpending>> {
    let Some((wanted, plan)) = spec.ledger.as_ref().zip(plan) else {
        return Ok(None);
    };
    let stopped = match folder {
        Folder::Stopped(paused) => paused.path(),
        _ => Path::new(""),
    };
    RunSpending::open(spec, (wanted, stopped), (data, plan)).map(Some)
}

/// The key that signs receipts, if there is one.
fn signer(file: Option<PathBuf>) -> anyhow::Result<Option<SigningKey>> {
    let file = file.or_else(|| std::env::var_os("FL_SIGN_KEY").map(PathBuf::from));
    file.as_deref().map(SigningKey::read).transpose()
}

fn receipts(
    spec: &Spec<DataSpec>,
    signer: Option<SigningKey>,
    manifest: &Manifest,
) -> ReceiptOptions {
    ReceiptOptions {
        keep_messages: spec.keep == Some(Keep::Messages),
        signer,
        session: Some(fl_receipts::session(
            &manifest.begun.version,
            &manifest.spec_sha256,
            &manifest.libraries,
        )),
    }
}

/// What the run may release, for totals over runs on the same rows.
fn sealed_book(
    spec: &Spec<DataSpec>,
    data: &Assembled,
    plan: &Plan,
) -> anyhow::Result<serde_json::Value> {
    let name = fl_privacy::random_name()?;
    let key = RowKey::of_user()?;
    let book = book(spec, &key, name, data, plan)?.sealed(&key)?;
    Ok(serde_json::to_value(book)?)
}

/// Says how a run that failed goes on, or begins `again` with the same folder, and why that stays.
fn tell_rest(error: &anyhow::Error, out: &Path, again: &str, counts: bool) {
    // what a budget refuses it refuses again
    let refused = matches!(error.downcast_ref(), Some(Problem::Budget(_)));
    let kept = out.join("state").is_file();
    if kept && !refused {
        log::info!("the work up to the last checkpoint is kept; resume with: {again}");
    } else if !kept && counts && out.exists() {
        let begin = format!("; begin it again with: {again}");
        log::info!(
            "{}: the folder stays, so that totals of privacy count the run{}",
            out.display(),
            if refused { "" } else { &begin }
        );
    }
}

/// Clients that own their data must be named, and others must not.
fn check_owners(spec: &Spec<DataSpec>, owners: Option<&DataOwnership>) -> anyhow::Result<()> {
    let own = matches!(spec.data.split(), Split::Own);
    match (own, owners) {
        (true, None | Some(DataOwnership::Leader { .. })) => {
            bail!("this spec has `data.split: own`, so each client needs a node file: --node FILE")
        }
        (false, Some(DataOwnership::Nodes(_))) => bail!(
            "--node works only with `data.split: own`; in this spec the program splits the data set among the clients"
        ),
        _ => {}
    }
    // an engine such as Flower may have its clients in this process
    let alone = match owners {
        Some(DataOwnership::Leader { .. }) => prepare::session_parts(spec)?,
        _ => Vec::new(),
    };
    if !alone.is_empty() {
        let all: Vec<&str> = alone.iter().map(|part| &part.alone[..]).collect();
        bail!(
            "clients in processes of their own cannot use a part that only this process has; {}",
            all.join("; ")
        );
    }
    Ok(())
}

/// Makes the run folder, or opens that of a stopped run.
fn open(
    folder: Folder,
    name: &str,
    yaml: &str,
    manifest: Manifest,
) -> anyhow::Result<(RunFolder, Option<ResumePoint>)> {
    match folder {
        Folder::New(out) => Ok((RunFolder::create(&out, yaml, &manifest)?, None)),
        Folder::Next => {
            let folder = RunFolder::create_next(Path::new(RUNS), name, yaml, &manifest)?;
            Ok((folder, None))
        }
        Folder::Stopped(paused) => {
            if let Some(last) = paused.other_processor(&manifest) {
                log::info!(
                    "note: {}: the run goes on on another processor, `{}` after `{last}`; parts of fl give the same bits on both, and a loaded part may not",
                    paused.path().display(),
                    manifest.begun.processor
                );
            }
            let (folder, resumed) = paused.go_on(manifest, yaml)?;
            // it is of the run as it was before it got more rounds; where it cannot be removed, it
            // cannot be replaced either
            let _ = std::fs::remove_file(folder.path().join(RUN_PAGE));
            if resumed.is_none() {
                log::info!(
                    "{}: no step was complete when it ended; the run starts again",
                    folder.path().display()
                );
            }
            Ok((folder, resumed))
        }
    }
}

fn run_options(
    spec: &Spec<DataSpec>,
    (task, inherited): (Task, Vec<PrivacyEvent>),
    noise: NoiseSource,
    spending: Option<&RunSpending>,
) -> RunOptions {
    let own = spec.budget.as_ref();
    RunOptions {
        seed: spec.seed,
        noise,
        task,
        faults: spec.faults.clone(),
        budgets: (own.into_iter().cloned())
            .chain(spending.and_then(RunSpending::budget))
            .collect(),
        evaluate_every: spec.evaluate_every,
        after_split: spec.data.deals(),
        inherited,
    }
}
