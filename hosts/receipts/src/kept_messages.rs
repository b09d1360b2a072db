//! [`KeptMessages`]: a file of the messages that a step at the server was made from.

use anyhow::{Context, bail, ensure};
use fl_core::message::AnyMessage;
use fl_core::regular_file::{MOST_LINE, open_regular};
use fl_core::{AggregationContext, ReceiptInput, ReleaseContext, Result, hex};
use fl_files::{FileHash, UNFINISHED};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// The folder of kept messages in a run folder. Only its owner may read it.
pub const MESSAGES: &str = "messages";

/// The most bytes of what a step was made from besides its messages: an aggregator's state, and the
/// message to the clients.
const MOST_CONTEXT: u64 = 1 << 30;

/// The most bytes of a message, as between processes.
const MOST_MESSAGE: u64 = 8 << 30;

/// What a step was made from besides its messages, as a file of kept messages has it.
pub trait KeptContext: Serialize + DeserializeOwned {
    /// The beginning of a file with such a context.
    const FORMAT: &str;
}

impl KeptContext for AggregationContext {
    const FORMAT: &str = "fl-messages-1\n";
}

impl KeptContext for ReleaseContext {
    const FORMAT: &str = "fl-release-1\n";
}

/// A file of kept messages that is being written.
pub(crate) struct MessageWriter {
    file: BufWriter<NamedTempFile>,
    sum: Sha256,
}

impl MessageWriter {
    pub fn new<C: KeptContext>(folder: &Path, context: &C, salt: &[u8; 32]) -> Result<Self> {
        let what = || format!("writing messages into {}", folder.display());
        if !folder.is_dir() {
            let mut options = fs::DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut options, 0o700);
            options.create(folder).with_context(what)?;
        }
        let mut unfinished = tempfile::Builder::new();
        // a file of mode 0600, as the crate makes them
        let file = unfinished.prefix(UNFINISHED).tempfile_in(folder);
        let mut new = Self {
            file: BufWriter::with_capacity(1 << 16, file.with_context(what)?),
            sum: Sha256::new(),
        };
        new.write(C::FORMAT.as_bytes())?;
        new.write(salt)?;
        new.part(&postcard::to_stdvec(context)?)?;
        Ok(new)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.update(bytes);
        self.file.write_all(bytes).context("writing messages")
    }

    fn part(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(&(bytes.len() as u64).to_le_bytes())?;
        self.write(bytes)
    }

    pub fn add(&mut self, input: &ReceiptInput, body: &dyn AnyMessage) -> Result<()> {
        self.part(&serde_json::to_vec(input)?)?;
        self.part(&body.encode())
    }

    pub fn finish(self, path: &Path, number: usize) -> Result<FileHash> {
        let what = || format!("writing {}", path.display());
        let file = self.file.into_inner();
        let file = file
            .map_err(std::io::IntoInnerError::into_error)
            .with_context(what)?;
        file.as_file().sync_all().with_context(what)?;
        file.persist(path)
            .map_err(|error| error.error)
            .with_context(what)?;
        Ok(FileHash {
            path: format!("{MESSAGES}/{number:06}"),
            sha256: hex(&self.sum.finalize()),
        })
    }
}

/// A file of kept messages, read one after the other.
pub struct KeptMessages<C = AggregationContext> {
    file: BufReader<File>,
    left: u64,
    /// The random number of its receipt.
    pub salt: [u8; 32],
    /// What they were combined with, or the message of a release with its context.
    pub context: C,
}

impl<C: KeptContext> KeptMessages<C> {
    /// Opens a file.
    ///
    /// # Errors
    /// If it is no such file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = open_regular(path).with_context(|| format!("reading {}", path.display()))?;
        let mut left = file.metadata()?.len();
        let mut file = BufReader::with_capacity(1 << 16, file);
        let mut head = vec![0; C::FORMAT.len()];
        let mut salt = [0; 32];
        let no = || format!("{} is not of kept messages of this version", path.display());
        file.read_exact(&mut head).with_context(no)?;
        ensure!(head == C::FORMAT.as_bytes(), no());
        file.read_exact(&mut salt).with_context(no)?;
        left -= (head.len() + salt.len()) as u64;
        let context = part(&mut file, &mut left, MOST_CONTEXT).with_context(no)?;
        let context = postcard::from_bytes(&context).with_context(no)?;
        Ok(Self {
            file,
            left,
            salt,
            context,
        })
    }

    /// Returns the next message: what its receipt says, and its wire form.
    ///
    /// # Errors
    /// If the file is cut short.
    pub fn next_message(&mut self) -> Result<Option<(ReceiptInput, Vec<u8>)>> {
        if self.left == 0 {
            return Ok(None);
        }
        let (file, left) = (&mut self.file, &mut self.left);
        let input = serde_json::from_slice(&part(file, left, MOST_LINE)?)?;
        Ok(Some((input, part(file, left, MOST_MESSAGE)?)))
    }
}

/// Reads a length and as many bytes.
fn part(from: &mut impl Read, left: &mut u64, most: u64) -> Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if left.checked_sub(8).is_none_or(|left| left < length) {
        bail!("it is cut short");
    }
    ensure!(
        length <= most,
        "a part of it has {length} bytes; at most {most} are read"
    );
    let mut bytes = Vec::new();
    // what grows while it is read takes up to twice the memory
    bytes.try_reserve_exact(length as usize)?;
    from.take(length).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 == length, "it is cut short");
    *left -= 8 + length;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_more_than_is_read_takes_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("000003");
        let mut head = AggregationContext::FORMAT.as_bytes().to_vec();
        head.extend([0; 32]);
        head.extend((MOST_CONTEXT + 1).to_le_bytes());
        fs::write(&path, head).unwrap();
        let error = |length: u64| {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(length).unwrap();
            let error = KeptMessages::<AggregationContext>::open(&path)
                .err()
                .unwrap();
            format!("{error:#}")
        };
        assert!(error(1 << 10).contains("cut short"));
        assert!(error(1 << 32).contains("at most 1073741824 are read"));
    }
}
