//! [`ClientStateFile`]: states of clients on disk, in a file that only grows, with the position of
//! each client's last state.

use anyhow::{Context, ensure};
use fl_core::{ClientId, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Prefix of the files, before their number.
const PREFIX: &str = "clients-";

/// Unused bytes that may stay in a file: a small file is not worth copying.
const SPARE: u64 = 1 << 20;

/// The position of a state in the file.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Slot {
    at: u64,
    length: u64,
    sha256: [u8; 32],
}

/// The file's index in a checkpoint; everything after `end` was written later.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Index {
    number: u64,
    end: u64,
    places: BTreeMap<ClientId, Slot>,
}

/// The file and its index.
#[derive(Default)]
pub(crate) struct ClientStateFile {
    /// `None`: the file has no name, and vanishes with the process.
    folder: Option<PathBuf>,
    file: Option<File>,
    index: Index,
}

impl ClientStateFile {
    /// Returns whether a file with this name holds states of clients.
    pub fn is_file_of(name: &str) -> bool {
        let number = name.strip_prefix(PREFIX);
        number.is_some_and(|n| n.parse::<u64>().is_ok())
    }

    /// Returns an empty file, which is made with the first state.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            ..Self::default()
        }
    }

    /// Opens the file of a checkpoint in `folder`. Changes nothing.
    ///
    /// # Errors
    /// If the file is missing, or a state in it has changed.
    pub fn open(folder: &Path, index: Index) -> Result<Self> {
        let mut shelf = Self::new(Some(folder.into()));
        if !index.places.is_empty() {
            let path = folder.join(name(index.number));
            let mut options = OpenOptions::new();
            let file = fl_files::open_unlinked(&path, options.read(true).write(true));
            let file = file.with_context(|| format!("opening {}", path.display()))?;
            shelf.file = Some(file);
        }
        shelf.index = index;
        let ids: Vec<ClientId> = shelf.index.places.keys().copied().collect();
        for id in ids {
            shelf.get(id)?;
        }
        Ok(shelf)
    }

    /// Continues from the checkpoint: removes everything written after it.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn go_on(&mut self) -> Result<()> {
        if let Some(file) = &self.file {
            file.set_len(self.index.end)
                .context("undoing changes to client states of the unfinished step")?;
        }
        self.tidy()
    }

    /// Returns the clients that have a state.
    pub fn ids(&self) -> impl Iterator<Item = ClientId> {
        self.index.places.keys().copied()
    }

    /// Writes a client's state, which replaces the earlier one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&mut self, id: ClientId, state: &[u8]) -> Result<()> {
        let end = self.index.end;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create(self.folder.as_deref(), self.index.number)?),
        };
        // after the last state, even if a failed attempt has left part of one there
        file.seek(SeekFrom::Start(end))
            .and_then(|_| file.write_all(state))
            .with_context(|| format!("saving the state of client {id}"))?;
        let length = state.len() as u64;
        self.index.end = end + length;
        let place = Slot {
            at: end,
            length,
            sha256: Sha256::digest(state).into(),
        };
        self.index.places.insert(id, place);
        Ok(())
    }

    /// Returns a client's state, if it has one.
    ///
    /// # Errors
    /// If it cannot be read, or has changed.
    pub fn get(&mut self, id: ClientId) -> Result<Option<Vec<u8>>> {
        let (Some(place), Some(file)) = (self.index.places.get(&id), &mut self.file) else {
            return Ok(None);
        };
        let what = || format!("the saved state of client {id}");
        file.seek(SeekFrom::Start(place.at)).with_context(what)?;
        let mut state = Vec::new();
        file.take(place.length)
            .read_to_end(&mut state)
            .with_context(what)?;
        ensure!(
            state.len() as u64 == place.length,
            "{} is cut short: {} of {} bytes are there",
            what(),
            state.len(),
            place.length
        );
        ensure!(
            Sha256::digest(&state).as_slice() == place.sha256,
            "{} is damaged: its checksum does not match",
            what()
        );
        Ok(Some(state))
    }

    /// Removes the client's state.
    pub fn forget(&mut self, id: ClientId) {
        self.index.places.remove(&id);
    }

    /// Flushes the file to the disk, and returns its index for a checkpoint. First rewrites a file
    /// with mostly unused states.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn flush(&mut self) -> Result<Index> {
        let needed: u64 = self.index.places.values().map(|place| place.length).sum();
        if self.index.end > 2 * needed + SPARE {
            let mut anew = Self::new(self.folder.clone());
            anew.index.number = self.index.number + 1;
            let ids: Vec<ClientId> = self.ids().collect();
            for id in ids {
                if let Some(state) = self.get(id)? {
                    anew.put(id, &state)?;
                }
            }
            *self = anew;
        }
        if let Some(file) = &self.file {
            file.sync_all().context("saving states of clients")?;
        }
        if let (Some(folder), Some(_)) = (&self.folder, &self.file) {
            fl_files::sync(folder)?;
        }
        Ok(self.index.clone())
    }

    /// Removes the files that the last checkpoint does not use.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn tidy(&self) -> Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let kept = self.file.as_ref().map(|_| name(self.index.number));
        remove(folder, kept.as_deref())
    }

    /// Returns the bytes of the file that a checkpoint uses.
    pub fn bytes(&self) -> u64 {
        self.index.end
    }

    /// Removes the file after the run.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn discard(self) -> Result<()> {
        drop(self.file);
        self.folder.map_or(Ok(()), |folder| remove(&folder, None))
    }
}

fn name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

fn create(folder: Option<&Path>, number: u64) -> Result<File> {
    let Some(folder) = folder else {
        return tempfile::tempfile().context("making a file for states of clients");
    };
    let path = folder.join(name(number));
    // an existing file was written after the last checkpoint, or is not trustworthy
    fl_files::create_secret(&path).with_context(|| format!("making {}", path.display()))
}

/// Removes all files of states in `folder` except `kept`.
fn remove(folder: &Path, kept: Option<&str>) -> Result<()> {
    let what = || format!("tidying {}", folder.display());
    for entry in fs::read_dir(folder).with_context(what)? {
        let entry = entry.with_context(what)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if ClientStateFile::is_file_of(&name) && Some(&*name) != kept {
            fl_files::remove(&entry.path()).with_context(what)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_state_counts_and_a_checkpoint_takes_back_what_came_later() {
        let dir = tempfile::tempdir().unwrap();
        let mut shelf = ClientStateFile::new(Some(dir.path().into()));
        assert!(shelf.flush().unwrap().places.is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        shelf.put(3, b"one").unwrap();
        shelf.put(5, b"").unwrap();
        shelf.put(3, b"three").unwrap();
        let index = shelf.flush().unwrap();
        shelf.put(3, b"later").unwrap();
        drop(shelf);
        fs::write(
            dir.path().join("clients-9"),
            "of a checkpoint that never was",
        )
        .unwrap();
        let mut shelf = ClientStateFile::open(dir.path(), index.clone()).unwrap();
        shelf.go_on().unwrap();
        assert_eq!(shelf.get(3).unwrap().unwrap(), b"three");
        assert_eq!(shelf.get(5).unwrap().unwrap(), b"");
        assert!(shelf.get(4).unwrap().is_none());
        assert_eq!(fs::read(dir.path().join("clients-0")).unwrap(), b"onethree");
        assert!(!dir.path().join("clients-9").exists());

        for (text, expected) in [(&b"onethrex"[..], "damaged"), (b"onethr", "cut short")] {
            fs::write(dir.path().join("clients-0"), text).unwrap();
            let error = ClientStateFile::open(dir.path(), index.clone())
                .err()
                .unwrap();
            let error = format!("{error:#}");
            let whose = error.contains("the saved state of client 3");
            assert!(whose && error.contains(expected), "{error}");
        }
        shelf.discard().unwrap();
        assert!(ClientStateFile::open(dir.path(), index).is_err());
    }

    #[test]
    fn a_file_of_old_states_is_written_anew_and_stays_until_the_checkpoint_stands() {
        let dir = tempfile::tempdir().unwrap();
        let mut shelf = ClientStateFile::new(Some(dir.path().into()));
        let state = |n: u8| vec![n; 1 << 19];
        shelf.put(0, &state(0)).unwrap();
        shelf.put(1, &state(0)).unwrap();
        let before = shelf.flush().unwrap();
        for n in 1..8 {
            shelf.put(0, &state(n)).unwrap();
        }
        shelf.forget(1);
        let after = shelf.flush().unwrap();
        assert_eq!(after.end, 1 << 19);
        // killed before the checkpoint: the earlier one still finds all its states
        let mut old = ClientStateFile::open(dir.path(), before).unwrap();
        assert_eq!(old.get(0).unwrap().unwrap(), state(0));
        shelf.tidy().unwrap();
        let mut shelf = ClientStateFile::open(dir.path(), after).unwrap();
        assert_eq!(shelf.get(0).unwrap().unwrap(), state(7));
        assert!(shelf.get(1).unwrap().is_none());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
