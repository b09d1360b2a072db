#![doc = include_str!("../README.md")]

mod gradient;
mod inversion;
mod likeness;
mod membership;
mod minimise;
mod shadows;

pub use fl_plugin_fediod::frechet;
pub use gradient::{Seen, read_off, search};
pub use inversion::inversion;
pub use likeness::{Likeness, class_means, likeness, ranges};
pub use membership::{Strength, bound, lira, losses, margins, strength};
pub use minimise::{Found, Search};
pub use shadows::Halves;
