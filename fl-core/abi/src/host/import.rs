//! From a library's table to parts: magic, version and size first.

use super::declare::declare;
use super::describe;
use super::part_handle::{Functions, Table};
use crate::library::{PartLibrary, table};
use crate::marshal::{SHORTEST_TABLE, of_size};
use crate::raw::{FL_MAGIC, FL_VERSION, FlLibrary};
use fl_roles::PartDecl;

const TABLE: usize = size_of::<FlLibrary>();

/// Why a library is not used.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum Refused {
    /// Its table does not begin as one.
    #[error("it is not a plugin of fl: its `fl_plugin` does not begin with the mark of one")]
    Magic,
    /// It was built for another interface.
    #[error("{}", other_version(*.0))]
    Version(u32),
    /// Its table is shorter or longer than that of this interface.
    #[error(
        "its table has {0} bytes where interface {FL_VERSION} has {TABLE}: rebuild it with the current fl_plugin.h or fl-core"
    )]
    Size(u32),
    /// A function is missing.
    #[error("its table has no `{0}`")]
    Missing(&'static str),
    /// Its description has a mistake.
    #[error("{0}")]
    Description(String),
}

fn other_version(found: u32) -> String {
    let what = if found < FL_VERSION {
        "older: rebuild the library with the current fl_plugin.h or fl-core"
    } else {
        "newer: use a newer fl, or rebuild the library with the fl_plugin.h or fl-core of this one"
    };
    format!("it has interface {found}, this program has {FL_VERSION}; the library is {what}")
}

/// This program's own parts as they would come out of a library: everything crosses the C
/// interface, but nothing is loaded. For tests.
pub fn import_linked(origin: &'static str) -> Vec<&'static PartDecl> {
    let Ok(functions) = Table::of(crate::library()) else {
        return Vec::new();
    };
    let linked = fl_roles::linked_parts().into_iter().enumerate();
    linked
        .filter_map(|(index, part)| {
            let (role, about) = (part.role, (part.describe)());
            if crate::signature::obstacle(role, &about.signature).is_some() {
                return None;
            }
            let part = describe::Described {
                role,
                name: part.name.into(),
                about,
                index: None,
                aliases: part.aliases.to_vec(),
                papers: part.papers.to_vec(),
                package: part.package,
                brought: part.brought,
            };
            Some(declare(functions, index as u32, part, origin, false))
        })
        .collect()
}

/// The parts of a library of this program whose parts are not Rust's: their answers pass the same
/// checks as those of a loaded one. `origin` is what users see as the place that they come from.
///
/// # Errors
/// Says why the library cannot be used.
pub fn import_library<L: PartLibrary>(origin: &str) -> Result<Vec<&'static PartDecl>, Refused> {
    declared(
        Table::of(&table::<L>()).map_err(Refused::Missing)?,
        origin,
        false,
    )
}

/// The parts of a library. `origin` is what users see as the place they come from.
///
/// Nothing ever frees the parts, and nothing may unload the library.
///
/// # Errors
/// Says why the library cannot be used; nothing of it is called before its magic number, version
/// and size are known.
///
/// # Safety
/// `table` is the address of the library's symbol `fl_plugin`, readable for at least 16 bytes, and
/// what follows is a table as its first 16 bytes say; it stays valid for ever.
pub unsafe fn import(
    table: *const FlLibrary,
    origin: &str,
) -> Result<Vec<&'static PartDecl>, Refused> {
    // SAFETY: as the caller says.
    declared(unsafe { checked_table(table) }?, origin, false)
}

/// The parts of a library that is in processes of its own; `confined` says whether these can read
/// no file of the user's.
///
/// # Errors
/// Says why the library cannot be used.
#[cfg(unix)]
pub fn import_isolated(
    library: crate::IsolatedLibrary,
    origin: &str,
    confined: bool,
) -> Result<Vec<&'static PartDecl>, Refused> {
    declared(Box::leak(Box::new(library)), origin, confined)
}

fn declared(
    functions: Functions,
    origin: &str,
    confined: bool,
) -> Result<Vec<&'static PartDecl>, Refused> {
    let refused = |e: anyhow::Error| Refused::Description(format!("{e:#}"));
    let text = functions.describe().map_err(refused)?;
    let origin: &'static str = origin.to_string().leak();
    let parts = describe::read(&text, origin, functions).map_err(refused)?;
    Ok(parts
        .into_iter()
        .enumerate()
        .map(|(at, part)| {
            let index = part.index.unwrap_or(at as u32);
            declare(functions, index, part, origin, confined)
        })
        .collect())
}

/// The functions of a table, if it is one of this interface.
///
/// # Safety
/// As [`import`].
pub(crate) unsafe fn checked_table(table: *const FlLibrary) -> Result<Functions, Refused> {
    if table.is_null() || !table.is_aligned() {
        return Err(Refused::Magic);
    }
    // SAFETY: the first 16 bytes are readable, as the caller says, and the pointer is aligned.
    let (magic, version, size) = unsafe {
        (
            (&raw const (*table).magic).read(),
            (&raw const (*table).version).read(),
            (&raw const (*table).size).read(),
        )
    };
    if magic != FL_MAGIC {
        return Err(Refused::Magic);
    }
    if version != FL_VERSION {
        return Err(Refused::Version(version));
    }
    if !(SHORTEST_TABLE..=TABLE).contains(&(size as usize)) {
        return Err(Refused::Size(size));
    }
    // SAFETY: magic and version are those of such a table, which has as many bytes as it says; its
    // functions stay for ever.
    let table = unsafe { of_size(table, size as usize) };
    Table::of(&table).map_err(Refused::Missing)
}
