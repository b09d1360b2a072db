//! [`Clients`]: the clients of a run, with their lasting states in memory, or beyond a limit on the
//! disk.

use crate::client_state_file::{ClientStateFile, Index};
use crate::memory::{Memory, STATES};
use anyhow::Context;
use fl_core::{ClientId, ClientState, Result, caught};
use lru::LruCache;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All clients.
pub(crate) struct Clients {
    /// Each client; with a limit, without its lasting state unless it is at work.
    all: BTreeMap<ClientId, Mutex<ClientState>>,
    /// The number of bytes of states in memory; `None`: all, as live clients.
    limit: Option<u64>,
    /// The memory limit of the program.
    pub memory: Option<Memory>,
    states: Mutex<States>,
}

/// The lasting states of clients that are not at work.
struct States {
    /// With a limit: the states used last.
    cached: LruCache<ClientId, Vec<u8>>,
    bytes: u64,
    /// Clients whose states differ from those in the file.
    changed: BTreeSet<ClientId>,
    shelf: ClientStateFile,
}

impl States {
    fn take(&mut self, id: ClientId) -> Result<Option<Vec<u8>>> {
        match self.cached.pop(&id) {
            Some(state) => {
                self.bytes -= state.len() as u64;
                Ok(Some(state))
            }
            None if self.changed.contains(&id) => Ok(None),
            None => self.shelf.get(id),
        }
    }

    fn put(&mut self, id: ClientId, state: Option<Vec<u8>>, limit: u64) -> Result<()> {
        self.changed.insert(id);
        if let Some(state) = state {
            self.bytes += state.len() as u64;
            self.cached.put(id, state);
        }
        while self.bytes > limit
            && let Some((id, state)) = self.cached.pop_lru()
        {
            self.bytes -= state.len() as u64;
            if self.changed.remove(&id) {
                self.shelf.put(id, &state)?;
            }
        }
        Ok(())
    }
}

impl Clients {
    /// Makes the clients. `shelf` holds the states that the run resumes from; `memory` is the limit
    /// of the program.
    ///
    /// # Errors
    /// If it has a state of an unknown client, or an invalid one.
    pub fn new(
        all: impl Iterator<Item = ClientState>,
        memory: Option<u64>,
        mut shelf: ClientStateFile,
    ) -> Result<Self> {
        let limit = memory.map(|bytes| bytes / STATES);
        let mut all: BTreeMap<ClientId, ClientState> = all.map(|c| (c.id(), c)).collect();
        let ids: Vec<ClientId> = shelf.ids().collect();
        for id in ids {
            let client = all.get_mut(&id);
            let client = client
                .with_context(|| format!("the checkpoint has client {id}, and the data do not"))?;
            if let (None, Some(state)) = (limit, shelf.get(id)?) {
                client.load(&state)?;
            }
        }
        let all = all.into_iter().map(|(id, c)| (id, Mutex::new(c)));
        Ok(Self {
            all: all.collect(),
            limit,
            memory: memory.map(Memory::new),
            states: Mutex::new(States {
                cached: LruCache::unbounded(),
                bytes: 0,
                changed: BTreeSet::new(),
                shelf,
            }),
        })
    }

    /// Returns a warning if the memory limit is exceeded.
    pub fn passed(&self) -> Option<String> {
        let memory = self.memory.as_ref()?;
        memory.passed()
    }

    /// Calls `look` with each client, without its lasting state.
    pub fn each<T>(&self, mut look: impl FnMut(&ClientState) -> T) -> BTreeMap<ClientId, T> {
        let look = |(id, client): (&ClientId, &Mutex<ClientState>)| (*id, look(&lock(client)));
        self.all.iter().map(look).collect()
    }

    /// Runs work on a client. The inner result is that of the work, panics included; the outer one
    /// is that of its state's storage.
    ///
    /// # Errors
    /// If there is no such client, or its state cannot be read or kept.
    pub fn with<T>(
        &self,
        id: ClientId,
        work: impl FnOnce(&mut ClientState) -> Result<T>,
    ) -> Result<Result<T>> {
        let client = self.all.get(&id);
        let mut client = lock(client.with_context(|| format!("there is no client {id}"))?);
        let Some(limit) = self.limit else {
            let out = caught(|| work(&mut client));
            lock(&self.states).changed.insert(id);
            return Ok(out);
        };
        let state = lock(&self.states).take(id)?;
        if let Some(state) = state {
            client.load(&state)?;
        }
        let out = caught(|| work(&mut client));
        let state = caught(|| saved(&client))?;
        *client = client.fresh_copy();
        lock(&self.states).put(id, state, limit)?;
        Ok(out)
    }

    /// Writes every client's state to the disk for a checkpoint. Returns their index, and the bytes
    /// of the file.
    ///
    /// # Errors
    /// If a state cannot be serialised.
    pub fn checkpoint(&self) -> Result<(Index, u64)> {
        let mut states = lock(&self.states);
        for id in std::mem::take(&mut states.changed) {
            let live = || self.all.get(&id).map(|client| saved(&lock(client)));
            let state = match self.limit {
                Some(_) => states.cached.peek(&id).cloned(),
                None => live().transpose()?.flatten(),
            };
            match state {
                Some(state) => states.shelf.put(id, &state)?,
                None => states.shelf.forget(id),
            }
        }
        let index = states.shelf.flush()?;
        Ok((index, states.shelf.bytes()))
    }

    /// Removes files that only the previous checkpoint used, once the new one is written.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub fn tidy(&self) -> Result<()> {
        lock(&self.states).shelf.tidy()
    }

    /// Removes the states after the run.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub fn discard(self) -> Result<()> {
        let states = self.states.into_inner();
        let states = states.unwrap_or_else(PoisonError::into_inner);
        states.shelf.discard()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a client's lasting state, if it has one.
fn saved(client: &ClientState) -> Result<Option<Vec<u8>>> {
    let lasts = !client.is_blank();
    lasts.then(|| client.save()).transpose()
}
