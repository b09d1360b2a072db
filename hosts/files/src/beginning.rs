//! [`beginning`]: what a file that may be replaced begins with.

use fl_core::regular_file::open_regular;
use std::io::Read;
use std::path::Path;

/// Returns the first bytes of a regular file, `most` of them or all if it has fewer; no bytes if
/// there is no such file, or it cannot be read.
pub fn beginning(path: &Path, most: usize) -> Vec<u8> {
    let mut first = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(most as u64).read_to_end(&mut first));
    read.map_or(Vec::new(), |_| first)
}
