#![doc = include_str!("../README.md")]

pub mod cifar;
mod idx_pair;
mod sets;

pub use sets::{Cifar10, Cifar100, FashionMnist, Mnist, PneumoniaMnist};

#[cfg(test)]
mod tests;
