//! Lines of a file that only grows, each with the hash of the line before.
//!
//! A line is a hash in hexadecimal, a space, and JSON. The hash is that of the hash before and of
//! the JSON, so that no byte can change unnoticed before the last line.

use fl_core::hex;
use sha2::{Digest, Sha256};

/// The hash of a line and of all before it; zeros before the first.
pub type ChainHash = [u8; 32];

/// Returns the line with this JSON after a line with the hash `before`, and its hash.
pub fn chained_line(before: &ChainHash, json: &[u8]) -> (ChainHash, Vec<u8>) {
    let hash = Sha256::new().chain_update(before).chain_update(json);
    let hash: ChainHash = hash.finalize().into();
    let line = [hex(&hash).as_bytes(), b" ", json, b"\n"].concat();
    (hash, line)
}

/// Reads a line: its hash and its JSON; `None` if it does not follow a line with the hash `before`.
pub fn read_chained<'l>(before: &ChainHash, line: &'l [u8]) -> Option<(ChainHash, &'l [u8])> {
    let (_, json) = line.strip_suffix(b"\n")?.split_at_checked(64)?;
    let json = json.strip_prefix(b" ")?;
    let (hash, same) = chained_line(before, json);
    (same == line).then_some((hash, json))
}
