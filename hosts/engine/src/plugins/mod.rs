//! Plugins from elsewhere: a user's configuration, indexes, signatures, and installation.
//!
//! All of it is in one folder ([`fl_registry::plugin_dir`]): `plugins.yaml` is the configuration,
//! `NAME-VERSION/` are installed packages, and `entries/` holds the index entries of these, which
//! prove a plugin's level when it is loaded. A run reads no index and uses no network.

mod index;
mod install;
mod lock;
mod wheel;

pub use index::{Conformance, Entry, EntryFile, Found, entries};
pub use install::{Installed, add, choose, draft, installed, verify as verify_installed};
pub use lock::lock;

use crate::NotRun;
use anyhow::Context;
use fl_core::settings::Setting;
use fl_registry::{Document, Trust, TrustPolicy, plugin_dir};
use minisign_verify::{PublicKey, Signature};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// The user's configuration, in the folder of plugins.
const CONFIG: &str = "plugins.yaml";
/// The folder of entries of installed packages, in the folder of plugins.
const ENTRIES: &str = "entries";

fl_core::settings! {
    /// What a user wants of plugins.
    struct Config {
        /// How far plugins must be trusted. Specs and command lines can ask for more.
        plugins_trust: Trust = Trust::Any;
        /// Where `fl plugin` looks for plugins.
        indexes: Vec<IndexConfig> = Vec::new();
    }
}

fl_core::settings! {
    /// An index of plugins.
    pub(crate) struct IndexConfig {
        /// A folder of entries, a JSON file, or the `https://` address of one.
        at: String;
        /// The public key of its keepers, as minisign prints it. Every entry must be signed with
        /// it. Without a key, plugins of this index are never more than `any`.
        key: Option<String> = None;
    }
}

/// Reads at most `most` bytes of a regular file.
fn read(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = crate::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    file.with_context(|| format!("reading {}", path.display()))?;
    anyhow::ensure!(
        bytes.len() as u64 <= most,
        "{} is longer than {most} bytes",
        path.display()
    );
    Ok(bytes)
}

/// The user's configuration; every default if there is none.
fn config() -> anyhow::Result<Config> {
    let Some(path) = plugin_dir().map(|dir| dir.join(CONFIG)) else {
        return Ok(fl_core::settings::defaults());
    };
    let about = match File::open(&path).and_then(|file| file.metadata()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(fl_core::settings::defaults());
        }
        about => about.with_context(|| path.display().to_string())?,
    };
    #[cfg(unix)]
    fl_registry::file_permissions::trusted(&path, &about)
        .map_err(|why| NotRun::usage(format!("{}: {why}", path.display())))?;
    #[cfg(not(unix))]
    let _ = about;
    let text = read(&path, fl_registry::MAX_BYTES as u64)?;
    let document = Document::parse(&path.display().to_string(), &text);
    let what = "the configuration of plugins has `plugins-trust` and `indexes`";
    let (config, _) = document
        .settings::<Config>(what)
        .map_err(NotRun::Mistakes)?;
    for index in &config.indexes {
        if let Some(key) = &index.key {
            PublicKey::from_base64(key).map_err(|error| {
                let (file, at) = (path.display(), &index.at);
                NotRun::usage(format!(
                    "{file}: the key of index {at} is no public key of minisign: {error}"
                ))
            })?;
        }
    }
    Ok(config)
}

/// What is asked of plugins: the strictest of `asked`, FL_PLUGINS_TRUST and the configuration.
///
/// # Errors
/// [`NotRun`] when one of them cannot be read, or another user could have written it.
pub fn plugin_policy(asked: Option<Trust>) -> anyhow::Result<TrustPolicy> {
    let mut level = config()?
        .plugins_trust
        .stricter(asked.unwrap_or(Trust::Any));
    if let Some(word) = std::env::var_os("FL_PLUGINS_TRUST").filter(|word| !word.is_empty()) {
        let word = word.to_string_lossy();
        let of_env = word
            .parse::<Trust>()
            .map_err(|why| NotRun::usage(format!("FL_PLUGINS_TRUST: {why}")));
        level = level.stricter(of_env?);
    }
    fl_registry::on_signed_entries(signed);
    Ok(TrustPolicy { level, attest })
}

/// The entries of installed packages, each with the level that it gives its plugins. What cannot be
/// read proves nothing.
fn stored() -> Vec<(Entry, Trust)> {
    let found = || -> anyhow::Result<Vec<(Entry, Trust)>> {
        let keys = config()?.indexes.into_iter().filter_map(|index| index.key);
        let keys: Vec<String> = keys.collect();
        let dir = plugin_dir().context("no folder of plugins")?.join(ENTRIES);
        let found = index::folder(&dir, None)?.into_iter().flatten();
        let of = |found: Found| {
            let levels = keys
                .iter()
                .filter_map(|key| found.signed_by(Some(key)).ok());
            let level = levels.fold(Trust::Any, Trust::stricter);
            (found.entry, level)
        };
        Ok(found.map(of).collect())
    };
    found().unwrap_or_default()
}

/// The highest level that a stored entry gives the plugin with this hash.
fn attest(sha256: &str) -> Trust {
    let has = |entry: &Entry| {
        let mut files = entry.files.iter();
        files.any(|file| file.sha256.eq_ignore_ascii_case(sha256))
    };
    let all = stored().into_iter().filter(|(entry, _)| has(entry));
    all.map(|(_, level)| level)
        .fold(Trust::Any, Trust::stricter)
}

/// The plugins that signed entries of installed packages give a package.
fn signed(name: &str, version: &str) -> Vec<(String, Trust)> {
    let of = |(entry, level): (Entry, Trust)| {
        let here = entry.name == name && entry.version == version && level != Trust::Any;
        let files = entry.files.into_iter().filter(move |_| here);
        files.map(move |file| (file.sha256, level.clone()))
    };
    stored().into_iter().flat_map(of).collect()
}

/// Fails unless `signature` is one of minisign by `key` over exactly these bytes.
fn verify(bytes: &[u8], signature: &str, key: &str) -> Result<(), String> {
    let key = PublicKey::from_base64(key).map_err(|error| format!("the key: {error}"))?;
    let signature =
        Signature::decode(signature).map_err(|error| format!("its signature: {error}"))?;
    key.verify(bytes, &signature, false).map_err(|error| {
        format!("its signature does not match these bytes and the index's key: {error}")
    })
}

/// Writes settings as YAML without those that are not given.
fn yaml(settings: &impl Setting) -> anyhow::Result<String> {
    let mut value = settings.write();
    if let Some(map) = value.as_mapping_mut() {
        map.retain(|_, value| !value.is_null());
    }
    fl_core::settings::to_yaml(&value)
}
