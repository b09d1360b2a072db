//! The program, which asks.

use super::area::{Area, Bell, dtype};
use super::{Ask, Letter, Lying, Reply, Told, What, receive, send};
use crate::Result;
use crate::abi::cross::{slice, view};
use crate::abi::raw::{FL_ERROR, FlHost, FlMessage, FlText};
use crate::privacy::Noise;
use anyhow::{Context, anyhow};
use std::ffi::c_void;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A process that has loaded a library, or is about to.
pub struct Process {
    /// The process.
    pub child: std::process::Child,
    /// The way to it.
    pub socket: UnixStream,
    /// What tensors are shared in: it must not become shorter.
    pub memory: File,
}

/// Begins a process.
type Begin = Box<dyn Fn() -> Result<Process> + Send + Sync>;

/// So many processes a library has at most, on every machine: which parts share one does not depend on how many processors
/// there are.
const PROCESSES: usize = 16;

/// A library in processes of its own. A part's random stream says in which it is made, and there it stays.
pub struct Apart {
    begin: Begin,
    /// A call that takes longer ends its process.
    longest: Duration,
    workers: [Mutex<Worker>; PROCESSES],
}

/// The place of a process.
#[derive(Default)]
struct Worker {
    running: Option<Running>,
    /// The last one that ended, and why.
    ended: Option<(u64, String)>,
}

struct Running {
    /// Which of all processes it is.
    number: u64,
    child: std::process::Child,
    from: BufReader<UnixStream>,
    to: UnixStream,
    area: Area,
    /// How many answers there were.
    heard: u32,
}

impl Drop for Running {
    fn drop(&mut self) {
        // it ends by itself when its socket is closed, unless its library keeps it
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A part, as the program holds it.
struct Handle {
    worker: usize,
    /// The process that has it.
    number: u64,
    /// What it is called there.
    part: u64,
}

/// What a call is made with.
pub(in crate::abi) struct Asked<'a> {
    pub key: Option<[u8; 32]>,
    pub noise: Noise,
    pub messages: &'a [FlMessage],
}

impl Apart {
    /// Processes that `begin` begins when they are needed; a call that takes longer than `longest` ends its process.
    pub fn new(begin: Begin, longest: Duration) -> Self {
        Self {
            begin,
            longest,
            workers: Default::default(),
        }
    }

    /// The description of its parts goes to `host`, as text.
    pub(in crate::abi) fn describe(&self, host: &FlHost) -> i32 {
        self.ask(0, None, What::Describe, Asked::NOTHING, host)
    }

    /// Makes a part, which goes to `host`.
    pub(in crate::abi) fn create(
        &self,
        index: u32,
        settings: &str,
        task: &str,
        asked: Asked<'_>,
        host: &FlHost,
    ) -> i32 {
        let worker = asked.key.map_or(0, |key| usize::from(key[0])) % PROCESSES;
        let what = What::Create {
            index,
            settings: settings.into(),
            task: task.into(),
        };
        self.ask(worker, None, what, asked, host)
    }

    /// Does one operation with a part, or with the library itself if it is NULL.
    ///
    /// # Safety
    /// `part` is what a call of this library gave, and not dropped; the messages are valid.
    pub(in crate::abi) unsafe fn call(
        &self,
        part: *mut c_void,
        operation: u32,
        text: &str,
        asked: Asked<'_>,
        host: &FlHost,
    ) -> i32 {
        // SAFETY: as the caller says; the handle is a box of ours.
        let handle = unsafe { part.cast::<Handle>().as_ref() };
        let what = What::Call {
            part: handle.map_or(0, |handle| handle.part),
            operation,
            text: text.into(),
        };
        let worker = handle.map_or(0, |handle| handle.worker);
        self.ask(worker, handle.map(|h| h.number), what, asked, host)
    }

    /// Ends a part.
    ///
    /// # Safety
    /// As [`Apart::call`]; it is not used any more.
    pub(in crate::abi) unsafe fn drop(&self, part: *mut c_void) {
        // SAFETY: as the caller says; the handle is a box of ours, and this is the last that is heard of it.
        let handle = unsafe { Box::from_raw(part.cast::<Handle>()) };
        let mut worker = self.worker(handle.worker);
        let Some(running) = &mut worker.running else {
            return;
        };
        if running.number == handle.number {
            let what = What::Drop { part: handle.part };
            if let Err(error) = running.tell(what, Asked::NOTHING) {
                self.end(&mut worker, &error);
            }
        }
    }

    fn worker(&self, at: usize) -> MutexGuard<'_, Worker> {
        let worker = self.workers[at].lock();
        worker.unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks process `at`, and hands on what it answers. A question about a part is for process `number` alone.
    fn ask(
        &self,
        at: usize,
        number: Option<u64>,
        what: What,
        asked: Asked<'_>,
        host: &FlHost,
    ) -> i32 {
        let mut worker = self.worker(at);
        let mut said = |level: u32, line: &str| {
            if let Some(log) = host.log {
                // SAFETY: the host's own function, context and call.
                unsafe { log(host.context, level, FlText::of(line)) };
            }
        };
        let answered = self.answered(&mut worker, number, what, asked, &mut said);
        let told = answered.and_then(|(running, reply)| running.hand_on(at, reply, host));
        told.unwrap_or_else(|error| {
            let text = format!("{error:#}");
            // SAFETY: the host waits for the end of its call.
            unsafe { fail(host, "", &text) };
            FL_ERROR
        })
    }

    fn answered<'w>(
        &self,
        worker: &'w mut Worker,
        number: Option<u64>,
        what: What,
        asked: Asked<'_>,
        said: &mut dyn FnMut(u32, &str),
    ) -> Result<(&'w mut Running, Reply)> {
        let here = worker.running.as_ref().map(|running| running.number);
        match number {
            Some(number) if here != Some(number) => {
                let ended = worker.ended.as_ref().filter(|(of, _)| *of == number);
                let why = ended.map_or("nothing of it is left", |(_, why)| why);
                return Err(anyhow!("its process has ended: {why}"));
            }
            Some(_) => {}
            // what is new does not suffer for what has ended meanwhile
            None => {
                let gone = |r: &mut Running| !matches!(r.child.try_wait(), Ok(None));
                if worker.running.as_mut().is_none_or(gone) {
                    worker.running = None;
                    worker.running = Some(self.begun()?);
                }
            }
        }
        let running = worker.running.as_mut().context("it has a process")?;
        let reply = match running.tell(what, asked) {
            Ok(()) => {
                running.area.listen(Bell::Answered, &mut running.heard);
                running.hear(self.longest, said)
            }
            Err(error) => Err(error),
        };
        match reply {
            // the borrow checker wants it to be looked up again
            Ok(reply) => Ok((worker.running.as_mut().context("it has a process")?, reply)),
            Err(error) => Err(anyhow!(
                "{}, in the middle of a call",
                self.end(worker, &error)
            )),
        }
    }

    /// Ends a process that cannot be asked any more, and says why.
    fn end(&self, worker: &mut Worker, error: &anyhow::Error) -> String {
        let Some(running) = worker.running.take() else {
            return "its process has ended".into();
        };
        let number = running.number;
        let why = self.why(running, error);
        worker.ended = Some((number, why.clone()));
        why
    }

    fn begun(&self) -> Result<Running> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let Process {
            child,
            socket,
            memory,
        } = (self.begin)().context("a process for it cannot be begun")?;
        // from here on it is ended if something fails
        let mut running = Running {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            child,
            to: socket.try_clone()?,
            from: BufReader::new(socket),
            area: Area::new(memory),
            heard: 0,
        };
        running.to.set_read_timeout(Some(self.longest))?;
        running.to.set_write_timeout(Some(self.longest))?;
        running.area.reserve(1)?;
        Ok(running)
    }

    /// Why a process does not answer; it has ended afterwards.
    fn why(&self, mut running: Running, error: &anyhow::Error) -> String {
        let kind = error.downcast_ref::<std::io::Error>().map(|e| e.kind());
        match kind {
            Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => format!(
                "its process was ended: a call took longer than {} seconds",
                self.longest.as_secs_f64()
            ),
            Some(ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                // its socket is closed, so it has ended or is about to
                let status = (0..1000).find_map(|_| {
                    let status = running.child.try_wait().ok().flatten();
                    if status.is_none() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    status
                });
                match status.map(|status| (status.signal(), status.code())) {
                    Some((Some(signal), _)) => format!("its process was ended by signal {signal}"),
                    Some((_, Some(code))) => format!("it ended its process with exit code {code}"),
                    _ => "its process closed its socket, and was ended".into(),
                }
            }
            _ => format!("its process was ended, for it could not be asked ({error:#})"),
        }
    }
}

impl Asked<'_> {
    const NOTHING: Self = Self {
        key: None,
        noise: Noise::Seeded,
        messages: &[],
    };
}

impl Running {
    /// Sends a question.
    fn tell(&mut self, what: What, asked: Asked<'_>) -> Result<()> {
        let mut bodies = Vec::new();
        for raw in asked.messages {
            // SAFETY: whoever calls lends messages that are valid for the call.
            let tensors = unsafe { slice(raw.tensors, raw.count) };
            // SAFETY: as above.
            let views = tensors.iter().map(|raw| unsafe { view(raw) });
            bodies.push(views.collect::<Result<Vec<_>>>()?);
        }
        let bytes = bodies.iter().flatten().map(|(_, view)| view.bytes());
        let (places, end) = Area::places(bytes)?;
        self.area.reserve(end)?;
        let mut places = places.into_iter();
        let mut messages = Vec::new();
        for (raw, body) in asked.messages.iter().zip(bodies) {
            let mut tensors = Vec::with_capacity(body.len());
            for ((name, view), at) in body.into_iter().zip(&mut places) {
                self.area.write(at, &view)?;
                tensors.push(Lying {
                    name: name.into(),
                    dtype: dtype(&view),
                    shape: view.shape(),
                    at,
                });
            }
            let counts = (!raw.class_counts.is_null()).then(|| {
                // SAFETY: as above.
                unsafe { slice(raw.class_counts, raw.classes as usize) }.to_vec()
            });
            messages.push(Letter {
                from: raw.from,
                weight: raw.weight,
                class_counts: counts,
                tensors,
            });
        }
        let ask = Ask {
            what,
            key: asked.key,
            noise: asked.noise,
            messages,
            room: self.area.len() as u64,
        };
        send(&mut self.to, &ask)?;
        self.area.ring(Bell::Asked);
        Ok(())
    }

    /// Waits for the answer; what is logged until then is passed on, and does not give the call more time.
    fn hear(&mut self, longest: Duration, said: &mut dyn FnMut(u32, &str)) -> Result<Reply> {
        let began = Instant::now();
        let mut lines = 0;
        loop {
            match receive(&mut self.from)? {
                Told::Said(level, line) => said(level, &line),
                Told::Answered(reply) if lines == 0 => return Ok(reply),
                Told::Answered(reply) => {
                    self.to.set_read_timeout(Some(longest))?;
                    return Ok(reply);
                }
            }
            lines += 1;
            let left = longest.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(std::io::Error::from(ErrorKind::TimedOut).into());
            }
            self.to.set_read_timeout(Some(left))?;
        }
    }

    /// Hands a reply to the host as a library would.
    fn hand_on(&mut self, worker: usize, reply: Reply, host: &FlHost) -> Result<i32> {
        self.area.see(reply.room)?;
        for part in reply.parts {
            let handle = Handle {
                worker,
                number: self.number,
                part,
            };
            if let Some(give) = host.part {
                let handle = Box::into_raw(Box::new(handle));
                // SAFETY: as above; it comes back to `drop`.
                unsafe { give(host.context, handle.cast()) };
            }
        }
        for tensor in &reply.tensors {
            let bytes = tensor.bytes()?;
            let from = self.area.address(tensor.at, bytes)?;
            let room = host.tensor.map_or(std::ptr::null_mut(), |room| {
                let (shape, n) = (tensor.shape.as_ptr(), tensor.shape.len() as u32);
                // SAFETY: as above.
                unsafe {
                    let name = FlText::of(&tensor.name);
                    room(host.context, name, tensor.dtype, n, shape)
                }
            });
            if !room.is_null() && bytes > 0 {
                // SAFETY: the host gave room for a tensor of this type and shape, and so many bytes are shared.
                unsafe { from.copy_to_nonoverlapping(room.cast(), bytes) };
            }
        }
        if let (Some(text), Some(json)) = (host.text, &reply.text) {
            // SAFETY: as above.
            unsafe { text(host.context, FlText::of(json)) };
        }
        if let Some(misuse) = &reply.misuse {
            return Err(anyhow!("{misuse}"));
        }
        if let Some((setting, text)) = &reply.failure {
            // SAFETY: as above.
            unsafe { fail(host, setting, text) };
        }
        Ok(reply.code)
    }
}

/// # Safety
/// The host waits for the end of its call.
unsafe fn fail(host: &FlHost, setting: &str, text: &str) {
    if let Some(fail) = host.fail {
        // SAFETY: as the caller says.
        unsafe { fail(host.context, FlText::of(setting), FlText::of(text)) };
    }
}
