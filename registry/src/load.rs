//! Loads libraries of parts. Nothing is loaded that the command line or the spec does not name, and nothing is unloaded.

use crate::catalogue::Catalogue;
use crate::document::Document;
use crate::python_module;
use crate::sealed_memfd::{copy, hash, open, says};
use crate::sections::{Isolate, Plugin};
use fl_core::PartDecl;
use fl_core::abi::{self, raw::FlLibrary};
use fl_core::settings::{Setting, Value};
use std::fmt::{Display, Formatter};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A library, or a module of Python, that somebody named.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    /// Where it is; of a module, the folder in which it is looked for.
    pub path: PathBuf,
    /// The module's name.
    pub module: Option<String>,
    /// The SHA-256 that it must have, in hexadecimal.
    pub sha256: Option<String>,
    /// Has it processes of its own?
    pub isolate: Option<Isolate>,
}

impl Library {
    /// Whatever is at this place; a file that ends in `.py` is a module.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let python = path.extension().is_some_and(|ending| ending == "py");
        let module = path.file_stem().filter(|_| python);
        let module = module.map(|name| name.to_string_lossy().into_owned());
        Self {
            path: match (&module, path.parent()) {
                (Some(_), Some(folder)) => folder.into(),
                _ => path,
            },
            module,
            sha256: None,
            isolate: None,
        }
    }

    /// As it stands in a spec.
    pub(crate) fn write(&self) -> Value {
        let plugin = Plugin {
            path: Some(self.path.display().to_string()),
            module: self.module.clone(),
            sha256: self.sha256.clone(),
            isolate: self.isolate.clone(),
        };
        plugin.write()
    }

    /// Its parts, and the SHA-256 of what they are from.
    fn load(&self, isolate: Option<&Isolate>) -> Result<(Vec<&'static PartDecl>, Self), Refusal> {
        let isolate = self.isolate.as_ref().or(isolate);
        let Some(name) = &self.module else {
            let path = self.path.canonicalize();
            let (parts, hash) = load_hashed(self, isolate)?;
            let found = Self {
                path: path.unwrap_or_else(|_| self.path.clone()),
                module: None,
                sha256: Some(hash),
                isolate: self.isolate.clone(),
            };
            return Ok((parts, found));
        };
        python_module::load(self, name, isolate.is_some())
    }
}

pub(crate) fn other_hash(found: &str, wanted: &str) -> String {
    format!("its sha256 is {found}, and the spec wants {wanted}")
}

impl Display for Library {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.module {
            Some(name) => write!(f, "module {name} in {}", self.path.display()),
            None => write!(f, "{}", self.path.display()),
        }
    }
}

/// A library that is loaded: it stays for ever.
struct Loaded {
    hash: String,
    path: PathBuf,
    isolate: Option<Isolate>,
    parts: Vec<&'static PartDecl>,
}

/// A library that was not used, and why.
#[derive(Debug)]
pub struct Refusal {
    /// Where it is named, if that is in a spec: `mine.yaml:3:11  plugins[0].path`.
    pub place: Option<String>,
    /// The library.
    pub path: PathBuf,
    /// The reason.
    pub text: String,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "plugin {}: {}", self.path.display(), self.text)
    }
}

impl std::error::Error for Refusal {}

impl Catalogue {
    /// The same parts; libraries that are still to be loaded get processes of their own, as `isolate` says or as they say
    /// themselves.
    pub fn isolating(mut self, isolate: Isolate) -> Self {
        self.isolate = Some(isolate);
        self
    }

    /// These parts and those of `libraries`. A library that is named twice is loaded once.
    ///
    /// # Errors
    /// Names the first library that cannot be used, or that brings a part which is already there.
    pub fn with(&self, libraries: &[Library]) -> Result<Self, Refusal> {
        let (mut all, linked) = (self.clone(), fl_core::linked_parts());
        for library in libraries {
            let path = library.path.canonicalize();
            let path = path.unwrap_or_else(|_| library.path.clone());
            let here = |l: &Library| l.path == path && l.module == library.module;
            let known = all.libraries.iter().any(here);
            // nobody is to believe that it is kept apart
            if known && library.isolate.is_some() && all.isolate.is_none() {
                let loaded = all.libraries.iter().find(|l| here(l));
                if loaded.is_some_and(|l| l.isolate != library.isolate) {
                    return Err(Refusal {
                        place: None,
                        path: library.path.clone(),
                        text: "--plugin loaded it without the isolation that the spec asks for: leave --plugin out, or add --isolate".into(),
                    });
                }
            }
            // a second mention may still ask for a hash
            if known && library.sha256.is_none() {
                continue;
            }
            let (loaded, found) = library.load(all.isolate.as_ref())?;
            if known || all.libraries.contains(&found) {
                continue;
            }
            // a run that goes on, or is repeated, is to have the same
            all.libraries.push(found);
            for part in loaded {
                let name = |p: &PartDecl| (p.role, p.name) == (part.role, part.name);
                // what a spec's module has comes before what a host that has Python happens to know
                let of = |list: &[&PartDecl], p| list.iter().any(|q| std::ptr::eq(*q, p));
                let stays = |p: &&'static PartDecl| {
                    !name(p) || library.module.is_none() || of(&linked, *p) || of(&all.loaded, *p)
                };
                all.parts.retain(stays);
                if let Some(other) = all.parts.iter().find(|p| name(p)) {
                    return Err(Refusal {
                        place: None,
                        path: match &library.module {
                            Some(name) => name.into(),
                            None => library.path.clone(),
                        },
                        text: format!(
                            "two parts are called {} `{}`: one from {}, one from {}",
                            part.role, part.name, other.origin, part.origin
                        ),
                    });
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
        for (place, library) in spec.plugins() {
            all = all.with(&[library]).map_err(|refusal| Refusal {
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
    load_hashed(library, library.isolate.as_ref()).map(|(parts, _)| parts)
}

/// Its parts, and the SHA-256 of the file that they are from.
fn load_hashed(
    library: &Library,
    isolate: Option<&Isolate>,
) -> Result<(Vec<&'static PartDecl>, String), Refusal> {
    let refused = |text: String| Refusal {
        place: None,
        path: library.path.clone(),
        text,
    };
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
    // a study names a library for each of its runs
    static LOADED: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let same =
        |l: &&Loaded| (&l.hash, &l.path, l.isolate.as_ref()) == (&hash, &library.path, isolate);
    if let Some(known) = loaded.iter().find(same) {
        return Ok((known.parts.clone(), hash));
    }
    let mut keep = |parts: &Vec<&'static PartDecl>| {
        loaded.push(Loaded {
            hash: hash.clone(),
            path: library.path.clone(),
            isolate: isolate.cloned(),
            parts: parts.clone(),
        });
    };
    if cfg!(target_os = "linux")
        && let Some(why) = crate::elf::obstacle(&mut file).map_err(unread)?
    {
        return Err(refused(why));
    }
    #[cfg(unix)]
    if let Some(isolate) = isolate {
        let parts = crate::isolate::import(file, &library.path, isolate).map_err(refused)?;
        keep(&parts);
        return Ok((parts, hash));
    }
    #[cfg(not(unix))]
    if isolate.is_some() {
        return Err(refused("libraries can be isolated on Linux only".into()));
    }
    if let Some(before) = BEFORE.get() {
        before();
    }
    let table = table(file, &library.path).map_err(refused)?;
    // SAFETY: the symbol is at least 16 bytes that the library maps; `import` looks at these first. The library stays.
    #[allow(unsafe_code, reason = "the address of a library's symbol")]
    let parts = unsafe { abi::import(table, &library.path.display().to_string()) };
    let parts = parts.map_err(|e| refused(e.to_string()))?;
    keep(&parts);
    Ok((parts, hash))
}

static BEFORE: OnceLock<fn()> = OnceLock::new();

/// Does this each time before a library is loaded into this process. The first call counts.
pub fn before_loading(what: fn()) {
    let _ = BEFORE.set(what);
}

/// The library's one symbol.
///
/// On Linux what is loaded is the sealed copy that was looked at and hashed, so nobody can put other bytes in its place in
/// between; but it stands nowhere, so that `$ORIGIN` does not lead it to other libraries. Elsewhere it is opened by its path: whoever may write to its folder could be quick enough.
pub(crate) fn table(mut file: File, path: &Path) -> Result<*const FlLibrary, String> {
    #[cfg(target_os = "linux")]
    let name = {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    };
    #[cfg(not(target_os = "linux"))]
    let name = path.canonicalize().map_err(|e| e.to_string())?;
    // SAFETY: the library's initialisers run, as whoever named it on the command line or in the spec wants.
    #[allow(unsafe_code, reason = "this is what loading means")]
    let library = abi::during(&format!("plugin {}", path.display()), || unsafe {
        open_now(&name)
    });
    let library = library.map_err(|e| {
        let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
        let why = why.replace(&*name.to_string_lossy(), &path.to_string_lossy());
        let beside = match cfg!(target_os = "linux") && says(&mut file, b"$ORIGIN") {
            true => "; it looks for other libraries beside itself ($ORIGIN), and is loaded from a copy that stands nowhere: link them into it, or name their folder in LD_LIBRARY_PATH",
            false => "",
        };
        format!("the system cannot load it: {why}{beside}")
    })?;
    // the loader knows libraries by their names: this one must not be given to another file
    std::mem::forget(file);
    // never unloaded: its parts, and maybe its threads, live as long as the program
    let library = std::mem::ManuallyDrop::new(library);
    // SAFETY: only the address is taken here; what is there is found out from its first bytes.
    #[allow(unsafe_code, reason = "a symbol has no type")]
    let symbol = unsafe { library.get::<*const FlLibrary>(b"fl_plugin\0") };
    match symbol {
        Ok(symbol) => {
            // SAFETY: the address outlives the symbol, because the library is never unloaded.
            #[allow(unsafe_code, reason = "a symbol has no type")]
            let address = unsafe { symbol.try_as_raw_ptr() };
            let address = address.filter(|a| !a.is_null());
            address
                .map(|a| a.cast_const().cast())
                .ok_or_else(|| "its symbol `fl_plugin` has no address".into())
        }
        Err(_) => Err("it is no fl plugin: it has no symbol `fl_plugin`; in Rust, `export_plugins!();` and crate-type \"cdylib\" make it".into()),
    }
}

/// # Safety
/// As `dlopen`.
#[cfg(unix)]
#[allow(unsafe_code, reason = "this is what loading means")]
unsafe fn open_now(name: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: as the caller says.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

/// # Safety
/// As `LoadLibrary`.
#[cfg(not(unix))]
#[allow(unsafe_code, reason = "this is what loading means")]
unsafe fn open_now(name: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: as the caller says.
    unsafe { libloading::Library::new(name) }
}
