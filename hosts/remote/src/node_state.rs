//! The folder of a node: who it is, its secret, and what its clients keep, run by run.

use crate::wire::{AnswerKind, Id, hex, random};
use anyhow::{Context, anyhow, bail, ensure};
use fl_core::{ClientId, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a client is after one of its questions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    /// The number of the question; 0: before the first.
    pub number: u64,
    /// What lasts of it, if anything does.
    #[serde(with = "serde_bytes")]
    pub client: Option<Vec<u8>>,
    /// The answers that what it has spent in the run was spent on.
    pub paid: Vec<[u8; 32]>,
}

impl SavedState {
    fn lasts(&self) -> bool {
        self.client.is_some() || !self.paid.is_empty()
    }
}

/// What a client keeps between two requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredClient {
    /// The leader's life that was heard of last.
    pub life: u64,
    /// The last question before the leader's last checkpoint, as far as is known.
    pub marked: u64,
    /// What the client was at that checkpoint.
    pub base: SavedState,
    pub now: SavedState,
    /// The last question that was answered.
    pub last: Option<LastAnswer>,
    /// The data that it has answered from, if they are the node's own.
    pub data: Option<Sum>,
}

/// An answer, but for its message, which stands behind everything else in the file: it is read only if the question is asked again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastAnswer {
    /// What the question was about.
    pub about: Sum,
    pub said: AnswerKind,
    /// Checksum of the message.
    pub message: u32,
}

/// What tells one version of a client's file, or of its data, from another.
pub(crate) type Sum = [u8; 32];

/// The folder of a node. Several processes may have it at once: each client is one's at a time.
#[derive(Clone, Debug)]
pub struct NodeState {
    path: PathBuf,
    node: Id,
    secret: [u8; 32],
}

impl NodeState {
    /// Makes the folder, or takes the one that is there. Nobody but its owner may look into a new one, or into any file in it.
    ///
    /// # Errors
    /// When it cannot be written, is damaged or not whole, others may write to it, or it has a
    /// secret that others can read: it may be none any more.
    pub fn open(path: &Path) -> Result<Self> {
        let what = || format!("the node's folder {}", path.display());
        folder(path).with_context(what)?;
        #[cfg(unix)]
        fl_registry::file_permissions::trusted(path, &path.metadata().with_context(what)?)
            .map_err(|why| anyhow!("{why}; or take another home"))
            .with_context(what)?;
        let _lock = lock(&path.join("lock"))?;
        let secret = path.join("secret");
        private(&secret)?;
        if !secret.is_symlink() && !secret.exists() {
            Self::begin(path).with_context(what)?;
        }
        let home = Self {
            node: own(&path.join("node-id"))?,
            secret: own(&secret)?,
            path: path.into(),
        };
        crate::ledger::check(&home)?;
        Ok(home)
    }

    /// A new home, in an empty folder or in one that this was ended in. The secret comes last: a
    /// home that has one is whole.
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
        crate::ledger::begin(&home)?;
        last(&path.join("node-id"), &home.node)?;
        last(&path.join("secret"), &home.secret)
    }

    /// Which node it is.
    pub fn node(&self) -> Id {
        self.node
    }

    /// What nobody else knows.
    pub(crate) fn secret(&self) -> [u8; 32] {
        self.secret
    }

    /// Where everything stands that was ever released.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.path.join("ledger")
    }

    /// How much of that is whole, and its checksum.
    pub(crate) fn ledger_head(&self) -> PathBuf {
        self.path.join("ledger-head")
    }

    fn file(&self, run: &Id, client: ClientId) -> PathBuf {
        let run = self.path.join("runs").join(hex(run));
        run.join(format!("client-{client}"))
    }

    /// Waits until no other process answers for this client; with `alone`, for any client of the node.
    pub(crate) fn turn(&self, run: &Id, client: ClientId, alone: bool) -> Result<File> {
        let path = match alone {
            true => self.path.join("runs").join("lock"),
            false => self.file(run, client).with_extension("lock"),
        };
        let runs = self.path.join("runs");
        for one in [&runs, &runs.join(hex(run))] {
            ensure!(!one.is_symlink(), "{} is a link; remove it", one.display());
            folder(one).with_context(|| format!("the folder {}", one.display()))?;
        }
        lock(&path)
    }

    /// Which version of its file is there.
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
        let head = match open(&path).and_then(|mut file| head(&mut file)) {
            Ok(head) => head,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(StoredClient::default()),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let head = head.with_context(|| damaged(&path))?;
        let kept = postcard::from_bytes(&head);
        kept.with_context(|| format!("{} is of another version of fl", path.display()))
    }

    /// The message of the answer that was given last.
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

    /// Takes the place of the version before as a whole. It lasts if anything of the client does: otherwise one that forgets
    /// an answer in a crash of the system is as good as one that has it.
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
        let write = if lasts { last } else { fl_sim::write_secret };
        write(&self.file(run, client), &bytes)?;
        Ok(sum)
    }

    /// Nothing is kept of this client's part in a run that is over; what it has released stays in the ledger.
    pub(crate) fn forget(&self, run: &Id, client: ClientId) -> Result<()> {
        let file = self.file(run, client);
        for path in [file.with_extension("lock"), file.clone()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {}", path.display()));
                }
                _ => {}
            }
        }
        // one that has other clients of the node in it stays
        let _ = file.parent().map(fs::remove_dir);
        Ok(())
    }
}

/// Before what a client keeps stands the checksum of the rest up to its end, and how long it is; behind it, the message.
const FRONT: usize = 32 + 8;

/// What a client keeps, of its file; `None`: it is not what was written.
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
        "{} is damaged, or of another version of fl: its checksum does not match; restore it, or begin the run anew",
        path.display()
    )
}

/// Writes a file of a node for nobody else's eyes, as a whole, and so that a crash of the system does not undo it.
pub(crate) fn last(path: &Path, bytes: &[u8]) -> Result<()> {
    fl_sim::write_secret(path, bytes)?;
    path.parent().map_or(Ok(()), fl_sim::sync)
}

/// Makes a folder of a node, or takes the one that is there, if no other user may write to it.
fn folder(path: &Path) -> std::io::Result<()> {
    let mut make = fs::DirBuilder::new();
    make.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut make, 0o700);
    make.create(path)?;
    #[cfg(unix)]
    fl_sim::own(&path.metadata()?)?;
    Ok(())
}

/// Opens a file of a node to read.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    fl_sim::open_own(path, OpenOptions::new().read(true))
}

/// Waits until no other process has this lock.
fn lock(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = fl_sim::open_own(path, &mut options);
    let file = file.and_then(|file| file.lock().map(|()| file));
    file.with_context(|| format!("locking {}", path.display()))
}

/// Whoever could read a secret can take off all noise that ever followed it: no `chmod` mends that.
#[cfg(unix)]
fn private(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let Ok(about) = fs::metadata(path) else {
        return Ok(());
    };
    let mode = about.permissions().mode() & 0o777;
    ensure!(
        mode & 0o077 == 0,
        "{} has mode {mode:03o}, so other users may have read the secret of the noise; if none has, run `chmod 600` on it; otherwise the releases made with it are not private",
        path.display()
    );
    Ok(())
}

#[cfg(not(unix))]
fn private(_: &Path) -> Result<()> {
    Ok(())
}

/// Random bytes of a node's own, drawn when its home was made.
fn own<const N: usize>(path: &Path) -> Result<[u8; N]> {
    let bytes = fl_sim::read_own(path).with_context(|| format!("reading {}", path.display()))?;
    let bytes = bytes.try_into().ok();
    bytes.with_context(|| format!("{} is damaged: it has {N} bytes", path.display()))
}
