//! How far a plugin must be trusted to be loaded, and how far it is.

use fl_core::settings::{Reader, Setting, Value};
use std::fmt::{Display, Formatter};
use std::str::FromStr;

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

    /// The level of a plugin, if it may be loaded.
    pub(crate) fn judge(&self, sha256: &str) -> Result<Trust, String> {
        let found = (self.attest)(sha256);
        self.level.admit(&found).map(|()| found)
    }
}
