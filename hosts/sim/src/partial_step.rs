//! [`PartialStep`]: answers of a long step, written as they arrive, so that a killed run need not
//! repeat all requests.

use anyhow::Context;
use fl_core::{Answer, Body, ClientId, ClientState, Envelope, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Their file in the run folder.
pub(crate) const FILE: &str = "answers";

/// A crash of the system, unlike one of the program, may lose this much time.
const SYNC: Duration = Duration::from_secs(10);

/// The number of complete steps, the request in the step, and the client.
type Key = (usize, u64, ClientId);

/// An answer, and its client's state after it.
#[derive(Serialize, Deserialize)]
struct StoredAnswer {
    key: Key,
    #[serde(with = "serde_bytes")]
    body: Vec<u8>,
    envelope: Envelope,
    #[serde(with = "serde_bytes")]
    state: Option<Vec<u8>>,
}

/// The stored answers since the last checkpoint.
pub(crate) struct PartialStep {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    file: Option<File>,
    end: u64,
    /// The position and length of each.
    places: BTreeMap<Key, (u64, u64)>,
    synced: Option<Instant>,
    /// The first write error.
    failed: Option<anyhow::Error>,
}

impl PartialStep {
    /// Opens the answers in `folder` of a run with `done` complete steps. Leaves out truncated or
    /// damaged ones, whose requests are repeated.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn open(folder: &Path, done: usize) -> Result<Self> {
        let path = folder.join(FILE);
        let what = || format!("reading {}", path.display());
        let mut inner = Inner::default();
        if path.exists() {
            let mut options = OpenOptions::new();
            let file = fl_files::open_unlinked(&path, options.read(true).write(true));
            let mut file = file.with_context(what)?;
            while let Some((kept, length)) = next(&mut file, inner.end).with_context(what)? {
                if kept.key.0 >= done {
                    inner.places.insert(kept.key, (inner.end, length));
                }
                inner.end += length;
            }
            inner.file = Some(file);
        }
        Ok(Self {
            path,
            inner: Mutex::new(inner),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns this client's answer from before the stop, if stored; restores the client's state
    /// after it.
    ///
    /// # Errors
    /// If its state is invalid.
    pub fn get(&self, key: Key, client: &mut ClientState) -> Result<Option<Answer>> {
        let kept = {
            let mut inner = self.lock();
            let Some((at, _)) = inner.places.get(&key).copied() else {
                return Ok(None);
            };
            let file = inner.file.as_mut();
            file.and_then(|file| next(file, at).ok().flatten())
        };
        let Some((kept, _)) = kept else {
            return Ok(None);
        };
        *client = client.fresh_copy();
        if let Some(state) = &kept.state {
            client.load(state)?;
        }
        let StoredAnswer { body, envelope, .. } = kept;
        let body = Body::Wire(body);
        Ok(Some(Answer { body, envelope }))
    }

    /// Writes a client's answer. [`PartialStep::sound`] reports errors, which are not the client's
    /// fault.
    pub fn put(&self, key: Key, answer: &Answer, client: &ClientState) {
        let write = || -> Result<()> {
            let body = answer.body.encode().into_owned();
            let lasts = !client.is_blank();
            let kept = StoredAnswer {
                key,
                body,
                envelope: answer.envelope.clone(),
                state: lasts.then(|| client.save()).transpose()?,
            };
            let bytes = postcard::to_stdvec(&kept)?;
            self.lock().append(&self.path, key, &bytes)
        };
        if let Err(error) = write() {
            let error = error.context(format!("writing {}", self.path.display()));
            self.lock().failed.get_or_insert(error);
        }
    }

    /// Returns whether there is no answer.
    pub fn is_empty(&self) -> bool {
        self.lock().places.is_empty()
    }

    /// Checks that everything was written.
    ///
    /// # Errors
    /// The first write error.
    pub fn sound(&self) -> Result<()> {
        self.lock().failed.take().map_or(Ok(()), Err)
    }

    /// Removes the answers, once a checkpoint covers them.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub fn forget(&self) -> Result<()> {
        let mut inner = self.lock();
        inner.places.clear();
        inner.end = 0;
        match &inner.file {
            Some(file) => file.set_len(0).context("removing answers"),
            None => Ok(()),
        }
    }
}

impl Inner {
    fn append(&mut self, path: &Path, key: Key, bytes: &[u8]) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(fl_files::create_secret(path)?),
        };
        let mut record = (bytes.len() as u64).to_le_bytes().to_vec();
        record.extend_from_slice(&Sha256::digest(bytes));
        record.extend_from_slice(bytes);
        // after the last complete one, even if a failed attempt has left part of one there
        file.seek(SeekFrom::Start(self.end))?;
        file.write_all(&record)?;
        if self.synced.is_none_or(|at| at.elapsed() >= SYNC) {
            file.sync_data()?;
            self.synced = Some(Instant::now());
        }
        let length = record.len() as u64;
        self.places.insert(key, (self.end, length));
        self.end += length;
        Ok(())
    }
}

/// Returns the record at `at` and its length; `None` if there is no complete one.
fn next(file: &mut File, at: u64) -> std::io::Result<Option<(StoredAnswer, u64)>> {
    let all = file.metadata()?.len();
    file.seek(SeekFrom::Start(at))?;
    let mut head = [0; 40];
    if at.saturating_add(40) > all {
        return Ok(None);
    }
    file.read_exact(&mut head)?;
    let (length, sum) = head.split_at(8);
    let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
    let end = at.checked_add(40).and_then(|from| from.checked_add(length));
    if end.is_none_or(|end| end > all) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    if Sha256::digest(&bytes).as_slice() != sum {
        return Ok(None);
    }
    Ok(postcard::from_bytes(&bytes)
        .ok()
        .map(|kept| (kept, 40 + length)))
}
