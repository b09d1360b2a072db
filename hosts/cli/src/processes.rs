//! `fl run --processes`: clients in processes of their own, on this machine.

use crate::node_file::NodeFile;
use crate::run::{build, check, everybody};
use crate::{DataDir, Done, Failure, say};
use anyhow::{Context, bail, ensure};
use clap::Args;
use fl_core::ClientId;
use fl_registry::Catalogue;
use fl_sim::Elsewhere;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// In a run folder: the leader's name, and what the clients' processes share.
const FOLDER: &str = "elsewhere";

/// What `--deadline` may be.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|s| *s > 0.0);
    let duration = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    duration.ok_or_else(|| "must be a number of seconds, above 0".into())
}

/// How clients live in processes of their own.
#[derive(Clone, Debug)]
pub struct Apart {
    /// Who is served by which.
    pub who: Who,
    /// How long one may take to reply.
    pub deadline: Option<Duration>,
}

/// Whose data processes serve.
#[derive(Clone, Debug)]
pub enum Who {
    /// Every client's, by so many processes.
    Split(usize),
    /// Those that these files say, each by a process of its own.
    Own(Vec<PathBuf>),
}

/// As a command line has it.
impl Display for Who {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Split(number) => write!(f, " --processes {number}"),
            Self::Own(files) => files
                .iter()
                .try_for_each(|file| write!(f, " --node {}", file.display())),
        }
    }
}

#[derive(Args)]
pub struct ClientArgs {
    /// The resolved spec.
    spec: PathBuf,
    /// What the processes share.
    home: PathBuf,
    /// What the node says of itself, if its data are its own.
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    #[command(flatten)]
    data: DataDir,
}

static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says how this program is called anew, to serve clients: the program, and its first arguments. Without it no run can have
/// processes. The first call counts.
pub fn begin_processes_with(program: Vec<OsString>) {
    let _ = PROGRAM.set(program);
}

/// Processes that can be begun: what they need has been read, and nothing has been made.
pub struct Ready {
    program: &'static [OsString],
    /// The clients with data of their own, each with its home and its file.
    nodes: BTreeMap<ClientId, (PathBuf, PathBuf)>,
    apart: Apart,
}

/// Looks at all that processes for so many clients need.
///
/// # Errors
/// When nobody has said how the program is called, or what nodes say of themselves is wrong.
pub fn ready(apart: Apart, clients: usize) -> anyhow::Result<Ready> {
    let program: &[OsString] = PROGRAM.get().map_or(&[], Vec::as_slice);
    ensure!(
        !program.is_empty(),
        "this program cannot begin processes for clients; `fl` can"
    );
    let mut nodes = BTreeMap::new();
    if let Who::Own(files) = &apart.who {
        for path in files {
            let file = NodeFile::read(path)?;
            let (id, here) = (file.client, path.display());
            ensure!(
                (id as usize) < clients,
                "{here} is of client {id}, and the spec has {clients} clients, from 0"
            );
            if let Some((_, other)) = nodes.insert(id, (file.home, path.clone())) {
                bail!("{} and {here} are both of client {id}", other.display());
            }
        }
        if let Some(id) = (0..clients as ClientId).find(|id| !nodes.contains_key(id)) {
            bail!("the spec has {clients} clients, and no --node is of client {id}");
        }
    }
    Ok(Ready {
        program,
        nodes,
        apart,
    })
}

#[cfg(not(unix))]
pub fn clients<'a>(
    _: &str,
    _: &Path,
    _: Ready,
    _: &'a DataDir,
) -> anyhow::Result<Box<dyn Elsewhere + 'a>> {
    bail!("--processes and --node need sockets between processes, which this system does not have")
}

#[cfg(not(unix))]
pub fn serve(_: &ClientArgs, _: &Catalogue) -> Done {
    Err(Failure::usage(
        "this system has no sockets between processes",
    ))
}

/// The clients of the run in this folder, with this spec.
///
/// # Errors
/// When the folder cannot be written.
#[cfg(unix)]
pub fn clients<'a>(
    yaml: &str,
    folder: &Path,
    ready: Ready,
    data: &'a DataDir,
) -> anyhow::Result<Box<dyn Elsewhere + 'a>> {
    use fl_remote::Seats;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::{net::UnixStream, process::CommandExt};
    use std::process::{Command, Stdio};

    let Ready {
        program,
        nodes,
        apart,
    } = ready;
    let (program, first) = (program.first().context("a program")?, &program[1..]);
    let spec = folder.join("spec.yaml").canonicalize()?;
    let folder = folder.join(FOLDER);
    fl_remote::Home::open(&folder.join("home"))?;
    let leader = fl_remote::Leader::begin(&folder.join("leader"))?;
    let shared = folder.join("home").canonicalize()?;
    let (seats, homes): (_, Vec<_>) = match apart.who {
        Who::Split(number) => (Seats::Any(number), vec![(shared, None); number]),
        Who::Own(_) => (
            Seats::Each(nodes.keys().copied().collect()),
            nodes
                .into_values()
                .map(|(home, file)| (home, Some(file)))
                .collect(),
        ),
    };
    let begin = move |at: usize| {
        let (home, node) = &homes[at];
        let (ours, theirs) = UnixStream::pair()?;
        // what a part prints is not the program's result
        let errors = std::io::stderr().as_fd().try_clone_to_owned()?;
        let mut command = Command::new(program);
        command
            .args(first)
            .arg("client-process")
            .arg(&spec)
            .arg(home);
        for (name, value) in [("--node", node), ("--data-dir", &data.data_dir)] {
            if let Some(value) = value {
                command.arg(name).arg(value);
            }
        }
        command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(errors))
            // a key pressed in the terminal is for the program, which still needs it
            .process_group(0);
        let process = command.spawn();
        let what = || format!("calling {}", program.display());
        Ok((process.with_context(what)?, ours))
    };
    let engine = fl_remote::Processes::new(
        seats,
        apart.deadline,
        folder,
        Box::new(begin),
        Box::new(|text| crate::say(format_args!("note: {text}"))),
    );
    let spec = fl_remote::SpecText::new(yaml, &[])?;
    Ok(Box::new(fl_remote::Remote::new(engine, &leader, spec)))
}

/// Serves every client of a spec.
#[cfg(unix)]
pub fn serve(args: &ClientArgs, catalogue: &Catalogue) -> Done {
    use fl_core::privacy::{Noise, NoiseSource};
    use fl_core::{BuildContext, Stream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(socket.context("its standard input")?);
    // a part that reads its standard input finds nothing, not what the leader asks
    let nothing = std::fs::File::open("/dev/null").context("opening /dev/null")?;
    rustix::stdio::dup2_stdin(nothing).context("its standard input")?;
    let yaml = std::fs::read_to_string(&args.spec)
        .with_context(|| format!("reading {}", args.spec.display()))?;
    let spec = check(&args.spec, &[], catalogue)?.map_err(Failure::Mistakes)?;
    let mut data = build(&spec, &args.data)?;
    let context = BuildContext {
        task: data.task.clone(),
        stream: Stream::root(spec.seed).child("protocol", 0),
    };
    let protocol: Arc<dyn fl_core::Protocol> = Arc::from(spec.make_protocol(&context)?);
    let maker = fl_sim::Maker {
        public: data.public.take().map(everybody).map(Arc::new),
        parts: Arc::new(spec.parts.in_slots(protocol.slots())),
        seed: spec.seed,
        budget: spec.budget.clone(),
        noise: match spec.noise {
            Noise::Seeded => NoiseSource::Seeded,
            Noise::System => NoiseSource::system()?,
        },
    };
    let (owners, own) = match &args.node {
        None => {
            let all = std::mem::take(&mut data.clients);
            (fl_sim::owners(all, protocol.pools_data())?, None)
        }
        Some(path) => {
            let file = NodeFile::read(path)?;
            let dir = fl_data::data_dir(args.data.data_dir.as_deref());
            let (examples, unfit) = match file.load(&spec.data, &data, &dir) {
                Ok(examples) => (examples, None),
                // one that can say so
                Err(error) => (data.test.clone(), Some(format!("{error:#}"))),
            };
            let name = path.display().to_string();
            let own = fl_remote::Own {
                policy: file.policy,
                unfit,
                tell: Box::new(move |text| say(format_args!("{name}: {text}"))),
            };
            (vec![(file.client, examples)], Some(own))
        }
    };
    let served = fl_remote::Served {
        spec: fl_remote::SpecText::new(&yaml, &[])?,
        owners,
        own,
        protocol,
        maker,
        task: data.task,
        test: data.test,
        client_tests: data.client_tests,
    };
    let mut node = fl_remote::Node::new(served, fl_remote::Home::open(&args.home)?);
    // nobody waits for an answer any more: what the clients keep is that of their last answers
    let gone = || std::process::exit(0);
    fl_remote::frame::serve(socket.try_clone()?, socket, &mut node, gone)?;
    Ok(())
}
