//! Clients in processes of their own: on this machine (`fl run --processes`), or wherever an engine reaches them.

mod node;

pub use node::{Site, node};

use crate::node_file::NodeFile;
use crate::run::check;

use crate::{DataDir, Done, Failure};
use anyhow::{Context, bail, ensure};
use clap::Args;
use fl_core::ClientId;
use fl_registry::Catalogue;
use fl_remote::{Leader, SpecText};
use fl_sim::Elsewhere;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{Debug, Display, Formatter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
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
    /// By whoever an engine reaches: processes of this program on other machines.
    Engine(Engine),
}

/// The clients that an engine reaches, of the run that this leader leads by this spec. What it writes down for the run goes to
/// the folder.
pub type Reach = dyn Fn(&Leader, SpecText, &Path) -> Box<dyn Elsewhere> + Send + Sync;

/// An engine that carries a run's packets, such as Flower.
#[derive(Clone)]
pub struct Engine(pub Arc<Reach>);

impl Debug for Engine {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

/// As a command line has it.
impl Display for Who {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Split(number) => write!(f, " --processes {number}"),
            Self::Own(files) => files
                .iter()
                .try_for_each(|file| write!(f, " --node {}", file.display())),
            Self::Engine(_) => Ok(()),
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
        !program.is_empty() || matches!(apart.who, Who::Engine(_)),
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

/// The clients of the run in this folder, with this spec and data files of these hashes.
///
/// # Errors
/// When the folder cannot be written.
pub fn clients<'a>(
    yaml: &str,
    files: &[String],
    folder: &Path,
    ready: Ready,
    data: &'a DataDir,
) -> anyhow::Result<Box<dyn Elsewhere + 'a>> {
    let Who::Engine(Engine(reach)) = &ready.apart.who else {
        return local(yaml, folder, ready, data);
    };
    let folder = folder.join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let leader = Leader::begin(&folder.join("leader"))?;
    Ok(reach(&leader, SpecText::new(yaml, files)?, &folder))
}

#[cfg(not(unix))]
fn local<'a>(
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

/// Those that live in processes of this machine.
#[cfg(unix)]
fn local<'a>(
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
    let leader = Leader::begin(&folder.join("leader"))?;
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
        Who::Engine(_) => bail!("an engine begins its processes by itself"),
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
    // all of them read the same files
    let spec = SpecText::new(yaml, &[])?;
    Ok(Box::new(fl_remote::Remote::new(engine, &leader, spec)))
}

/// Serves every client of a spec.
#[cfg(unix)]
pub fn serve(args: &ClientArgs, catalogue: &Catalogue) -> Done {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(socket.context("its standard input")?);
    // a part that reads its standard input finds nothing, not what the leader asks
    let nothing = std::fs::File::open("/dev/null").context("opening /dev/null")?;
    rustix::stdio::dup2_stdin(nothing).context("its standard input")?;
    let spec = check(&args.spec, &[], catalogue)?.map_err(Failure::Mistakes)?;
    let site = Site {
        home: args.home.clone(),
        own: args.node.clone(),
        data_dir: args.data.data_dir.clone(),
        far: false,
    };
    let mut node = node(&spec, &site)?;
    // nobody waits for an answer any more: what the clients keep is that of their last answers
    let gone = || std::process::exit(0);
    fl_remote::frame::serve(socket.try_clone()?, socket, &mut node, gone)?;
    Ok(())
}
