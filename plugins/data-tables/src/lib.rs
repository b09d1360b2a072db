#![doc = include_str!("../README.md")]

mod adult;
mod adult_raw;
mod cod_rna;
mod scale;

pub use adult::Adult;
pub use adult_raw::AdultRaw;
pub use cod_rna::CodRna;
pub use scale::Scale;

#[cfg(test)]
mod tests;
