//! Where the clients of a run are: in processes of this machine, or behind an engine such as
//! Flower.

use crate::node_file::NodeFile;
use crate::run_folder::CLIENTS;
use anyhow::{Context, bail, ensure};
use fl_core::ClientId;
use fl_data::DataSpec;
use fl_registry::Spec;
use fl_remote::{Leader, SpecText};
use fl_sim::ExternalClients;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{Debug, Display, Formatter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Clients in other processes.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Whose data the processes serve.
    pub owners: DataOwnership,
    /// How long a process may take to reply. Results depend on it.
    pub deadline: Option<Duration>,
}

/// Whose data the processes of clients serve.
#[derive(Clone, Debug)]
pub enum DataOwnership {
    /// The data of the spec: this many processes share the clients.
    Leader {
        /// How many.
        processes: usize,
    },
    /// Their own: one process for each of these node files.
    Nodes(Vec<PathBuf>),
    /// Whatever the processes have that an engine reaches.
    Engine(EngineFactory),
}

/// Makes the clients that an engine reaches, from the leader, the spec, and the folder for what the
/// engine keeps of the run.
pub type MakeClients = dyn Fn(&Leader, SpecText, &Path) -> Box<dyn ExternalClients> + Send + Sync;

/// An engine that carries the packets of a run, such as Flower.
#[derive(Clone)]
pub struct EngineFactory(pub Arc<MakeClients>);

impl Debug for EngineFactory {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineFactory")
    }
}

/// As arguments of a command line.
impl Display for DataOwnership {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Leader { processes } => write!(f, " --processes {processes}"),
            Self::Nodes(files) => files
                .iter()
                .try_for_each(|file| write!(f, " --node {}", file.display())),
            Self::Engine(_) => Ok(()),
        }
    }
}

static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says how to start this program again to serve clients: the program and its first arguments.
/// Without it no run can have processes. The first call counts.
pub fn start_processes_with(program: Vec<OsString>) {
    let _ = PROGRAM.set(program);
}

/// Processes that can be started: everything that they need was read, and nothing was made.
pub(crate) struct Ready {
    program: &'static [OsString],
    /// The clients with data of their own, each with its home and its file.
    nodes: BTreeMap<ClientId, (PathBuf, PathBuf)>,
    placement: Placement,
}

/// Reads all that the processes of this many clients need. What lasts of them will be in the run
/// folder, which will be made in or at `place`.
///
/// # Errors
/// When the program to start is unknown, another user could replace the run folder, or a node file
/// is wrong.
pub(crate) fn ready(placement: Placement, clients: usize, place: &Path) -> anyhow::Result<Ready> {
    let program: &[OsString] = PROGRAM.get().map_or(&[], Vec::as_slice);
    ensure!(
        !program.is_empty() || matches!(placement.owners, DataOwnership::Engine(_)),
        "this program cannot start processes for clients; `fl` can"
    );
    #[cfg(unix)]
    if !matches!(placement.owners, DataOwnership::Engine(_)) {
        fl_registry::file_permissions::trusted_place(place)
            .map_err(|why| anyhow::anyhow!("{why}; or take another folder for the run"))
            .with_context(|| place.display().to_string())?;
    }
    #[cfg(not(unix))]
    let _ = place;
    let mut nodes = BTreeMap::new();
    if let DataOwnership::Nodes(files) = &placement.owners {
        for path in files {
            let file = NodeFile::read(path)?;
            let (id, here) = (file.client, path.display());
            file.check_client(clients)
                .with_context(|| here.to_string())?;
            if let Some((_, other)) = nodes.insert(id, (file.home, path.clone())) {
                bail!("{} and {here} are both of client {id}", other.display());
            }
        }
        if let Some(id) = (0..clients as ClientId).find(|id| !nodes.contains_key(id)) {
            bail!("the spec has {clients} clients, and no --node is for client {id}");
        }
    }
    Ok(Ready {
        program,
        nodes,
        placement,
    })
}

impl Ready {
    /// The clients of the run in this folder, with this spec, its text, and data files of these
    /// hashes.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn clients<'a>(
        self,
        spec: &Spec<DataSpec>,
        yaml: &str,
        files: &[String],
        folder: &Path,
        data_dir: &'a Path,
    ) -> anyhow::Result<Box<dyn ExternalClients + 'a>> {
        let DataOwnership::Engine(EngineFactory(make)) = &self.placement.owners else {
            return self.local((spec, yaml), files, folder, data_dir);
        };
        let folder = folder.join(CLIENTS);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let leader = Leader::begin(&folder.join("leader"))?;
        Ok(make(&leader, SpecText::new(yaml, files)?, &folder))
    }

    #[cfg(not(unix))]
    fn local<'a>(
        self,
        _: (&Spec<DataSpec>, &str),
        _: &[String],
        _: &Path,
        _: &'a Path,
    ) -> anyhow::Result<Box<dyn ExternalClients + 'a>> {
        bail!(
            "--processes and --node need sockets between processes, which this system does not have"
        )
    }

    /// Those in processes of this machine.
    #[cfg(unix)]
    fn local<'a>(
        self,
        (of, yaml): (&Spec<DataSpec>, &str),
        files: &[String],
        folder: &Path,
        data_dir: &'a Path,
    ) -> anyhow::Result<Box<dyn ExternalClients + 'a>> {
        use fl_remote::ProcessLayout;
        use std::os::fd::{AsFd, OwnedFd};
        use std::os::unix::{net::UnixStream, process::CommandExt};
        use std::process::{Command, Stdio};

        let (program, first) = self.program.split_first().context("a program")?;
        let spec = folder.join("spec.yaml").canonicalize()?;
        let folder = folder.join(CLIENTS);
        fl_remote::NodeState::open(&folder.join("home"))?;
        let leader = Leader::begin(&folder.join("leader"))?;
        let shared = folder.join("home").canonicalize()?;
        let (seats, homes): (_, Vec<_>) = match self.placement.owners {
            DataOwnership::Leader { processes } => (
                ProcessLayout::Any(processes),
                vec![(shared, None); processes],
            ),
            DataOwnership::Nodes(_) => {
                let ids = self.nodes.keys().copied().collect();
                let homes = self.nodes.into_values();
                let homes = homes.map(|(home, file)| (home, Some(file)));
                (ProcessLayout::Each(ids), homes.collect())
            }
            DataOwnership::Engine(_) => bail!("an engine starts its processes by itself"),
        };
        // what the user says of libraries is stronger than the spec there too
        let isolates = of.isolates.map(|isolates| format!("--isolate={isolates}"));
        let mut folders = of.libraries.iter().map(|library| &library.folder);
        let named_in = folders
            .find(|folder| !folder.as_os_str().is_empty())
            .cloned();
        let begin = move |at: usize| {
            let (home, node) = &homes[at];
            let (ours, theirs) = UnixStream::pair()?;
            // what a part prints is not the program's result
            let errors = std::io::stderr().as_fd().try_clone_to_owned()?;
            let mut command = Command::new(program);
            command
                .args(first)
                .args(&isolates)
                .arg("client-process")
                .arg(&spec)
                .arg(home)
                .arg("--data-dir")
                .arg(data_dir);
            if fl_core::abi::hurries() {
                command.arg("--hurries");
            }
            if let Some(folder) = &named_in {
                command.arg("--of-folder").arg(folder);
            }
            if let Some(file) = node {
                command.arg("--node").arg(file);
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
            self.placement.deadline,
            folder,
            Box::new(begin),
            Box::new(|text| log::info!("note: {text}")),
        );
        let spec = SpecText::new(yaml, files)?;
        Ok(Box::new(fl_remote::RemoteClients::new(
            engine, &leader, spec,
        )))
    }
}
