//! Libraries in processes of their own: how such a process is begun, and what it does.
//!
//! The program begins itself anew, with [`ARGUMENT`] first. The process takes its socket from its
//! standard input, opens what it is to load and what it shares by the numbers that these files have
//! in the program, and serves the library's parts until the program closes the socket.

use crate::library::Library;
use crate::sections::{Isolate, Isolation};
use crate::spec::Spec;
use fl_core::Executor;
use fl_core::abi::{IsolatedLibrary, Process};
use fl_core::settings::Value;
use fl_core::{PartDecl, Result};
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

/// What the first argument of such a process is.
pub const ARGUMENT: &str = "--library-process";

static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says which program serves libraries when it is called with these words, then [`ARGUMENT`] and
/// what follows, see [`library_process`]. Without it no library can be isolated. The first call
/// counts.
pub fn isolate_with(program: Vec<OsString>) {
    let _ = PROGRAM.set(program);
}

/// Can this program give processes of their own to libraries?
pub(crate) fn can() -> bool {
    cfg!(target_os = "linux") && PROGRAM.get().is_some()
}

/// What a user should know of libraries and their sandboxes: what a spec opens and the command line
/// closes, what stays open, what this system cannot refuse, and what a sandbox refuses although a
/// setting asks for it.
pub fn isolation_notes<D>(spec: &Spec<D>) -> Vec<String> {
    let opened = opening_notes(&spec.libraries);
    let isolated = |library: &Library| {
        let isolate = library.isolated.clone().filter(|isolate| isolate.sandbox);
        isolate.map(|isolate| (library.path.clone(), isolate))
    };
    let sandboxed: Vec<_> = spec.libraries.iter().filter_map(isolated).collect();
    let gap = linux::gap().filter(|_| !sandboxed.is_empty());
    let gap = gap.map(|gap| {
        format!(
            "this kernel cannot keep libraries in a sandbox: {gap}; load only libraries that you trust"
        )
    });
    let parts = spec.parts.iter().map(|part| (part.decl, &part.settings));
    let protocol = spec.stages.iter().map(|of| (of.protocol, &of.settings));
    let refused = protocol.chain(parts).flat_map(|(part, settings)| {
        // a part's origin is the path as it was given
        let origin = Path::new(part.origin).canonicalize().ok();
        let of = sandboxed
            .iter()
            .find(|(path, _)| origin.as_ref() == Some(path));
        let refused = of.map(|(_, isolate)| refused(&settings.value, isolate));
        let who = format!("{} `{}` from {}", part.role, part.name, part.origin);
        let refused = refused.unwrap_or_default().into_iter();
        refused.map(move |what| format!("{who}: {what}"))
    });
    opened.chain(gap).chain(refused).collect()
}

/// What specs open to libraries, and whether the command line closes it.
pub fn opening_notes(libraries: &[Library]) -> impl Iterator<Item = String> {
    libraries.iter().filter_map(opened)
}

/// What the spec lets a library do beyond a sandbox that reads nothing outside of the spec's folder,
/// and whether it may.
fn opened(library: &Library) -> Option<String> {
    let (asked, outside) = match library
        .isolate
        .as_ref()
        .filter(|_| library.module.is_none())?
    {
        Isolation::Off => (None, Vec::new()),
        Isolation::On(asked) => (Some(asked), asked.outside(&library.folder)),
    };
    let what = match asked {
        None => "`isolate: false`: it may do all that you may do".into(),
        Some(asked) if !asked.sandbox => "`sandbox: false`: it may do all that you may do".into(),
        Some(_) if outside.is_empty() => return None,
        Some(_) => format!(
            "`reads` outside of the spec's folder: {}",
            outside.join(", ")
        ),
    };
    let held = library.isolated.as_ref() != asked;
    let ends = if held { "overrides" } else { "refuses" };
    let name = library.path.display();
    Some(format!("plugin {name} has {what}; --isolate {ends} that"))
}

/// What settings ask for and the sandbox refuses.
fn refused(settings: &Value, isolate: &Isolate) -> Vec<String> {
    let text = |key: &str, text: &str| {
        if key == "device" {
            return (text != "cpu").then(|| {
                format!(
                    "`device` is `{text}`, and the sandbox of its library refuses devices; write \
                     `isolate: {{ sandbox: false }}` beside the library"
                )
            });
        }
        // a name without a folder is a name of something else more often
        let path = Path::new(text);
        let named = path.is_file() || (path.is_dir() && text.contains('/'));
        let path = path.canonicalize().ok().filter(|_| named)?;
        let may = |folder: &String| path.starts_with(folder);
        (!isolate.reads.iter().any(may)).then(|| {
            format!(
                "`{key}` names {}, which the sandbox of its library keeps it from reading; write \
                 `isolate: {{ reads: [{}] }}` beside the library",
                if path.is_dir() { "a folder" } else { "a file" },
                path.display()
            )
        })
    };
    let mut all = Vec::new();
    let mut left = vec![("", settings)];
    while let Some((key, value)) = left.pop() {
        match value {
            Value::Mapping(map) => {
                left.extend(map.iter().map(|(k, v)| (k.as_str().unwrap_or(key), v)))
            }
            Value::Sequence(values) => left.extend(values.iter().map(|value| (key, value))),
            Value::String(value) => all.extend(text(key, value)),
            _ => {}
        }
    }
    all
}

/// The parts of the library in `file`, a sealed copy, in processes of their own.
pub(crate) fn import(
    file: File,
    path: &Path,
    isolate: &Isolate,
) -> Result<Vec<&'static PartDecl>, String> {
    let Some(program) = PROGRAM.get() else {
        return Err(
            "the spec isolates it, and this program cannot start processes for libraries; `fl` can"
                .into(),
        );
    };
    if let Some(gone) = isolate.reads.iter().find(|read| !Path::new(read).exists()) {
        return Err(format!(
            "`isolate.reads` names {gone}, and there is no such file or folder"
        ));
    }
    let (path, isolate) = (path.to_path_buf(), isolate.clone());
    let confined = isolate.sandbox && isolate.reads.is_empty();
    let origin = path.display().to_string();
    let longest = std::time::Duration::from_secs_f64(isolate.call_seconds);
    let begin = move || linux::begin(program, &file, &path, &isolate);
    let library = IsolatedLibrary::new(Box::new(begin), longest);
    let parts = fl_core::abi::import_isolated(library, &origin, confined);
    parts.map_err(|refused| refused.to_string())
}

/// The parts that are linked into this program, as those of a library in processes of its own.
///
/// # Errors
/// Says why this program cannot begin such processes.
pub fn isolated_program() -> Result<Vec<&'static PartDecl>, String> {
    // a library without a name is the program
    let none = File::open("/dev/null").map_err(|e| e.to_string())?;
    import(none, Path::new(""), &fl_core::settings::defaults())
}

/// Serves a library to the program that has begun this process with these arguments, which follow
/// [`ARGUMENT`], until it is needed no more. `exec` is what its parts may use.
///
/// # Errors
/// When this process was not begun so, or the program cannot be understood.
pub fn library_process(args: &[OsString], exec: &dyn Executor) -> Result<()> {
    linux::serve(args, exec)
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use anyhow::{Context, bail};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use rustix::process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getpgrp, getpid, getrlimit,
        kill_current_process_group, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
        setrlimit,
    };
    use std::net::Shutdown;
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::{CommandExt, parent_id};
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    pub(crate) use crate::sandbox::gap;

    pub fn begin(
        program: &[OsString],
        file: &File,
        path: &Path,
        isolate: &Isolate,
    ) -> Result<Process> {
        let [program, words @ ..] = program else {
            bail!("it has no name");
        };
        let (ours, theirs) = UnixStream::pair()?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = File::from(memfd_create("fl-shared", flags)?);
        // neither side can take away what the other has mapped
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::SEAL)?;
        let (output, printed) = output()?;
        let memory_bytes = isolate
            .memory_gib
            .map_or_else(machine, |gib| (gib * (1u64 << 30) as f64) as u64);
        let mut command = Command::new(program);
        command
            .args(words)
            .arg(ARGUMENT)
            .arg(std::process::id().to_string())
            .arg(file.as_raw_fd().to_string())
            .arg(memory.as_raw_fd().to_string())
            .arg(memory_bytes.to_string())
            .arg(isolate.cpu_seconds.unwrap_or(0).to_string())
            .arg(u8::from(isolate.sandbox).to_string())
            .arg(path)
            .args(&isolate.reads)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output))
            // a key pressed in the terminal is for the program, which still needs it
            .process_group(0);
        if isolate.sandbox {
            let kept = KEPT
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?)));
            let kept: Vec<_> = kept.collect();
            command.env_clear().envs(kept);
        }
        let (child, ended) = spawn(command, isolate.threads)?;
        Ok(Process {
            child,
            socket: ours,
            memory,
            memory_bytes,
            ended,
            printed: Some(printed),
        })
    }

    /// Where a library prints, which a thread passes on to the program's errors, for it is no
    /// result of the program. The library does not get those: it could open a pipe anew and read
    /// from it what the program says.
    fn output() -> Result<(OwnedFd, Receiver<()>)> {
        let (mut ours, theirs) = UnixStream::pair()?;
        ours.shutdown(Shutdown::Write)?;
        let (open, printed) = sync_channel::<()>(0);
        let pass_on = move || {
            let _ = std::io::copy(&mut ours, &mut std::io::stderr());
            drop(open);
        };
        let thread = std::thread::Builder::new().name("printed".into());
        thread.spawn(pass_on).context("starting a thread")?;
        Ok((theirs.into(), printed))
    }

    /// What a library in a sandbox sees of the environment: where libraries are, how many threads
    /// numeric libraries begin, language and time zone. The rest may hold keys.
    const KEPT: [&str; 9] = [
        "LANG",
        "LC_ALL",
        "LD_LIBRARY_PATH",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "RAYON_NUM_THREADS",
        "RUST_BACKTRACE",
        "TZ",
    ];

    /// Why a process was ended.
    type Ended = Arc<OnceLock<String>>;

    /// A process to begin, the threads that it may have, and where to say what came of it.
    type Order = (Command, u32, SyncSender<std::io::Result<(Child, Ended)>>);

    /// Begins a process in a thread that lasts as long as the program: the system ends the process
    /// when this thread has ended, see [`serve`].
    fn spawn(command: Command, threads: u32) -> Result<(Child, Ended)> {
        static ORDERS: Mutex<Option<(u32, Sender<Order>)>> = Mutex::new(None);
        let (answer, begun) = sync_channel(1);
        let mut orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);
        // a fork of the program does not have the thread
        if orders
            .as_ref()
            .is_none_or(|(of, _)| *of != std::process::id())
        {
            let (to, taken) = channel::<Order>();
            let thread = std::thread::Builder::new().name("processes".into());
            let begin = move || begin_and_count(&taken);
            thread.spawn(begin).context("starting a thread")?;
            *orders = Some((std::process::id(), to));
        }
        let (_, to) = orders.as_ref().context("there is a thread")?;
        let order = (command, threads, answer);
        to.send(order).context("the thread has ended")?;
        drop(orders);
        Ok(begun.recv()??)
    }

    /// Begins the processes that are ordered, and ends a process that has more threads than it may.
    /// Linux limits the threads of a user, not those of one process.
    fn begin_and_count(taken: &Receiver<Order>) {
        const LOOK: Duration = Duration::from_millis(50);
        let mut counted: Vec<ThreadCount> = Vec::new();
        let mut looked = Instant::now();
        loop {
            // orders that come fast do not keep it from looking
            if looked.elapsed() >= LOOK {
                counted.retain(ThreadCount::look);
                looked = Instant::now();
            }
            let order = if counted.is_empty() {
                taken.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                taken.recv_timeout(LOOK)
            };
            match order {
                Ok((mut command, threads, answer)) => {
                    let begun = command.spawn().map(|child| {
                        let count = ThreadCount::of(&child, threads);
                        let ended = count.as_ref().map(|count| count.ended.clone());
                        counted.extend(count);
                        (child, ended.unwrap_or_default())
                    });
                    let _ = answer.send(begun);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// A process whose threads are counted.
    struct ThreadCount {
        /// Stays the process's own when its number is given to another.
        process: OwnedFd,
        /// Its threads, as files.
        threads: PathBuf,
        most: u32,
        ended: Ended,
    }

    impl ThreadCount {
        fn of(child: &Child, most: u32) -> Option<Self> {
            let id = Pid::from_child(child);
            Some(Self {
                process: pidfd_open(id, PidfdFlags::empty()).ok()?,
                threads: format!("/proc/{}/task", child.id()).into(),
                most,
                ended: Ended::default(),
            })
        }

        /// Returns whether it is there with no more threads than it may have; it is ended if it has
        /// more.
        fn look(&self) -> bool {
            use std::os::unix::fs::MetadataExt;
            // the number of a process that has ended may be another's by now
            let mut gone = [PollFd::new(&self.process, PollFlags::IN)];
            let now = Timespec::default();
            if poll(&mut gone, Some(&now)).is_ok_and(|ended| ended > 0) {
                return false;
            }
            let Ok(about) = self.threads.metadata() else {
                return false;
            };
            // two names are those of every folder
            let (has, most) = (about.nlink().saturating_sub(2), self.most);
            if has <= most.into() {
                return true;
            }
            let _ = self.ended.set(format!(
                "it has {has} threads and may have {most}; if it needs more, raise `threads` of `isolate`"
            ));
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
            false
        }
    }

    /// The bytes of memory that this machine has.
    fn machine() -> u64 {
        let about = rustix::system::sysinfo();
        (about.totalram as u64).saturating_mul(about.mem_unit.into())
    }

    /// What to do about a library that is not found.
    const ELSEWHERE: &str = "; its process may read the system's libraries only: name the folder of the missing \
        one in LD_LIBRARY_PATH or, where the library itself names it, under `isolate: { reads: [..] }`";

    /// The most files that a process may have open.
    const FILES: u64 = 256;

    /// Ends this process, and all that its library has begun in its group, when the program needs
    /// it no more: a library that never returns does not outlive that. Comes back when that is
    /// certain.
    fn watch(socket: UnixStream) -> Result<()> {
        let (ready, begun) = std::sync::mpsc::channel();
        let watch = move || {
            // a thread that begins needs the loader's lock, which a library holds while it is
            // loaded
            let _ = ready.send(());
            let mut program = [PollFd::new(&socket, PollFlags::RDHUP)];
            while poll(&mut program, None).is_err_and(|error| error == rustix::io::Errno::INTR) {}
            // a group of its own, as `begin` makes it
            if getpgrp() == getpid() {
                let _ = kill_current_process_group(Signal::KILL);
            }
            fl_core::abi::leave()
        };
        let thread = std::thread::Builder::new().name("watch".into());
        thread.spawn(watch).context("starting a thread")?;
        Ok(begun.recv()?)
    }

    /// Closes what the program was begun with, such as a file of the shell's: it is not for
    /// libraries. What this process needs it opens afterwards.
    #[allow(unsafe_code, reason = "nothing here owns these files")]
    fn close_inherited() {
        // SAFETY: a call of the system on numbers. This process has opened nothing yet.
        if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } == 0 {
            return;
        }
        // an old kernel
        let most = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        for file in 3..most.min(1 << 20) as i32 {
            // SAFETY: as above.
            unsafe { libc::close(file) };
        }
    }

    pub fn serve(args: &[OsString], exec: &dyn Executor) -> Result<()> {
        let [
            process,
            library,
            memory,
            bytes,
            seconds,
            sandbox,
            path,
            reads @ ..,
        ] = args
        else {
            bail!("{ARGUMENT} is for processes that a program begins for its libraries");
        };
        close_inherited();
        let number = |text: &OsString| text.to_str().and_then(|t| t.parse::<u64>().ok());
        let number = |text| number(text).context("its arguments are numbers");
        let process = number(process)?;
        let sandboxed = number(sandbox)? == 1;
        // a library that can begin no process ends with the program, whatever it does; what another
        // has begun must end too
        let alone = sandboxed && gap().is_none();
        if alone {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if u64::from(parent_id()) != process {
                bail!("the program that began this process has ended");
            }
        }
        let of_program = |fd: u64| format!("/proc/{process}/fd/{fd}");
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let library = File::open(of_program(number(library)?))?;
        let memory = File::options()
            .read(true)
            .write(true)
            .open(of_program(number(memory)?))?;
        let limit = |resource, most: u64| {
            // an inherited limit cannot be raised
            let most = getrlimit(resource)
                .maximum
                .map_or(most, |hard| hard.min(most));
            let (current, maximum) = (Some(most), Some(most));
            setrlimit(resource, Rlimit { current, maximum })
        };
        limit(Resource::Core, 0)?;
        limit(Resource::Nofile, FILES)?;
        let bytes = number(bytes)?;
        limit(Resource::As, bytes)?;
        // what is shared with the program is a file too
        limit(Resource::Fsize, bytes)?;
        match number(seconds)? {
            0 => {}
            // the first limit says why it is ended, the second ends it
            most => {
                let (current, maximum) = (Some(most), Some(most.saturating_add(1)));
                setrlimit(Resource::Cpu, Rlimit { current, maximum })?;
            }
        }
        // when memory runs out, this process is ended before the program; where that cannot be
        // set, the system decides
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        if sandboxed {
            let reads: Vec<_> = reads.iter().map(PathBuf::from).collect();
            crate::sandbox::enter(&reads).context("entering the sandbox")?;
        }
        let socket = UnixStream::from(socket);
        if !alone {
            watch(socket.try_clone()?)?;
        }
        let load = || {
            if path.is_empty() {
                return Ok(std::ptr::from_ref(fl_core::abi::library()));
            }
            let table = crate::library_file::table(library, Path::new(path));
            table.map_err(|why| {
                if sandboxed && why.contains("cannot open shared object file") {
                    why + ELSEWHERE
                } else {
                    why
                }
            })
        };
        // SAFETY: the symbol is at least 16 bytes that the library maps, and it stays.
        #[allow(unsafe_code, reason = "the address of a library's symbol")]
        unsafe {
            fl_core::abi::serve(load, socket, memory, exec)
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::*;

    pub(crate) fn gap() -> Option<&'static str> {
        None
    }

    pub fn begin(_: &[OsString], _: &File, _: &Path, _: &Isolate) -> Result<Process> {
        anyhow::bail!("libraries can be isolated on Linux only")
    }

    pub fn serve(_: &[OsString], _: &dyn Executor) -> Result<()> {
        anyhow::bail!("libraries can be isolated on Linux only")
    }
}
