//! [`NodeState`]: the folder of a node, with its identity, its secret, and its clients' states by
//! run.

use crate::private_file::{folder, last, lock, open, own, private};
use crate::wire::{AnswerKind, Id, random};
use anyhow::{Context, anyhow, bail, ensure};
use fl_core::{ClientId, Result, hex};
use fl_privacy::ChainFiles;
use fl_receipts::SigningKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A client's state after one of its requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    /// The number of the request; 0 before the first.
    pub number: u64,
    /// Its lasting state, if it has one.
    #[serde(with = "serde_bytes")]
    pub client: Option<Vec<u8>>,
    /// Its answers in the run that released something.
    pub paid: Vec<[u8; 32]>,
    /// The digests of its answers in the run, if its data are the node's own.
    pub answers: Vec<[u8; 32]>,
}

impl SavedState {
    fn lasts(&self) -> bool {
        self.client.is_some() || !self.paid.is_empty()
    }
}

/// A client's kept data between two requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredClient {
    /// The last known life of the leader.
    pub life: u64,
    /// The last known request before the leader's last checkpoint.
    pub marked: u64,
    /// The client's state at that checkpoint.
    pub base: SavedState,
    pub now: SavedState,
    /// The last answer.
    pub last: Option<LastAnswer>,
    /// The hash of the data that it has answered from, if they are the node's own.
    pub data: Option<Sum>,
}

/// An answer without its message, which is at the end of the file and is read only if the request
/// is repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastAnswer {
    /// The identity of its request.
    pub about: Sum,
    pub said: AnswerKind,
    /// Checksum of the message.
    pub message: u32,
}

/// Identifies a version of a client's file, or of its data.
pub(crate) type Sum = [u8; 32];

/// The folder of a node. Several processes may use it at once; each client belongs to one at a
/// time.
#[derive(Clone, Debug)]
pub struct NodeState {
    path: PathBuf,
    node: Id,
    secret: [u8; 32],
}

impl NodeState {
    /// Makes the folder, or opens an existing one. Only its owner may read a new one and its files.
    ///
    /// # Errors
    /// If it cannot be written, is damaged or incomplete, others may write to it, or others can
    /// read its secret or its signing key, which may then be known.
    pub fn open(path: &Path) -> Result<Self> {
        let what = || format!("the node's folder {}", path.display());
        folder(path).with_context(what)?;
        #[cfg(unix)]
        fl_registry::file_permissions::trusted(path, &path.metadata().with_context(what)?)
            .map_err(|why| anyhow!("{why}; or take another home"))
            .with_context(what)?;
        let _lock = lock(&path.join("lock"))?;
        let secret = path.join("secret");
        private(
            &secret,
            "they can remove the noise of all releases, which are not private",
        )?;
        private(
            &path.join("signing-key"),
            "they can sign receipts in the node's name: remove it and its `.pub`, and tell those who know the public key",
        )?;
        if !secret.is_symlink() && !secret.exists() {
            Self::begin(path).with_context(what)?;
        }
        let home = Self {
            node: own(&path.join("node-id"))?,
            secret: own(&secret)?,
            path: path.into(),
        };
        home.ledger().check()?;
        Ok(home)
    }

    /// Makes a new home, in an empty folder or in one where this was interrupted. The secret comes
    /// last: a home with one is complete.
    fn begin(path: &Path) -> Result<()> {
        let ledger = path.join("ledger");
        let released = fs::symlink_metadata(&ledger).is_ok_and(|about| about.len() > 0);
        ensure!(
            !released && !path.join("runs").exists(),
            "it has been used, and its `secret` is gone; restore it, or take another home"
        );
        let home = Self {
            node: random()?,
            secret: random()?,
            path: path.into(),
        };
        home.ledger().begin()?;
        last(&path.join("node-id"), &home.node)?;
        last(&path.join("secret"), &home.secret)
    }

    /// Returns the node's identity.
    pub fn node(&self) -> Id {
        self.node
    }

    /// Returns the node's secret.
    pub(crate) fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// Returns the key that countersigns receipts, made on first use.
    pub(crate) fn signing_key(&self) -> Result<SigningKey> {
        let _lock = lock(&self.path.join("lock"))?;
        let path = self.path.join("signing-key");
        if path.exists() {
            SigningKey::read(&path)
        } else {
            SigningKey::make(&path)
        }
    }

    /// The files of everything that was ever released.
    pub(crate) fn ledger(&self) -> ChainFiles {
        ChainFiles {
            records: self.path.join("ledger"),
            head: self.path.join("ledger-head"),
            secret: self.secret,
            advice: "The ledger of releases is lost, so the node releases nothing more; restore both files, or set the node up again with another home",
        }
    }

    fn file(&self, run: &Id, client: ClientId) -> PathBuf {
        let run = self.path.join("runs").join(hex(run));
        run.join(format!("client-{client}"))
    }

    /// Waits until no other process answers for this client; with `alone`, for any client of the
    /// node.
    pub(crate) fn turn(&self, run: &Id, client: ClientId, alone: bool) -> Result<File> {
        let path = if alone {
            self.path.join("runs").join("lock")
        } else {
            self.file(run, client).with_extension("lock")
        };
        let runs = self.path.join("runs");
        for one in [&runs, &runs.join(hex(run))] {
            ensure!(!one.is_symlink(), "{} is a link; remove it", one.display());
            folder(one).with_context(|| format!("the folder {}", one.display()))?;
        }
        lock(&path)
    }

    /// Returns the version of its file, if there is one.
    pub(crate) fn sum(&self, run: &Id, client: ClientId) -> Result<Option<Sum>> {
        let path = self.file(run, client);
        let mut sum = [0; 32];
        match open(&path).and_then(|mut file| file.read_exact(&mut sum)) {
            Ok(()) => Ok(Some(sum)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => bail!(damaged(&path)),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    pub(crate) fn read(&self, run: &Id, client: ClientId) -> Result<StoredClient> {
        let path = self.file(run, client);
        let head = fl_files::present(open(&path).and_then(|mut file| head(&mut file)));
        let Some(head) = head.with_context(|| format!("reading {}", path.display()))? else {
            return Ok(StoredClient::default());
        };
        let head = head.with_context(|| damaged(&path))?;
        let kept = postcard::from_bytes(&head);
        kept.with_context(|| format!("{} is of another version of fl", path.display()))
    }

    /// Returns the message of the last answer.
    pub(crate) fn message(
        &self,
        run: &Id,
        client: ClientId,
        last: &LastAnswer,
    ) -> Result<Arc<[u8]>> {
        let path = self.file(run, client);
        let mut message = Vec::new();
        let read = open(&path).and_then(|mut file| {
            head(&mut file)?;
            file.read_to_end(&mut message)
        });
        read.with_context(|| format!("reading {}", path.display()))?;
        ensure!(crc32fast::hash(&message) == last.message, damaged(&path));
        Ok(message.into())
    }

    /// Replaces the previous version as a whole. It is durable if the client has a lasting state:
    /// otherwise an answer that is lost in a crash of the system does no harm.
    pub(crate) fn write(
        &self,
        run: &Id,
        client: ClientId,
        kept: &StoredClient,
        message: &[u8],
    ) -> Result<Sum> {
        let mut bytes = postcard::to_extend(kept, vec![0; FRONT])?;
        let length = (bytes.len() - FRONT) as u64;
        bytes[32..FRONT].copy_from_slice(&length.to_le_bytes());
        let sum: Sum = Sha256::digest(&bytes[32..]).into();
        bytes[..32].copy_from_slice(&sum);
        bytes.extend_from_slice(message);
        let lasts = kept.base.lasts() || kept.now.lasts();
        let write = if lasts { last } else { fl_files::write_secret };
        write(&self.file(run, client), &bytes)?;
        Ok(sum)
    }

    /// Removes this client's state in a run that is over; its releases stay in the ledger.
    pub(crate) fn forget(&self, run: &Id, client: ClientId) -> Result<()> {
        let file = self.file(run, client);
        for path in [file.with_extension("lock"), file.clone()] {
            fl_files::remove(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        // a folder with other clients of the node stays
        let _ = file.parent().map(fs::remove_dir);
        Ok(())
    }
}

/// The length of the front: a checksum of the kept data, and their length. The message follows
/// them.
const FRONT: usize = 32 + 8;

/// Reads the kept data from a client's file; `None` if they are damaged.
fn head(file: &mut File) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(FRONT as u64).read_to_end(&mut bytes)?;
    let Some((sum, length)) = bytes.split_first_chunk::<32>() else {
        return Ok(None);
    };
    let (sum, Ok(length)) = (*sum, length.try_into()) else {
        return Ok(None);
    };
    file.take(u64::from_le_bytes(length))
        .read_to_end(&mut bytes)?;
    let whole = Sha256::digest(&bytes[32..])[..] == sum;
    Ok(whole.then(|| bytes.split_off(FRONT)))
}

fn damaged(path: &Path) -> String {
    format!(
        "{} is damaged, or of another version of fl: its checksum does not match; restore it, or start a new run",
        path.display()
    )
}
