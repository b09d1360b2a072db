#![doc = include_str!("../README.md")]

mod cuda;
mod settings;
mod trainer;

pub use cuda::{CardReport, Device, cards};
pub use fl_nets::net::{LayerOutline, Outline, outline};
pub use settings::DfdxSettings;
pub use trainer::Dfdx;

fl_core::plugin!(trainer "dfdx" => DfdxSettings as Dfdx);
