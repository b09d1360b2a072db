//! Work on clients: many at once, with answers in order, few of them held at a time.

use crate::clients::Clients;
use anyhow::Context;
use fl_core::{ClientId, ClientState, Executor, Result, SharedExecutor};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// How far workers may run ahead of the next answer, per thread. A slow client must not stop the
/// others, and answers must not pile up.
const AHEAD: usize = 4;

/// Bytes of waiting answers above which no worker begins another client: large answers must not
/// pile up either.
const WAITING: u64 = 32 << 20;

/// A client's result, if its state could be read and kept.
type JobResult<T> = Result<Result<T>>;

/// Calls `work` for each of `ids` on up to `threads` threads. Calls `each` with the results in the
/// order of `ids`, on this thread. A failure to read or keep a client's state is a separate error.
/// `size` returns the bytes of a result in memory.
pub(crate) fn for_clients<T: Send>(
    clients: &Clients,
    ids: &[ClientId],
    threads: usize,
    work: &(dyn Fn(&mut ClientState) -> Result<T> + Sync),
    size: &(dyn Fn(&T) -> u64 + Sync),
    each: &mut dyn FnMut(ClientId, Result<T>) -> Result<()>,
) -> Result<()> {
    struct State<T> {
        next: usize,
        due: usize,
        done: BTreeMap<usize, JobResult<T>>,
        waiting: u64,
    }
    let size = |result: &JobResult<T>| match result {
        Ok(Ok(answer)) => size(answer),
        _ => 0,
    };
    let memory = clients.memory.as_ref();
    let one = |id: ClientId| {
        let result = clients.with(id, work);
        memory.inspect(|memory| memory.ends());
        result
    };
    let begins = |worker| memory.is_none_or(|memory| memory.begins(worker));
    let threads = threads.clamp(1, ids.len().max(1));
    if threads == 1 {
        let alone = |id: &ClientId| {
            begins(0);
            each(*id, one(*id)?)
        };
        return ids.iter().try_for_each(alone);
    }
    let state = Mutex::new(State {
        next: 0,
        due: 0,
        done: BTreeMap::new(),
        waiting: 0,
    });
    let changed = Condvar::new();
    let waiting = memory.map_or(WAITING, |memory| memory.waiting(WAITING));
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let serve = |worker: usize| {
        loop {
            let mut s = lock();
            // only clients at work delay the next answer, so there is no deadlock
            while s.next < ids.len()
                && (s.next > s.due && (s.next >= s.due + AHEAD * threads || s.waiting >= waiting)
                    || !begins(worker))
            {
                s = changed.wait(s).unwrap_or_else(PoisonError::into_inner);
            }
            let at = s.next;
            if at >= ids.len() {
                return;
            }
            s.next += 1;
            drop(s);
            let result = one(ids[at]);
            let mut s = lock();
            s.waiting += size(&result);
            s.done.insert(at, result);
            drop(s);
            changed.notify_all();
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..threads {
            let serve = &serve;
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || serve(worker));
            if let Err(error) = thread {
                lock().next = ids.len();
                changed.notify_all();
                return Err(error).context("starting threads; give fewer with --threads");
            }
        }
        let mut deliver = || {
            for (at, id) in ids.iter().enumerate() {
                let mut s = lock();
                let result = loop {
                    match s.done.remove(&at) {
                        Some(result) => break result,
                        None => s = changed.wait(s).unwrap_or_else(PoisonError::into_inner),
                    }
                };
                s.waiting -= size(&result);
                s.due = at + 1;
                drop(s);
                changed.notify_all();
                each(*id, result?)?;
            }
            Ok(())
        };
        let result = deliver();
        // after an error no worker starts another client
        lock().next = ids.len();
        changed.notify_all();
        result
    })
}

/// Returns `threads`, limited to the number of processors: more would only compete.
pub fn workers(threads: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    threads.clamp(1, processors)
}

/// Returns the executor that parts use, with this number of threads.
///
/// # Errors
/// If they cannot be started.
pub fn executor(threads: usize) -> Result<SharedExecutor> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers(threads));
    let pool = pool.build().context("starting threads")?;
    Ok(Arc::new(Threads(pool)))
}

/// Runs chunks on a pool of threads.
struct Threads(rayon::ThreadPool);

impl Executor for Threads {
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        self.0.install(|| {
            data.par_chunks_mut(size)
                .enumerate()
                .for_each(|(i, chunk)| work(i, chunk))
        });
    }
}
