//! Loads the file of a library, and finds its one symbol.

use crate::sealed_memfd::says;
use fl_core::abi::{self, raw::FlLibrary};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The library's one symbol.
///
/// On Linux fl loads the sealed copy that it checked and hashed, so no process can put other bytes
/// in its place in between. But the copy is in no folder, so `$ORIGIN` does not lead it to other
/// libraries. On other systems it is opened by its path: a user who may write to its folder could
/// be quick enough.
pub(crate) fn table(mut file: File, path: &Path) -> Result<*const FlLibrary, String> {
    if cfg!(all(target_env = "musl", target_feature = "crt-static")) {
        return Err("this program is static and loads no library; install the wheel, whose `fl` does, or build fl on this machine".into());
    }
    #[cfg(target_os = "linux")]
    let name = {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    };
    #[cfg(not(target_os = "linux"))]
    let name = path.canonicalize().map_err(|e| e.to_string())?;
    // SAFETY: the library's initialisers run, as the user who named it on the command line or in
    // the spec asked for.
    #[allow(unsafe_code, reason = "this is what loading means")]
    let library = abi::during(&format!("plugin {}", path.display()), || unsafe {
        open_now(&name)
    });
    let library = library.map_err(|e| {
        let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
        let why = why.replace(&*name.to_string_lossy(), &path.to_string_lossy());
        let beside = if cfg!(target_os = "linux") && says(&mut file, b"$ORIGIN") { "; it looks for other libraries in its own folder ($ORIGIN), and fl loads a copy that is in no folder: link them into it, or name their folder in LD_LIBRARY_PATH" } else { "" };
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
        Err(_) => Err("it is not a plugin of fl: it has no symbol `fl_plugin`; in Rust, `export_plugins!();` and crate-type \"cdylib\" make it".into()),
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
