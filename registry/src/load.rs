//! Loads libraries of parts. Nothing is loaded that the command line or the spec does not name, and
//! nothing is unloaded.

use crate::catalogue::Catalogue;
use crate::document::Document;
use crate::library::{Library, PackageRequest, Refusal, other_hash};
use crate::library_file::table;
use crate::lock::Lock;
use crate::package::{Announced, Package, platform};
use crate::python_module;
use crate::sealed_memfd::{copy, hash, open};
use crate::sections::{Isolate, Isolation};
use crate::spec::LEVEL;
use fl_core::PartDecl;
use fl_core::abi::{self, raw::FL_VERSION};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

impl Library {
    /// The library itself: of a package, where it is installed.
    fn located(&self) -> Result<(Self, Option<Package>), Refusal> {
        let Some(wanted) = &self.package else {
            return Ok((self.clone(), None));
        };
        let found = Package::find(&wanted.name, wanted.version.as_deref());
        let found = found.map_err(|text| Refusal::new(&wanted.name, text))?;
        let library = Self {
            path: found.path(),
            module: match &found.plugin {
                Announced::Module(name) => Some(name.clone()),
                Announced::Library(_) => None,
            },
            package: Some(PackageRequest {
                name: found.name.clone(),
                version: Some(found.version.clone()),
            }),
            ..self.clone()
        };
        Ok((library, Some(found)))
    }

    /// Its parts, and the SHA-256 of what they are from.
    fn load(
        &self,
        package: Option<&Package>,
        isolate: Option<&Isolation>,
    ) -> Result<(Vec<&'static PartDecl>, Self), Refusal> {
        let Some(name) = &self.module else {
            let path = self.path.canonicalize();
            let loaded = load_hashed(self, isolate)?;
            let found = Self {
                path: path.unwrap_or_else(|_| self.path.clone()),
                sha256: Some(loaded.hash),
                platform: Some(platform()),
                interface: loaded.interface,
                isolated: loaded.isolate,
                ..self.clone()
            };
            return Ok((loaded.parts, found));
        };
        let isolated = |isolate: &Isolation| matches!(isolate, Isolation::On(_));
        let isolated = self.isolate.as_ref().or(isolate).is_some_and(isolated);
        python_module::load(self, name, package, isolated)
    }

    /// The limits of its processes; `None` loads it into this one. A spec can ask for less than the
    /// default; who runs the program can ask for more, and a spec does not change that.
    pub(crate) fn isolation(&self, asked: Option<&Isolation>, can: bool) -> Option<Isolate> {
        match (&self.isolate, asked) {
            (Some(Isolation::On(isolate)), Some(Isolation::On(_))) => {
                Some(isolate.held_to(&self.folder))
            }
            (Some(Isolation::On(isolate)), _) | (_, Some(Isolation::On(isolate))) => {
                Some(isolate.clone())
            }
            (Some(Isolation::Off), _) | (_, Some(Isolation::Off)) => None,
            (None, None) => can.then(fl_core::settings::defaults),
        }
    }
}

/// A library that is loaded: it stays for ever.
#[derive(Clone)]
struct LoadedLibrary {
    hash: String,
    path: PathBuf,
    isolate: Option<Isolate>,
    parts: Vec<&'static PartDecl>,
    interface: Option<u32>,
}

impl Catalogue {
    /// The same parts; libraries that are still to be loaded get processes of their own, or none,
    /// unless a spec asks for them.
    pub fn isolating(mut self, isolate: Isolation) -> Self {
        self.isolate = Some(isolate);
        self
    }

    /// The same parts; a spec that names libraries is that of this folder, wherever it lies.
    pub fn of_specs_in(mut self, folder: Option<PathBuf>) -> Self {
        self.folder = folder;
        self
    }

    /// The same parts, for specs of other users: every library that such a spec names gets
    /// processes of its own, with the default limits, whatever the spec and its index say; none if
    /// [`Catalogue::isolating`] turned that off. A module of Python cannot have that: it is refused
    /// without `modules`.
    pub fn for_foreign_specs(mut self, modules: bool) -> Self {
        let default = || Isolation::On(fl_core::settings::defaults());
        self.isolate.get_or_insert_with(default);
        self.foreign = Some(modules);
        self
    }

    /// What the command line says of processes for libraries, if anything.
    pub(crate) fn isolates(&self) -> Option<bool> {
        let isolate = self.isolate.as_ref()?;
        Some(matches!(isolate, Isolation::On(_)))
    }

    /// The libraries that were loaded, in the order of loading.
    pub fn libraries(&self) -> &[Library] {
        &self.libraries
    }

    /// The same parts; libraries that a spec names must be those that `lock` pins.
    pub fn locked(mut self, lock: Lock) -> Self {
        self.lock = Some(lock);
        self
    }

    /// These parts and those of `libraries`. A library that is named twice is loaded once.
    ///
    /// # Errors
    /// Names the first library that cannot be used, or that brings a part which is already there.
    pub fn with(&self, libraries: &[Library]) -> Result<Self, Refusal> {
        let (mut all, linked) = (self.clone(), fl_core::linked_parts());
        let of = |list: &[&PartDecl], p: &PartDecl| list.iter().any(|q| std::ptr::eq(*q, p));
        for library in libraries {
            let (mut library, package) = library.located()?;
            if let Some(folder) = &all.folder {
                library.folder.clone_from(folder);
            }
            if let Some(modules) = all.foreign {
                let trusted = modules && library.module.is_some();
                library.isolate = trusted.then_some(Isolation::Off);
            }
            let library = &library;
            let path = library.path.canonicalize();
            let path = path.unwrap_or_else(|_| library.path.clone());
            let here = |l: &Library| l.path == path && l.module == library.module;
            let known = all.libraries.iter().any(here);
            // the user must not believe that it is isolated
            if let Some(Isolation::On(isolate)) = &library.isolate
                && all.isolate.is_none()
            {
                let mut loaded = all.libraries.iter().filter(|l| here(l));
                if loaded.any(|l| l.isolated.as_ref() != Some(isolate)) {
                    return Err(Refusal::new(
                        &library.path,
                        "--plugin loaded it without the isolation that the spec asks for: leave --plugin out, or add --isolate",
                    ));
                }
            }
            // a second mention may still ask for a hash
            if known && library.sha256.is_none() {
                continue;
            }
            let (loaded, mut found) = library.load(package.as_ref(), all.isolate.as_ref())?;
            if library.replaces {
                let given = |p: &&&'static PartDecl| {
                    let same = |part: &&PartDecl| (part.role, part.name) == (p.role, p.name);
                    loaded.iter().any(|part| same(part) && !part.brought)
                };
                let replaced = linked.iter().filter(given);
                found.replaced = replaced.map(|p| (p.role, p.name)).collect();
            }
            if known || all.libraries.contains(&found) {
                continue;
            }
            // a run that goes on, or is repeated, is to have the same
            let stays = |p: &&'static PartDecl| {
                !of(&linked, p) || !found.replaced.contains(&(p.role, p.name))
            };
            all.parts.retain(stays);
            all.libraries.push(found);
            for part in loaded {
                let name = |p: &PartDecl| (p.role, p.name) == (part.role, part.name);
                // what a spec's module has comes before what a host that has Python happens to know
                let stays = |p: &&'static PartDecl| {
                    !name(p) || library.module.is_none() || of(&linked, p) || of(&all.loaded, p)
                };
                all.parts.retain(stays);
                let other = all.parts.iter().copied().find(|p| name(p));
                let one = |other: &PartDecl| part.package == other.package;
                match other.filter(|other| one(other)) {
                    Some(_) if part.brought => continue,
                    Some(other) if other.brought => {
                        all.parts.retain(|p| !std::ptr::eq(*p, other));
                        all.loaded.retain(|p| !std::ptr::eq(*p, other));
                    }
                    _ => {}
                }
                if let Some(other) = all.parts.iter().find(|p| name(p)) {
                    let key = "; to take that of the library for the whole run, name the library under `plugins` with `replaces: linked`";
                    let key = if of(&linked, other) { key } else { "" };
                    let text = format!(
                        "two parts are called {} `{}`: one from {}, one from {}{key}",
                        part.role, part.name, other.origin, part.origin
                    );
                    return Err(Refusal::new(library.named(), text));
                }
                all.loaded.push(part);
                all.parts.push(part);
            }
        }
        all.parts.sort_by_key(|p| (p.role, p.name));
        Ok(all)
    }
}

impl Catalogue {
    /// These parts and those of the libraries that a spec names. Paths are relative to the spec.
    /// [`Document::read`] reports what is wrong with the rest of the spec.
    ///
    /// # Errors
    /// As [`Catalogue::with`]; the refusal has its place in the spec.
    pub fn with_plugins(&self, spec: &Document) -> Result<Self, Refusal> {
        let mut all = self.clone();
        if spec.has(LEVEL) {
            // it asks for a guard that fl does not have, so nothing is loaded
            return Ok(all);
        }
        if let (Some(library), Some(_)) = (self.libraries.first(), &self.lock) {
            return Err(Refusal::new(
                &library.path,
                "--locked loads the plugins that the spec names, and this one is from --plugin: name it under `plugins`",
            ));
        }
        for (place, mut library) in spec.plugins() {
            let pinned = self
                .lock
                .as_ref()
                .map_or(Ok(()), |lock| lock.pin(&mut library));
            let pinned = pinned.map_err(|text| Refusal::new(library.named(), text));
            let loaded = pinned.and_then(|()| all.with(&[library]));
            all = loaded.map_err(|refusal| Refusal {
                place: Some(place),
                ..refusal
            })?;
        }
        Ok(all)
    }
}

/// Loads one library and lists its parts.
///
/// # Errors
/// Says what is wrong with the file or with what it describes.
pub fn load(library: &Library) -> Result<Vec<&'static PartDecl>, Refusal> {
    let loaded = load_hashed(library, None);
    loaded.map(|loaded| loaded.parts)
}

fn load_hashed(library: &Library, asked: Option<&Isolation>) -> Result<LoadedLibrary, Refusal> {
    let refused = |text: String| Refusal::new(&library.path, text);
    // with a hash it does not matter who could have written the bytes
    let mut file = open(&library.path, library.sha256.is_some()).map_err(refused)?;
    let unread = |e: std::io::Error| refused(format!("it cannot be read: {e}"));
    // what is hashed and looked at here is what is loaded, whatever becomes of the file
    let mut file = copy(&mut file).map_err(unread)?;
    let hash = hash(&mut file).map_err(unread)?;
    if let Some(wanted) = &library.sha256
        && !hash.eq_ignore_ascii_case(wanted)
    {
        return Err(refused(other_hash(&hash, wanted)));
    }
    #[cfg(unix)]
    let can = crate::isolate::can();
    #[cfg(not(unix))]
    let can = false;
    let isolate = library.isolation(asked, can);
    // a study names a library for each of its runs
    static LOADED: Mutex<Vec<LoadedLibrary>> = Mutex::new(Vec::new());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let same =
        |l: &&LoadedLibrary| (&l.hash, &l.path, &l.isolate) == (&hash, &library.path, &isolate);
    if let Some(known) = loaded.iter().find(same) {
        return Ok(known.clone());
    }
    let mut keep = |parts: Vec<&'static PartDecl>| {
        let new = LoadedLibrary {
            hash: hash.clone(),
            path: library.path.clone(),
            isolate: isolate.clone(),
            parts,
            // a library built for another version is not loaded
            interface: Some(FL_VERSION),
        };
        loaded.push(new.clone());
        new
    };
    if cfg!(target_os = "linux")
        && let Some(why) = crate::elf::obstacle(&mut file).map_err(unread)?
    {
        return Err(refused(why));
    }
    #[cfg(unix)]
    if let Some(isolate) = &isolate {
        let isolated = crate::isolate::import(file, &library.path, isolate);
        return Ok(keep(isolated.map_err(refused)?));
    }
    #[cfg(not(unix))]
    if isolate.is_some() {
        return Err(refused("libraries can be isolated on Linux only".into()));
    }
    if let Some(before) = BEFORE.get() {
        before();
    }
    let table = table(file, &library.path).map_err(refused)?;
    // SAFETY: the symbol is at least 16 bytes that the library maps; `import` looks at these first.
    // The library stays.
    #[allow(unsafe_code, reason = "the address of a library's symbol")]
    let parts = unsafe { abi::import(table, &library.path.display().to_string()) };
    Ok(keep(parts.map_err(|e| refused(e.to_string()))?))
}

static BEFORE: OnceLock<fn()> = OnceLock::new();

/// Does this each time before a library is loaded into this process. The first call counts.
pub fn before_loading(what: fn()) {
    let _ = BEFORE.set(what);
}
