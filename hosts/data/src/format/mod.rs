//! Readers of the published file formats. Each takes the bytes of one file and says, when they are wrong, at
//! which byte, line or record, what was found and what would be right; the caller adds the file's name.

pub mod cifar;
pub mod csv;
pub mod idx;
pub mod libsvm;
pub mod npy;
