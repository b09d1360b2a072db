#![doc = include_str!("../README.md")]

pub use fl_abi::export_plugins;
pub use fl_roles::*;

/// The C interface: how a part comes out of a library that the program loads at run time. See the
/// crate [`fl_abi`].
pub mod abi {
    #[doc(inline)]
    pub use fl_abi::*;

    /// The C header of this interface, `fl_plugin.h`.
    pub const HEADER: &str = include_str!("../include/fl_plugin.h");
}

/// What nearly every part needs.
pub mod prelude {
    pub use crate::export_plugins;
    pub use fl_roles::prelude::*;
}
