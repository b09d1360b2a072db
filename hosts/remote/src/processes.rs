//! The engine for one machine: nodes in processes of their own, each with a socket to this one. A process that ends is begun
//! anew, and asked again what it was asked; its node has the answer, or has what it takes to give the same.

use crate::frame::{Receiver, Sender};
use crate::remote_clients::Transport;
use crate::wire::Packet;
use anyhow::{Context, Error, ensure};
use fl_core::{ClientId, Problem, Result};
use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// So many processes may end over one request.
const ATTEMPTS: usize = 3;

/// Begins the process of this number, from 0, that serves a node ([`crate::frame::serve`]) on the other end of this socket.
pub type Begin<'a> = Box<dyn FnMut(usize) -> Result<(Child, UnixStream)> + 'a>;

/// A request, and how many processes have ended over it.
struct Job {
    client: ClientId,
    request: Packet,
    ended: usize,
}

struct WorkerProcess {
    process: Child,
    socket: UnixStream,
    /// To whoever writes: a process that does not read its request keeps nobody waiting but itself.
    to: mpsc::SyncSender<Packet>,
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // what its clients keep is in the folder as of their last answers; nobody waits for the next
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Default)]
struct Worker {
    running: Option<WorkerProcess>,
    /// Which process it is, from 1.
    number: u64,
    job: Option<Job>,
    /// When it was given its job.
    since: Option<Instant>,
}

/// What a worker, and which process of it, has said; `None`: it is gone.
type Event = (usize, u64, Option<Packet>);

/// Who is served by which process.
pub enum ProcessLayout {
    /// Any client by any of so many processes, which share a folder.
    Any(usize),
    /// Each of these clients by a process that serves nobody else.
    Each(Vec<ClientId>),
}

/// Nodes in processes of their own.
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
}

impl<'a> Processes<'a> {
    /// These processes, begun when they are needed first. `folder` is what goes with the run, `deadline` how long one may take
    /// to take its request and to reply, and `tell` is told of those that end.
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
        // one that says more than it was asked waits until somebody listens
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
        }
    }

    /// Gives what waits to whoever has nothing to do.
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
                // there is room, for it has replied to what it was given before; if nobody writes any more it is gone, which is an event
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
            // what cannot be read is the end of it
            while let Ok(Some(packet)) = from.receive() {
                if told.send((at, number, Some(packet))).is_err() {
                    return;
                }
            }
            let _ = told.send((at, number, None));
        };
        let write = move || {
            let mut to = Sender::new(to);
            // whoever does not take it is gone, which the reader finds, or too slow, and then the socket is closed
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

    /// Waits for an event, as long as nobody takes too long; `None`: this one does.
    fn wait(&self) -> Result<std::result::Result<Event, usize>> {
        let (Some(deadline), busy) = (self.deadline, self.workers.iter().enumerate()) else {
            return Ok(Ok(self.events.recv()?));
        };
        let busy = busy.filter(|(_, worker)| worker.job.is_some());
        let first = busy
            .filter_map(|(at, worker)| Some((worker.since?, at)))
            .min();
        let Some((since, at)) = first else {
            return Ok(Ok(self.events.recv()?));
        };
        let left = deadline.saturating_sub(since.elapsed());
        match self.events.recv_timeout(left) {
            Ok(event) => Ok(Ok(event)),
            Err(_) => Ok(Err(at)),
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
                continue; // of a process that has been given up
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
                let why = format!("{ATTEMPTS} processes ended over it, the last with {how}");
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
        match keep {
            true => Ok(()),
            false => std::fs::remove_dir_all(&self.folder)
                .with_context(|| format!("removing {}", self.folder.display())),
        }
    }
}

/// How a process ended that has closed its socket; one that goes on without it is ended.
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
