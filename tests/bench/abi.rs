//! What it costs to call a part through the C interface instead of directly, and in a process of
//! its own: an exchange of a protocol, time at 10 clients x 1,000 parameters, and time and peak
//! memory at 100 clients x 1,000,000. `cargo bench -p fl-bench --bench abi`.
use criterion::Criterion;
use fl_core::message::Params;
use fl_core::prelude::*;
use fl_core::settings::Value;
use fl_core::{
    BoxedAggregator, Examples, Inputs, Labels, PartDecl, RunOptions, TaskKind, abi, linked_parts,
};
use fl_sim::Setup;
use ndarray::ArrayD;
use std::fs::File;
use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static MEMORY: fl_core::HugePages = fl_core::HugePages;

settings! {
    /// The weighted mean.
    pub struct Mean {}
}

impl Aggregator for Mean {
    type In = Params;
    type Out = Params;
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let weights: Vec<f64> = inbox.iter().map(|mail| mail.weight).collect();
        Ok(inbox.weighted_mean(&weights, &*round.exec))
    }
}
plugin!(aggregator "mean" => Mean);

settings! {
    /// Sends parameters to clients, which send them back.
    pub struct Echo {
        /// Number of exchanges with every client.
        times: usize = 1, in 1..;
        /// Number of parameters.
        numbers: usize = 1, in 1..;
    }
}

const NUMBERS: Exchange<Params, Params> = Exchange::new("numbers");

impl Protocol for Echo {
    fn declare(&self) -> Declaration<'_> {
        let echo = NUMBERS.answered_by(|_, sent| Ok(sent.clone()));
        Declaration::new().exchange(echo.times(self.times))
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let sent = parameters(self.numbers, 0.0);
        server.once("step", &mut (), |server, (), round| {
            for _ in 0..self.times {
                black_box(server.collect(round, &NUMBERS, |_| &sent)?);
            }
            Ok(())
        })
    }
}
plugin!(protocol "echo" => Echo);

/// The seconds of one exchange with one client, of ten.
fn exchange(decl: &PartDecl, numbers: usize) -> f64 {
    const CLIENTS: usize = 10;
    let (shape, data) = (vec![1], vec![0.0; CLIENTS]);
    let (of, classes) = (vec![0; CLIENTS], 2);
    let labels = Labels::Classes { of, classes };
    let all = Examples::all(Arc::new(Inputs::Dense { shape, data }), Arc::new(labels));
    let all = all.expect("a label for each row");
    let take = |times: usize| {
        let settings = format!("{{times: {times}, numbers: {numbers}}}");
        let settings: Value = serde_yaml::from_str(&settings).expect("YAML");
        let protocol: Box<dyn Protocol> = decl.make(&settings, &context()).expect("a protocol");
        let options = RunOptions::new(1, all.task());
        let clients = (0..CLIENTS).map(|k| all.pick(&[k])).collect();
        let setup = Setup::new(
            protocol.into(),
            Arc::default(),
            options,
            clients,
            all.clone(),
        );
        let began = Instant::now();
        fl_sim::run(setup).expect("it runs");
        began.elapsed().as_secs_f64()
    };
    // the difference is free of what a run costs once
    let few = (0..5).map(|_| take(10)).fold(f64::INFINITY, f64::min);
    let many = (0..5).map(|_| take(210)).fold(f64::INFINITY, f64::min);
    (many - few) / (200 * CLIENTS) as f64
}

fn parameters(numbers: usize, more: f32) -> Params {
    let tensor = ArrayD::from_shape_fn(vec![numbers], |i| (i[0] % 97) as f32 + more);
    Params([("w".to_string(), tensor)].into())
}

fn inbox(clients: u32, numbers: usize) -> Inbox<Params> {
    let mail = |k: u32| ClientMessage::new(k, 1.0 + f64::from(k), parameters(numbers, k as f32));
    Inbox::new((0..clients).map(mail).collect()).expect("a legal inbox")
}

fn context() -> BuildContext {
    BuildContext {
        task: Task {
            input: vec![1],
            kind: TaskKind::Classes(2),
        },
        stream: Stream::root(0),
    }
}

fn build(decl: &PartDecl) -> BoxedAggregator<Params, Params> {
    decl.make(&Value::Null, &context()).expect("it can be made")
}

/// The parts of this program in a process that this program begins, as a loaded library's with
/// `--isolate`.
fn apart() -> Vec<&'static PartDecl> {
    let begin = || {
        let (socket, theirs) = UnixStream::pair()?;
        let shared = tempfile::NamedTempFile::new_in("/dev/shm")?;
        let memory = shared.reopen()?;
        let child = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .arg(shared.path())
            .stdin(OwnedFd::from(theirs))
            .spawn()?;
        // it has opened it once it answers
        std::mem::forget(shared.into_temp_path());
        Ok(abi::Process {
            child,
            socket,
            memory,
            ended: std::sync::Arc::default(),
            printed: None,
            memory_bytes: u64::MAX,
        })
    };
    let library = abi::IsolatedLibrary::new(Box::new(begin), Duration::from_secs(60));
    abi::import_isolated(library, "apart", true).expect("it serves its parts")
}

/// What the process does.
fn serve(shared: &str) -> Result<()> {
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let memory = File::options().read(true).write(true).open(shared)?;
    std::fs::remove_file(shared)?;
    #[allow(
        unsafe_code,
        reason = "what a library says of itself is taken on trust"
    )]
    // SAFETY: the table is this program's own.
    unsafe {
        abi::serve(|| Ok(abi::library()), socket, memory, &fl_core::Serial)
    }
}

/// The argument of the process.
const SERVE: &str = "--serve";

/// Peak memory of this process in MiB, since the last [`forget`]; `None` if it is unknown.
fn peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

fn forget() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[allow(clippy::print_stdout, reason = "a benchmark prints")]
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == SERVE) {
        return serve(&args[2]).expect("the program is there");
    }
    let each = [
        ("linked", linked_parts()),
        ("through C", abi::import_linked("here")),
        ("apart", apart()),
    ];
    let named = |parts: &[&'static PartDecl], name: &str| {
        let part = parts.iter().find(|part| part.name == name);
        *part.expect("it is linked here")
    };
    let protocols = each
        .each_ref()
        .map(|(how, parts)| (*how, named(parts, "echo")));
    for numbers in [1, 1_000, 1_000_000] {
        for (name, decl) in protocols {
            let micros = 1e6 * exchange(decl, numbers);
            println!("exchange of {numbers} with one client, {name}: {micros:.2} us");
        }
    }
    let all = each
        .each_ref()
        .map(|(how, parts)| (*how, named(parts, "mean")));
    let mut criterion = Criterion::default().configure_from_args();
    for (clients, numbers) in [(1, 10), (10, 1_000)] {
        let small = inbox(clients, numbers);
        for (name, decl) in all {
            let (mut part, round) = (build(decl), Round::first());
            criterion.bench_function(&format!("mean of {clients} x {numbers}, {name}"), |b| {
                b.iter(|| black_box(part.aggregate(&round, &small)));
            });
        }
    }
    criterion.final_summary();
    let large = inbox(100, 1_000_000);
    for (name, decl) in all {
        let mut part = build(decl);
        forget();
        let took: Vec<f64> = (0..3)
            .map(|_| {
                let began = Instant::now();
                let out = part.aggregate(&Round::first(), &large);
                assert!(out.is_ok(), "{name}");
                began.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        println!(
            "mean of 100 x 1,000,000, {name}: {:.0} ms, then {:.0} and {:.0}, peak memory {:.1} MiB",
            took[0],
            took[1],
            took[2],
            peak().unwrap_or(f64::NAN)
        );
    }
}
