//! A process that serves clients to the program that started it.

#[cfg(unix)]
use anyhow::Context;
use std::path::PathBuf;

/// What a process that serves clients is started with.
pub struct ClientProcess {
    /// The resolved spec.
    pub spec: PathBuf,
    /// The folder that the processes share.
    pub home: PathBuf,
    /// The node file, if its data are its own.
    pub node: Option<PathBuf>,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The folder of the spec that the leader has read, if that names libraries.
    pub of_folder: Option<PathBuf>,
    /// Is the leader to stop already?
    pub hurries: bool,
}

/// Serves the clients of a spec on the socket that is this process's standard input. Ends the
/// process when the leader is gone: what the clients keep is that of their last answers.
///
/// # Errors
/// When the spec, the data or the socket cannot be read.
#[cfg(unix)]
pub fn serve(process: ClientProcess, catalogue: &fl_registry::Catalogue) -> anyhow::Result<()> {
    use crate::node::{NodeConfig, node};
    use crate::prepare;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(socket.context("its standard input")?);
    // a part that reads its standard input finds nothing, not what the leader asks
    let nothing = std::fs::File::open("/dev/null").context("opening /dev/null")?;
    rustix::stdio::dup2_stdin(nothing).context("its standard input")?;
    hurry_with_leader().context("listening to signals")?;
    if process.hurries {
        fl_core::abi::hurry_calls();
    }
    let catalogue = catalogue.clone().of_specs_in(process.of_folder);
    let spec = prepare::read(&prepare::parse(&process.spec)?, &catalogue)?;
    let mut node = node(
        &spec,
        &NodeConfig {
            home: process.home,
            own: process.node,
            data_dir: process.data_dir,
        },
    )?;
    let gone = || std::process::exit(0);
    fl_remote::frame::serve(socket.try_clone()?, socket, &mut node, gone)
}

/// A leader that is to stop says so with SIGTERM: calls of libraries that go on for longer are
/// ended then, as in the leader. This process ends with the leader.
#[cfg(unix)]
fn hurry_with_leader() -> std::io::Result<()> {
    use signal_hook::{consts::SIGTERM, iterator::Signals};
    let mut signals = Signals::new([SIGTERM])?;
    let listen = move || signals.forever().for_each(|_| fl_core::abi::hurry_calls());
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(listen)?;
    Ok(())
}
