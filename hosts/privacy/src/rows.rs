//! [`DataId`]: which rows a run has, and which party has which of them. Two runs compare their rows
//! only here.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use fl_core::{Result, hex};
use fl_data::RowIdentity;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::OnceLock;

#[cfg(test)]
mod tests;

/// The most rows of a run of which single hashes are kept.
const SAMPLE: usize = 512;

/// A secret that hashes of rows depend on: without it, a guess of a row cannot be checked.
pub struct RowKey(Vec<u8>);

/// The key of this user, if it can be read. The first use reads it.
pub(crate) type UserKey = LazyCell<Option<RowKey>>;

/// Returns the key of this user, which is not read yet.
pub(crate) fn user_key() -> UserKey {
    LazyCell::new(|| RowKey::of_user().ok())
}

impl RowKey {
    /// Draws a new one.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new() -> Result<Self> {
        Ok(Self(crate::random_name()?.into_bytes()))
    }

    /// Takes a secret that is known elsewhere.
    pub fn of(secret: &[u8]) -> Self {
        Self(secret.into())
    }

    /// Reads the key of this user's runs, which is made with the first of them. Where its file
    /// cannot be opened, or the user has no folder for data, each process has a key of its own.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the system has no random numbers.
    pub fn of_user() -> Result<Self> {
        let Some(folder) = fl_data_kit::user_dir() else {
            return Self::of_process();
        };
        let path = folder.join("rows.key");
        let mut options = OpenOptions::new();
        let opened = std::fs::create_dir_all(&folder).and_then(|()| {
            // of several processes the first writes it
            let file = fl_files::open_own(&path, options.read(true).write(true).create(true))?;
            file.lock()?;
            Ok(file)
        });
        let Ok(mut file) = opened else {
            return Self::of_process();
        };
        let what = || format!("the key of hashes of rows, {}", path.display());
        let mut key = Vec::new();
        file.read_to_end(&mut key).with_context(what)?;
        if key.is_empty() {
            key = Self::new()?.0;
            file.write_all(&key).with_context(what)?;
        }
        Ok(Self(key))
    }

    /// The key of runs that no other process compares with its own.
    fn of_process() -> Result<Self> {
        static KEY: OnceLock<Vec<u8>> = OnceLock::new();
        let Self(new) = Self::new()?;
        Ok(Self(KEY.get_or_init(|| new).clone()))
    }

    /// Reads the key of a ledger.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let read = fl_files::read_own(path);
        Ok(Self(read.with_context(|| {
            format!("{} is missing: without it the rows of a run cannot be compared with those of other runs; put it back", path.display())
        })?))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        fl_files::write_secret(path, &self.0)
    }

    /// Names it without telling it.
    pub(crate) fn name(&self) -> String {
        hex(&self.hash(b"name"))
    }

    /// Returns a secret for hashes of data files.
    pub fn of_files(&self) -> [u8; 32] {
        self.hash(b"files")
    }

    fn hash(&self, of: &[u8]) -> [u8; 32] {
        Sha256::new()
            .chain_update(&self.0)
            .chain_update(of)
            .finalize()
            .into()
    }

    /// Encrypts or decrypts `text` by ChaCha20. No two texts have one `nonce`.
    fn encrypt(&self, nonce: &str, text: &mut [u8]) {
        let mut stream = ChaCha20Rng::from_seed(self.hash(format!("seal {nonce}").as_bytes()));
        let mut mask = vec![0; text.len()];
        stream.fill_bytes(&mut mask);
        for (byte, mask) in text.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
}

/// The hashes of a [`DataId`] as who has not the key sees them: their text does not depend on them,
/// and its length only on the number of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    nonce: String,
    /// Base64 of the encrypted [`Hashes`] and zeros.
    text: String,
}

impl Sealed {
    fn hashes(&self, key: &RowKey) -> Option<Hashes> {
        let mut text = BASE64.decode(&self.text).ok()?;
        key.encrypt(&self.nonce, &mut text);
        postcard::from_bytes(&text).ok()
    }
}

/// What [`Sealed`] hides.
#[derive(Serialize, Deserialize)]
struct Hashes {
    rows: String,
    split: String,
    parties: Vec<String>,
    sample: BTreeMap<String, u32>,
    public: BTreeSet<String>,
}

/// The rows of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataId {
    /// The user's name for the data set.
    pub name: String,
    /// Names the key of all hashes here; empty if the rows are not known.
    pub key: String,
    /// Hash of the decoded rows, in any order; empty if the hashes are sealed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rows: String,
    /// Hash of the split: which client has which of the rows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub split: String,
    /// Whether a spec dealt the rows to the clients.
    pub dealt: bool,
    /// The sum of the hashes of each client's rows, if the clients own their rows: that of rows of
    /// two clients is the sum of theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parties: Vec<String>,
    /// Hashes of some of the clients' rows, each with its client. All runs choose by the hash, so
    /// of two sets with `n` rows in common, of which the larger has `m`, some 512 n / m are found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sample: BTreeMap<String, u32>,
    /// Hashes of some of the run's public and test rows.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub public: BTreeSet<String>,
    /// The hashes, where others may read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Sealed>,
}

/// How the rows of a run are shared out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sharing {
    /// Whether a spec dealt them to the clients.
    pub dealt: bool,
    /// Whether the protocol pools those of all clients.
    pub pooled: bool,
}

impl DataId {
    /// Describes rows by hashes with this key. `rows` is the hash of all of them.
    pub fn of(
        name: String,
        key: &RowKey,
        (rows, identity): (&str, &RowIdentity),
        how: Sharing,
    ) -> Self {
        let short = |hash: [u8; 32]| <[u8; 6]>::try_from(&hash[..6]).unwrap_or_default();
        let mut sample: BTreeMap<[u8; 6], u32> = BTreeMap::new();
        let mut sums = vec![
            0u128;
            if how.pooled {
                1
            } else {
                identity.clients.len()
            }
        ];
        for (client, own) in identity.clients.iter().enumerate() {
            let client = if how.pooled { 0 } else { client };
            for row in own {
                let hash = key.hash(row);
                let half = <[u8; 16]>::try_from(&hash[16..]).unwrap_or_default();
                sums[client] = sums[client].wrapping_add(u128::from_le_bytes(half));
                sample.entry(short(hash)).or_insert(client as u32);
                if sample.len() > SAMPLE {
                    sample.pop_last();
                }
            }
        }
        let mut public: BTreeSet<[u8; 6]> = BTreeSet::new();
        for row in &identity.public {
            public.insert(short(key.hash(row)));
            if public.len() > SAMPLE {
                public.pop_last();
            }
        }
        let parties: Vec<String> = sums.iter().map(|sum| format!("{sum:032x}")).collect();
        let hash = |what: &str, of: &str| hex(&key.hash(format!("{what} {of}").as_bytes()));
        Self {
            name,
            key: key.name(),
            rows: hash("rows", rows),
            split: hash("split", &parties.join(" ")),
            dealt: how.dealt,
            parties: if how.dealt { Vec::new() } else { parties },
            sample: sample.iter().map(|(row, of)| (hex(row), *of)).collect(),
            public: public.iter().map(|row| hex(row)).collect(),
            sealed: None,
        }
    }

    /// Seals the hashes for a place that others may read: without `key`, by which the rows were
    /// hashed, they tell nothing of the rows, also beside those of another run.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn seal(self, key: &RowKey) -> Result<Self> {
        if self.key.is_empty() {
            return Ok(self);
        }
        // a hash of a row takes 13 bytes and the number of its client at most 5; that of a party 33
        let length = 512 + SAMPLE * (13 + 5) + SAMPLE * 13 + 33 * self.parties.len();
        let hashes = Hashes {
            rows: self.rows,
            split: self.split,
            parties: self.parties,
            sample: self.sample,
            public: self.public,
        };
        let mut text = postcard::to_stdvec(&hashes)?;
        text.resize(length, 0);
        let nonce = crate::random_name()?;
        key.encrypt(&nonce, &mut text);
        Ok(Self {
            name: self.name,
            key: self.key,
            dealt: self.dealt,
            sealed: Some(Sealed {
                nonce,
                text: BASE64.encode(text),
            }),
            ..Self::default()
        })
    }

    /// Opens sealed hashes with their key. With another key they stay sealed.
    pub(crate) fn open(self, key: &RowKey) -> Self {
        match self.sealed.as_ref().and_then(|of| of.hashes(key)) {
            Some(of) if key.name() == self.key => Self {
                rows: of.rows,
                split: of.split,
                parties: of.parties,
                sample: of.sample,
                public: of.public,
                sealed: None,
                ..self
            },
            _ => self,
        }
    }

    /// Returns whether two runs are, or may be, on one data set: they have equal rows, or one name
    /// for them, or hashes of one key that are sealed.
    pub fn same_set(&self, other: &Self) -> bool {
        let may_be_equal = || {
            if self.is_sealed() || other.is_sealed() {
                !self.key.is_empty() && self.key == other.key
            } else {
                self.comparable(other) && self.rows == other.rows
            }
        };
        self.name == other.name || may_be_equal()
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Returns whether the parties of two runs are the same, in the same order.
    pub fn same_split(&self, other: &Self) -> bool {
        self.comparable(other) && self.split == other.split
    }

    /// Returns whether each party here lies in one party there.
    pub fn lies_in(&self, other: &Self) -> bool {
        if self.same_split(other) {
            return true;
        }
        if !self.comparable(other) {
            return false;
        }
        let sum = |hash: &String| u128::from_str_radix(hash, 16).unwrap_or_default();
        // rows in both samples say which party may be the one, and the sums whether it is
        let mut into: Vec<Option<usize>> = vec![None; self.parties.len()];
        for (row, client) in &self.sample {
            let found = other.sample.get(row).map(|client| *client as usize);
            if let Some(into) = into.get_mut(*client as usize) {
                *into = into.or(found);
            }
        }
        let mut sums = vec![0u128; other.parties.len()];
        for (own, into) in self.parties.iter().zip(into) {
            let equal = || other.parties.iter().position(|party| party == own);
            match into.or_else(equal) {
                _ if sum(own) == 0 => {}
                Some(party) if party < sums.len() => {
                    sums[party] = sums[party].wrapping_add(sum(own));
                }
                _ => return false,
            }
        }
        let mut all = other.parties.iter().zip(&sums);
        !self.parties.is_empty() && all.all(|(party, own)| *own == 0 || *own == sum(party))
    }

    /// Returns whether a public row of a run with these data is, or may be, a row of the clients of
    /// `other`.
    pub fn publishes(&self, other: &Self) -> bool {
        if !self.comparable(other) {
            return self.is_sealed() || !self.public.is_empty();
        }
        // of one choice of public rows in one set, rows may be equal by chance
        let same = self.rows == other.rows && self.public == other.public;
        !same && self.public.iter().any(|row| other.sample.contains_key(row))
    }

    /// Returns whether the hashes of both say something about each other.
    fn comparable(&self, other: &Self) -> bool {
        let open = !self.is_sealed() && !other.is_sealed();
        open && !self.key.is_empty() && self.key == other.key
    }
}
