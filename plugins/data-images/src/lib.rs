#![doc = include_str!("../README.md")]

pub mod cifar;
mod cifar10;
mod cifar100;
mod fashion_mnist;
mod idx_pair;
mod mnist;
mod pneumoniamnist;

pub use cifar10::Cifar10;
pub use cifar100::Cifar100;
pub use fashion_mnist::FashionMnist;
pub use mnist::Mnist;
pub use pneumoniamnist::PneumoniaMnist;

#[cfg(test)]
mod tests;
