//! The clients of a run, and where what lasts of them is: in memory, or beyond a limit on the disk.

use crate::client_state_file::{ClientStateFile, Index};
use crate::memory::{Memory, STATES};
use anyhow::{Context, anyhow};
use fl_core::{ClientId, ClientState, Result};
use lru::LruCache;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All clients.
pub(crate) struct Clients {
    /// Each as it is, or with a limit: without anything that lasts, unless it is at work.
    all: BTreeMap<ClientId, Mutex<ClientState>>,
    /// How many bytes of states stay in memory; `None`: all, and in the form that is worked on.
    limit: Option<u64>,
    /// What the program may hold.
    pub memory: Option<Memory>,
    states: Mutex<States>,
}

/// What lasts, outside of work.
struct States {
    /// With a limit: the states used last.
    cached: LruCache<ClientId, Vec<u8>>,
    bytes: u64,
    /// Who is not as the shelf says.
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
    /// `shelf` has the states that the run goes on with; `memory` is what the program may hold.
    ///
    /// # Errors
    /// When it has one of a client that is not there, or that is none.
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
                .with_context(|| format!("the checkpoint knows client {id}, the data do not"))?;
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

    /// What is to be said when the limit on memory cannot be kept.
    pub fn passed(&self) -> Option<String> {
        let memory = self.memory.as_ref()?;
        memory.passed()
    }

    /// Who there is.
    pub fn ids(&self) -> Vec<ClientId> {
        self.all.keys().copied().collect()
    }

    /// Looks at what a client is from the first.
    pub fn each<T>(&self, mut look: impl FnMut(&ClientState) -> T) -> BTreeMap<ClientId, T> {
        let look = |(id, client): (&ClientId, &Mutex<ClientState>)| (*id, look(&lock(client)));
        self.all.iter().map(look).collect()
    }

    /// Lets a client work. The inner result is its own, a panic included; the outer one is of what keeps its state.
    ///
    /// # Errors
    /// When there is no such client, or its state cannot be read or kept.
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

    /// Every client's state on the disk, for a checkpoint; where each stands, and how many bytes the file has.
    ///
    /// # Errors
    /// When one cannot be written down.
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

    /// The checkpoint stands: what only the one before needed goes.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn tidy(&self) -> Result<()> {
        lock(&self.states).shelf.tidy()
    }

    /// The run is over.
    ///
    /// # Errors
    /// When the states cannot be removed.
    pub fn discard(self) -> Result<()> {
        let states = self.states.into_inner();
        let states = states.unwrap_or_else(PoisonError::into_inner);
        states.shelf.discard()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What lasts of a client, if anything does.
fn saved(client: &ClientState) -> Result<Option<Vec<u8>>> {
    let lasts = !client.is_blank();
    lasts.then(|| client.save()).transpose()
}

/// As `work`; a panic is an error like any other.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(anyhow!("a part panicked: {}", text.unwrap_or_default()))
    })
}
