//! Memory that two processes share.

use super::{FRAME, SharedTensor, WAKE};
use crate::marshal::{numbers, write};
use anyhow::{Context, ensure};
use fl_roles::Result;
use fl_roles::message::{Dtype, View};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A tensor begins where its numbers are aligned whatever they are, and where a vector register
/// likes it.
const ALIGNED: usize = 64;
/// It grows by at least this.
const STEP: usize = 1 << 16;
/// The longest message that a mailbox takes.
const MAILBOX: usize = 1 << 13;
/// Processors fetch memory in pairs of cache lines: what both sides write lies apart.
const APART: usize = 128;
/// Where a mailbox has its message: in the cache line of the bell, which its reader fetches first.
const MESSAGE: usize = APART + 12;
/// Where the second mailbox begins.
const SECOND: usize = (MESSAGE + MAILBOX).next_multiple_of(APART);
/// Where the tensors begin, after two mailboxes.
const TENSORS: usize = 2 * SECOND;

/// A message comes within this, or a sleeping thread may as well be woken for it.
const LISTEN: Duration = Duration::from_micros(50);
/// After this many late messages in a row, a side that waits sleeps at once.
const LATE: u32 = 4;
/// It still listens for one of this many messages, to notice when they come sooner again.
const PROBE: u32 = 16;

/// Where a message lies for one of the two sides. It holds one: a side writes another when that one
/// is answered.
#[derive(Clone, Copy)]
pub(super) enum Mailbox {
    /// The program's requests.
    Requests = 0,
    /// The process's answers.
    Answers = 1,
}

/// Where a mailbox has its words, which both sides see.
enum Word {
    /// Its reader sleeps, and is to be woken.
    Asleep = 0,
    /// Counts messages.
    Bell = APART as isize,
    /// The message's length; longer than a mailbox: it comes over the socket.
    Length = APART as isize + 4,
    /// How many lines the sender had logged before it.
    Lines = APART as isize + 8,
}

/// A message out of a mailbox.
pub(super) struct Mail {
    /// `None`: it comes over the socket.
    pub message: Option<Vec<u8>>,
    /// How many lines of the log come before it.
    pub lines: u32,
}

/// Who reads a mailbox, and how patiently.
pub(super) struct Listener {
    mailbox: Mailbox,
    /// The last message that was taken.
    heard: u32,
    /// Messages in a row that came too late to be listened for.
    late: u32,
    /// While this thread listens, the other side can run.
    cores: bool,
}

impl Listener {
    pub fn new(mailbox: Mailbox) -> Self {
        let cores = std::thread::available_parallelism();
        Self {
            mailbox,
            heard: 0,
            late: 0,
            cores: cores.is_ok_and(|n| n.get() > 1),
        }
    }
}

/// A file in memory, mapped. It only grows: it is sealed against becoming shorter, so that what is
/// mapped stays.
pub(super) struct SharedMemory {
    file: File,
    map: MmapRaw,
}

/// A mapping that a fork of this process does not have. It would write its answer there when its
/// original has long answered, and the memory holds other tensors.
fn of_this_process(map: std::io::Result<MmapRaw>) -> Result<MmapRaw> {
    let map = map.context("mapping shared memory")?;
    #[cfg(target_os = "linux")]
    map.advise(memmap2::Advice::DontFork)
        .context("mapping shared memory")?;
    Ok(map)
}

impl SharedMemory {
    /// Makes the mailboxes.
    pub fn new(file: File) -> Result<Self> {
        let length = TENSORS.next_multiple_of(STEP) as u64;
        file.set_len(length).context("making shared memory")?;
        Self::made(file)
    }

    /// The other side has made the mailboxes.
    pub fn made(file: File) -> Result<Self> {
        let map = of_this_process(MmapRaw::map_raw(&file))?;
        ensure!(map.len() >= TENSORS, "shared memory has no mailboxes");
        Ok(Self { file, map })
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Makes it at least so long.
    pub fn reserve(&mut self, length: usize) -> Result<()> {
        if length <= self.len() {
            return Ok(());
        }
        // twice as long as before, so that a few sizes in a row do not map it anew each time
        let length = length.max(2 * self.len()).next_multiple_of(STEP) as u64;
        // the other side may have made it longer than is mapped here
        let length = length.max(self.file.metadata()?.len());
        self.file.set_len(length).context("making shared memory")?;
        self.see(length)
    }

    /// The other side has made it so long.
    pub fn see(&mut self, length: u64) -> Result<()> {
        let length = usize::try_from(length)?;
        if length <= self.len() {
            return Ok(());
        }
        let there = self.file.metadata()?.len();
        ensure!(
            there >= length as u64,
            "shared memory has {there} bytes, and {length} were announced"
        );
        // the old mapping stays until there is a new one
        self.map = of_this_process(MmapRaw::map_raw(&self.file))?;
        Ok(())
    }

    /// Where tensors of these numbers of bytes lie, one after the other, and where they end.
    pub fn places(bytes: impl Iterator<Item = usize>) -> Result<(Vec<usize>, usize)> {
        let mut end: usize = TENSORS;
        let mut all = Vec::new();
        for n in bytes {
            all.push(end);
            let next = end.checked_add(n).context("too many bytes")?;
            end = next
                .checked_next_multiple_of(ALIGNED)
                .context("too many bytes")?;
        }
        Ok((all, end))
    }

    /// Sends a message: into its mailbox, or over the socket if it is too long for that. `frame` is
    /// the message as the socket takes it; `lines` were logged before it.
    pub fn post(
        &self,
        to: Mailbox,
        frame: &[u8],
        lines: u32,
        socket: &mut impl Write,
    ) -> std::io::Result<()> {
        let message = &frame[FRAME..];
        let fits = message.len() <= MAILBOX;
        if fits {
            let room = self.message(to);
            // SAFETY: the mailbox has room for it, and is not read before the bell rings.
            unsafe { room.copy_from_nonoverlapping(message.as_ptr(), message.len()) };
        }
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        self.word(to, Word::Length).store(length, Ordering::Relaxed);
        self.word(to, Word::Lines).store(lines, Ordering::Relaxed);
        self.word(to, Word::Bell).fetch_add(1, Ordering::SeqCst);
        // a reader says that it sleeps, and looks at the bell then; the sender rings, and looks
        // then whether it sleeps. So one of them sees what the other did.
        let asleep = self.word(to, Word::Asleep);
        let sleeps = asleep.load(Ordering::SeqCst) != 0 && asleep.swap(0, Ordering::SeqCst) != 0;
        match (fits, sleeps) {
            (false, _) => socket.write_all(frame),
            (true, true) => socket.write_all(&WAKE),
            (true, false) => Ok(()),
        }
    }

    /// Waits a little for a message: a sleeping thread wakes late, and most answers come at once.
    pub fn listen(&self, listener: &mut Listener) -> Option<Mail> {
        let patient = listener.late < LATE || listener.late.is_multiple_of(PROBE);
        if listener.cores && patient {
            let until = Instant::now() + LISTEN;
            loop {
                // a look at the clock takes longer than one at the bell
                for _ in 0..16 {
                    if self.rings(listener) {
                        listener.late = 0;
                        return Some(self.take(listener));
                    }
                    std::hint::spin_loop();
                }
                if Instant::now() >= until {
                    break;
                }
            }
        }
        listener.late = listener.late.wrapping_add(1);
        None
    }

    /// Looks for a message a last time; if there is none, the sender of the next wakes this thread,
    /// which may sleep.
    pub fn last_look(&self, listener: &mut Listener) -> Option<Mail> {
        let asleep = self.word(listener.mailbox, Word::Asleep);
        asleep.store(1, Ordering::SeqCst);
        if !self.rings(listener) {
            return None;
        }
        asleep.store(0, Ordering::SeqCst);
        Some(self.take(listener))
    }

    /// A message has come over the socket.
    pub fn taken(&self, listener: &mut Listener) {
        let mailbox = listener.mailbox;
        self.word(mailbox, Word::Asleep).store(0, Ordering::SeqCst);
        listener.heard = self.word(mailbox, Word::Bell).load(Ordering::SeqCst);
    }

    fn rings(&self, listener: &Listener) -> bool {
        self.word(listener.mailbox, Word::Bell)
            .load(Ordering::SeqCst)
            != listener.heard
    }

    /// Takes the message. The other side may write what it likes, and when; so nothing is looked at
    /// before it is copied.
    fn take(&self, listener: &mut Listener) -> Mail {
        let mailbox = listener.mailbox;
        listener.heard = self.word(mailbox, Word::Bell).load(Ordering::SeqCst);
        let length = self.word(mailbox, Word::Length).load(Ordering::Relaxed) as usize;
        let lines = self.word(mailbox, Word::Lines).load(Ordering::Relaxed);
        let message = (length <= MAILBOX).then(|| {
            let mut message = vec![0; length];
            let from = self.message(mailbox).cast_const();
            // SAFETY: `length` is at most `MAILBOX`, which is mapped; any bytes will do.
            unsafe { from.copy_to_nonoverlapping(message.as_mut_ptr(), length) };
            message
        });
        Mail { message, lines }
    }

    fn word(&self, mailbox: Mailbox, word: Word) -> &AtomicU32 {
        let at = mailbox as usize * SECOND + word as usize;
        // SAFETY: the mailboxes are mapped; a word is aligned, and used as such alone.
        unsafe { &*self.map.as_mut_ptr().add(at).cast::<AtomicU32>() }
    }

    fn message(&self, mailbox: Mailbox) -> *mut u8 {
        let at = mailbox as usize * SECOND + MESSAGE;
        // SAFETY: within the mailboxes, which are mapped.
        unsafe { self.map.as_mut_ptr().add(at) }
    }

    /// The address of `bytes` bytes, which are all inside.
    pub fn address(&self, at: usize, bytes: usize) -> Result<*mut u8> {
        let end = at.checked_add(bytes).filter(|end| *end <= self.len());
        ensure!(
            end.is_some() && at.is_multiple_of(ALIGNED),
            "{bytes} bytes at {at} are not in the {} bytes of shared memory",
            self.len()
        );
        // SAFETY: within the mapping, which stays while `self` is borrowed.
        Ok(unsafe { self.map.as_mut_ptr().add(at) })
    }

    /// Writes a tensor there, in row order.
    pub fn write(&mut self, at: usize, view: &View<'_>) -> Result<()> {
        let to = self.address(at, view.bytes())?;
        // SAFETY: `address` has looked that there is room; the other side waits for our word.
        unsafe { write(view, to) };
        Ok(())
    }

    /// A look at a tensor that lies there.
    ///
    /// # Safety
    /// There are no writes to it while the view lives.
    pub unsafe fn view(&self, tensor: &SharedTensor) -> Result<View<'_>> {
        let at = self.address(tensor.at, tensor.bytes()?)?.cast_const();
        // SAFETY: all numbers lie inside the memory and are aligned, any bits are numbers, and the
        // caller promises that there are no writes.
        unsafe { numbers(&tensor.name, tensor.dtype, at.cast(), (&tensor.shape, None)) }
    }
}

impl SharedTensor {
    /// How many bytes its numbers have.
    pub fn bytes(&self) -> Result<usize> {
        let n = self.shape.len();
        let dtype = Dtype::numbered(self.dtype).filter(|dtype| *dtype != Dtype::U8 || n == 1);
        let unknown = || {
            format!(
                "tensor `{}` has type {} and {n} dimensions",
                self.name, self.dtype
            )
        };
        let dtype = dtype.with_context(unknown)?;
        let size = dtype.bytes(1);
        let mut sizes = self.shape.iter();
        let bytes = sizes.try_fold(size, |n: usize, d| n.checked_mul(*d));
        // ndarray requires this of the product without zeros too
        let whole = self.shape.iter().filter(|d| **d > 0);
        let whole = whole
            .into_iter()
            .try_fold(size, |n: usize, d| n.checked_mul(*d))
            .filter(|n| isize::try_from(*n).is_ok());
        let bytes = match dtype {
            Dtype::Bits => bytes.map(|bits| bits.div_ceil(8)),
            _ => bytes,
        };
        bytes
            .filter(|_| whole.is_some())
            .with_context(|| format!("tensor `{}` has the shape {:?}", self.name, self.shape))
    }
}

/// Where the tensors of an answer are written, behind those of the request, which the library still
/// reads.
pub(crate) struct AnswerRooms<'a> {
    area: &'a SharedMemory,
    state: Mutex<RoomState>,
}

struct RoomState {
    /// Where the next tensor begins, and where the mapping ends that it lies in.
    next: usize,
    end: usize,
    /// What was mapped when there was no more room, until the call has ended; each with its place.
    beyond: Vec<(usize, MmapRaw)>,
}

impl<'a> AnswerRooms<'a> {
    /// Room behind these tensors.
    pub(super) fn behind(
        area: &'a SharedMemory,
        tensors: impl Iterator<Item = &'a SharedTensor>,
    ) -> Result<Self> {
        let mut next = TENSORS;
        for tensor in tensors {
            next = next.max(tensor.at.saturating_add(tensor.bytes()?));
        }
        let next = next.checked_next_multiple_of(ALIGNED);
        Ok(Self {
            area,
            state: Mutex::new(RoomState {
                next: next.context("too many bytes")?,
                end: area.len(),
                beyond: Vec::new(),
            }),
        })
    }

    /// Returns a place for `bytes` zeros, as its offset and its address. The place stays until the
    /// call has ended.
    pub(crate) fn room(&self, bytes: usize) -> Result<(usize, *mut u8)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = |at: usize| {
            let next = at.checked_add(bytes);
            let next = next.and_then(|next| next.checked_next_multiple_of(ALIGNED));
            next.context("too many bytes")
        };
        if behind(state.next)? > state.end {
            // nothing was ever written behind the end of the memory: it is zeros
            let file = &self.area.file;
            let there = usize::try_from(file.metadata()?.len())?;
            let at = there.next_multiple_of(STEP);
            // as much as there is, so that many tensors do not map it anew each time
            let end = behind(at)?.max(at.saturating_add(there));
            let end = end.checked_next_multiple_of(STEP);
            let end = end.context("too many bytes")?;
            file.set_len(end as u64).context("making shared memory")?;
            let map = MmapOptions::new()
                .offset(at as u64)
                .len(end - at)
                .map_raw(file);
            let map = of_this_process(map)?;
            state.beyond.push((at, map));
            (state.next, state.end) = (at, end);
        }
        let at = state.next;
        state.next = behind(at)?;
        let room = match state.beyond.last() {
            // SAFETY: `next` was at most `end`, which is where this mapping ends.
            Some((from, map)) => unsafe { map.as_mut_ptr().add(at - from) },
            None => {
                let room = self.area.address(at, bytes)?;
                // SAFETY: `address` checked that the bytes are mapped. No other code uses them:
                // they lie behind the request, and the program waits for the answer.
                unsafe { room.write_bytes(0, bytes) };
                room
            }
        };
        Ok((at, room))
    }

    /// How long the memory is by now. What was given is used no more.
    pub(super) fn length(self) -> u64 {
        let state = self.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner).end as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::FL_F32;
    use ndarray::ArrayView;

    /// Reads what was written there by the other side, which has mapped the memory anew.
    fn bytes(area: &SharedMemory, at: usize, n: usize) -> Vec<u8> {
        let from = area.address(at, n).expect("it is inside");
        // SAFETY: `address` has looked that the bytes are mapped; there are no writes meanwhile.
        unsafe { std::slice::from_raw_parts(from, n) }.to_vec()
    }

    #[test]
    fn tensors_in_one_place_are_refused() {
        let mut area = SharedMemory::new(tempfile::tempfile().unwrap()).unwrap();
        area.reserve(1 << 20).unwrap();
        let half = SharedTensor {
            name: "w".into(),
            dtype: FL_F32,
            shape: vec![area.len() / 8],
            at: 0,
        };
        let disjoint = |n: usize| super::super::disjoint(&area, std::iter::repeat_n(&half, n));
        assert!(disjoint(1).is_ok() && disjoint(2).is_ok());
        let error = disjoint(3).unwrap_err().to_string();
        assert!(error.contains("overlap"), "{error}");
    }

    #[test]
    fn answers_lie_behind_the_request_and_are_zeros_until_they_are_written() {
        let mut area = SharedMemory::new(tempfile::tempfile().unwrap()).unwrap();
        let mut other = SharedMemory::made(area.file.try_clone().unwrap()).unwrap();
        let request = SharedTensor {
            name: "w".into(),
            dtype: FL_F32,
            shape: vec![500],
            at: TENSORS,
        };
        let sent: Vec<f32> = (0..500).map(|n| n as f32).collect();
        let sent = ArrayView::from(&sent).into_dyn();
        area.write(TENSORS, &View::F32(sent.clone())).unwrap();
        // more than there is, small ones after large ones, and some without bytes
        let sizes = [10, 0, 3 * STEP, 64, 10 * STEP + 1, 1, 0, 2000];
        for turn in 0..3u8 {
            let rooms = AnswerRooms::behind(&area, [&request].into_iter()).unwrap();
            let mut given = Vec::new();
            for size in sizes {
                let (at, room) = rooms.room(size).unwrap();
                assert_eq!(at % ALIGNED, 0);
                // SAFETY: `room` gave this many bytes, and they stay until the rooms are dropped.
                let room = unsafe { std::slice::from_raw_parts_mut(room, size) };
                assert!(room.iter().all(|byte| *byte == 0), "turn {turn}, {size}");
                given.push((at, room));
            }
            for (n, (_, room)) in given.iter_mut().enumerate() {
                room.fill(turn + n as u8 + 1);
            }
            let given: Vec<_> = given.iter().map(|(at, room)| (*at, room.len())).collect();
            let length = rooms.length();
            area.see(length).unwrap();
            other.see(length).unwrap();
            for (n, (at, size)) in given.into_iter().enumerate() {
                assert_eq!(bytes(&other, at, size), vec![turn + n as u8 + 1; size]);
            }
            // SAFETY: there are no writes to it.
            let kept = unsafe { other.view(&request) }.unwrap();
            let View::F32(kept) = kept else {
                panic!("the request is f32");
            };
            assert_eq!(kept, sent, "the request is still there");
        }
        // nothing is mapped anew when there is room
        let before = area.len();
        let rooms = AnswerRooms::behind(&area, [&request].into_iter()).unwrap();
        sizes.iter().for_each(|size| _ = rooms.room(*size).unwrap());
        assert_eq!(rooms.length(), before as u64);
        let rooms = AnswerRooms::behind(&area, [].into_iter()).unwrap();
        assert!(rooms.room(usize::MAX).is_err());
    }
}
