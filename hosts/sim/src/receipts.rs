//! [`ReceiptLog`]: `receipts.jsonl`, a chain of what a run did at the server, and `messages/`, what
//! it did it from.

use crate::append_log::{AppendLog, LogPosition};
use crate::atomic_file::{self, UNFINISHED};
use crate::chained_line::{ChainHash, chained_line, read_chained};
use crate::manifest::FileHash;
use anyhow::{Context, bail, ensure};
use fl_core::message::AnyMessage;
use fl_core::regular_file::{MOST_BINARY, RegularLines, open_regular};
use fl_core::{
    AggregationContext, ClientId, Receipt, ReceiptInput, ReleaseContext, Result, StepRecorder, hex,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::NamedTempFile;

/// The name of the chain in a run folder.
pub const RECEIPTS: &str = "receipts.jsonl";

/// The folder of kept messages in a run folder. Only its owner may read it.
pub const MESSAGES: &str = "messages";

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

/// The most inputs that a receipt lists; of more it has the hash of their list.
const LISTED: usize = 256;

/// What a record of the chain says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiptRecord {
    /// A process began to work on the run.
    Session(ReceiptSession),
    /// A step at the server.
    Step(Box<StepReceipt>),
    /// A signature over the hash of the record before ([`signed_text`]).
    Signature(ReceiptSignature),
    /// A client whose data are its own saw its answers in the receipts so far.
    Countersignature(Countersignature),
    /// The run is done.
    End(RunEnd),
}

/// A process that worked on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptSession {
    /// The version of fl.
    pub version: String,
    /// SHA-256 of `spec.yaml`.
    pub spec: String,
    /// The program, or the library that it has fl from.
    pub program: Option<FileHash>,
    /// Every loaded library.
    pub libraries: Vec<FileHash>,
    /// The public key of minisign that signs what follows, if there is one.
    pub key: Option<String>,
}

/// A receipt, with what it was made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReceipt {
    /// What was done.
    #[serde(flatten)]
    pub receipt: Receipt,
    /// Number of messages; none if it is withheld.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<usize>,
    /// The messages, unless there are many, or hashes are withheld.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<ReceiptInput>,
    /// The hash of the list of messages ([`inputs_hash`]); empty if it is withheld.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inputs_sha256: String,
    /// The name of the file of kept messages, and its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<FileHash>,
    /// Hashes are of what was hashed and of a random number, which only the kept messages have: a
    /// reader without them cannot check a guess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub salted: bool,
}

/// A signature by minisign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptSignature {
    /// The signature, as minisign writes it.
    pub signature: String,
}

/// A signature of a client's node over the hash of the last record that is no countersignature, and
/// over the answers of this client in the receipts so far ([`countersigned_text`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Countersignature {
    /// The client.
    pub client: ClientId,
    /// The public key of its node.
    pub key: String,
    /// The signature, as minisign writes it.
    pub signature: String,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The digest of the run.
    pub run: String,
    /// The files that will not change any more, and their hashes.
    pub files: Vec<FileHash>,
}

/// Signs the records of a chain.
pub trait ReceiptSigner: Send {
    /// Returns the public key.
    fn key(&self) -> String;

    /// Signs a text.
    ///
    /// # Errors
    /// If it cannot.
    fn sign(&self, text: &[u8]) -> Result<String>;
}

/// What is signed for a record with this hash.
pub fn signed_text(hash: &ChainHash) -> Vec<u8> {
    format!("fl receipt {}\n", hex(hash)).into_bytes()
}

/// What a client's node signs, if these are digests of its answers.
pub fn countersigned_text(hash: &ChainHash, client: ClientId, answers: &[String]) -> Vec<u8> {
    let answers = Sha256::digest(answers.join("\n"));
    let (hash, answers) = (hex(hash), hex(&answers));
    format!("fl countersignature {hash} {client} {answers}\n").into_bytes()
}

/// Adds the digests of the answers that a receipt lists to those of each client.
pub fn add_answers(all: &mut BTreeMap<ClientId, Vec<String>>, step: &StepReceipt) {
    // messages that a protocol combines later are listed when they come
    for input in step
        .inputs
        .iter()
        .filter(|_| step.receipt.exchange.is_some())
    {
        let answer = input.answer.as_ref().unwrap_or(&input.sha256);
        all.entry(input.client).or_default().push(answer.clone());
    }
}

/// Returns the hash of a list of messages.
///
/// # Errors
/// If it has no JSON.
pub fn inputs_hash(inputs: &[ReceiptInput]) -> Result<String> {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update(serde_json::to_vec(input)?);
        hash.update(b"\n");
    }
    Ok(hex(&hash.finalize()))
}

/// Returns the hash that a salted receipt has of `hash`.
pub fn salted(salt: &[u8; 32], hash: &str) -> String {
    let mut sum = Sha256::new();
    sum.update(b"fl receipt salt\n");
    sum.update(salt);
    sum.update(hash.as_bytes());
    hex(&sum.finalize())
}

/// How a run gives receipts.
#[derive(Default)]
pub struct ReceiptOptions {
    /// Whether the messages of aggregations are kept.
    pub keep_messages: bool,
    /// Who signs.
    pub signer: Option<Box<dyn ReceiptSigner>>,
    /// This process.
    pub session: Option<SessionFacts>,
}

/// Returns what is to be said of this process, once a record is due.
pub type SessionFacts = Box<dyn FnOnce() -> Result<ReceiptSession> + Send>;

/// The chain of a run's receipts, open for more.
pub(crate) struct ReceiptLog {
    folder: PathBuf,
    log: AppendLog,
    /// Hash of the last record, and the number of records.
    last: (ChainHash, usize),
    options: ReceiptOptions,
    step: Option<OpenStep>,
}

/// A step that has not ended.
struct OpenStep {
    secret: bool,
    salt: [u8; 32],
    inputs: Vec<ReceiptInput>,
    kept: Option<MessageWriter>,
}

/// The chain as all have it that work on a run.
pub(crate) type SharedReceipts = Arc<Mutex<ReceiptLog>>;

/// Locks the chain.
pub(crate) fn locked(log: &SharedReceipts) -> std::sync::MutexGuard<'_, ReceiptLog> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReceiptLog {
    /// Makes an empty chain.
    pub fn create(folder: &Path) -> Result<Self> {
        let log = AppendLog::create(folder.join(RECEIPTS))?;
        Ok(Self::of(folder, log, ([0; 32], 0)))
    }

    /// Opens a chain of which this much is known.
    pub fn open(folder: &Path, known: Option<LogPosition>) -> Result<Self> {
        let path = folder.join(RECEIPTS);
        let log = AppendLog::open(path.clone(), known)?;
        let mut last = ([0; 32], 0);
        let what = || format!("reading {}", path.display());
        let mut lines = RegularLines::open(&path, u64::MAX).with_context(what)?;
        let mut read = 0;
        while read < log.length()
            && let Some(line) = lines.next_line().with_context(what)?
        {
            read += line.len() as u64;
            let read = read_chained(&last.0, line);
            let (hash, _) = read.with_context(|| {
                let line = last.1 + 1;
                format!(
                    "{}: line {line} does not follow the one before",
                    path.display()
                )
            })?;
            last = (hash, last.1 + 1);
        }
        Ok(Self::of(folder, log, last))
    }

    fn of(folder: &Path, log: AppendLog, last: (ChainHash, usize)) -> Self {
        Self {
            folder: folder.into(),
            log,
            last,
            options: ReceiptOptions::default(),
            step: None,
        }
    }

    pub fn with(&mut self, options: ReceiptOptions) {
        self.options = options;
    }

    /// Removes everything after the known part.
    pub fn go_on(&self) -> Result<()> {
        self.log.go_on()?;
        let messages = self.folder.join(MESSAGES);
        if !messages.is_dir() {
            return Ok(());
        }
        atomic_file::tidy(&messages)?;
        let what = || format!("tidying {}", messages.display());
        for entry in fs::read_dir(&messages).with_context(what)? {
            let entry = entry.with_context(what)?;
            let number = entry.file_name();
            let number = number.to_str().and_then(|name| name.parse::<usize>().ok());
            if number.is_some_and(|number| number > self.last.1) {
                fs::remove_file(entry.path()).with_context(what)?;
            }
        }
        Ok(())
    }

    pub fn flush(&self) -> Result<LogPosition> {
        self.log.flush()
    }

    fn add(&mut self, record: &ReceiptRecord) -> Result<()> {
        let (hash, line) = chained_line(&self.last.0, &serde_json::to_vec(record)?);
        self.log.add_line(&line)?;
        self.last = (hash, self.last.1 + 1);
        Ok(())
    }

    /// Adds the record of this process before the first of its own.
    fn begin_session(&mut self) -> Result<()> {
        let Some(facts) = self.options.session.take() else {
            return Ok(());
        };
        let mut session = facts()?;
        session.key = self.options.signer.as_ref().map(|signer| signer.key());
        self.add_signed(&ReceiptRecord::Session(session))
    }

    fn add_signed(&mut self, record: &ReceiptRecord) -> Result<()> {
        self.add(record)?;
        let Some(signer) = &self.options.signer else {
            return Ok(());
        };
        let signature = signer.sign(&signed_text(&self.last.0))?;
        self.add(&ReceiptRecord::Signature(ReceiptSignature { signature }))
    }

    /// Returns the hash of the last record, and the answers of each client in all receipts.
    pub fn answers(&self) -> Result<(ChainHash, BTreeMap<ClientId, Vec<String>>)> {
        let path = self.folder.join(RECEIPTS);
        let what = || format!("reading {}", path.display());
        let mut lines = RegularLines::open(&path, u64::MAX).with_context(what)?;
        let mut all = BTreeMap::new();
        while let Some(line) = lines.next_line().with_context(what)? {
            let json = line.get(65..).unwrap_or_default();
            if !json.is_empty()
                && let ReceiptRecord::Step(step) =
                    serde_json::from_slice(json).with_context(what)?
            {
                add_answers(&mut all, &step);
            }
        }
        Ok((self.last.0, all))
    }

    pub fn countersigned(&mut self, by: Countersignature) -> Result<()> {
        self.add(&ReceiptRecord::Countersignature(by))
    }

    /// The run is done.
    pub fn end(&mut self, end: RunEnd) -> Result<()> {
        self.begin_session()?;
        self.add_signed(&ReceiptRecord::End(end))?;
        self.flush().map(drop)
    }

    fn begin_step<C: KeptContext>(&mut self, secret: bool, context: Option<C>) -> Result<()> {
        self.begin_session()?;
        let mut salt = [0; 32];
        if secret {
            getrandom::fill(&mut salt)
                .map_err(|error| anyhow::anyhow!("random numbers of the system: {error}"))?;
        }
        let kept = context.map(|context| {
            let folder = self.folder.join(MESSAGES);
            MessageWriter::new(&folder, &context, &salt)
        });
        self.step = Some(OpenStep {
            secret,
            salt,
            inputs: Vec::new(),
            kept: kept.transpose()?,
        });
        Ok(())
    }

    fn end_step(&mut self, mut receipt: Receipt) -> Result<()> {
        let step = self.step.take().context("a step that has not begun")?;
        let salted_by = step.secret.then_some(step.salt);
        // withheld, unless the salt can be looked up
        let withheld = step.secret && step.kept.is_none();
        let hidden = |hash: String| match &salted_by {
            _ if withheld => String::new(),
            Some(salt) if !hash.is_empty() => salted(salt, &hash),
            _ => hash,
        };
        let has_inputs = receipt.did != fl_core::ServerStep::Release;
        let inputs_sha256 = match has_inputs {
            true => hidden(inputs_hash(&step.inputs)?),
            false => String::new(),
        };
        receipt.output = hidden(receipt.output);
        receipt.before = hidden(receipt.before);
        // numbered by the receipt's line
        let number = self.last.1 + 1;
        let kept = step.kept.map(|kept| {
            let path = self.folder.join(MESSAGES).join(format!("{number:06}"));
            kept.finish(&path, number)
        });
        let shown = has_inputs && !step.secret;
        let messages = shown.then_some(step.inputs.len());
        let listed = shown && step.inputs.len() <= LISTED;
        let step = StepReceipt {
            receipt,
            messages,
            inputs: if listed { step.inputs } else { Vec::new() },
            inputs_sha256,
            kept: kept.transpose()?,
            salted: step.secret && !withheld,
        };
        self.add_signed(&ReceiptRecord::Step(Box::new(step)))
    }
}

/// Gives a run's receipts to its chain.
pub(crate) struct Recorder {
    pub log: SharedReceipts,
    pub keeps: bool,
}

impl StepRecorder for Recorder {
    fn keeps(&self) -> bool {
        self.keeps
    }
    fn begin(&mut self, secret: bool, context: Option<AggregationContext>) -> Result<()> {
        locked(&self.log).begin_step(secret, context)
    }
    fn begin_release(&mut self, secret: bool, context: Option<ReleaseContext>) -> Result<()> {
        locked(&self.log).begin_step(secret, context)
    }
    fn input(&mut self, input: ReceiptInput, body: &dyn AnyMessage) -> Result<()> {
        let mut log = locked(&self.log);
        let step = log.step.as_mut().context("a step that has not begun")?;
        if let Some(kept) = &mut step.kept {
            kept.add(&input, body)?;
        }
        step.inputs.push(input);
        Ok(())
    }
    fn end(&mut self, receipt: Receipt) -> Result<()> {
        locked(&self.log).end_step(receipt)
    }
}

/// A file of kept messages that is being written.
struct MessageWriter {
    file: BufWriter<NamedTempFile>,
    sum: Sha256,
}

impl MessageWriter {
    fn new<C: KeptContext>(folder: &Path, context: &C, salt: &[u8; 32]) -> Result<Self> {
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

    fn add(&mut self, input: &ReceiptInput, body: &dyn AnyMessage) -> Result<()> {
        self.part(&serde_json::to_vec(input)?)?;
        self.part(&body.encode())
    }

    fn finish(self, path: &Path, number: usize) -> Result<FileHash> {
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
        let context = part(&mut file, &mut left).with_context(no)?;
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
        let input = serde_json::from_slice(&part(&mut self.file, &mut self.left)?)?;
        Ok(Some((input, part(&mut self.file, &mut self.left)?)))
    }
}

/// Reads a length and as many bytes.
fn part(from: &mut impl Read, left: &mut u64) -> Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if left.checked_sub(8).is_none_or(|left| left < length) {
        bail!("it is cut short");
    }
    ensure!(
        length <= MOST_BINARY,
        "a part of it has {length} bytes; at most {MOST_BINARY} are read"
    );
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 == length, "it is cut short");
    *left -= 8 + length;
    Ok(bytes)
}
