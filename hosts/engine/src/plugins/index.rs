//! An index of plugins: a folder of signed YAML files, or one JSON file with their texts.

use super::{IndexConfig, config, read, verify};
use anyhow::{Context, bail, ensure};
use fl_registry::{Document, Trust, is_sha256, is_version, normalised};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The longest entry, in bytes.
const MOST_ENTRY: u64 = 64 << 10;
/// The most entries of an index.
const MOST_ENTRIES: usize = 10_000;
/// The longest index in one file, in bytes.
const MOST_INDEX: u64 = 64 << 20;
/// The longest wheel, in bytes.
pub(super) const MOST_WHEEL: u64 = 256 << 20;

fl_core::choices! {
    /// What `fl test --conformance` said of the parts.
    pub enum Conformance {
        /// All keep to their roles.
        Passed = "passed",
        /// One does not.
        Failed = "failed",
        /// They were not tested.
        Untried = "untried",
    }
}

fl_core::settings! {
    /// One version of a plugin.
    #[check(plain)]
    pub struct Entry {
        /// The name of the package, in small letters.
        name: String;
        /// Its version.
        version: String;
        /// What it is, in a sentence.
        about: String;
        /// Its parts: role and name, such as `aggregator my-mean`.
        parts: Vec<String> = Vec::new();
        /// The number of the C interface of its library; none for a module.
        interface: Option<u64> = None;
        /// Its licence, as SPDX names it.
        licence: String;
        /// The paper that it implements.
        paper: Option<String> = None;
        /// Where its source is.
        source: String;
        /// The commit that it was built from, in hexadecimal.
        commit: String;
        /// What `fl test --conformance` said of its parts.
        conformance: Conformance = Conformance::Untried;
        /// Who of the keepers of the index reviewed this commit, and when. Makes the plugin
        /// `reviewed`.
        reviewed: Option<String> = None;
        /// Its wheels. Empty before they are built.
        files: Vec<EntryFile> = Vec::new();
    }
}

fl_core::settings! {
    /// A wheel for one platform.
    #[check(whole)]
    pub struct EntryFile {
        /// The platform, such as `linux-x86_64`; `any` for a module.
        platform: String;
        /// The name of the file beside the index, or its `https://` address.
        wheel: String;
        /// SHA-256 of the wheel.
        wheel_sha256: String;
        /// SHA-256 of what is loaded: of the library, or of the module's sources.
        sha256: String;
    }
}

fn plain(entry: &Entry) -> Result<(), String> {
    if normalised(&entry.name)? != entry.name {
        return Err(format!("`name` must be `{}`", normalised(&entry.name)?));
    }
    if !is_version(&entry.version) {
        return Err(format!(
            "`version` must be one such as \"1.2\", got {:?}",
            entry.version
        ));
    }
    let hexadecimal = entry.commit.chars().all(|c| c.is_ascii_hexdigit());
    if !hexadecimal || !(40..=64).contains(&entry.commit.len()) {
        return Err("`commit` must have 40 to 64 hexadecimal digits".into());
    }
    let mut platforms = BTreeSet::new();
    match entry
        .files
        .iter()
        .find(|file| !platforms.insert(&file.platform))
    {
        Some(twice) => Err(format!("`files` has two for {}", twice.platform)),
        None => Ok(()),
    }
}

fn whole(file: &EntryFile) -> Result<(), String> {
    is_sha256(&file.sha256)?;
    is_sha256(&file.wheel_sha256).map_err(|_| "`wheel-sha256` must have 64 hexadecimal digits")?;
    file.file_name().map(|_| ())
}

impl EntryFile {
    /// The name of the file, which is no path.
    pub(super) fn file_name(&self) -> Result<&str, String> {
        let name = match self.wheel.strip_prefix("https://") {
            Some(_) => self.wheel.rsplit('/').next().unwrap_or_default(),
            None => &self.wheel,
        };
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        let whole = name.ends_with(".whl") && !name.starts_with('.') && name.len() <= 200;
        match whole && name.chars().all(fine) && is_address_or_plain(&self.wheel) {
            true => Ok(name),
            false => Err(format!(
                "`wheel` must be the name of a file `*.whl` beside the index, or its https:// address, got {:?}",
                self.wheel
            )),
        }
    }
}

fn is_address_or_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_graphic())
}

/// An entry as an index has it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The entry.
    pub entry: Entry,
    /// Its text, which is signed.
    pub text: String,
    /// The signature, if there is one.
    pub signature: Option<String>,
    /// How far plugins of it are trusted, or why the entry may not be used.
    pub level: Result<Trust, String>,
    /// Where the index is.
    pub index: String,
}

impl Found {
    /// Reads an entry. `place` is what mistakes call it.
    fn read(place: &str, text: Vec<u8>, signature: Option<String>) -> Result<Self, String> {
        let document = Document::parse(place, &text);
        let read = document.settings::<Entry>("an entry of an index has a `name` and a `version`");
        let (entry, _) = read.map_err(|mistakes| mistakes.to_string())?;
        let text = String::from_utf8(text).map_err(|error| format!("{place}: {error}"))?;
        Ok(Self {
            entry,
            text,
            signature,
            level: Ok(Trust::Any),
            index: String::new(),
        })
    }

    /// The level that the signature gives, checked with the index's key.
    ///
    /// # Errors
    /// When there is a key, and no signature by it.
    pub(super) fn signed_by(&self, key: Option<&str>) -> Result<Trust, String> {
        let Some(key) = key else {
            return Ok(Trust::Any);
        };
        let signature = self.signature.as_ref();
        let signature = signature.ok_or("it has no signature, and its index has a key")?;
        verify(self.text.as_bytes(), signature, key)?;
        Ok(match self.entry.reviewed {
            Some(_) => Trust::Reviewed,
            None => Trust::Published,
        })
    }

    /// The name of its file: of name and version.
    pub(super) fn file_name(&self) -> String {
        format!("{}-{}.yaml", self.entry.name, self.entry.version)
    }
}

/// The entries of a folder, each or why it cannot be used. `only` reads those of one name.
pub(super) fn folder(dir: &Path, only: Option<&str>) -> anyhow::Result<Vec<Result<Found, String>>> {
    let all = dir.read_dir().with_context(|| dir.display().to_string())?;
    let names = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let wanted =
        |name: &String| name.ends_with(".yaml") && only.is_none_or(|only| name.starts_with(only));
    let mut names: Vec<String> = names.filter(wanted).collect();
    names.sort();
    ensure!(
        names.len() <= MOST_ENTRIES,
        "{} has more than {MOST_ENTRIES} entries",
        dir.display()
    );
    let entry = |name: &String| {
        let (path, place) = (dir.join(name), dir.join(name).display().to_string());
        let text = read(&path, MOST_ENTRY).map_err(|error| format!("{error:#}"))?;
        let signature = dir.join(format!("{name}.minisig"));
        let signature = match signature.exists() {
            true => {
                let text = read(&signature, MOST_ENTRY).map_err(|error| format!("{error:#}"))?;
                Some(String::from_utf8_lossy(&text).into_owned())
            }
            false => None,
        };
        let found = Found::read(&place, text, signature)?;
        match found.file_name() == *name {
            true => Ok(found),
            false => Err(format!("{place}: it is the entry {}", found.file_name())),
        }
    };
    Ok(names.iter().map(entry).collect())
}

/// The entries of a JSON file: `{"entries": [{"entry": TEXT, "signature": TEXT}]}`.
fn file(place: &str, bytes: &[u8]) -> anyhow::Result<Vec<Result<Found, String>>> {
    let json: Json = serde_json::from_slice(bytes).with_context(|| place.to_string())?;
    let all = json["entries"].as_array();
    let all = all.with_context(|| format!("{place}: an index has a list `entries`"))?;
    ensure!(
        all.len() <= MOST_ENTRIES,
        "{place} has more than {MOST_ENTRIES} entries"
    );
    let entry = |(at, one): (usize, &Json)| {
        let place = format!("{place}, entries[{at}]");
        let text = one["entry"].as_str();
        let text = text.ok_or_else(|| format!("{place}: it has no text `entry`"))?;
        if text.len() as u64 > MOST_ENTRY {
            return Err(format!("{place} is longer than {MOST_ENTRY} bytes"));
        }
        let signature = one["signature"].as_str().map(Into::into);
        Found::read(&place, text.into(), signature)
    };
    Ok(all.iter().enumerate().map(entry).collect())
}

/// Where an index is.
enum IndexLocation {
    Folder(PathBuf),
    File(PathBuf),
    Address(String),
}

impl IndexLocation {
    fn of(at: &str) -> anyhow::Result<Self> {
        if let Some(rest) = at.strip_prefix("https://") {
            ensure!(
                !rest.is_empty() && at.chars().all(|c| c.is_ascii_graphic()),
                "{at:?} is no address"
            );
            return Ok(Self::Address(at.into()));
        }
        let path = at.strip_prefix("file://").unwrap_or(at);
        if path.contains("://") {
            bail!("{at}: an index is a folder, a JSON file, or the https:// address of one");
        }
        let path = PathBuf::from(path);
        match path
            .metadata()
            .with_context(|| format!("index {at}"))?
            .is_dir()
        {
            true => Ok(Self::Folder(path)),
            false => Ok(Self::File(path)),
        }
    }
}

/// Reads what an https address has, by the system's `curl`.
pub(super) fn fetch(address: &str, most: u64) -> anyhow::Result<Vec<u8>> {
    let mut command = Command::new("curl");
    command.args([
        "--fail",
        "--silent",
        "--show-error",
        "--location",
        "--max-redirs",
        "5",
    ]);
    command.args([
        "--proto",
        "=https",
        "--connect-timeout",
        "30",
        "--max-time",
        "600",
    ]);
    command.args(["--max-filesize", &most.to_string(), "--url", address]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| {
        format!("{address}: fl reads addresses by the program `curl`; install it, or copy the index here and name its path")
    })?;
    let mut bytes = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(most + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > most {
        let _ = child.kill();
        let _ = child.wait();
        bail!("{address} is longer than {most} bytes");
    }
    ensure!(child.wait()?.success(), "{address}: curl could not read it");
    Ok(bytes)
}

/// The configured indexes, or the one at `only`, with its key if it is configured.
fn indexes(only: Option<&str>) -> anyhow::Result<Vec<IndexConfig>> {
    let all = config()?.indexes;
    let Some(only) = only else {
        ensure!(
            !all.is_empty(),
            "no index is configured; name one with --index, or write `indexes: [{{ at: .., key: .. }}]` into plugins.yaml in {}",
            fl_registry::plugin_dir().map_or("the folder of FL_PLUGIN_DIR".into(), |d| d
                .display()
                .to_string())
        );
        return Ok(all);
    };
    let known = all.into_iter().find(|index| index.at == only);
    Ok(vec![known.unwrap_or(IndexConfig {
        at: only.into(),
        key: None,
    })])
}

/// The entries of the configured indexes, or of the one at `only`, in the order of their names and
/// versions. Passes to `note` why an entry cannot be read.
///
/// # Errors
/// When an index cannot be read, or has one version twice.
pub fn entries(only: Option<&str>, note: &mut dyn FnMut(String)) -> anyhow::Result<Vec<Found>> {
    let mut all = Vec::new();
    for index in indexes(only)? {
        let read = match IndexLocation::of(&index.at)? {
            IndexLocation::Folder(dir) => folder(&dir, None)?,
            IndexLocation::File(path) => file(&index.at, &read(&path, MOST_INDEX)?)?,
            IndexLocation::Address(address) => file(&index.at, &fetch(&address, MOST_INDEX)?)?,
        };
        let mut seen = BTreeSet::new();
        for found in read {
            let mut found = match found {
                Ok(found) => found,
                Err(why) => {
                    note(why);
                    continue;
                }
            };
            ensure!(
                seen.insert(found.file_name()),
                "index {} has {} {} twice; nothing of it is used",
                index.at,
                found.entry.name,
                found.entry.version
            );
            found.level = found.signed_by(index.key.as_deref());
            found.index.clone_from(&index.at);
            all.push(found);
        }
    }
    all.sort_by(|a, b| {
        let versions = || fl_registry::compare_versions(&a.entry.version, &b.entry.version);
        a.entry.name.cmp(&b.entry.name).then_with(versions)
    });
    Ok(all)
}

/// The bytes of a wheel of an entry: those beside its index if they are there, else those at its
/// address.
pub(super) fn wheel(found: &Found, file: &EntryFile) -> anyhow::Result<Vec<u8>> {
    let name = file.file_name().map_err(anyhow::Error::msg)?;
    let beside = match IndexLocation::of(&found.index)? {
        IndexLocation::Folder(dir) => Some(dir.join(name)),
        IndexLocation::File(path) => Some(path.with_file_name(name)),
        IndexLocation::Address(_) => None,
    };
    if let Some(path) = beside.as_ref().filter(|path| path.exists()) {
        return read(path, MOST_WHEEL);
    }
    let address = match (&beside, file.wheel.starts_with("https://")) {
        (_, true) => file.wheel.clone(),
        (None, false) => {
            let base = found.index.rsplit_once('/').map_or("", |(base, _)| base);
            format!("{base}/{name}")
        }
        (Some(path), false) => bail!("{}: there is no such file", path.display()),
    };
    fetch(&address, MOST_WHEEL)
}
