//! `fl.lock`: the plugins that the specs of a folder were checked with, pinned by version and hash.

use crate::document::Document;
use crate::library::Library;
use crate::package::{ANY, compare_versions, meets, platform};
use crate::python_module::UNHASHED;
use crate::sealed_memfd::is_sha256;
use fl_core::abi::raw::FL_VERSION;
use fl_core::regular_file::open_regular;
use fl_core::settings::{Setting, to_yaml};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Its name beside a spec.
pub const LOCK_FILE: &str = "fl.lock";

const HEAD: &str =
    "# Written by `fl lock SPEC`; `fl run SPEC --locked` loads exactly these plugins.\n";

fl_core::settings! {
    /// The plugins of the specs in one folder.
    #[check(one_pin_each)]
    struct LockFile {
        /// A pin for each.
        plugins: Vec<Pin> = Vec::new();
    }
}

fl_core::settings! {
    /// One plugin.
    #[check(whole)]
    pub(crate) struct Pin {
        /// Its package.
        package: Option<String> = None;
        /// The version of the package.
        version: Option<String> = None;
        /// The path of a library, relative to this file.
        path: Option<String> = None;
        /// The name of a module.
        module: Option<String> = None;
        /// The number of the C interface that the library was built for.
        interface: Option<u64> = None;
        /// The hash on each platform.
        hashes: Vec<PlatformHash>;
    }
}

fl_core::settings! {
    /// The hash of a plugin on one platform.
    #[check(hexadecimal)]
    pub(crate) struct PlatformHash {
        /// The platform, such as `linux-x86_64`, or `any` for a module.
        platform: String;
        /// SHA-256 of the library, of the module's sources, or of the package's files.
        sha256: String;
    }
}

fn one_pin_each(file: &LockFile) -> Result<(), String> {
    let mut before: Vec<&Pin> = Vec::new();
    for pin in &file.plugins {
        let same = before.iter().any(|other| other.key() == pin.key());
        let platforms: BTreeSet<&str> = pin.hashes.iter().map(|hash| &hash.platform[..]).collect();
        // a platform of its own and `any` are two hashes for one machine
        let any = platforms.len() > 1 && platforms.contains(ANY);
        let name = pin.name();
        if same {
            return Err(format!("pins `{name}` twice; remove one of them"));
        }
        if platforms.len() < pin.hashes.len() || any {
            return Err(format!(
                "has two hashes of `{name}` for one platform; remove one of them"
            ));
        }
        before.push(pin);
    }
    Ok(())
}

fn hexadecimal(hash: &PlatformHash) -> Result<(), String> {
    is_sha256(&hash.sha256)
}

fn whole(pin: &Pin) -> Result<(), String> {
    if pin.package.is_some() == pin.version.is_some() && pin.key() != Key::default() {
        Ok(())
    } else {
        Err("must have a `package` with its `version`, a `path` or a `module`".into())
    }
}

/// What a spec names: a package, or a path and a module.
#[derive(Default, PartialEq)]
struct Key<'a>(Option<&'a str>, Option<&'a str>, Option<&'a str>);

impl Pin {
    fn key(&self) -> Key<'_> {
        let [package, path, module] = [&self.package, &self.path, &self.module];
        Key(package.as_deref(), path.as_deref(), module.as_deref())
    }

    fn name(&self) -> &str {
        let names = [&self.package, &self.module, &self.path];
        names.into_iter().flatten().next().map_or("", |name| name)
    }
}

/// The content of an `fl.lock`.
#[derive(Clone, Debug, PartialEq)]
pub struct Lock {
    path: PathBuf,
    pins: Vec<Pin>,
}

impl Lock {
    /// Reads the lock file beside the specs in a folder; empty if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or has mistakes.
    pub fn beside(folder: &Path) -> Result<Self, String> {
        let path = folder.join(LOCK_FILE);
        let mut text = Vec::new();
        let most = crate::yaml::MAX_BYTES as u64 + 1;
        let read = open_regular(&path).and_then(|file| file.take(most).read_to_end(&mut text));
        let pins = match read {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
            Ok(_) => {
                let document = Document::parse(&path.display().to_string(), &text);
                let read = document.settings::<LockFile>("a lock file has `plugins`");
                read.map_err(|mistakes| mistakes.to_string())?.0.plugins
            }
        };
        Ok(Self { path, pins })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its text.
    ///
    /// # Errors
    /// When it cannot be written as YAML.
    pub fn yaml(&self) -> fl_core::Result<String> {
        let plugins = self.pins.clone();
        let mut value = LockFile { plugins }.write();
        let pins = value
            .get_mut("plugins")
            .and_then(|all| all.as_sequence_mut());
        for pin in pins
            .into_iter()
            .flatten()
            .filter_map(|pin| pin.as_mapping_mut())
        {
            pin.retain(|_, value| !value.is_null());
        }
        Ok(format!("{HEAD}{}", to_yaml(&value)?))
    }

    /// The pin of what a spec names. `library` is as the spec has it.
    fn of(&self, library: &Library) -> Option<&Pin> {
        let named = self.named(library);
        self.pins.iter().find(|pin| pin.key() == named.key())
    }

    /// A pin that has only the name of a library.
    fn named(&self, library: &Library) -> Pin {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let path = library.path.strip_prefix(folder).unwrap_or(&library.path);
        let path = path.display().to_string();
        let package = library.package.as_ref();
        Pin {
            package: package.map(|package| package.name.clone()),
            version: package.and_then(|package| package.version.clone()),
            path: Some(path).filter(|path| package.is_none() && !path.is_empty()),
            module: library.module.clone().filter(|_| package.is_none()),
            interface: library.interface.map(u64::from),
            hashes: Vec::new(),
        }
    }

    /// Makes `library` the pinned one: its hash, and the version of its package.
    pub(crate) fn pin(&self, library: &mut Library) -> Result<(), String> {
        let file = self.path.display();
        let Some(pin) = self.of(library) else {
            return Err(format!(
                "{file} does not pin it; write that with `fl lock SPEC`"
            ));
        };
        let here = platform();
        let found = pin
            .hashes
            .iter()
            .find(|h| h.platform == here || h.platform == ANY);
        let Some(found) = found else {
            let known: Vec<&str> = pin.hashes.iter().map(|h| &h.platform[..]).collect();
            return Err(format!(
                "{file} pins it for {}, and this is {here}; add that with `fl lock SPEC`",
                known.join(", ")
            ));
        };
        let other = |number: &u64| *number != u64::from(FL_VERSION);
        if let Some(interface) = pin.interface.filter(other) {
            return Err(format!(
                "{file} pins it with interface {interface}, and this program has {FL_VERSION}"
            ));
        }
        if let Some(package) = &mut library.package {
            if let (Some(wanted), Some(pinned)) = (&package.version, &pin.version)
                && !meets(pinned, wanted)
            {
                return Err(format!(
                    "the spec wants version {wanted}, and {file} pins {pinned}; install {wanted} and run `fl lock SPEC`"
                ));
            }
            package.version.clone_from(&pin.version);
        }
        match &library.sha256 {
            Some(wanted) if !wanted.eq_ignore_ascii_case(&found.sha256) => Err(format!(
                "the spec wants sha256 {wanted}, and {file} pins {}",
                found.sha256
            )),
            _ => {
                library.sha256 = Some(found.sha256.clone());
                Ok(())
            }
        }
    }

    /// Pins a library that was loaded. `named` is as the spec has it.
    ///
    /// # Errors
    /// When other bytes of the same version, or a newer version, are pinned; or when the library
    /// cannot be hashed.
    pub fn add(&mut self, named: &Library, loaded: &Library) -> Result<(), String> {
        let platform = loaded.platform.clone().ok_or(UNHASHED)?;
        let mut pin = Pin {
            version: loaded
                .package
                .as_ref()
                .and_then(|package| package.version.clone()),
            interface: loaded.interface.map(u64::from),
            ..self.named(named)
        };
        if let Some(package) = &loaded.package {
            pin.package = Some(package.name.clone());
        }
        let sha256 = loaded.sha256.clone().unwrap_or_default();
        pin.hashes = vec![PlatformHash { platform, sha256 }];
        let old = self.pins.iter().position(|old| old.key() == pin.key());
        let Some(at) = old else {
            self.pins.push(pin);
            self.pins.sort_by(|a, b| a.name().cmp(b.name()));
            return Ok(());
        };
        let old = &self.pins[at];
        let remove = format!(
            "if that is meant, remove the lines of `{}` from {}",
            pin.name(),
            self.path.display()
        );
        let order = match (&old.version, &pin.version) {
            (Some(old), Some(new)) => compare_versions(old, new),
            _ => Ordering::Equal,
        };
        if order == Ordering::Greater {
            return Err(format!(
                "version {} is pinned, and {} would be older; {remove}",
                old.version.clone().unwrap_or_default(),
                pin.version.unwrap_or_default()
            ));
        }
        // a library at a path has no version, and is built again and again
        if order == Ordering::Equal && pin.version.is_some() {
            for hash in &old.hashes {
                let same = pin.hashes.iter().find(|new| new.platform == hash.platform);
                match same {
                    Some(new) if !new.sha256.eq_ignore_ascii_case(&hash.sha256) => {
                        return Err(format!(
                            "version {} is pinned for {} with sha256 {}, and now has {}; {remove}",
                            pin.version.unwrap_or_default(),
                            hash.platform,
                            hash.sha256,
                            new.sha256
                        ));
                    }
                    Some(_) => {}
                    None => pin.hashes.push(hash.clone()),
                }
            }
        }
        pin.hashes.sort_by(|a, b| a.platform.cmp(&b.platform));
        self.pins[at] = pin;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_has_one_pin_and_a_platform_one_hash() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = ("11".repeat(32), "22".repeat(32));
        let pin = |hashes: &[(&str, &str)]| {
            let all: Vec<String> = hashes
                .iter()
                .map(|(platform, sha256)| format!("{{platform: {platform}, sha256: \"{sha256}\"}}"))
                .collect();
            format!("  - {{path: a.so, hashes: [{}]}}\n", all.join(", "))
        };
        let read = |pins: String| {
            std::fs::write(dir.path().join(LOCK_FILE), format!("plugins:\n{pins}")).unwrap();
            Lock::beside(dir.path())
        };
        let linux = pin(&[("linux-x86_64", &one), ("macos-aarch64", &two)]);
        read(linux.clone()).unwrap();
        for (pins, due) in [
            (
                linux.clone() + &pin(&[("linux-x86_64", &two)]),
                "pins `a.so` twice",
            ),
            (
                pin(&[("linux-x86_64", &one), ("linux-x86_64", &two)]),
                "two hashes of `a.so`",
            ),
            (
                pin(&[("any", &one), ("linux-x86_64", &two)]),
                "two hashes of `a.so`",
            ),
        ] {
            let error = read(pins).unwrap_err();
            assert!(error.contains(due), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_file_that_is_a_pipe_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut pipe = std::process::Command::new("mkfifo");
        let made = pipe.arg(dir.path().join(LOCK_FILE)).status().unwrap();
        assert!(made.success());
        let error = Lock::beside(dir.path()).unwrap_err();
        assert!(error.contains("it is no regular file"), "{error}");
    }
}
