//! [`Processes`]: the engine for one machine, with nodes in separate processes, each with a socket
//! to this one. A process that ends is restarted and gets its request again; its node has the
//! answer, or the state to compute the same.

use crate::frame::{Receiver, Sender};
use crate::remote_clients::Transport;
use crate::wire::Packet;
use anyhow::{Context, Error, ensure};
use fl_core::{ClientId, Problem, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The most processes that may end over one request.
const ATTEMPTS: usize = 3;

/// How often it looks whether the program is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Starts the process of this number, from 0, which serves a node ([`crate::frame::serve`]) on the
/// other end of this socket.
pub type Begin<'a> = Box<dyn FnMut(usize) -> Result<(Child, UnixStream)> + 'a>;

/// A request, and the number of processes that have ended over it.
struct Job {
    client: ClientId,
    request: Packet,
    ended: usize,
}

struct WorkerProcess {
    process: Child,
    socket: UnixStream,
    /// To the writer thread: a process that does not read its request blocks only itself.
    to: mpsc::SyncSender<Packet>,
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // its clients' states are in the folder as of their last answers; a further reply is not
        // needed
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Default)]
struct Worker {
    running: Option<WorkerProcess>,
    /// The number of the process, from 1.
    number: u64,
    job: Option<Job>,
    /// When it got its job.
    since: Option<Instant>,
}

/// A worker, the number of its process, and its reply; `None` if it is gone.
type Event = (usize, u64, Option<Packet>);

/// The assignment of clients to processes.
pub enum ProcessLayout {
    /// Any client by any of this number of processes, which share a folder.
    Any(usize),
    /// Each of these clients by its own process.
    Each(Vec<ClientId>),
}

/// Nodes in separate processes.
pub struct Processes<'a> {
    begin: Begin<'a>,
    tell: Box<dyn FnMut(&str) + 'a>,
    seats: ProcessLayout,
    workers: Vec<Worker>,
    waiting: VecDeque<Job>,
    deadline: Option<Duration>,
    folder: PathBuf,
    told: mpsc::SyncSender<Event>,
    events: mpsc::Receiver<Event>,
    /// Have they been told that the program is to stop?
    hurried: bool,
}

impl<'a> Processes<'a> {
    /// Manages these processes, which start on first use. `folder` is removed with the run.
    /// `deadline` limits the time to read a request and to reply. `tell` is called for processes
    /// that end.
    pub fn new(
        seats: ProcessLayout,
        deadline: Option<Duration>,
        folder: PathBuf,
        begin: Begin<'a>,
        tell: Box<dyn FnMut(&str) + 'a>,
    ) -> Self {
        let number = match &seats {
            ProcessLayout::Any(number) => *number,
            ProcessLayout::Each(clients) => clients.len(),
        };
        // a process that sends more than its reply waits until it is read
        let (told, events) = mpsc::sync_channel(number.max(1));
        Self {
            begin,
            tell,
            seats,
            workers: (0..number.max(1)).map(|_| Worker::default()).collect(),
            waiting: VecDeque::new(),
            deadline,
            folder,
            told,
            events,
            hurried: false,
        }
    }

    /// Gives waiting requests to idle processes.
    fn hand_out(&mut self) -> Result<()> {
        for at in 0..self.workers.len() {
            if self.workers[at].job.is_some() {
                continue;
            }
            let serves = |job: &Job| match &self.seats {
                ProcessLayout::Any(_) => true,
                ProcessLayout::Each(clients) => clients.get(at) == Some(&job.client),
            };
            let first = self.waiting.iter().position(serves);
            let Some(job) = first.and_then(|first| self.waiting.remove(first)) else {
                continue;
            };
            if self.workers[at].running.is_none() {
                self.start(at)?;
            }
            let worker = &mut self.workers[at];
            if let Some(running) = &worker.running {
                // there is room, because it has replied to its last request; if the writer is gone,
                // an event reports it
                let _ = running.to.try_send(job.request.clone());
            }
            (worker.job, worker.since) = (Some(job), Some(Instant::now()));
        }
        Ok(())
    }

    fn start(&mut self, at: usize) -> Result<()> {
        let (process, socket) = (self.begin)(at).context("beginning a process for clients")?;
        let (to, from) = (socket.try_clone()?, socket.try_clone()?);
        let (give, requests) = mpsc::sync_channel::<Packet>(1);
        let worker = &mut self.workers[at];
        worker.number += 1;
        worker.running = Some(WorkerProcess {
            process,
            socket,
            to: give,
        });
        let (number, told) = (worker.number, self.told.clone());
        let read = move || {
            let mut from = Receiver::new(from);
            // an unreadable reply ends the process
            while let Ok(Some(packet)) = from.receive() {
                if told.send((at, number, Some(packet))).is_err() {
                    return;
                }
            }
            let _ = told.send((at, number, None));
        };
        let write = move || {
            let mut to = Sender::new(to);
            // a process that does not read is gone, which the reader notices, or too slow, and then
            // the socket is closed
            while requests
                .recv()
                .is_ok_and(|request| to.send(&request).is_ok())
            {}
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let what = "starting a thread";
        thread("replies").spawn(read).context(what)?;
        thread("requests").spawn(write).context(what)?;
        Ok(())
    }

    /// Waits for an event until the first deadline. `Err`: this worker has exceeded it. Once the
    /// program is to stop, tells the processes so.
    fn wait(&mut self) -> Result<std::result::Result<Event, usize>> {
        let busy = self.workers.iter().enumerate();
        let busy = busy.filter(|(_, worker)| worker.job.is_some());
        let first = busy
            .filter_map(|(at, worker)| Some((worker.since?, at)))
            .min();
        loop {
            if fl_core::abi::hurries() && !self.hurried {
                self.hurried = true;
                for running in self.workers.iter().filter_map(|of| of.running.as_ref()) {
                    let _ = kill_process(Pid::from_child(&running.process), Signal::TERM);
                }
            }
            let left = match (self.deadline, first) {
                (Some(deadline), Some((since, at))) => {
                    match deadline.checked_sub(since.elapsed()) {
                        Some(left) => left,
                        None => return Ok(Err(at)),
                    }
                }
                _ => LOOK,
            };
            match self.events.recv_timeout(left.min(LOOK)) {
                Ok(event) => return Ok(Ok(event)),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Transport for Processes<'_> {
    fn clients(&self) -> Vec<ClientId> {
        match &self.seats {
            ProcessLayout::Any(_) => Vec::new(),
            ProcessLayout::Each(clients) => clients.clone(),
        }
    }

    fn window(&self) -> usize {
        4 * self.workers.len()
    }

    fn send(&mut self, client: ClientId, request: Packet) -> Result<()> {
        let ended = 0;
        self.waiting.push_back(Job {
            client,
            request,
            ended,
        });
        self.hand_out()
    }

    fn receive(&mut self) -> Result<(ClientId, Result<Packet>)> {
        loop {
            self.hand_out()?;
            let busy = self.workers.iter().any(|worker| worker.job.is_some());
            ensure!(busy, "no process has a request");
            let (at, number, packet) = match self.wait()? {
                Ok(event) => event,
                Err(at) => {
                    let worker = &mut self.workers[at];
                    worker.running = None;
                    let Some(job) = worker.job.take() else {
                        continue;
                    };
                    let within = self.deadline.unwrap_or_default().as_secs_f64();
                    let why = format!("it did not reply within {within} s (--deadline)");
                    return Ok((job.client, Err(absent(why))));
                }
            };
            let worker = &mut self.workers[at];
            if worker.number != number || worker.running.is_none() {
                continue; // the process has been given up
            }
            if let Some(packet) = packet {
                match worker.job.take() {
                    Some(job) => return Ok((job.client, Ok(packet))),
                    None => continue,
                }
            }
            let how = worker.running.take().and_then(ended);
            let how = how.map_or("unknown reason".into(), |status| status.to_string());
            let Some(mut job) = worker.job.take() else {
                continue;
            };
            job.ended += 1;
            if job.ended >= ATTEMPTS {
                let why = format!(
                    "{ATTEMPTS} processes ended while they answered it, the last with {how}"
                );
                return Ok((job.client, Err(absent(why))));
            }
            (self.tell)(&format!(
                "the process at work for client {} ended ({how}); another process gets the same request",
                job.client
            ));
            self.waiting.push_front(job);
        }
    }

    fn end(&mut self, keep: bool) -> Result<()> {
        self.workers.clear();
        if keep {
            Ok(())
        } else {
            std::fs::remove_dir_all(&self.folder)
                .with_context(|| format!("removing {}", self.folder.display()))
        }
    }
}

/// Returns the exit status of a process that has closed its socket; kills it if it still runs.
fn ended(mut running: WorkerProcess) -> Option<ExitStatus> {
    for _ in 0..200 {
        if let Ok(Some(status)) = running.process.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn absent(text: String) -> Error {
    Error::new(Problem::Absent(text))
}
