//! [`Chain`]: a file of records that only grows, and its head.
//!
//! A record is one line: the hash of the record before and of this one, and its JSON. The head is a
//! small file beside it with the number of records, their length and the last hash. A part of a
//! record at the end was being written when a process ended; it counts as never written.

use anyhow::{Context, bail, ensure};
use fl_core::{Result, hex};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A hash of records.
pub(crate) type Sum = fl_files::ChainHash;

/// The files of a chain.
#[derive(Clone, Debug)]
pub struct ChainFiles {
    /// All records.
    pub records: PathBuf,
    /// Their number, length and hash.
    pub head: PathBuf,
    /// Signs the head. Zeros: only chance changes of the head are found.
    pub secret: [u8; 32],
    /// What a user loses if the files are damaged, and what to do.
    pub advice: &'static str,
}

impl ChainFiles {
    fn damaged(&self, what: &str) -> String {
        format!(
            "{} and {} do not form a ledger: {what}; a file is missing, damaged, or of another version of fl. {}",
            self.records.display(),
            self.head.display(),
            self.advice
        )
    }

    /// Writes a chain without records.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn begin(&self) -> Result<()> {
        write(&self.records, &[])?;
        Head::default().write(self)
    }

    /// Checks that the records have at least the length that the head states.
    ///
    /// # Errors
    /// If a file is missing or damaged.
    pub fn check(&self) -> Result<()> {
        let head = Head::read(self)?;
        let records = open(&self.records).and_then(|file| file.metadata());
        let length = records
            .with_context(|| self.damaged("there are no records"))?
            .len();
        ensure!(
            length >= head.bytes,
            self.damaged("the records are cut short")
        );
        Ok(())
    }

    /// Waits until no other process writes to the chain. The lock ends with the file.
    ///
    /// # Errors
    /// If the file cannot be locked.
    pub fn lock(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        let file = fl_files::open_own(&self.records, options.read(true).write(true));
        let file = file.and_then(|file| file.lock().map(|()| file));
        file.with_context(|| format!("locking {}", self.records.display()))
    }
}

/// The number of records of a chain, their length, and the hash of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Number of records.
    pub records: u64,
    bytes: u64,
    #[serde(with = "hex_sum")]
    sum: Sum,
}

impl Head {
    /// The head after a further line.
    fn after(self, sum: Sum, line: &[u8]) -> Self {
        Self {
            records: self.records + 1,
            bytes: self.bytes + line.len() as u64,
            sum,
        }
    }

    fn text(&self, files: &ChainFiles) -> String {
        let signature = Sha256::new()
            .chain_update(files.secret)
            .chain_update(b"ledger-head")
            .chain_update(self.records.to_le_bytes())
            .chain_update(self.bytes.to_le_bytes())
            .chain_update(self.sum)
            .finalize();
        let (sum, signature) = (hex(&self.sum), hex(&signature));
        format!("{} {} {sum} {signature}\n", self.records, self.bytes)
    }

    fn write(&self, files: &ChainFiles) -> Result<()> {
        write(&files.head, self.text(files).as_bytes())
    }

    /// # Errors
    /// If it is missing, or any of its bytes is wrong.
    fn read(files: &ChainFiles) -> Result<Self> {
        let damaged = || files.damaged("the head is not one that fl wrote");
        let bytes = fl_files::read_own(&files.head).with_context(damaged)?;
        let text = std::str::from_utf8(&bytes).ok().with_context(damaged)?;
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (records, bytes) = number().zip(number()).with_context(damaged)?;
        let sum = words.next().and_then(unhex).with_context(damaged)?;
        let head = Self {
            records,
            bytes,
            sum,
        };
        ensure!(head.text(files) == text, damaged());
        Ok(head)
    }
}

/// The records of a chain as far as they have been read.
pub struct Chain {
    files: ChainFiles,
    head: Head,
    /// The hash after each record.
    sums: Vec<Sum>,
}

impl Chain {
    /// Returns a chain of which nothing has been read.
    pub fn new(files: ChainFiles) -> Self {
        Self {
            files,
            head: Head::default(),
            sums: Vec::new(),
        }
    }

    /// Returns the files.
    pub fn files(&self) -> &ChainFiles {
        &self.files
    }

    /// Returns the position up to which the chain has been read.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Returns whether `head` was a head of this chain at some time. If not, the files are older
    /// than `head`, or of another history.
    pub fn contains(&self, head: &Head) -> bool {
        match head.records.checked_sub(1) {
            None => true,
            Some(last) => self.sums.get(last as usize) == Some(&head.sum),
        }
    }

    /// Reads the records that were written since the last read. Whole records after the head count
    /// too: the process that wrote them was killed before it wrote the head, or an older head was
    /// restored. Nothing changes if a record is damaged.
    ///
    /// # Errors
    /// If a file cannot be read, or any byte of it is wrong; names the first wrong record.
    pub fn read_new<T: DeserializeOwned>(&mut self) -> Result<Vec<T>> {
        let files = &self.files;
        let due = Head::read(files)?;
        let cut = || files.damaged("the records are cut short");
        let mut text = Vec::new();
        let mut file = open(&files.records).with_context(cut)?;
        file.seek(SeekFrom::Start(self.head.bytes))
            .with_context(cut)?;
        file.read_to_end(&mut text).with_context(cut)?;
        let (mut head, mut sums, mut records) = (self.head, Vec::new(), Vec::new());
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let number = head.records + 1;
            let Some((next, json)) = parse(head, line) else {
                // of a process that was killed while it wrote
                ensure!(
                    head.records >= due.records,
                    files.damaged(&format!("record {number} is not one that fl wrote"))
                );
                break;
            };
            let record = serde_json::from_slice(json);
            let other = || files.damaged(&format!("record {number} is of another version"));
            records.push(record.with_context(other)?);
            head = next;
            sums.push(head.sum);
        }
        ensure!(head.records >= due.records, cut());
        let known = due.records.checked_sub(1).map(|last| last as usize);
        let known = known.and_then(|at| self.sums.iter().chain(&sums).nth(at));
        let same = known.copied().unwrap_or_default() == due.sum;
        ensure!(same, files.damaged("the head belongs to other records"));
        self.head = head;
        self.sums.extend(sums);
        Ok(records)
    }

    /// Adds a record; it is on the disk when this returns. The chain must be locked, and all of it
    /// read. If it fails, no record was added.
    ///
    /// # Errors
    /// If it cannot be written, or would not be read as the same record.
    pub fn append<T>(&mut self, record: &T) -> Result<()>
    where
        T: Serialize + DeserializeOwned + PartialEq,
    {
        let json = serde_json::to_vec(record)?;
        let again = serde_json::from_slice::<T>(&json).ok();
        ensure!(
            again.as_ref() == Some(record),
            "a record of {} has a number that is not finite",
            self.files.records.display()
        );
        let (head, line) = next(self.head, &json);
        let path = &self.files.records;
        let what = || format!("writing {}; nothing was added to it", path.display());
        let mut file =
            fl_files::open_own(path, OpenOptions::new().write(true)).with_context(what)?;
        // bytes that a killed process left
        file.set_len(self.head.bytes).with_context(what)?;
        file.seek(SeekFrom::End(0)).with_context(what)?;
        let written = file
            .write_all(&line)
            .and_then(|()| file.sync_all())
            .map_err(anyhow::Error::from)
            .and_then(|()| {
                fl_files::write_secret(&self.files.head, head.text(&self.files).as_bytes())
            });
        if let Err(error) = written {
            // a rest that stays is not counted either
            let _ = file.set_len(self.head.bytes);
            return Err(error).with_context(what);
        }
        self.head = head;
        self.sums.push(head.sum);
        self.files.head.parent().map_or(Ok(()), folder_sync)
    }
}

/// Reads a line: the head after it, and its JSON; `None` if it does not follow `head`.
fn parse(head: Head, line: &[u8]) -> Option<(Head, &[u8])> {
    let (sum, json) = fl_files::read_chained(&head.sum, line)?;
    Some((head.after(sum, line), json))
}

/// Returns the head after one more record, and the record's line.
fn next(head: Head, json: &[u8]) -> (Head, Vec<u8>) {
    let (sum, line) = fl_files::chained_line(&head.sum, json);
    (head.after(sum, &line), line)
}

/// Writes a file of its owner as a whole, so that a crash of the system does not undo it.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fl_files::write_secret(path, bytes)?;
    path.parent().map_or(Ok(()), folder_sync)
}

fn folder_sync(folder: &Path) -> Result<()> {
    if folder.as_os_str().is_empty() {
        fl_files::sync(Path::new("."))
    } else {
        fl_files::sync(folder)
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    fl_files::open_own(path, OpenOptions::new().read(true))
}

/// Reads a hash; only lower-case digits count, so that each hash has one text.
fn unhex(text: &str) -> Option<Sum> {
    let digit = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    if text.len() != 64 || !text.as_bytes().iter().all(digit) {
        return None;
    }
    let mut sum = [0; 32];
    for (at, byte) in sum.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(sum)
}

mod hex_sum {
    use super::{Sum, unhex};
    use fl_core::hex;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(sum: &Sum, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex(sum))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Sum, D::Error> {
        let text = String::deserialize(from)?;
        unhex(&text).ok_or_else(|| D::Error::custom("a hash has 64 hexadecimal digits"))
    }
}

impl std::str::FromStr for Head {
    type Err = anyhow::Error;

    /// Reads the text of a head, as it is printed.
    fn from_str(text: &str) -> Result<Self> {
        let read = text.split_once(':').and_then(|(records, sum)| {
            Some(Self {
                records: records.parse().ok()?,
                bytes: 0,
                sum: unhex(sum)?,
            })
        });
        let Some(head) = read else {
            bail!("a head is a number, `:` and 64 hexadecimal digits, got `{text}`");
        };
        Ok(head)
    }
}

impl std::fmt::Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.records, hex(&self.sum))
    }
}
