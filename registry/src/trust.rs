//! How far a plugin must be trusted to be loaded, and how far it is.

use crate::package::Package;
use fl_core::settings::{Reader, Setting, Value};
use std::fmt::{Display, Formatter};
use std::str::FromStr;
use std::sync::OnceLock;

fl_core::choices! {
    /// The plugins that may be loaded. The strictest of the spec's, the user's and the command
    /// line's level counts.
    pub enum Trust {
        /// Every plugin that the spec or the command line names.
        Any = "any",
        /// Plugins with a signed entry of an index that the user configured.
        Published = "published",
        /// Plugins whose signed entry says that the keepers of the index reviewed their source.
        Reviewed = "reviewed",
        /// None: only parts that are linked into the program.
        Linked = "linked",
    }
}

impl Trust {
    fn rank(&self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Published => 1,
            Self::Reviewed => 2,
            Self::Linked => 3,
        }
    }

    /// The stricter of two levels.
    pub fn stricter(self, other: Self) -> Self {
        match other.rank() > self.rank() {
            true => other,
            false => self,
        }
    }

    /// Fails if a plugin of the level `found` may not be loaded where this level is required.
    pub(crate) fn admit(&self, found: &Self) -> Result<(), String> {
        if self == &Self::Linked {
            return Err("plugins-trust is `linked`: no plugin may be loaded".into());
        }
        match found.rank() >= self.rank() {
            true => Ok(()),
            false if found == &Self::Published => Err(format!(
                "plugins-trust is `{self}`, and this plugin is `{found}`: its entry does not say \
                 that the keepers of the index reviewed it; ask for less trust where the level is set"
            )),
            false => Err(format!(
                "plugins-trust is `{self}`, and this plugin is `{found}`: add it from an index with \
                 a key (`fl plugin add`), or ask for less trust where the level is set"
            )),
        }
    }
}

impl Display for Trust {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.write().as_str().unwrap_or_default())
    }
}

impl FromStr for Trust {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let mut reader = Reader::default();
        let read = Self::read(&Value::from(word), &mut reader);
        read.ok_or_else(|| {
            let wrong = reader.mistakes.first();
            wrong.map_or_else(String::new, |mistake| mistake.text.clone())
        })
    }
}

/// The level of the plugin with this SHA-256, in hexadecimal: [`Trust::Any`] if no signed entry
/// has it.
pub type Attest = fn(sha256: &str) -> Trust;

/// The plugins that signed entries give a package of this name and version: the SHA-256 of each,
/// and its level.
pub type SignedEntries = fn(name: &str, version: &str) -> Vec<(String, Trust)>;

static SIGNED: OnceLock<SignedEntries> = OnceLock::new();

/// Says where signed entries are, for errors about packages that were changed after they were
/// installed. The first call counts.
pub fn on_signed_entries(entries: SignedEntries) {
    let _ = SIGNED.set(entries);
}

/// What to do about a package of a signed entry that has another hash; `None` if no entry is known,
/// or one has this hash.
pub(crate) fn changed(package: &Package, sha256: &str) -> Option<String> {
    let Package { name, version, .. } = package;
    let signed = SIGNED.get().map(|entries| entries(name, version))?;
    let same = |(of, _): &(String, Trust)| of.eq_ignore_ascii_case(sha256);
    let (due, _) = signed.first().filter(|_| !signed.iter().any(same))?;
    Some(format!(
        "its SHA-256 is {sha256}, and the signed entry of {name} {version} has {due}: the file was \
         changed after it was installed; {}, and run `fl plugin add {name}`",
        package.removal()
    ))
}

/// What a host asks of plugins.
#[derive(Clone)]
pub struct TrustPolicy {
    /// The level that a plugin must have.
    pub level: Trust,
    /// Finds the level of a plugin.
    pub attest: Attest,
}

impl Default for TrustPolicy {
    /// Every plugin may be loaded, and no entry is known.
    fn default() -> Self {
        Self {
            level: Trust::Any,
            attest: |_| Trust::Any,
        }
    }
}

impl TrustPolicy {
    /// As [`Self::judge`], of what cannot be hashed before it is run.
    pub(crate) fn unattested(&self) -> Result<Trust, String> {
        self.level.admit(&Trust::Any).map(|()| Trust::Any)
    }

    /// The level of a plugin, if it may be loaded. `package` is the one that it is from.
    pub(crate) fn judge(&self, sha256: &str, package: Option<&Package>) -> Result<Trust, String> {
        let found = (self.attest)(sha256);
        let admitted = self.level.admit(&found);
        let changed = || package.and_then(|package| changed(package, sha256));
        admitted.map_err(|why| changed().unwrap_or(why))?;
        Ok(found)
    }

    /// May this package be loaded, as far as its hash is known?
    pub(crate) fn admits(&self, package: &Package) -> bool {
        let hash = package.sha256().ok().flatten();
        let hash = hash.filter(|_| package.is_whole());
        let found = hash.map_or(Trust::Any, |hash| (self.attest)(&hash));
        self.level.admit(&found).is_ok()
    }
}
