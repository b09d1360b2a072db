#![doc = include_str!("../README.md")]

mod ag_news;
mod sst2;

pub use ag_news::AgNews;
pub use sst2::Sst2;

#[cfg(test)]
mod tests;
