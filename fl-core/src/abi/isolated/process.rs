//! A process of a library, as the program talks with it.

use super::shared_memory::{Doorbell, SharedMemory, dtype};
use super::{
    CallInput, CallRequest, Operation, Process, ProcessMessage, Reply, SharedMessage, SharedTensor,
    receive, send,
};
use crate::Result;
use crate::abi::marshal::{slice, view};
use crate::abi::raw::{FlHost, FlText};
use anyhow::anyhow;
use std::io::{BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

/// One of them, and what is shared with it.
pub(super) struct LibraryProcess {
    /// Which of all processes it is.
    pub number: u64,
    pub child: std::process::Child,
    from: BufReader<UnixStream>,
    to: UnixStream,
    area: SharedMemory,
    /// How many answers there were.
    heard: u32,
    /// The number of the last question.
    asked: u64,
}

impl Drop for LibraryProcess {
    fn drop(&mut self) {
        // it ends by itself when its socket is closed, unless its library keeps it; what that has
        // begun in its group ends too
        // SAFETY: a call of the system on numbers. The child has not been waited for, so its number
        // is its own.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A part, as the program holds it.
pub(super) struct IsolatedPart {
    pub worker: usize,
    /// The process that has it.
    pub number: u64,
    /// What it is called there.
    pub part: u64,
}

impl LibraryProcess {
    /// A process that has begun; whatever it is asked takes at most so long.
    pub fn new(number: u64, process: Process, longest: Duration) -> Result<Self> {
        let Process {
            child,
            socket,
            memory,
        } = process;
        // from here on it is ended if something fails
        let mut running = Self {
            number,
            child,
            to: socket.try_clone()?,
            from: BufReader::new(socket),
            area: SharedMemory::new(memory),
            heard: 0,
            asked: 0,
        };
        running.to.set_read_timeout(Some(longest))?;
        running.to.set_write_timeout(Some(longest))?;
        running.area.reserve(1)?;
        Ok(running)
    }

    /// Sends a question.
    pub fn tell(&mut self, what: Operation, asked: CallInput<'_>) -> Result<()> {
        let mut bodies = Vec::new();
        for raw in asked.messages {
            // SAFETY: whoever calls lends messages that are valid for the call.
            let tensors = unsafe { slice(raw.tensors, raw.count) };
            // SAFETY: as above.
            let views = tensors.iter().map(|raw| unsafe { view(raw) });
            bodies.push(views.collect::<Result<Vec<_>>>()?);
        }
        let bytes = bodies.iter().flatten().map(|(_, view)| view.bytes());
        let (places, end) = SharedMemory::places(bytes)?;
        self.area.reserve(end)?;
        let mut places = places.into_iter();
        let mut messages = Vec::new();
        for (raw, body) in asked.messages.iter().zip(bodies) {
            let mut tensors = Vec::with_capacity(body.len());
            for ((name, view), at) in body.into_iter().zip(&mut places) {
                self.area.write(at, &view)?;
                tensors.push(SharedTensor {
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
            messages.push(SharedMessage {
                from: raw.from,
                weight: raw.weight,
                class_counts: counts,
                training_loss: raw.loss(),
                tensors,
            });
        }
        self.asked += 1;
        let ask = CallRequest {
            number: self.asked,
            what,
            key: asked.key,
            noise: asked.noise,
            messages,
            room: self.area.len() as u64,
        };
        send(&mut self.to, &ask)?;
        self.area.ring(Doorbell::CallInput);
        Ok(())
    }

    /// Waits for the answer; what is logged until then is passed on, and does not give the call more time.
    pub fn hear(&mut self, longest: Duration, said: &mut dyn FnMut(u32, &str)) -> Result<Reply> {
        self.area.listen(Doorbell::Answered, &mut self.heard);
        let began = Instant::now();
        let mut lines = 0;
        loop {
            match receive(&mut self.from)? {
                ProcessMessage::LogEvent(level, line) => said(level, &line),
                // of another call: a copy of the process has said it
                ProcessMessage::Answered(reply) if reply.number != self.asked => {}
                ProcessMessage::Answered(reply) if lines == 0 => return Ok(reply),
                ProcessMessage::Answered(reply) => {
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
    pub fn hand_on(&mut self, worker: usize, reply: Reply, host: &FlHost) -> Result<i32> {
        self.area.see(reply.room)?;
        for part in reply.parts {
            let handle = IsolatedPart {
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
        if let (Some(draw), true) = (host.fill_uniform, reply.drew) {
            let mut one = 0.0;
            // SAFETY: as above; there is room for one number. What is drawn here tells the host's
            // call that the library drew.
            unsafe { draw(host.context, &raw mut one, 1) };
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

    /// Why a process does not answer; it has ended afterwards.
    pub fn why(mut self, error: &anyhow::Error, longest: Duration) -> String {
        let kind = error.downcast_ref::<std::io::Error>().map(|e| e.kind());
        match kind {
            Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => format!(
                "its process was ended: a call took longer than {} seconds",
                longest.as_secs_f64()
            ),
            Some(ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                // its socket is closed, so it has ended or is about to
                let status = (0..1000).find_map(|_| {
                    let status = self.child.try_wait().ok().flatten();
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

/// # Safety
/// The host waits for the end of its call.
pub(super) unsafe fn fail(host: &FlHost, setting: &str, text: &str) {
    if let Some(fail) = host.fail {
        // SAFETY: as the caller says.
        unsafe { fail(host.context, FlText::of(setting), FlText::of(text)) };
    }
}
