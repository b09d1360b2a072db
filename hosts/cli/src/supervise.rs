//! A process that watches over one that loads libraries: a library may end the program with exit
//! code 0, with `_exit` or `exec`, and the user would not see that the command was not carried out.

use crate::log::complain;
use fl_engine::Signals;
use fl_registry::Isolation;
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names the process that watches, in the environment of the one that it has begun.
const WATCHED: &str = "FL_WATCHED_BY";

/// What a process that is watched exits with when all is done, instead of 0: only the program does
/// that on purpose.
const DONE: u8 = 113;

/// SIGHUP, SIGINT and SIGTERM, which a user sends.
const PASSED_ON: [i32; 3] = [1, 2, 15];

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Is this process watched by its parent?
fn watched() -> bool {
    std::env::var(WATCHED).is_ok_and(|id| id == parent_id().to_string())
}

/// From now on, a process that is about to load a library into itself begins `program` anew
/// instead, with the same `args`, and watches it.
pub fn begin(program: PathBuf, args: &[OsString]) {
    if watched() {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // a user who ends the watching process means this one
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        if !watched() {
            std::process::exit(1);
        }
        return;
    }
    // one that serves clients is watched by its leader; and what is read from a pipe cannot be read
    // twice
    let serves = args.get(1).is_some_and(|arg| arg == "client-process");
    let pipe =
        |arg: &OsString| Path::new(arg).starts_with("/dev") || Path::new(arg).starts_with("/proc");
    if serves || args.iter().skip(1).any(pipe) {
        return;
    }
    let _ = PROGRAM.set(program);
    fl_registry::before_loading(|| {
        if let Some(program) = PROGRAM.get() {
            std::process::exit(i32::from(watch(program)));
        }
    });
}

/// The exit code of this process, whose command came to `code`.
pub fn exit_code(code: u8) -> u8 {
    if code == 0 && watched() { DONE } else { code }
}

/// What users call a signal that a fault raises.
fn signal_name(signal: i32) -> Option<&'static str> {
    match signal {
        4 => Some("an illegal instruction"),
        6 => Some("an abort"),
        7 | 10 => Some("a bus error"),
        8 => Some("an arithmetic fault"),
        9 => Some("a kill (signal 9, perhaps for memory)"),
        11 => Some("a segmentation fault"),
        _ => None,
    }
}

/// The libraries that the command line and the spec on it name.
fn libraries() -> Vec<String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut all = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        let next = || args.get(at + 1).cloned();
        let spec = match arg.as_str() {
            "--plugin" => {
                all.extend(next());
                continue;
            }
            "--resume" => next().map(|dir| Path::new(&dir).join("spec.yaml")),
            other => match other.strip_prefix("--plugin=") {
                Some(path) => {
                    all.push(path.into());
                    continue;
                }
                None => Some(PathBuf::from(other)).filter(|path| path.is_file()),
            },
        };
        if let Some(Ok(document)) = spec.map(|path| fl_engine::parse(&path)) {
            let named = document
                .libraries()
                .into_iter()
                .filter(|l| !matches!(l.isolate, Some(Isolation::On(_))));
            all.extend(named.map(|library| library.to_string()));
        }
    }
    all.dedup();
    all
}

/// Begins the program anew, passes signals on to it, and gives its exit code when it has ended.
fn watch(program: &Path) -> u8 {
    let mut command = Command::new(program);
    command
        .args(std::env::args_os().skip(1))
        .env(WATCHED, std::process::id().to_string());
    // a key pressed in the terminal comes here, and is passed on once; a review reads keys itself,
    // which the terminal allows to its own group only
    if !std::env::args_os().any(|arg| arg == "--review") {
        command.process_group(0);
    }
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    let child = command.spawn();
    let child = child.and_then(|child| Signals::pass_on(child.id()).map(|()| child));
    let status = match child.and_then(|mut child| child.wait()) {
        Ok(status) => status,
        Err(error) => {
            complain(format_args!("error: a process for libraries: {error}"));
            return 1;
        }
    };
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) if code == i32::from(DONE) => return 0,
        (Some(0), _) => "a library ended the program with exit code 0 before it was done".into(),
        (Some(code), _) => return u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) if PASSED_ON.contains(&signal) => return 128 + signal as u8,
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            let name = signal_name(signal).map_or(format!("signal {signal}"), Into::into);
            format!("{name} in a loaded library ended the program")
        }
    };
    let loaded = match libraries() {
        all if all.is_empty() => String::new(),
        all => format!(" (loaded: {})", all.join(", ")),
    };
    complain(format_args!(
        "error: {ended}{loaded}; --resume continues a run from its last checkpoint, and with --isolate a crash \
         of a library is an error of its part"
    ));
    status
        .signal()
        .map_or(1, |signal| 128_u8.saturating_add(signal as u8))
}
